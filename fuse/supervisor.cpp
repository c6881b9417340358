#include "fuse/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "fuse/rootfs.h"
#include "fuse/session_devices.h"
#include "fuse/session_mounts.h"
#include "fuse/signal_inbox.h"
#include "fuse/user_namespace.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kMaxHostFileBytes = 1 << 20;

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name[0] == '\0' ? "localhost" : name.data();
}

std::uint64_t bounding_set() {
  std::uint64_t set = 0;
  for (int number = 0; number < 64; ++number)
    if (::prctl(PR_CAPBSET_READ, number) == 1) set |= std::uint64_t(1) << number;
  return set;
}

// With the machine's network come its names. Copies, as the session's root may write to them.
void add_network_files(std::vector<SpecMount>& mounts, const SessionFolder& folder, bool network) {
  for (const std::string name : {"resolv.conf", "hosts", "hostname"}) {
    if (!network && name == "resolv.conf") continue;
    const auto host = read_file_if_there(std::filesystem::path("/etc") / name, kMaxHostFileBytes);
    if (!host) continue;
    const auto copy = folder.etc() / name;
    write_file_atomically(copy, *host, 0644);
    mounts.push_back(bind_mount(copy, "/etc/" + name, false, true));
  }
}

void add_volumes(std::vector<SpecMount>& mounts, const std::vector<Volume>& volumes) {
  for (const auto& volume : volumes)
    mounts.push_back(bind_mount(volume.source, volume.destination, volume.read_only, !std::filesystem::is_directory(volume.source)));
}

bool lies_under(const SpecMount& mount, std::span<const SpecMount> others) {
  return std::any_of(others.begin(), others.end(), [&](const SpecMount& other) {
    return other.destination != "/" && mount.destination.starts_with(other.destination + "/");
  });
}

// Makes what is mounted upon, in the writable layer, and lets the destination be a plain path: runtimes follow symlinks each in its own way.
void settle_target(const Rootfs& rootfs, SpecMount& mount) {
  mount.destination = rootfs.ensure(mount.destination, {.folder = !mount.file, .mode = mount.file ? 0644u : 0755u});
}

void settle_targets(const Rootfs& rootfs, std::vector<SpecMount>& mounts) {
  for (auto& mount : mounts)
    if (!lies_under(mount, {mounts.data(), &mount})) settle_target(rootfs, mount);
}

std::string absolute_working_dir(const oci::ImageConfig& config, const CommandOptions& options) {
  const auto& wanted = options.working_dir.empty() ? config.working_dir : options.working_dir;
  return wanted.starts_with('/') ? wanted : "/" + wanted;
}

// What Varve itself wants in the session must not keep it from running.
void add_own_volumes(std::vector<SpecMount>& mounts, const SupervisorJob& job, const Rootfs& rootfs, const SupervisorEvents& events) {
  const auto users_end = mounts.size();
  for (const auto& volume : job.own_volumes) {
    try {
      auto mount = bind_mount(volume.source, volume.destination, volume.read_only, !std::filesystem::is_directory(volume.source));
      settle_target(rootfs, mount);
      // There the runtime would make the place itself, in a folder of the machine.
      if (lies_under(mount, std::span(mounts).first(users_end))) fail<Unsupported>("another mount is in the way");
      mounts.push_back(std::move(mount));
    } catch (const std::exception& error) {
      events.say(fmt::format("{} is not mounted in the session: {}", volume.destination, error.what()));
    }
  }
}

SessionSpec make_spec(const SupervisorJob& job, const Rootfs& rootfs, const SupervisorEvents& events) {
  SessionSpec spec;
  const auto& folder = job.session->folder;
  spec.id = job.session->record.id;
  spec.rootfs = folder.merged();
  spec.in_user_namespace = !job.ids.is_root;
  spec.args = command_line(job.config, job.options);
  spec.user = find_image_user(rootfs, job.options.user.empty() ? job.config.user : job.options.user);
  spec.terminal = job.terminal;
  spec.hostname = host_name();
  const char* term = std::getenv("TERM");
  // Before what the user sets: a device's variables are no more than the image's.
  auto options = job.options;
  options.env.insert(options.env.begin(), job.devices.env.begin(), job.devices.env.end());
  spec.env = session_environment(
      job.config, options,
      {.home = spec.user.home, .hostname = spec.hostname, .term = job.terminal && term != nullptr ? term : "xterm"}, job.environment);
  spec.mounts = usual_mounts(spec.in_user_namespace, job.ids.gids);
  spec.own_network = !job.options.network;
  add_network_files(spec.mounts, folder, job.options.network);
  add_volumes(spec.mounts, job.options.volumes);
  settle_targets(rootfs, spec.mounts);
  add_own_volumes(spec.mounts, job, rootfs, events);
  add_devices(spec, job.devices, rootfs, folder.merged(), events.say);
  spec.working_dir = rootfs.ensure(absolute_working_dir(job.config, job.options), {.mode = 0755});
  spec.capabilities = default_capabilities(bounding_set());
  spec.masked_paths = default_masked_paths();
  spec.readonly_paths = default_readonly_paths();
  if (job.ids.is_root) spec.cgroups_path = "/varve-" + spec.id;
  return spec;
}

// One run of one runtime.
struct Attempt {
  bool ready = false;
  bool abandoned = false;  // the starter is gone
  int wait_status = 0;
};

class AttemptLoop {
 public:
  AttemptLoop(Runtime& runtime, SignalInbox& inbox, int lifeline, bool own_group, const SupervisorEvents& events)
      : runtime_(runtime), inbox_(inbox), lifeline_(lifeline), own_group_(own_group), events_(events) {}

  Attempt run(pid_t process) {
    Attempt attempt;
    bool running = true;
    while (running && !attempt.abandoned) {
      std::array<pollfd, 3> waits = {pollfd{inbox_.fd(), POLLIN, 0}, pollfd{lifeline_, POLLIN, 0},
                                     attempt.ready ? runtime_.ended_poll() : runtime_.ready_poll()};
      ::poll(waits.data(), waits.size(), -1);
      if (attempt.ready && waits[2].revents != 0) runtime_.command_ended();
      look_for_readiness(attempt);
      forward_signals();
      running = !reap(process, attempt.wait_status);
      attempt.abandoned = (waits[1].revents & (POLLIN | POLLHUP)) != 0;
    }
    // It may have been quick: readiness and the end in one turn.
    if (!running) look_for_readiness(attempt);
    return attempt;
  }

 private:
  void look_for_readiness(Attempt& attempt) {
    if (attempt.ready || !runtime_.ready()) return;
    attempt.ready = true;
    events_.ready(runtime_.name());
  }

  void forward_signals() {
    while (const auto signal = inbox_.next()) {
      if (signal->number == SIGCHLD) continue;
      // A key pressed at the terminal reached the command's process group already, if that is ours.
      if (signal->from_kernel && !own_group_) continue;
      if (const auto target = runtime_.signal_target(); target > 0) ::kill(target, signal->number);
    }
  }

  // True once `process` has ended. Orphans that came to us are collected on the way.
  static bool reap(pid_t process, int& wait_status) {
    bool ended = false;
    int status = 0;
    for (pid_t gone = ::waitpid(-1, &status, WNOHANG); gone > 0; gone = ::waitpid(-1, &status, WNOHANG)) {
      if (gone != process) continue;
      ended = true;
      wait_status = status;
    }
    return ended;
  }

  Runtime& runtime_;
  SignalInbox& inbox_;
  int lifeline_;
  bool own_group_;
  const SupervisorEvents& events_;
};

int run_command(const SupervisorJob& job, const SessionSpec& spec, SignalInbox& inbox, int lifeline, const SupervisorEvents& events) {
  const auto runtimes = choose_runtimes(job.runtime, spec, job.ids, events.say);
  std::string reasons;
  for (const auto& runtime : runtimes) {
    Attempt attempt;
    try {
      const auto process = runtime->start(spec, job.session->folder, [&inbox] { inbox.restore_mask(); });
      attempt = AttemptLoop(*runtime, inbox, lifeline, !job.terminal, events).run(process);
    } catch (const std::exception& error) {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", runtime->name(), error.what());
      continue;
    }
    if (attempt.abandoned) return 128 + SIGKILL;
    if (attempt.ready) {
      job.session->record.runtime = runtime->name();
      return shell_status(attempt.wait_status);
    }
    const auto failure = runtime->failure(attempt.wait_status);
    if (failure.status != 0) {
      events.failed(failure.status, failure.reason);
      return failure.status;
    }
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", runtime->name(), failure.reason);
    if (runtime != runtimes.back()) events.say(fmt::format("{} did not start the command ({}); trying another", runtime->name(), failure.reason));
  }
  events.failed(kOwnFailure, "no runtime could start the command: " + reasons);
  return kOwnFailure;
}

void start_watch(const SupervisorJob& job, const SupervisorEvents& events) {
  if (job.watch == nullptr) return;
  try {
    job.watch->start();
  } catch (const std::exception& error) {
    events.unwatched(error.what());
  }
}

int run_session_here(const SupervisorJob& job, SignalInbox& inbox, int lifeline, const SupervisorEvents& events) {
  keep_mounts_private();
  mount_own_proc();
  mount_overlay(job.lower, job.session->folder,
                {.in_user_namespace = !job.ids.is_root, .keep_after_crash = !job.session->record.remove_at_exit});
  const auto rootfs = Rootfs::open(job.session->folder.merged());
  const auto spec = make_spec(job, rootfs, events);
  if (job.options.volumes.empty()) {  // a volume may hold the command
    const auto executable = find_executable(rootfs, spec.args.front(), spec.env, spec.working_dir);
    if (executable != Executable::kFound) {
      const bool missing = executable == Executable::kMissing;
      events.failed(missing ? kNotFound : kNotExecutable,
                    fmt::format("{}: {}", spec.args.front(), missing ? "there is no such command in the image" : "it may not be executed"));
      return missing ? kNotFound : kNotExecutable;
    }
  }
  start_watch(job, events);
  return run_command(job, spec, inbox, lifeline, events);
}

void end_all_processes() {
  ::kill(-1, SIGKILL);
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

void clean_up(const SupervisorJob& job, int status) {
  auto& record = job.session->record;
  const auto& folder = job.session->folder;
  ::umount2(folder.merged().c_str(), MNT_DETACH);
  if (job.ids.is_root) remove_cgroups("varve-" + record.id);
  if (record.remove_at_exit) return remove_session_folder(folder);
  record.exit_status = status;
  record.upper_bytes = tree_bytes_on_disk(folder.upper());
  for (const auto& dir : {folder.bundle(), folder.runtime_state(), folder.etc()})
    if (std::filesystem::exists(dir)) remove_tree(dir);
  job.store->write_record(folder, record);
}

}  // namespace

int supervise(const SupervisorJob& job, int lifeline, const SupervisorEvents& events) {
  SignalInbox inbox(job.starter_signals);
  if (!job.terminal) ::setpgid(0, 0);
  int status = kOwnFailure;
  try {
    status = run_session_here(job, inbox, lifeline, events);
  } catch (const std::exception& error) {
    events.failed(kOwnFailure, error.what());
  }
  end_all_processes();
  if (job.at_end) job.at_end();
  try {
    clean_up(job, status);
  } catch (const std::exception& error) {
    log::warn("clean up session {}: {}", job.session->record.name, error.what());
  }
  return status;
}

Executable find_executable(const Rootfs& rootfs, const std::string& name, const std::vector<std::string>& environment, const std::string& working_dir) {
  const auto look_at = [&](const std::string& path) {
    const auto file = rootfs.open_path(path, O_PATH);
    if (!file) return Executable::kMissing;
    struct stat status{};
    if (::fstat(file->get(), &status) != 0) return Executable::kMissing;
    return S_ISREG(status.st_mode) && (status.st_mode & 0111) != 0 ? Executable::kFound : Executable::kForbidden;
  };
  if (name.find('/') != name.npos) return look_at(name.starts_with('/') ? name : working_dir + "/" + name);
  std::string path;
  for (const auto& one : environment)
    if (one.starts_with("PATH=")) path = one.substr(5);
  auto best = Executable::kMissing;
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find(':', at), path.size());
    const auto folder = path.substr(at, end - at);
    at = end + 1;
    const auto found = look_at((folder.starts_with('/') ? folder : working_dir + "/" + folder) + "/" + name);
    if (found == Executable::kFound) return found;
    if (found == Executable::kForbidden) best = found;
  }
  return best;
}

}  // namespace varve::fuse
