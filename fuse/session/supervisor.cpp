#include "fuse/session/supervisor.h"

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
#include <cstdlib>
#include <optional>
#include <span>

#include "core/base/errors.h"
#include "core/base/files/remove_tree.h"
#include "core/base/files/scratch_file.h"
#include "core/base/files/unique_fd.h"
#include "core/base/journal.h"
#include "core/base/log.h"
#include "core/base/process/inherited.h"
#include "fuse/session/executable.h"
#include "fuse/session/forked_process.h"
#include "fuse/session/own_streams.h"
#include "fuse/session/rootfs.h"
#include "fuse/session/session_devices.h"
#include "fuse/session/session_ids.h"
#include "fuse/session/session_mounts.h"
#include "fuse/session/signal_inbox.h"
#include "fuse/session/terminal.h"
#include "fuse/session/user_namespace.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kMaxHostFileBytes = 1 << 20;
constexpr int kMaxVolumeTurns = 16;  // of a working directory that goes from volume to volume

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

bool is_bind(const SpecMount& mount) { return mount.type == "bind"; }

SpecMount tmpfs_mount(const Tmpfs& tmpfs) {
  return {.destination = tmpfs.destination, .type = "tmpfs", .source = "tmpfs", .options = tmpfs.options, .wish = true};
}

// Devices come to a session by their own mounts, never by what a folder holds.
SpecMount volume_mount(const Volume& volume) {
  auto mount =
      bind_mount(volume.source, volume.destination, volume.read_only, !std::filesystem::is_directory(volume.source));
  mount.options.emplace_back("nodev");
  return mount;
}

bool is_beneath(std::string_view path, std::string_view folder) {
  return folder != "/" && path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

bool lies_under(const SpecMount& mount, std::span<const SpecMount> others) {
  return std::ranges::any_of(others,
                             [&](const SpecMount& other) { return is_beneath(mount.destination, other.destination); });
}

void check_is_folder(const Rootfs& rootfs, const std::string& path, bool wanted) {
  const auto there = rootfs.open_plain(path, O_PATH | O_NOFOLLOW);
  struct stat status {};
  if (!there || ::fstat(there->get(), &status) != 0) fail_errno("look at {}", path);
  if (S_ISDIR(status.st_mode) != wanted)
    fail<CorruptData>("{} {} in the image", path, wanted ? "is no folder" : "is a folder");
}

// Of a place that is made for it. runc gives a file system in memory the mode of the folder beneath.
mode_t mode_of_place(const SpecMount& mount) {
  for (const auto& option : mount.options)
    if (mount.wish && option.starts_with("mode=")) return mode_t(std::strtoul(option.c_str() + 5, nullptr, 8));
  return mount.file ? 0644 : 0755;
}

// Makes what is mounted upon, in the writable layer, and lets the destination be a plain path: runtimes follow symlinks
// each in its own way.
void settle_target(const Rootfs& rootfs, SpecMount& mount) {
  mount.destination = rootfs.ensure(mount.destination, {.folder = !mount.file, .mode = mode_of_place(mount)});
  check_is_folder(rootfs, mount.destination, !mount.file);
}

// The mount that a path of the session comes to lie on; null for the image's own tree.
const SpecMount* mount_of(std::string_view path, std::span<const SpecMount> mounts) {
  const SpecMount* innermost = nullptr;
  for (const auto& mount : mounts) {
    const bool holds = path == mount.destination || is_beneath(path, mount.destination);
    if (holds && (innermost == nullptr || mount.destination.size() >= innermost->destination.size()))
      innermost = &mount;
  }
  return innermost;
}

// A path in a volume, from there; made if it is missing. Where links lead stays inside, or this throws.
std::string settle_in_volume(const SpecMount& volume, const std::string& path, const Rootfs::NewFile& wanted) {
  const auto source = Rootfs::open(volume.source);
  const auto name_of = [](int fd) { return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)); };
  if (const auto there = source.open_beneath(path))
    return name_of(there->get()).lexically_relative(name_of(source.fd())).string();
  if (std::ranges::find(volume.options, "ro") != volume.options.end())
    fail<NotFound>("the volume {} has no {}", volume.source, path);
  const auto made = source.ensure(path, wanted);
  if (made != std::filesystem::path("/" + path).lexically_normal())
    fail<CorruptData>("a link of the volume {} leads to {}", volume.source, made);
  return path;
}

// A path that lies on a mount, made there if it is missing, and free of symlinks. Throws if the mount is none of a
// volume, or is left by a link.
std::string settle_in_volumes(std::string path, std::span<const SpecMount> mounts, const Rootfs::NewFile& wanted) {
  for (int turn = 0; turn < kMaxVolumeTurns; ++turn) {
    const auto* mount = mount_of(path, mounts);
    if (!is_bind(*mount) || mount->file)
      fail<Unsupported>("it goes through {}, which is not the image's", mount->destination);
    if (path == mount->destination) return path;
    const auto rest = path.substr(mount->destination.size() + 1);
    const auto settled = settle_in_volume(*mount, rest, wanted);
    if (settled == rest) return path;
    path = settled == "." ? mount->destination : mount->destination + "/" + settled;
  }
  fail<CorruptData>("its links lead from volume to volume");
}

// Places in other mounts than volumes are made when those are there.
void settle_targets(const Rootfs& rootfs, std::vector<SpecMount>& mounts) {
  for (auto& mount : mounts) {
    const std::span<const SpecMount> before(mounts.data(), &mount);
    const auto wanted = mount.destination;
    if (lies_under(mount, before)) {
      const auto* below = mount_of(wanted, before);
      if (!is_bind(*below) || below->destination == wanted) continue;
      try {
        mount.destination =
            settle_in_volumes(wanted, before, {.folder = !mount.file, .mode = mount.file ? 0644u : 0755u});
      } catch (const std::exception& error) {
        fail<Unsupported>("{} cannot be mounted at {}: {}", mount.source, wanted, error.what());
      }
      continue;
    }
    settle_target(rootfs, mount);
    if (mount.destination == wanted) continue;
    // Masks and read-only paths go by these names.
    if (!is_bind(mount) && !mount.wish)
      fail<CorruptData>("the image's {} leads to {}: no session runs like that", wanted, mount.destination);
    if (lies_under(mount, before))
      fail<CorruptData>("the image's {} leads to {}, which is not the image's", wanted, mount.destination);
  }
}

// What the machine says in /etc, for a session of this host name ("" = the machine's own). Absent if it says nothing.
std::optional<std::string> network_file(const std::string& name, const std::string& hostname) {
  if (name == "hostname" && !hostname.empty()) return hostname + "\n";
  const auto bytes = read_file_if_there(std::filesystem::path("/etc") / name, kMaxHostFileBytes);
  if (!bytes) return std::nullopt;
  auto text = std::string(as_text(*bytes));
  if (name == "hosts" && !hostname.empty())
    text += fmt::format("{}127.0.1.1\t{}\n", text.empty() || text.ends_with('\n') ? "" : "\n", hostname);
  return text;
}

// With the machine's network come its names. Copies, as the session's root may write to them.
std::vector<SpecMount> copy_network_files(const SessionFolder& folder, const CommandOptions& options) {
  std::vector<SpecMount> mounts;
  for (const std::string name : {"resolv.conf", "hosts", "hostname"}) {
    if (!options.network && name == "resolv.conf") continue;
    const auto text = network_file(name, options.hostname);
    if (!text) continue;
    const auto copy = folder.etc() / name;
    write_scratch_file(copy, as_bytes(*text), 0644);
    mounts.push_back(bind_mount(copy, "/etc/" + name, false, true));
  }
  return mounts;
}

// An image that has such a file elsewhere than in its own tree goes without.
void add_network_files(std::vector<SpecMount>& mounts, std::vector<SpecMount> files, const Rootfs& rootfs,
                       const SupervisorEvents& events) {
  for (auto& mount : files) {
    const auto name = std::filesystem::path(mount.destination).filename().string();
    settle_target(rootfs, mount);
    if (lies_under(mount, mounts)) {
      events.say(fmt::format("the machine's {} is not in the session: there it leads to {}", name, mount.destination));
    } else {
      mounts.push_back(std::move(mount));
    }
  }
}

// The command starts in its working directory with nothing between: a path that goes on inside /proc is another
// process's or the machine's.
std::string settle_working_dir(const std::string& wanted, const std::vector<SpecMount>& mounts, const Rootfs& rootfs) {
  try {
    const auto folder = rootfs.ensure(wanted, {.mode = 0755});
    const auto* mount = mount_of(folder, mounts);
    if (mount == nullptr) check_is_folder(rootfs, folder, true);
    return mount == nullptr || folder == mount->destination ? folder
                                                            : settle_in_volumes(folder, mounts, {.mode = 0755});
  } catch (const std::exception& error) {
    fail<Unsupported>("the working directory {} (WorkingDir of the image, or --workdir) cannot be entered: {}", wanted,
                      error.what());
  }
}

// Runtimes read these inside the session, whatever they are, and would wait for ever at a FIFO or a terminal.
void check_accounts(const Rootfs& rootfs, std::span<const SpecMount> mounts) {
  for (const std::string path : {"/etc/passwd", "/etc/group"}) {
    if (mount_of(path, mounts) != nullptr || !rootfs.open_path(path, O_PATH | O_NOFOLLOW)) continue;
    const auto place = rootfs.open_path(path, O_PATH);
    struct stat status {};
    if (!place || ::fstat(place->get(), &status) != 0 || !S_ISREG(status.st_mode))
      fail<CorruptData>("the image's {} is no plain file", path);
    if (mount_of(rootfs.ensure(path, {.folder = false}), mounts) != nullptr)
      fail<CorruptData>("the image's {} leads out of the image", path);
  }
}

// Runtimes repeat these in what they say, as they are.
void check_names(const SessionSpec& spec) {
  const auto check = [](const std::string& name) {
    if (std::ranges::any_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7F; }))
      fail<CorruptData>("'{}' has control characters in its name", name);
  };
  check(spec.args.front());
  check(spec.working_dir);
  for (const auto& mount : spec.mounts) check(mount.destination);
}

// Words that end early would be others for each reader.
void check_words(const SessionSpec& spec) {
  const auto has_zero = [](const std::string& word) { return word.find('\0') != word.npos; };
  if (std::ranges::any_of(spec.args, has_zero) || std::ranges::any_of(spec.env, has_zero) || has_zero(spec.working_dir))
    fail<CorruptData>("the command, its environment or its working directory holds a zero byte");
}

// What Varve itself wants in the session must not keep it from running.
void add_own_volumes(std::vector<SpecMount>& mounts, const SupervisorJob& job, const Rootfs& rootfs,
                     const SupervisorEvents& events) {
  const auto users_end = mounts.size();
  for (const auto& volume : job.own_volumes) {
    try {
      auto mount = volume_mount(volume);
      settle_target(rootfs, mount);
      // There the runtime would make the place itself, in a folder of the machine.
      const auto users = std::span(mounts).first(users_end);
      if (lies_under(mount, users) && !mount_of(mount.destination, users)->wish)
        fail<Unsupported>("another mount is in the way");
      mounts.push_back(std::move(mount));
    } catch (const std::exception& error) {
      events.say(fmt::format("{} is not mounted in the session: {}", volume.destination, error.what()));
    }
  }
}

// What is the same for every image.
SessionSpec machine_spec(const SupervisorJob& job, const UserIds& own_ids) {
  SessionSpec spec;
  spec.id = job.session->record.id;
  spec.own_ids = own_ids;
  spec.in_user_namespace = !job.ids.is_root || !own_ids.is_root;
  spec.hostname = job.options.hostname.empty() ? host_name() : job.options.hostname;
  spec.read_only = job.options.read_only;
  spec.mounts = usual_mounts(spec.in_user_namespace, own_ids.is_root ? job.ids.gids : own_ids.gids);
  if (job.options.shm_bytes != 0)
    std::ranges::find(spec.mounts, "/dev/shm", &SpecMount::destination)
        ->options.push_back(fmt::format("size={}", job.options.shm_bytes));
  spec.own_network = !job.options.network;
  spec.capabilities = default_capabilities(bounding_set());
  spec.masked_paths = default_masked_paths();
  spec.readonly_paths = default_readonly_paths();
  if (job.ids.is_root) spec.cgroups_path = "/varve-" + spec.id;
  return spec;
}

SessionSpec make_spec(const SupervisorJob& job, const Rootfs& rootfs, const SupervisorEvents& events) {
  auto spec = machine_spec(job, job.own_ids);
  const auto& folder = job.session->folder;
  auto network_files = copy_network_files(folder, job.options);
  std::optional<MakeFilesOf> made_by_session;
  if (!job.own_ids.is_root) made_by_session.emplace(job.own_ids);
  spec.rootfs = folder.merged();
  spec.args = command_line(job.config, job.options);
  spec.user = find_image_user(rootfs, job.options.user.empty() ? job.config.user : job.options.user);
  spec.terminal = job.terminal;
  const char* term = std::getenv("TERM");
  // Before what the user sets: a device's variables are no more than the image's.
  auto options = job.options;
  options.env.insert(options.env.begin(), job.devices.env.begin(), job.devices.env.end());
  spec.env = session_environment(
      job.config, options,
      {.home = spec.user.home, .hostname = spec.hostname, .term = job.terminal && term != nullptr ? term : "xterm"},
      job.environment);
  settle_targets(rootfs, spec.mounts);
  add_network_files(spec.mounts, std::move(network_files), rootfs, events);
  for (const auto& tmpfs : job.options.tmpfs) spec.mounts.push_back(tmpfs_mount(tmpfs));
  for (const auto& volume : job.options.volumes) spec.mounts.push_back(volume_mount(volume));
  settle_targets(rootfs, spec.mounts);
  add_own_volumes(spec.mounts, job, rootfs, events);
  add_devices(spec, job.devices, rootfs, folder.merged(), events.say);
  spec.working_dir = settle_working_dir(absolute_working_dir(job.config, job.options), spec.mounts, rootfs);
  check_words(spec);
  check_names(spec);
  check_accounts(rootfs, spec.mounts);
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
      running = !collect_children(process, attempt.wait_status);  // and orphans that came to us
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

  Runtime& runtime_;
  SignalInbox& inbox_;
  int lifeline_;
  bool own_group_;
  const SupervisorEvents& events_;
};

// A session of an empty tree with a command that is not there, as like the others as can be. "" if the runtime got as
// far as that command.
std::string try_runtime(Runtime& runtime, const SupervisorJob& job, SignalInbox& inbox, int lifeline) {
  const SessionFolder folder{job.session->folder.dir / "trial"};
  for (const auto& dir : {folder.dir, folder.merged(), folder.bundle(), folder.runtime_state()})
    std::filesystem::create_directory(dir);
  SessionSpec spec = machine_spec(job, UserIds{});
  spec.rootfs = folder.merged();
  spec.args = {"/there-is-no-such-command"};
  spec.env = {"PATH=/"};
  spec.working_dir = "/";
  settle_targets(Rootfs::open(spec.rootfs), spec.mounts);
  const SupervisorEvents silent{
      .ready = [](const std::string&) {}, .say = {}, .failed = {}, .told = {}, .unwatched = {}};
  std::string why_not;
  try {
    const auto process = runtime.start(spec, folder, [&] {
      if (!lead_nowhere(kStandardStreams)) fail_errno("leave the streams of the session");
      inbox.restore_mask();
    });
    const auto attempt = AttemptLoop(runtime, inbox, lifeline, true, silent).run(process);
    if (const auto failure = runtime.failure(attempt.wait_status); failure.status != kNotFound)
      why_not = failure.reason;
  } catch (const std::exception& error) {
    why_not = error.what();
  }
  remove_tree(folder.dir);
  return why_not;
}

std::unique_ptr<Runtime> choose_for(const SupervisorJob& job, SignalInbox& inbox, int lifeline,
                                    const SupervisorEvents& events) {
  const RuntimeWish wish{.wanted = job.runtime, .ids = job.ids, .memory = job.trials, .trial = [&](Runtime& runtime) {
                           return try_runtime(runtime, job, inbox, lifeline);
                         }};
  return choose_runtime(wish, events.say);
}

// Throws Unsupported if they would not hold and must.
Limits limits_that_hold(const SupervisorJob& job, const Runtime& runtime, const SupervisorEvents& events) {
  const auto why_not = why_not_held(job.options.limits, runtime.name(), job.ids.is_root);
  if (why_not.empty()) return job.options.limits;
  if (job.options.limits.must_hold)
    fail<Unsupported>("{}: the session would not be held to it (--limits best-effort runs it all the same)", why_not);
  events.say(fmt::format("without limits: {}", why_not));
  return {};
}

int run_command(const SupervisorJob& job, const SessionSpec& spec, Runtime& runtime, SignalInbox& inbox, int lifeline,
                const SupervisorEvents& events) {
  const auto process = runtime.start(spec, job.session->folder, [&inbox] { inbox.restore_mask(); });
  auto noting = events;
  // Written down before anybody hears of it: who does may want to enter it.
  noting.ready = [&](const std::string& name) {
    job.session->record.runtime = name;
    job.store->write_record(job.session->folder, job.session->record);
    events.ready(name);
  };
  const auto attempt = AttemptLoop(runtime, inbox, lifeline, !job.terminal, noting).run(process);
  if (attempt.abandoned) return 128 + SIGKILL;
  if (attempt.ready) return shell_status(attempt.wait_status);
  const auto failure = runtime.failure(attempt.wait_status);
  if (failure.told) events.told();
  if (failure.status != kOwnFailure) {
    events.failed(failure.status, failure.reason);
    return failure.status;
  }
  // It may be the machine after all: the next session finds out. This one ends, as another runtime might let pass what
  // this one refuses.
  if (job.runtime == "auto") forget_trials(job.trials);
  events.failed(kOwnFailure, fmt::format("{} did not start the command: {}", runtime.name(), failure.reason));
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

int run_session_here(const SupervisorJob& job, const TerminalKeeper& terminal, SignalInbox& inbox, int lifeline,
                     const SupervisorEvents& events) {
  keep_mounts_private();
  mount_own_proc();
  if (job.ids.is_root) take_own_device_streams();
  const auto runtime = choose_for(job, inbox, lifeline, events);  // before anything of the image is looked at
  std::optional<RelayedStreams> streams;
  if (!job.terminal && RelayedStreams::are_needed_for(runtime->name())) streams.emplace();
  UniqueFd own_namespace;
  if (!job.own_ids.is_root) {
    own_namespace = make_user_namespace(job.own_ids);
    show_with_ids(job.lower, own_namespace);
  }
  mount_overlay(job.lower, job.session->folder,
                {.in_user_namespace = !job.ids.is_root,
                 .is_new = job.session->is_new,
                 .keep_after_crash = !job.session->record.remove_at_exit});
  const auto rootfs = Rootfs::open(job.session->folder.merged());
  auto spec = make_spec(job, rootfs, events);
  check_user(*runtime, spec.user, job.own_ids.is_root ? job.ids : job.own_ids);
  spec.limits = limits_that_hold(job, *runtime, events);
  job.session->record.user = spec.user.name.empty() ? std::to_string(spec.user.uid) : spec.user.name;
  if (job.options.volumes.empty()) {  // a volume may hold the command
    const auto executable = find_command(rootfs, {spec.args.front(), spec.env, spec.working_dir}).is;
    if (executable != Executable::kFound) {
      const bool missing = executable == Executable::kMissing;
      events.failed(missing ? kNotFound : kNotExecutable,
                    fmt::format("{}: {}", spec.args.front(),
                                missing ? "there is no such command in the image" : "it may not be executed"));
      return missing ? kNotFound : kNotExecutable;
    }
  }
  if (own_namespace) stage_for_ids(spec, job.session->folder.stage(), own_namespace);
  start_watch(job, events);
  if (runtime->name() == "none" && job.in_foreground) terminal.pass_keys_on();  // the others do so themselves
  const int status = run_command(job, spec, *runtime, inbox, lifeline, events);
  const auto failure = streams ? streams->finish() : "";
  if (failure.empty()) return status;
  events.failed(kOwnFailure, failure);
  return kOwnFailure;
}

void end_all_processes() {
  if (::getpid() != 1) return;  // it would be all processes of the machine
  ::kill(-1, SIGKILL);
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

void clean_up(const SupervisorJob& job, int status) {
  auto& record = job.session->record;
  const auto& folder = job.session->folder;
  ::umount2(folder.merged().c_str(), MNT_DETACH);
  if (job.ids.is_root) remove_cgroups("varve-" + record.id);
  const bool never_ran = job.session->is_new && record.runtime.empty();  // nobody has anything in it
  if (record.remove_at_exit || never_ran) return remove_session_folder(folder);
  record.exit_status = status;
  record.upper_bytes = bytes_on_disk(folder.upper());
  for (const auto& dir : folder.of_one_run())
    if (dir != folder.merged() && std::filesystem::exists(dir)) remove_tree(dir);
  job.store->write_record(folder, record);
}

void tidy_up(const SupervisorJob& job, int status) noexcept {
  try {
    clean_up(job, status);
  } catch (const std::exception& error) {
    const log::Field about_session("SESSION", job.session->record.name);
    log::warn("clean up session {}: {}", job.session->record.name, error.what());
  }
}

}  // namespace

int supervise(const SupervisorJob& job, int lifeline, const SupervisorEvents& events) {
  SignalInbox inbox(job.starter_signals);
  // Whoever started it was killed, perhaps, and cannot give it back.
  const TerminalKeeper terminal(job.terminal);
  ::umask(022);  // what is made here is for the session's users, as in every container
  if (!job.terminal) ::setpgid(0, 0);
  int status = kOwnFailure;
  try {
    status = run_session_here(job, terminal, inbox, lifeline, events);
  } catch (const std::exception& error) {
    events.failed(kOwnFailure, error.what());
  }
  end_all_processes();
  if (job.at_end) job.at_end();
  tidy_up(job, status);
  return status;
}

void forget_unstarted(const SupervisorJob& job) noexcept {
  if (job.session->is_new) tidy_up(job, kOwnFailure);
}

}  // namespace varve::fuse
