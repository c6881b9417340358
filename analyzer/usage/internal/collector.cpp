#include "analyzer/usage/internal/collector.h"

#include <algorithm>

#include "analyzer/python/name.h"
#include "analyzer/usage/internal/retention.h"
#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/base/process/subid.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

// A batch ends after the first of these; other writers wait for its end.
constexpr std::size_t kBatchFiles = 64;
constexpr std::uint64_t kBatchRecords = 50'000;
// Behind every rank of a process that told an image.
constexpr const char* kNoRank = "~";

constexpr const char* kTooLate =
    "its session is older than single sessions are kept; it was counted without these records";

std::int64_t flag_of(Directness how) {
  switch (how) {
    case Directness::kDirect:
      return kUsedDirect;
    case Directness::kTransitive:
      return kUsedTransitive;
    case Directness::kStatic:
      return kUsedStatic;
  }
  return 0;
}

std::int64_t flag_of(Copy copy) {
  switch (copy) {
    case Copy::kUnknown:
      return 0;
    case Copy::kImage:
      return kUsedImageCopy;
    case Copy::kSession:
      return kUsedSessionCopy;
  }
  return 0;
}

// Orders the processes of a session: the first one knows best on which image it runs.
std::string rank_of(const StartRecord& start) {
  return fmt::format("{}{:07}{}", start.parent.empty() ? '0' : '1', start.day, start.process);
}

}  // namespace

CollectResult Collector::collect(const std::vector<std::filesystem::path>& spools, const CancelFlag& cancel) {
  const auto files = find_spools(spools);
  today_ = options_.today.value_or(today_utc());
  subuid_ = read_subids("/etc/subuid");
  CollectResult total;
  if (writer_.sql().is_server()) take_intake(total, cancel);
  if (options_.progress != nullptr) {
    for (const auto& found : files) {
      std::error_code gone;
      const auto bytes = std::filesystem::file_size(found.path, gone);
      if (!gone) options_.progress->expect(bytes);
    }
  }
  for (std::size_t next = 0; next < files.size();) {
    cancel.throw_if_cancelled();
    // Counted apart: a batch that fails has counted nothing.
    auto with_batch = total;
    batch_records_ = 0;
    taken_of_batch_ = {};
    WriteTransaction transaction(writer_);
    refused_through_ = refused_through(writer_.sql());
    for (std::size_t taken = 0; next < files.size() && taken < kBatchFiles && batch_records_ < kBatchRecords;
         ++taken, ++next)
      take_file(files[next], with_batch);
    transaction.commit();
    total = std::move(with_batch);
    taken_.add(std::move(taken_of_batch_));
  }
  remove_collected(spools, total);
  return total;
}

template <typename Work>
bool Collector::reads(const FoundSpool& found, CollectResult& result, Work&& work) {
  const auto key = [&] { return to_bytes(digest_of(found.path.filename().string()).raw()); };
  try {
    work();
    return true;
  } catch (const CorruptData& error) {
    quarantine(found.path, key(), {.place = 0, .reason = error.what()}, result);
  } catch (const std::system_error& error) {
    // What is gone was collected and removed by another collector. A reason names no path: it may be a user's.
    if (error.code() != std::errc::no_such_file_or_directory)
      quarantine(found.path, key(), {.place = 0, .reason = "cannot be read: " + error.code().message()}, result);
  }
  return false;
}

void Collector::take_file(const FoundSpool& found, CollectResult& result) {
  std::optional<SpoolFile> file;
  if (!reads(found, result, [&] { file.emplace(found.path); })) return;
  ++result.files;
  if (options_.progress != nullptr) options_.progress->add(file->size());
  if (!file->start()) {
    result.pending_bytes += file->size();
    return note_taken(found, *file, 0, false);
  }
  auto process = load_process(writer_.sql(), *file->start());
  process.owner = hash_of_user(limited_user(found, *file, subuid_), process.node, process.day);
  auto why_not = why_not_counted(found, *file);
  if (why_not.empty()) why_not = refusal(*file->start(), process);
  if (!why_not.empty())
    return quarantine(found.path, process.file_key(), {.place = 0, .reason = std::move(why_not)}, result);
  SpoolRecords records;
  const bool read = reads(found, result, [&] {
    if (file->size() < process.read_bytes)
      fail<CorruptData>("shorter than what was read of it before: {} of {} bytes", file->size(), process.read_bytes);
    if (process.known && (file->head_fingerprint(process.read_bytes) != process.head ||
                          file->tail_fingerprint(process.read_bytes) != process.tail))
      fail<CorruptData>("its content is not what was read before");
    records.end = file->each_line(process.read_bytes, [&](std::uint64_t at, std::string_view line) {
      try {
        auto record = parse_spool_line(line);
        if (at != 0 && std::holds_alternative<StartRecord>(record.what))
          fail<CorruptData>("spool record: a second start record");
        records.records.push_back(std::move(record));
      } catch (const CorruptData& error) {
        records.bad_lines.push_back({.place = at, .reason = error.what()});
      }
    });
    records.head = file->head_fingerprint(records.end);
    records.tail = file->tail_fingerprint(records.end);
  });
  if (!read) return;
  result.duplicates += process.records;
  take_records(found.path, *file->start(), process, records, result);
  result.pending_bytes += file->size() - process.read_bytes;
  note_taken(found, *file, process.read_bytes, process.ended);
}

void Collector::note_taken(const FoundSpool& found, const SpoolFile& file, std::uint64_t read_bytes, bool ended) {
  if (options_.remove_collected) taken_of_batch_.add(found, file, read_bytes, ended);
}

void Collector::take_records(const std::filesystem::path& path, const StartRecord& start, ProcessRow& process,
                             const SpoolRecords& records, CollectResult& result) {
  if (records.end == process.read_bytes) return;
  const bool gone = session_is_gone(process);
  const auto first_new = process.read_bytes;
  process.read_bytes = records.end;
  process.head = records.head;
  process.tail = records.tail;
  if (gone) {
    store_process(writer_.sql(), process);
    return quarantine(path, process.file_key(), {.place = first_new, .reason = kTooLate}, result);
  }
  for (const auto& bad_line : records.bad_lines) quarantine(path, process.file_key(), bad_line, result);
  process.records += records.records.size();
  process.apply(records.records);
  store_process(writer_.sql(), process);
  const auto sessions_before = new_sessions_, surplus_before = new_surplus_;
  if (const auto left_out = take_records(start, process, records.records); left_out > 0)
    quarantine(path, process.file_key(),
               {.place = first_new,
                .reason = fmt::format("{} records left out: its session has more than one session may have", left_out)},
               result);
  result.sessions += new_sessions_ - sessions_before;
  result.surplus += new_surplus_ - surplus_before;
  result.events += records.records.size();
  result.unknown +=
      std::uint64_t(std::count_if(records.records.begin(), records.records.end(), [](const SpoolRecord& record) {
        return std::holds_alternative<UnknownRecord>(record.what);
      }));
  batch_records_ += records.records.size();
}

std::string Collector::refusal(const StartRecord& start, const ProcessRow& process) const {
  if (start.day > today_ + 1)
    return fmt::format("its session began on {}, and today is {}", day_text(start.day), day_text(today_));
  if (!process.known && start.day <= refused_through_)
    return fmt::format("its session began on {}; only those after {} are taken in", day_text(start.day),
                       day_text(refused_through_));
  return {};
}

std::string Collector::hash_of_user(std::optional<std::uint32_t> user, const std::string& node, std::int64_t day) {
  if (!user) return {};
  return writer_.keyed_hash().of(fmt::format("user {} {} {}", day, *user, node)).hex().substr(0, 32);
}

bool Collector::is_surplus(const ProcessRow& process) {
  if (process.owner.empty() || options_.user_day_sessions == 0) return false;
  if (process.day < today_ - kUserLateDays) return true;
  std::int64_t others = 0;
  writer_.sql().query("SELECT COUNT(DISTINCT session_key) FROM spool_file WHERE owner = $1 AND session_key <> $2",
                      {process.owner, process.session_key}, [&](const SqlRow& row) { others = row.number(0); });
  return others >= std::int64_t(options_.user_day_sessions);
}

// A session without a row, but with files that were read before: it was aged out.
bool Collector::session_is_gone(const ProcessRow& process) {
  bool gone = false;
  writer_.sql().query(
      "SELECT 1 FROM spool_file WHERE session_key = $1 "
      "AND NOT EXISTS (SELECT 1 FROM session WHERE session_key = $1) LIMIT 1",
      {process.session_key}, [&](const SqlRow&) { gone = true; });
  return gone;
}

std::uint64_t Collector::take_records(const StartRecord& start, ProcessRow& process,
                                      const std::vector<SpoolRecord>& records) {
  auto session = load_session(writer_.sql(), process.session_key);
  const bool is_new = session.id == 0;
  if (!is_new) writer_.recount({session.id});
  SessionRows rows;
  failed_.clear();
  apply_start(start, session, rows);
  intern_names(records, !writer_.resolver(session.image_id).has_inventory());
  apply_records(records, session, rows);
  session.surplus = is_new && is_surplus(process);
  store_session(writer_.sql(), session);
  if (is_new) {
    writer_.count(session.id, session.day);
    ++new_sessions_;
    new_surplus_ += session.surplus;
  }
  return rows.store(writer_.sql(), session.id, [&](std::int64_t failed) {
    writer_.failed_names().add_session(failed, failed_.at(failed), options_.known_name_sessions);
  });
}

void Collector::apply_start(const StartRecord& start, SessionRow& session, SessionRows& rows) {
  if (session.id == 0) {
    session.day = start.day;
    session.image_id = writer_.image_id("");
    session.image_rank = kNoRank;
  }
  session.day = std::min<std::int64_t>(session.day, start.day);
  if (start.image && rank_of(start) < session.image_rank) {
    session.image_id = writer_.image_id(start.image->to_string());
    session.image_rank = rank_of(start);
  }
  if (!is_starter(start)) session.heard = true;
  if (!start.user.empty()) rows.add(SessionTable::kUsers, {month_of(start.day), bytes_of_hex(start.user)});
}

void Collector::intern_names(const std::vector<SpoolRecord>& records, bool keep_paths) {
  std::vector<std::string> modules, paths;
  for (const auto& record : records) {
    if (const auto* file = std::get_if<FileRecord>(&record.what); file != nullptr && keep_paths)
      paths.push_back(file->path);
    const auto* import = std::get_if<ImportRecord>(&record.what);
    if (import == nullptr) continue;
    modules.push_back(import->module);
    modules.emplace_back(short_module(import->module));
    if (!import->by.empty()) modules.push_back(import->by);
  }
  writer_.modules().intern(std::move(modules));
  writer_.pending_paths().intern(std::move(paths));
}

void Collector::apply_records(const std::vector<SpoolRecord>& records, SessionRow& session, SessionRows& rows) {
  for (const auto& record : records) {
    if (const auto* import = std::get_if<ImportRecord>(&record.what)) {
      apply_import(*import, rows);
    } else if (const auto* failed = std::get_if<FailedRecord>(&record.what)) {
      const auto id = writer_.failed_names().id_of(failed->module);
      failed_[id] = failed->module;
      rows.add(SessionTable::kFailed, {id});
    } else if (const auto* install = std::get_if<InstallRecord>(&record.what)) {
      apply_install(*install, rows);
    } else if (const auto* file = std::get_if<FileRecord>(&record.what)) {
      apply_file(*file, writer_.resolver(session.image_id), rows);
    } else if (const auto* gpu = std::get_if<GpuRecord>(&record.what)) {
      session.gpu_present |= gpu->present;
      session.gpu_used |= gpu->used;
      for (const auto& model : gpu->models) rows.add(SessionTable::kGpuModel, {writer_.gpu_models().id_of(model)});
    } else if (const auto* beat = std::get_if<BeatRecord>(&record.what)) {
      session.gpu_used |= beat->gpu_used;
    } else if (std::holds_alternative<LaunchRecord>(record.what)) {
      session.launched = true;
    } else if (const auto* end = std::get_if<EndRecord>(&record.what)) {
      // What was opened tells of all that a session used, whatever it ran.
      session.heard |= end->all_files;
    }
  }
}

void Collector::apply_import(const ImportRecord& import, SessionRows& rows) {
  const auto module = writer_.modules().id_of(import.module);
  const std::int64_t by = import.by.empty() ? 0 : writer_.modules().id_of(import.by);
  const std::int64_t named =
      import.distribution.empty() ? 0 : writer_.distributions().id_of(python::normalize_name(import.distribution));
  rows.add(SessionTable::kModule, {module, by, named}, flag_of(import.how) | flag_of(import.copy));
  if (named != 0 && import.copy == Copy::kSession) rows.add(SessionTable::kCopy, {named, import.version});
}

void Collector::apply_install(const InstallRecord& install, SessionRows& rows) {
  const auto distribution = writer_.distributions().id_of(python::normalize_name(install.distribution));
  const auto why = std::string(install_reason_name(install.why));
  rows.add(SessionTable::kReinstall, {writer_.reinstall_id(distribution, install.from, install.to, why), install.tool});
}

void Collector::apply_file(const FileRecord& file, const ImageResolver& image, SessionRows& rows) {
  const auto flags = file.executed ? kFileExecuted : kFileOpened;
  // Without an inventory the path is kept until that tells whose it is.
  if (!image.has_inventory()) return rows.add(SessionTable::kPath, {writer_.pending_paths().id_of(file.path)}, flags);
  for (const auto owner : image.of_path(file.path)) rows.add(SessionTable::kFile, {owner}, flags);
}

void Collector::quarantine(const std::filesystem::path& file, const Bytes& file_key, const Violation& violation,
                           CollectResult& result) {
  ++result.quarantined;
  if (result.notes.size() < kMaxQuarantineNotes)
    result.notes.push_back({.file = file, .place = violation.place, .reason = violation.reason});
  writer_.sql().run(
      "INSERT INTO quarantine (file_key, place, reason, day) VALUES ($1, $2, $3, $4) "
      "ON CONFLICT (file_key, place, reason) DO NOTHING",
      {file_key, std::int64_t(violation.place), violation.reason, std::int64_t(today_utc())});
}

void Collector::remove_collected(const std::vector<std::filesystem::path>& spools, CollectResult& result) {
  for (const auto& spool : spools) {
    std::error_code error;
    if (std::filesystem::is_directory(spool, error)) remove_old_salts(spool, today_);
  }
  if (!options_.remove_collected) return;
  // Only after this may the database be the only copy.
  if (taken_.any_is_over()) writer_.sql().flush();
  result.removed_files += taken_.remove(spools);
}

}  // namespace varve::usage
