#include "fuse/session/session_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/file_lock.h"
#include "core/base/files/private_folder.h"
#include "core/base/files/remove_tree.h"
#include "core/base/files/scratch_file.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/text/json_document.h"
#include "fuse/session/user_namespace.h"

namespace varve::fuse {
namespace {

using nlohmann::json;
constexpr std::size_t kMaxNameLength = 64;
constexpr std::uint64_t kMaxRecordBytes = 4 << 20;  // a command line is most of it
constexpr std::uint64_t kMaxProcessBytes = 4096;
constexpr std::size_t kIdDigits = 12;
constexpr int kBusyAttempts = 100;

bool is_id(std::string_view text) {
  return text.size() == kIdDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

void check_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  if (name.size() > kMaxNameLength || name.find_first_not_of(kAllowed) != name.npos || name.front() == '-' ||
      name.front() == '.')
    fail<UsageError>(
        "--name {}: a name has at most {} letters, digits, '_', '.' or '-', and begins with a letter or digit", name,
        kMaxNameLength);
}

json to_json(const SessionRecord& record) {
  json document = {{"version", 1},
                   {"id", record.id},
                   {"name", record.name},
                   {"image", record.image},
                   {"image_digest", record.image_digest},
                   {"command", record.command},
                   {"stop_signal", record.stop_signal},
                   {"user", record.user},
                   {"created", record.created_seconds},
                   {"started", record.started_seconds},
                   {"detached", record.detached},
                   {"options", json::parse(record.options)},
                   {"remove_at_exit", record.remove_at_exit},
                   {"runtime", record.runtime},
                   {"upper_bytes", record.upper_bytes}};
  if (record.exit_status) document["exit_status"] = *record.exit_status;
  if (record.own_ids)
    document["own_ids"] = {{"first_uid", record.own_ids->first_uid}, {"first_gid", record.own_ids->first_gid}};
  return document;
}

SessionRecord from_json(const JsonValue& document) {
  SessionRecord record;
  record.id = document["id"].text();
  record.name = document["name"].text();
  record.image = document["image"].text();
  record.image_digest = document["image_digest"].text();
  record.command = document["command"].texts();
  record.created_seconds = document["created"].number<std::int64_t>();
  record.user = document.maybe("user").text();
  record.stop_signal = document.maybe("stop_signal").text();
  record.started_seconds =
      document.maybe("started") ? document["started"].number<std::int64_t>() : record.created_seconds;
  if (const auto detached = document.maybe("detached")) record.detached = detached.flag();
  if (const auto options = document.maybe("options")) record.options = options.raw().dump();
  record.remove_at_exit = document["remove_at_exit"].flag();
  record.runtime = document["runtime"].text();
  record.upper_bytes = document["upper_bytes"].number();
  if (const auto status = document.maybe("exit_status")) record.exit_status = status.number<int>();
  if (const auto ids = document.maybe("own_ids"))
    record.own_ids = OwnIds{.first_uid = ids["first_uid"].number<std::uint32_t>(),
                            .first_gid = ids["first_gid"].number<std::uint32_t>()};
  return record;
}

// Absent if it is missing or cannot be read, which sweep() takes for half-made.
std::optional<SessionRecord> read_record(const SessionFolder& folder) {
  try {
    const auto bytes = read_file_if_there(folder.record(), kMaxRecordBytes);
    if (!bytes) return std::nullopt;
    auto record = from_json(JsonValue::parse(*bytes, folder.record().string(), {.bytes = kMaxRecordBytes}));
    if (record.id != folder.dir.filename()) return std::nullopt;
    return record;
  } catch (const CorruptData& error) {
    log::debug("{}", error.what());
    return std::nullopt;
  }
}

// Absent if the process that was noted has ended, or is of another PID namespace or boot.
std::optional<RunningProcess> read_supervisor(const SessionFolder& folder) {
  try {
    const auto bytes = read_file_if_there(folder.process(), kMaxProcessBytes);
    if (!bytes) return std::nullopt;
    const auto document = JsonValue::parse(*bytes, folder.process().string());
    const RunningProcess noted{.pid = document["pid"].number<pid_t>(1), .start_time = document["start_time"].number()};
    return find_process(noted.pid) == noted ? std::optional(noted) : std::nullopt;
  } catch (const Error& error) {
    log::debug("{}", error.what());
    return std::nullopt;
  }
}

std::vector<SessionFolder> folders_in(const std::filesystem::path& dir) {
  std::vector<SessionFolder> folders;
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    if (is_id(entry.path().filename().string())) folders.push_back({entry.path()});
  return folders;
}

UniqueFd take_lock(const std::filesystem::path& lock_file) {
  auto lock = open_file(lock_file, O_RDWR | O_CREAT, 0600);
  while (::flock(lock.get(), LOCK_EX) != 0)
    if (errno != EINTR) fail_errno("lock {}", lock_file.string());
  return lock;
}

// Held while sessions are made, looked for or claimed for removal: names are unique, and probing a session's lock takes
// it for a moment.
UniqueFd lock_store(const std::filesystem::path& dir) { return take_lock(dir / ".lock"); }

std::vector<SessionStore::Listed> list_locked(const std::filesystem::path& dir) {
  std::vector<SessionStore::Listed> sessions;
  for (const auto& folder : folders_in(dir)) {
    auto record = read_record(folder);
    if (!record) continue;
    const bool running = !try_lock(folder.lock());
    sessions.push_back({.record = std::move(*record),
                        .folder = folder,
                        .running = running,
                        .supervisor = running ? read_supervisor(folder) : std::nullopt});
  }
  std::sort(sessions.begin(), sessions.end(), [](const auto& a, const auto& b) {
    return std::pair(a.record.created_seconds, a.record.id) < std::pair(b.record.created_seconds, b.record.id);
  });
  return sessions;
}

std::optional<SessionStore::Listed> find_in(std::vector<SessionStore::Listed> sessions, std::string_view name_or_id) {
  for (auto& session : sessions)
    if (session.record.id == name_or_id || session.record.name == name_or_id) return std::move(session);
  return std::nullopt;
}

// Kept sessions have theirs for as long as there is anything of them. With the store locked.
OwnIds free_ids(const std::filesystem::path& dir, const IdPool& pool) {
  std::vector<OwnIds> taken;
  for (const auto& folder : folders_in(dir))
    if (const auto record = read_record(folder); record && record->own_ids) taken.push_back(*record->own_ids);
  const auto free = pool.find_free(taken);
  if (!free)
    fail<Unsupported>(
        "{} sessions have all the ids that sessions may have: remove some (`varve session ls`), give more to the user "
        "varve in /etc/subuid and /etc/subgid, or --userns host",
        taken.size());
  return *free;
}

}  // namespace

std::int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

SessionStore::SessionStore(const std::filesystem::path& root) : dir_(root / "sessions") { make_private_folder(dir_); }

OpenSession SessionStore::reopen(const std::string& id) {
  const auto store_lock = lock_store(dir_);
  auto found = find_in(list_locked(dir_), id);
  if (!found) fail<NotFound>("the session {} is gone", id);
  OpenSession session{.record = std::move(found->record), .folder = found->folder, .lock = {}};
  auto lock = try_lock(session.folder.lock());
  if (!lock)
    fail<UsageError>("the session {} is running: `varve session exec {} COMMAND` enters it", session.record.name,
                     session.record.name);
  session.lock = std::move(*lock);
  session.is_new = false;
  // A session that was killed has left them.
  remove_cgroups("varve-" + session.record.id);
  for (const auto& dir : session.folder.of_one_run()) {
    if (std::filesystem::exists(dir)) remove_tree(dir);
    std::filesystem::create_directory(dir);
  }
  session.record.exit_status.reset();
  session.record.runtime.clear();
  session.record.started_seconds = now_seconds();
  write_record(session.folder, session.record);
  return session;
}

OpenSession SessionStore::create(const NewSession& wanted) {
  if (!wanted.name.empty()) check_name(wanted.name);
  const auto store_lock = lock_store(dir_);
  if (!wanted.name.empty() && find_in(list_locked(dir_), wanted.name))
    fail<UsageError>("there is a session named {} already: choose another name, or `varve session rm {}`", wanted.name,
                     wanted.name);
  OpenSession session;
  session.record.id = random_hex(kIdDigits / 2);
  session.record.name = wanted.name.empty() ? session.record.id : wanted.name;
  session.record.image = wanted.image;
  session.record.image_digest = wanted.image_digest;
  session.record.command = wanted.command;
  session.record.stop_signal = wanted.stop_signal;
  session.record.remove_at_exit = wanted.remove_at_exit;
  if (wanted.ids) session.record.own_ids = free_ids(dir_, *wanted.ids);
  session.record.options = wanted.options;
  session.record.created_seconds = session.record.started_seconds = now_seconds();
  session.folder.dir = dir_ / session.record.id;
  if (::mkdir(session.folder.dir.c_str(), 0700) != 0) fail_errno("make the folder {}", session.folder.dir.string());
  session.lock = take_lock(session.folder.lock());
  for (const auto& dir : {session.folder.upper(), session.folder.work()}) std::filesystem::create_directory(dir);
  for (const auto& dir : session.folder.of_one_run()) std::filesystem::create_directory(dir);
  write_record(session.folder, session.record);
  return session;
}

void SessionStore::write_record(const SessionFolder& folder, const SessionRecord& record) const {
  write_file_atomically(folder.record(), as_bytes(to_json(record).dump(1, ' ', false, json::error_handler_t::replace)),
                        0600);
}

void SessionStore::write_process(const SessionFolder& folder, const RunningProcess& supervisor) const {
  const json document = {{"pid", supervisor.pid}, {"start_time", supervisor.start_time}};
  write_scratch_file(folder.process(), as_bytes(document.dump()), 0600);
}

std::vector<SessionStore::Listed> SessionStore::list() const {
  const auto store_lock = lock_store(dir_);
  return list_locked(dir_);
}

std::optional<SessionStore::Listed> SessionStore::find(std::string_view name_or_id) const {
  return find_in(list(), name_or_id);
}

void SessionStore::remove(const Listed& session) const {
  std::optional<UniqueFd> lock;
  {
    const auto store_lock = lock_store(dir_);
    lock = try_lock(session.folder.lock());
  }
  if (!lock) fail<UsageError>("the session {} is running: end it first", session.record.name);
  remove_cgroups("varve-" + session.record.id);
  remove_session(session.folder);
}

std::vector<std::string> SessionStore::sweep() const {
  struct Claimed {
    SessionFolder folder;
    UniqueFd lock;
  };
  std::vector<Claimed> claimed;
  {
    const auto store_lock = lock_store(dir_);  // or a session that is just being made would look half-made
    for (const auto& folder : folders_in(dir_)) {
      auto lock = try_lock(folder.lock());
      if (!lock) continue;
      const auto record = read_record(folder);
      if (record && !record->exit_status) remove_cgroups("varve-" + record->id);
      if (!record || record->remove_at_exit) claimed.push_back({folder, std::move(*lock)});
    }
  }
  std::vector<std::string> swept;
  for (const auto& one : claimed) {
    try {
      remove_session(one.folder);
      swept.push_back(one.folder.dir.filename());
    } catch (const std::exception& error) {
      log::warn("the remains of session {}: {}", one.folder.dir.filename().string(), error.what());
    }
  }
  return swept;
}

void remove_session_folder(const SessionFolder& folder) {
  remove_contents(folder.dir, folder.lock().filename().string());
  const auto store_lock = lock_store(folder.dir.parent_path());
  if (::unlink(folder.lock().c_str()) != 0 && errno != ENOENT) fail_errno("remove {}", folder.lock().string());
  if (::rmdir(folder.dir.c_str()) != 0) fail_errno("remove {}", folder.dir.string());
}

void remove_session(const SessionFolder& folder) {
  const auto ids = UserIds::of_this_process();
  if (ids.is_root) return remove_session_folder(folder);
  try {
    return remove_session_folder(folder);
  } catch (const std::system_error&) {
    // Files of his subordinate ids, which only the root of his namespace may remove. Else, it would need none, where
    // there are none.
  }
  const auto child = start_in_namespaces(0, ids, [&] {
    remove_session_folder(folder);
    return 0;
  });
  if (shell_status(wait_for(child)) != 0) fail<Error>("remove {}: see the message above", folder.dir.string());
}

void remove_cgroups(std::string_view name) {
  const std::filesystem::path top = "/sys/fs/cgroup";
  const auto remove = [&](const std::filesystem::path& group) {
    // Processes that were just killed keep it busy for a moment.
    for (int attempt = 0; ::rmdir(group.c_str()) != 0 && errno == EBUSY && attempt < kBusyAttempts; ++attempt)
      Clock::system().sleep_for(std::chrono::milliseconds(20));
  };
  remove(top / name);
  std::error_code ignored;
  for (const auto& controller : std::filesystem::directory_iterator(top, ignored)) remove(controller.path() / name);
}

}  // namespace varve::fuse
