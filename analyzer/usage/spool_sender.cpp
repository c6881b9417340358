#include "analyzer/usage/spool_sender.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "analyzer/usage/internal/collected_files.h"
#include "analyzer/usage/internal/intake.h"
#include "analyzer/usage/internal/process_row.h"
#include "analyzer/usage/internal/schema.h"
#include "core/base/errors.h"
#include "core/base/process/subid.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

constexpr std::size_t kFilesAtOnce = 64;  // whose place is asked for together

using FileKey = std::pair<Bytes, Bytes>;  // session and process

FileKey key_of(const StartRecord& start) { return {bytes_of_hex(start.session), bytes_of_hex(start.process)}; }

Bytes prints_of(const SpoolFile& file, std::uint64_t bytes) {
  auto prints = file.head_fingerprint(bytes);
  append(prints, file.tail_fingerprint(bytes));
  return prints;
}

class ServerSender final : public SpoolSender {
 public:
  explicit ServerSender(std::unique_ptr<SqlConnection> sql)
      : sql_(std::move(sql)), subuid_(read_subids("/etc/subuid")) {
    // A database that no program of schema 7 has opened yet does not ask for it.
    sql_->query(
        "SELECT COUNT(*) FROM pg_attribute WHERE attrelid = to_regclass('intake') AND attname = 'owner' "
        "AND has_column_privilege(attrelid, attnum, 'INSERT')",
        {}, [&](const SqlRow& row) { tells_owner_ = row.number(0) != 0; });
  }

  CollectResult send(const std::vector<std::filesystem::path>& spools, const CollectOptions& options,
                     const CancelFlag& cancel) override {
    const auto found = find_spools(spools);
    CollectResult result;
    CollectedFiles sent;
    for (std::size_t first = 0; first < found.size(); first += kFilesAtOnce) {
      const auto end = std::min(first + kFilesAtOnce, found.size());
      std::vector<std::optional<SpoolFile>> files(end - first);
      for (auto i = first; i < end; ++i)
        reads(found[i], result, [&] { open(found[i], files[i - first], options, result); });
      const auto places = places_of(files);
      for (auto i = first; i < end; ++i) {
        cancel.throw_if_cancelled();
        auto& file = files[i - first];
        if (!file) continue;
        reads(found[i], result, [&] { send(found[i], *file, places, sent, result); });
        file.reset();
      }
    }
    for (const auto& spool : spools) {
      std::error_code error;
      if (std::filesystem::is_directory(spool, error)) remove_old_salts(spool, options.today.value_or(today_utc()));
    }
    // Each insertion was synced by the server before it was answered.
    if (options.remove_collected) result.removed_files = sent.remove(spools);
    return result;
  }

 private:
  struct Place {
    std::uint64_t sent_bytes = 0;
  };
  using Places = std::map<FileKey, Place>;

  static void note(const FoundSpool& found, std::uint64_t place, std::string reason, CollectResult& result) {
    ++result.quarantined;
    if (result.notes.size() < kMaxQuarantineNotes)
      result.notes.push_back({.file = found.path, .place = place, .reason = std::move(reason)});
  }

  template <typename Work>
  static void reads(const FoundSpool& found, CollectResult& result, Work&& work) {
    try {
      work();
    } catch (const CorruptData& error) {
      note(found, 0, error.what(), result);
    } catch (const std::system_error& error) {
      // What is gone was sent and removed by another sender.
      if (error.code() != std::errc::no_such_file_or_directory)
        note(found, 0, "cannot be read: " + error.code().message(), result);
    }
  }

  static void open(const FoundSpool& found, std::optional<SpoolFile>& file, const CollectOptions& options,
                   CollectResult& result) {
    SpoolFile opened(found.path);
    ++result.files;
    if (options.progress != nullptr) options.progress->add(opened.size());
    if (!opened.start()) {
      result.pending_bytes += opened.size();
      return;
    }
    if (auto why_not = why_not_counted(found, opened); !why_not.empty()) fail<CorruptData>("{}", why_not);
    file.emplace(std::move(opened));
  }

  // How far these were sent, as the database knows.
  Places places_of(const std::vector<std::optional<SpoolFile>>& files) {
    std::vector<SqlValue> sessions;
    for (const auto& file : files)
      if (file) sessions.emplace_back(key_of(*file->start()).first);
    Places places;
    query_in(*sql_, "SELECT session_key, process_key, end_byte FROM own_spool WHERE session_key", sessions, "",
             [&](const SqlRow& row) {
               auto& place = places[{row.blob(0), row.blob(1)}];
               place.sent_bytes = std::max(place.sent_bytes, std::uint64_t(row.number(2)));
             });
    for (const auto& [key, place] : places) sessions_.insert(key.first);
    return places;
  }

  void send(const FoundSpool& found, const SpoolFile& file, const Places& places, CollectedFiles& sent,
            CollectResult& result) {
    const auto key = key_of(*file.start());
    const auto place = places.find(key);
    const auto sent_before = place == places.end() ? 0 : place->second.sent_bytes;
    if (file.size() < sent_before)
      fail<CorruptData>("shorter than what was sent of it before: {} of {} bytes", file.size(), sent_before);
    const auto user = limited_user(found, file, subuid_);
    bool ended = false, all_sent = true;
    std::string first_line, part;
    std::uint64_t part_at = sent_before;
    const auto send_part = [&] {
      if (part.empty()) return;
      all_sent = all_sent && insert(key, first_line, part_at, part, file, user);
      part_at += part.size();
      part.clear();
    };
    const auto end = file.each_line(0, [&](std::uint64_t at, std::string_view line) {
      if (at == 0) first_line = line;
      if (line.size() > kMaxSpoolLineBytes)
        fail<CorruptData>("at {}: a line longer than {} bytes", at, kMaxSpoolLineBytes);
      const bool is_new = at >= sent_before;
      try {
        const auto record = parse_spool_line(line);
        ended = ended || std::holds_alternative<EndRecord>(record.what);
        if (is_new && std::holds_alternative<UnknownRecord>(record.what)) ++result.unknown;
      } catch (const CorruptData& error) {
        if (is_new) note(found, at, error.what(), result);
      }
      if (!is_new) {
        ++result.duplicates;
        return;
      }
      ++result.events;
      if (part.size() + line.size() + 1 > kMaxPartBytes) send_part();
      part.append(line);
      part += '\n';
    });
    send_part();
    if (end > sent_before && sessions_.insert(key.first).second) ++result.sessions;
    result.pending_bytes += file.size() - end;
    if (all_sent) sent.add(found, file, end, ended);
  }

  // False if another sender of this node just sent a part from there; how much, the next call finds out.
  bool insert(const FileKey& key, const std::string& start, std::uint64_t first_byte, const std::string& content,
              const SpoolFile& file, std::optional<std::uint32_t> user) {
    std::vector<SqlValue> values{key.first,
                                 key.second,
                                 to_bytes(as_bytes(start)),
                                 std::int64_t(first_byte),
                                 to_bytes(as_bytes(content)),
                                 prints_of(file, first_byte),
                                 prints_of(file, first_byte + content.size())};
    if (tells_owner_) values.emplace_back(user ? std::int64_t(*user) : -1);
    return sql_->run(fmt::format("INSERT INTO intake (session_key, process_key, start, first_byte, content, before, "
                                 "after{}) VALUES ($1, $2, $3, $4, $5, $6, $7{})",
                                 tells_owner_ ? ", owner" : "", tells_owner_ ? ", $8" : ""),
                     values, {}) != 0;
  }

  std::unique_ptr<SqlConnection> sql_;
  std::string subuid_;
  bool tells_owner_ = false;
  std::set<Bytes> sessions_;  // those that were sent, or known before
};

}  // namespace

std::unique_ptr<SpoolSender> open_sender(const std::string& where) {
  if (!where.starts_with("postgresql://") && !where.starts_with("postgres://")) return nullptr;
  auto sql = open_sql(where, usage_kind());
  bool only_sends = false;
  sql->query(
      "SELECT (has_any_column_privilege(to_regclass('intake'), 'INSERT') "
      "AND NOT has_table_privilege(to_regclass('setting'), 'UPDATE'))::INT",
      {}, [&](const SqlRow& row) { only_sends = row.number(0) != 0; });
  if (!only_sends) return nullptr;
  return std::make_unique<ServerSender>(std::move(sql));
}

}  // namespace varve::usage
