#pragma once
// Takes spool files into the database.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/usage/database.h"
#include "analyzer/usage/internal/collected_files.h"
#include "analyzer/usage/internal/process_row.h"
#include "analyzer/usage/internal/session_rows.h"
#include "analyzer/usage/internal/writer.h"
#include "analyzer/usage/spool_file.h"

namespace varve::usage {

// One collect(). Files are taken in batches: a batch is one transaction, so what was read of a file and the note of how
// far go in together.
class Collector {
 public:
  Collector(Writer& writer, const CollectOptions& options) : writer_(writer), options_(options) {}
  CollectResult collect(const std::vector<std::filesystem::path>& spools, const CancelFlag& cancel);

 private:
  struct Violation {
    std::uint64_t place = 0;
    std::string reason;
  };
  // What a file has beyond what was read before.
  struct SpoolRecords {
    std::uint64_t end = 0;  // of the last whole line
    std::vector<SpoolRecord> records;
    std::vector<Violation> bad_lines;
    Bytes head, tail;  // prints of the file up to `end`
  };
  // What a node sent of one file: some whole lines.
  struct SentPart {
    std::int64_t id = 0;
    std::string node;
    Bytes session_key, process_key;
    std::string start;  // the file's first line
    std::uint64_t first_byte = 0;
    Bytes content;
    std::optional<std::uint32_t> user;  // limited_user() there
    Bytes before, after;                // head and tail prints of the file up to `content`, and up to its end
  };

  void take_file(const FoundSpool& found, CollectResult& result);
  void take_records(const std::filesystem::path& path, const StartRecord& start, ProcessRow& process,
                    const SpoolRecords& records, CollectResult& result);
  // Of limited_user(), on that node; another one each day, so that nobody is followed.
  std::string hash_of_user(std::optional<std::uint32_t> user, const std::string& node, std::int64_t day);
  // Whether a new session is one of more than its user may add to those of its day.
  bool is_surplus(const ProcessRow& process);
  // Why no more of this file is taken in; "" if it is.
  std::string refusal(const StartRecord& start, const ProcessRow& process) const;
  // intake.cpp: what nodes sent, which is removed from there in the same transaction.
  void take_intake(CollectResult& total, const CancelFlag& cancel);
  void take_part(const SentPart& part, CollectResult& result);
  bool told_by_another(const ProcessRow& process, const std::string& node);
  bool session_is_gone(const ProcessRow& process);
  // Returns how many rows were too many for one session.
  std::uint64_t take_records(const StartRecord& start, ProcessRow& process, const std::vector<SpoolRecord>& records);
  void apply_start(const StartRecord& start, SessionRow& session, SessionRows& rows);
  // What a file has many of, at once.
  void intern_names(const std::vector<SpoolRecord>& records, bool keep_paths);
  void apply_records(const std::vector<SpoolRecord>& records, SessionRow& session, SessionRows& rows);
  void apply_import(const ImportRecord& import, SessionRows& rows);
  void apply_install(const InstallRecord& install, SessionRows& rows);
  void apply_file(const FileRecord& file, const ImageResolver& image, SessionRows& rows);
  void quarantine(const std::filesystem::path& file, const Bytes& file_key, const Violation& violation,
                  CollectResult& result);
  // Runs what reads the file; where that fails, the file goes into quarantine.
  template <typename Work>
  bool reads(const FoundSpool& found, CollectResult& result, Work&& work);
  void note_taken(const FoundSpool& found, const SpoolFile& file, std::uint64_t read_bytes, bool ended);
  void remove_collected(const std::vector<std::filesystem::path>& spools, CollectResult& result);

  Writer& writer_;
  const CollectOptions& options_;
  std::int32_t today_ = 0;
  std::int32_t refused_through_ = 0;  // sessions of this day and before are not taken in any more
  std::uint64_t batch_records_ = 0;
  std::uint64_t new_sessions_ = 0, new_surplus_ = 0;
  std::string subuid_;
  std::map<std::int64_t, std::string> failed_;  // of the file at hand
  CollectedFiles taken_, taken_of_batch_;
};

}  // namespace varve::usage
