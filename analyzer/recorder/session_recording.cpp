#include "analyzer/recorder/session_recording.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/calendar.h"

namespace varve::recorder {
namespace {

constexpr const char* kSpoolInside = "/run/varve/spool";

std::optional<std::string> value_in(const std::vector<std::string>& variables, const std::string& name) {
  std::optional<std::string> value;
  for (const auto& one : variables)
    if (one.starts_with(name + "=")) value = one.substr(name.size() + 1);
  return value;
}

// Others may go through the spool; nobody may look for sessions, or add one, but who made it.
constexpr mode_t kSpoolMode = 0711;
// Anybody of the session may add a file, nobody may look for those of others.
constexpr mode_t kSessionMode = 01733;

void make_folder(const std::filesystem::path& folder, mode_t mode) {
  std::filesystem::create_directories(folder.parent_path());
  if (::mkdir(folder.c_str(), 0700) != 0) {
    if (errno == EEXIST && std::filesystem::is_directory(folder)) return;
    fail_errno("make the folder {}", folder.string());
  }
  if (::chmod(folder.c_str(), mode) != 0) fail_errno("open {} for sessions to write to", folder.string());
}

// The recorder's files under a name that changes with their content, so that sessions that run keep theirs when this
// program is replaced.
std::filesystem::path keep_recorder(const std::filesystem::path& parent) {
  Sha256 sha;
  for (const auto& file : recorder_files()) {
    sha.update(as_bytes(file.name));
    sha.update(as_bytes(file.content));
  }
  const auto folder = parent / sha.finish().hex().substr(0, 16);
  std::filesystem::create_directories(folder);
  for (const auto& file : recorder_files()) {
    const auto path = folder / file.name;
    std::filesystem::create_directories(path.parent_path());
    if (!std::filesystem::exists(path)) write_file_atomically(path, as_bytes(file.content), 0644);
  }
  return folder;
}

std::map<std::string, std::string> by_name(const std::vector<std::string>& variables) {
  std::map<std::string, std::string> values;
  for (const auto& one : variables)
    values[one.substr(0, one.find('='))] = one.substr(std::min(one.size(), one.find('=') + 1));
  return values;
}

std::int64_t unix_seconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

void take_over_files(const std::filesystem::path& folder) {
  const auto fd = open_file(folder, O_RDONLY | O_DIRECTORY);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    ::fchownat(fd.get(), entry.path().filename().c_str(), 0, 0, AT_SYMLINK_NOFOLLOW);
}

}  // namespace

SessionRecording::SessionRecording(Wanted wanted, const ImageTree& tree) : wanted_(std::move(wanted)) {
  const auto variable = session_variable();
  switched_on_ =
      !usage::is_switched_off(variable) && !usage::is_switched_off(wanted_.own_variable) && !tree.has(kSwitchFile);
  if (switched_on_) user_ = usage::user_hash(wanted_.salts, variable, std::chrono::system_clock::now());
  make_folder(wanted_.spool, kSpoolMode);
  folder_ = wanted_.spool / session_;
  make_folder(folder_, kSessionMode);
}

SessionRecording::~SessionRecording() {
  if (!writer_) ::rmdir(folder_.c_str());
}

void SessionRecording::started() {
  if (writer_ || !failure_.empty()) return;
  usage::StartRecord start;
  start.session = session_;
  start.process = usage::new_process_id();
  start.day = today_utc();
  start.image = wanted_.image;
  start.writer = "run " + wanted_.version;
  start.user = user_;
  start.main = "other";
  try {
    writer_ = std::make_unique<usage::SpoolWriter>(folder_, std::move(start));
  } catch (const std::exception& error) {
    failure_ = error.what();
    return;
  }
  writer_->write(usage::LaunchRecord{});
  for (auto& file : std::exchange(early_files_, {})) write_file(std::move(file));
}

// As the session will see it, and for what it is not told, as this program does.
usage::Variable SessionRecording::session_variable() const {
  return [this](const std::string& name) {
    if (auto value = value_in(wanted_.session_env, name)) return value;
    if (auto value = value_in(wanted_.image_env, name)) return value;
    return wanted_.own_variable(name);
  };
}

SessionRecording::Needs SessionRecording::needs(const ImageTree& tree) const {
  const auto files = keep_recorder(wanted_.recorder);
  Needs needs;
  needs.mounts.push_back({.source = folder_, .destination = kSpoolInside, .read_only = false});
  for (const auto& site : site_folders(tree.list, by_name(wanted_.image_env)))
    for (const auto& file : recorder_files())
      needs.mounts.push_back({.source = files / file.name, .destination = fmt::format("/{}/{}", site, file.name)});
  const auto set = [&needs](const char* name, const std::string& value) {
    needs.env.push_back(fmt::format("{}={}", name, value));
  };
  set(kSpoolVariable, kSpoolInside);
  set(kSessionVariable, session_);
  set(kImageVariable, wanted_.image.to_string());
  set(kStartedVariable, std::to_string(unix_seconds_now()));
  set(kUserHashVariable, user_);
  return needs;
}

bool SessionRecording::note_file(const std::string& path, bool executed) {
  if (writer_) return write_file({.path = path, .executed = executed});
  if (!failure_.empty()) return false;
  early_files_.push_back({.path = path, .executed = executed});
  return true;
}

bool SessionRecording::write_file(usage::FileRecord file) {
  if (!writer_->write(std::move(file))) {
    lost_files_ = true;
    return false;
  }
  ++files_;
  return true;
}

void SessionRecording::end(bool ok, bool saw_all_files) {
  if (writer_) writer_->write(usage::EndRecord{.ok = ok, .all_files = switched_on_ && saw_all_files && !lost_files_});
}

std::function<void()> SessionRecording::take_over() const {
  return [folder = folder_] { take_over_files(folder); };
}

}  // namespace varve::recorder
