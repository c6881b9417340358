#include "cli/session/run_recording.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <map>

#include "analyzer/recorder/install.h"
#include "core/base/calendar.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/free_with.h"
#include "core/base/log.h"
#include "fuse/session/rootfs.h"

namespace varve::cli {
namespace {

constexpr const char* kSpoolInside = "/run/varve/spool";

std::optional<std::string> value_in(const std::vector<std::string>& variables, const std::string& name) {
  std::optional<std::string> value;
  for (const auto& one : variables)
    if (one.starts_with(name + "=")) value = one.substr(name.size() + 1);
  return value;
}

// As the session will see it, and for what it is not told, as this program does.
usage::Variable session_variable(const fuse::SessionRequest& request, const usage::Variable& own) {
  return [&request, own](const std::string& name) {
    if (auto value = value_in(request.options.env, name)) return value;
    if (auto value = value_in(request.config.env, name)) return value;
    return own(name);
  };
}

// Anybody may add a file, nobody may look for those of others.
void make_spool_folder(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder.parent_path());
  if (::mkdir(folder.c_str(), 0700) != 0) {
    if (errno == EEXIST && std::filesystem::is_directory(folder)) return;
    fail_errno("make the folder {}", folder.string());
  }
  if (::chmod(folder.c_str(), 01733) != 0) fail_errno("open {} for sessions to write to", folder.string());
}

// The recorder's files under a name that changes with their content, so that sessions that run keep theirs when this
// program is replaced.
std::filesystem::path keep_recorder(const std::filesystem::path& parent) {
  Sha256 sha;
  for (const auto& file : recorder::recorder_files()) {
    sha.update(as_bytes(file.name));
    sha.update(as_bytes(file.content));
  }
  const auto folder = parent / sha.finish().hex().substr(0, 16);
  std::filesystem::create_directories(folder);
  for (const auto& file : recorder::recorder_files()) {
    const auto path = folder / file.name;
    std::filesystem::create_directories(path.parent_path());
    if (!std::filesystem::exists(path)) write_file_atomically(path, as_bytes(file.content), 0644);
  }
  return folder;
}

recorder::ListFolder folders_of(const fuse::Rootfs& rootfs) {
  return [&rootfs](const std::string& path) -> std::optional<recorder::ListedFolder> {
    auto folder = rootfs.open_path(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    struct stat status {};
    if (!folder || ::fstat(folder->get(), &status) != 0) return std::nullopt;
    const std::unique_ptr<DIR, FreeWith<::closedir>> listing(::fdopendir(folder->get()));
    if (!listing) return std::nullopt;
    folder->release();
    recorder::ListedFolder found;
    found.identity = status.st_ino;
    while (const auto* entry = ::readdir(listing.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") found.names.push_back(name);
    }
    return found;
  };
}

void mount_recorder(fuse::SessionRequest& request, const fuse::Rootfs& rootfs, const std::filesystem::path& files) {
  std::map<std::string, std::string> environment;
  for (const auto& one : request.config.env)
    environment[one.substr(0, one.find('='))] = one.substr(std::min(one.size(), one.find('=') + 1));
  for (const auto& site : recorder::site_folders(folders_of(rootfs), environment))
    for (const auto& file : recorder::recorder_files())
      request.own_volumes.push_back(
          {.source = files / file.name, .destination = fmt::format("/{}/{}", site, file.name), .read_only = true});
}

// Files that a user of a session made belong to his subordinate ids, and could not be read by the one who collects
// them.
void take_over_files(const std::filesystem::path& folder) {
  const auto fd = open_file(folder, O_RDONLY | O_DIRECTORY);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    ::fchownat(fd.get(), entry.path().filename().c_str(), 0, 0, AT_SYMLINK_NOFOLLOW);
}

}  // namespace

std::unique_ptr<RunRecording> RunRecording::begin(const Wanted& wanted, fuse::SessionRequest& request,
                                                  const std::function<void(const std::string&)>& warn) {
  std::unique_ptr<RunRecording> recording(new RunRecording);
  try {
    recording->open_spool(wanted, request);
  } catch (const std::exception& error) {
    warn(fmt::format("the session is not recorded: {}", error.what()));
    return nullptr;
  }
  if (!recording->switched_on_) return recording;
  const auto plain = request;
  try {
    recording->add_to(request, wanted);
  } catch (const std::exception& error) {
    request = plain;
    warn(fmt::format("of the session only its launch is recorded: {}", error.what()));
  }
  return recording;
}

void RunRecording::open_spool(const Wanted& wanted, const fuse::SessionRequest& request) {
  const auto variable = session_variable(request, wanted.own_variable);
  const auto rootfs = fuse::Rootfs::open(request.lower);
  switched_on_ = !usage::is_switched_off(variable) && !usage::is_switched_off(wanted.own_variable) &&
                 !rootfs.open_path(recorder::kSwitchFile, O_PATH);
  session_ = usage::new_session_id();
  make_spool_folder(wanted.spool);
  folder_ = wanted.spool / session_;
  make_spool_folder(folder_);
  usage::StartRecord start;
  start.session = session_;
  start.process = usage::new_process_id();
  start.day = today_utc();
  start.image = wanted.image;
  start.writer = "run " + wanted.version;
  start.main = "other";
  if (switched_on_) user_ = start.user = usage::user_hash(wanted.spool, variable, std::chrono::system_clock::now());
  writer_ = std::make_unique<usage::SpoolWriter>(folder_, std::move(start));
  writer_->write(usage::LaunchRecord{});
  if (!writer_->failure().empty()) throw std::runtime_error(writer_->failure());
}

void RunRecording::add_to(fuse::SessionRequest& request, const Wanted& wanted) {
  const auto files = keep_recorder(wanted.recorder);
  request.own_volumes.push_back({.source = folder_, .destination = kSpoolInside, .read_only = false});
  mount_recorder(request, fuse::Rootfs::open(request.lower), files);
  auto& env = request.options.env;
  env.push_back(fmt::format("{}={}", recorder::kSpoolVariable, kSpoolInside));
  env.push_back(fmt::format("{}={}", recorder::kSessionVariable, session_));
  env.push_back(fmt::format("{}={}", recorder::kImageVariable, wanted.image.to_string()));
  env.push_back(fmt::format(
      "{}={}", recorder::kStartedVariable,
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count()));
  env.push_back(fmt::format("{}={}", recorder::kUserHashVariable, user_));
  request.on_access = [this](const std::string& path, bool executed) {
    if (!writer_->write(usage::FileRecord{.path = path, .executed = executed})) return false;
    ++files_;
    return true;
  };
  if (::geteuid() != 0)
    request.at_end = [folder = folder_] {
      try {
        take_over_files(folder);
      } catch (const std::exception& error) {
        log::info("take over the records of the session: {}", error.what());
      }
    };
}

void RunRecording::end(const fuse::SessionResult& result) {
  writer_->write(usage::EndRecord{.ok = result.exit_status == 0});
}

}  // namespace varve::cli
