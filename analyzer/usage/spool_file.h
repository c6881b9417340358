#pragma once
// Spool files as they lie on disk: found in folders, told apart by their first record, read on from where they were
// left.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/usage/spool.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/files/unique_fd.h"

namespace varve::usage {

inline constexpr std::uint64_t kMaxReadSpoolBytes = 4 * kMaxSpoolFileBytes;
// A process writes every minute; one that was silent for so long was killed.
inline constexpr std::int64_t kAbandonedSeconds = 86'400;

struct FoundSpool {
  std::filesystem::path path;
  std::string folder_session;      // the session that its folder belongs to; "" for files of the spool's own folder
  std::uint32_t folder_owner = 0;  // user id; of a session's folder only
};

// The spool files among these files and folders, without those named twice: `*.jsonl` of each folder, and of its
// folders named after a session (32 hexadecimal digits). Symbolic links are not followed. Throws NotFound where one of
// `spools` is not there. By path.
std::vector<FoundSpool> find_spools(const std::vector<std::filesystem::path>& spools);

// One open spool file; its size is fixed when it is opened. Throws CorruptData, never quoting content, where it cannot
// be a spool, and std::system_error where it cannot be read.
class SpoolFile {
 public:
  // Bytes that are compared to see whether a file is still the one that was read before.
  static constexpr std::uint64_t kPrintBytes = 4096;

  explicit SpoolFile(const std::filesystem::path& path);

  std::uint64_t size() const { return size_; }
  // Seconds since 1970 of the last write.
  std::int64_t modified() const { return modified_; }
  std::uint32_t owner() const { return owner_; }  // user id
  // Absent while its first line is not whole yet.
  const std::optional<StartRecord>& start() const { return start_; }

  // Digests over the first and the last kPrintBytes of the first `read_bytes`.
  Bytes head_fingerprint(std::uint64_t read_bytes) const;
  Bytes tail_fingerprint(std::uint64_t read_bytes) const;

  // Whole lines from `offset` on, without line ends. Returns where the last whole line ends.
  std::uint64_t each_line(std::uint64_t offset,
                          const std::function<void(std::uint64_t at, std::string_view line)>& each) const;

  // Tells this file, at this size, from another one that may be under its path later.
  struct Identity {
    std::uint64_t device = 0, inode = 0, size = 0;
    bool operator==(const Identity&) const = default;
  };
  Identity identity() const { return identity_; }

 private:
  Bytes read(std::uint64_t offset, std::uint64_t length) const;

  std::filesystem::path path_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
  std::int64_t modified_ = 0;
  std::uint32_t owner_ = 0;
  Identity identity_;
  Bytes head_;
  std::optional<StartRecord> start_;
};

// Why the file, whose first line is whole, does not count where it was found; "" if it does. A session's folder counts
// for that session alone, and for files of the folder's owner; root's sessions may have any users, and only they can
// name the folder, but what has started a session wrote as the one who made the folder.
std::string why_not_counted(const FoundSpool& found, const SpoolFile& file);
// The user behind it who is to be limited: who owns the session's folder, or the file where it lies in none. Absent:
// root, or the user of this process, who can write what he likes. `subuid`: whose further ids are whose.
std::optional<std::uint32_t> limited_user(const FoundSpool& found, const SpoolFile& file, std::string_view subuid);
// Whether the process that wrote it was no recorder but what starts sessions (`varve run`).
bool is_starter(const StartRecord& start);

// Removes the file if it is still the one that was read, at the size that was read.
bool remove_spool(const std::filesystem::path& path, const SpoolFile::Identity& read);
// Removes folders of sessions in the spool folder that are empty and were not written to for a day before
// `now_seconds`.
void remove_empty_session_folders(const std::filesystem::path& spool, std::int64_t now_seconds);
// Removes the salts of months before that of `today` (docs/formats/usage-spool.md, "Who the user is"). What cannot be
// removed stays.
void remove_old_salts(const std::filesystem::path& spool, std::int32_t today);

}  // namespace varve::usage
