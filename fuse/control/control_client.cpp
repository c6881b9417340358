#include "fuse/control/control_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <functional>
#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/inherited.h"
#include "core/base/process/unix_socket.h"
#include "fuse/control/control_protocol.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

constexpr int kPollMs = 200;                               // how soon a cancelled command notices
constexpr auto kStartPatience = std::chrono::seconds(20);  // for a daemon that somebody else is starting
constexpr auto kOrderlyEndPatience = std::chrono::seconds(1);
constexpr auto kLookAgain = std::chrono::milliseconds(20);
constexpr auto kStartAgain = std::chrono::milliseconds(500);
constexpr unsigned kMostAttempts = 4;  // of a call whose daemon dies each time
constexpr std::size_t kMaxReadyBytes = 4096;

UniqueFd connect_socket(const std::filesystem::path& path) {
  auto socket = make_unix_socket(SOCK_STREAM);
  return connect_unix_socket(socket, path, "the daemon") ? std::move(socket) : UniqueFd();
}

// A keeper lives as long as there is a daemon, or one to follow it.
bool keeper_listens(const std::filesystem::path& path) {
  try {
    return connect_unix_socket(make_unix_socket(SOCK_SEQPACKET | SOCK_NONBLOCK), path, "the keeper");
  } catch (const std::system_error& error) {
    if (error.code().value() == EAGAIN) return true;  // it has others to hear first
    throw;
  }
}

// Where there was one; a service has none.
bool keeper_has_ended(const std::filesystem::path& path) {
  return std::filesystem::exists(path) && !keeper_listens(path);
}

// Between the death of a daemon and the one that its keeper starts nobody listens, and yet all is mounted.
UniqueFd connect_daemon(const DaemonPaths& paths) {
  const auto patience_ends = std::chrono::steady_clock::now() + kStartPatience;
  while (true) {
    const bool kept =
        keeper_listens(paths.keeper_socket());  // before: a daemon that ends in order ends its keeper last
    auto socket = connect_socket(paths.socket());
    if (socket || !kept || std::chrono::steady_clock::now() >= patience_ends) return socket;
    std::this_thread::sleep_for(kLookAgain);
  }
}

// In the child of a fork: nothing here may allocate.
[[noreturn]] void become_daemon(const char* const* argv, int log_fd, int ready_fd) {
  ::setsid();
  if (::fork() != 0) ::_exit(0);  // init becomes the daemon's parent
  if (!lead_nowhere(std::array{STDIN_FILENO}) || ::dup2(log_fd, STDOUT_FILENO) < 0 || ::dup2(log_fd, STDERR_FILENO) < 0)
    ::_exit(1);
  if (::fcntl(ready_fd, F_SETFD, 0) != 0 || ::chdir("/") != 0) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execv(argv[0], const_cast<char* const*>(argv));
  ::_exit(127);
}

// Returns what the daemon says of its start: "ok", or why not, or nothing when it died.
std::string start_daemon(const DaemonPaths& paths, const std::filesystem::path& program) {
  std::filesystem::create_directories(paths.root);
  const auto log = open_file(paths.log_file(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno("make a pipe for the daemon");
  const UniqueFd ready(ends[0]);
  UniqueFd told(ends[1]);
  const auto root = paths.root.string();
  const auto run_dir = paths.run_dir.string();
  const auto program_path = program.string();
  const auto ready_fd = std::to_string(told.get());
  const std::array argv{program_path.c_str(),
                        "--root",
                        root.c_str(),
                        "daemon",
                        "--run-dir",
                        run_dir.c_str(),
                        "--ready-fd",
                        ready_fd.c_str(),
                        static_cast<const char*>(nullptr)};
  const pid_t child = ::fork();
  if (child < 0) fail_errno("start the daemon");
  if (child == 0) become_daemon(argv.data(), log.get(), told.get());
  told.reset();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::string word;
  std::array<char, 512> buffer;
  for (ssize_t n = 0; word.size() < kMaxReadyBytes &&
                      ((n = ::read(ready.get(), buffer.data(), buffer.size())) > 0 || (n < 0 && errno == EINTR));) {
    if (n > 0) word.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return word;
}

// A daemon that knows one format alone asks for that: `handover_format` is the oldest.
json with_formats(json arguments, HandoverFormats reads) {
  arguments["handover_format"] = reads.oldest;
  arguments["newest_handover_format"] = reads.newest;
  return arguments;
}

}  // namespace

struct ControlClient::Connection {
  LineSocket socket;
  DaemonPaths paths;

  [[noreturn]] void fail_gone() const {
    fail<TemporaryError>("the daemon at {} has gone; its log: {}", paths.socket().string(), paths.log_file().string());
  }

  // Until a daemon that follows one that died or was replaced answers. False if none comes.
  bool reconnect(const CancelFlag* cancel) {
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() < begin + kStartPatience) {
      // It has ended in order, or its keeper with it: no other will come by itself.
      if (std::chrono::steady_clock::now() > begin + kOrderlyEndPatience &&
          (!std::filesystem::exists(paths.handover_file()) || keeper_has_ended(paths.keeper_socket())))
        return false;
      if (cancel != nullptr) cancel->throw_if_cancelled();
      if (auto fresh = connect_socket(paths.socket())) {
        socket = LineSocket(std::move(fresh), kMaxAnswerBytes);
        return true;
      }
      std::this_thread::sleep_for(kLookAgain);
    }
    return false;
  }

  // For calls that may be made twice: made again if the daemon dies meanwhile and another follows.
  JsonValue repeatable_call(const char* name, const json& arguments, const ProgressCallback& progress = {},
                            const CancelFlag* cancel = nullptr) {
    for (unsigned attempt = 1; attempt < kMostAttempts; ++attempt) {
      if (auto result = try_call(name, arguments, progress, cancel)) return std::move(*result);
      if (!reconnect(cancel)) break;
    }
    return call(name, arguments, progress, cancel);
  }

  // For calls that change something once: after the death of the daemon the next one is asked, by `carried_out`,
  // whether that was done and only the answer is missing; if it was not, the call is made again. Absent: no answer, but
  // done.
  std::optional<JsonValue> call_once(const char* name, const json& arguments,
                                     const std::function<bool()>& carried_out) {
    for (unsigned attempt = 1; attempt < kMostAttempts; ++attempt) {
      if (auto result = try_call(name, arguments, {}, nullptr)) return result;
      if (!reconnect(nullptr)) fail_gone();
      if (carried_out()) return std::nullopt;
    }
    return call(name, arguments);
  }

  // Sends a call and returns its result; progress lines on the way go to `progress`.
  JsonValue call(const char* name, const json& arguments, const ProgressCallback& progress = {},
                 const CancelFlag* cancel = nullptr) {
    auto result = try_call(name, arguments, progress, cancel);
    if (!result) fail_gone();
    return std::move(*result);
  }

  // Absent when the connection breaks.
  std::optional<JsonValue> try_call(const char* name, json arguments, const ProgressCallback& progress,
                                    const CancelFlag* cancel) {
    arguments["version"] = kControlVersion;
    arguments["call"] = name;
    try {
      socket.write_line(arguments.dump());
      while (true) {
        const auto line = socket.read_line(cancel != nullptr ? kPollMs : -1);
        if (cancel != nullptr) cancel->throw_if_cancelled();
        if (!line && socket.timed_out()) continue;
        if (!line) return std::nullopt;
        const auto answer = parse_control_line(*line, "answer of the daemon");
        if (answer.has("error")) throw_from_json(answer["error"]);
        if (answer.has("result")) return answer["result"];
        if (const auto made = answer.maybe("progress"); progress && made)
          progress(made["done"].number(), made["expected"].number());
      }
    } catch (const std::system_error& error) {
      if (error.code().value() == EPIPE || error.code().value() == ECONNRESET) return std::nullopt;
      throw;
    }
  }
};

ControlClient::ControlClient(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
ControlClient::ControlClient(ControlClient&&) noexcept = default;
ControlClient& ControlClient::operator=(ControlClient&&) noexcept = default;
ControlClient::~ControlClient() = default;

std::optional<ControlClient> ControlClient::connect(const DaemonPaths& paths) {
  auto socket = connect_daemon(paths);
  if (!socket) return std::nullopt;
  return ControlClient(std::make_unique<Connection>(Connection{LineSocket(std::move(socket), kMaxAnswerBytes), paths}));
}

ControlClient ControlClient::connect_or_start(const DaemonPaths& paths, const std::filesystem::path& program) {
  if (auto client = connect(paths)) return std::move(*client);
  auto word = start_daemon(paths, program);
  // Two commands may start it at once: the second daemon leaves, and the first is about to answer. Or the one that runs
  // is dying, and another must be started once it is gone.
  auto now = std::chrono::steady_clock::now();
  for (const auto patience_ends = now + kStartPatience; word == "running" && now < patience_ends;) {
    for (const auto start_again = now + kStartAgain; now < start_again; now = std::chrono::steady_clock::now()) {
      if (auto client = connect(paths)) return std::move(*client);
      std::this_thread::sleep_for(kLookAgain);
    }
    word = start_daemon(paths, program);
  }
  if (word != "ok")
    fail<Error>("the daemon did not start: {}; its log: {}", word.empty() ? "it ended at once" : word,
                paths.log_file().string());
  if (auto client = connect(paths)) return std::move(*client);
  fail<TemporaryError>("the daemon started but does not answer at {}; its log: {}", paths.socket().string(),
                       paths.log_file().string());
}

std::optional<MountStatus> ControlClient::mount_at(const std::filesystem::path& dir) {
  for (auto& mount : status().mounts)
    if (!mount.session && mount.dir == dir) return std::move(mount);
  return std::nullopt;
}

MountResult ControlClient::mount(const ImageSpec& image, const std::filesystem::path& dir, MountMode mode,
                                 const MountOptions& options) {
  MountResult done;
  const auto carried_out = [&] {
    const auto there = mount_at(std::filesystem::weakly_canonical(dir));
    if (!there || there->stats.reference != image.reference) return false;
    done.dir = there->dir;
    done.mode = there->mode;
    done.image = there->stats.image;
    return true;
  };
  json arguments = options;
  arguments.update({{"image", image}, {"dir", dir}, {"mode", mode}});
  const auto result = connection_->call_once("mount", arguments, carried_out);
  return result ? read_message<MountResult>(*result) : done;
}

void ControlClient::unmount(const std::filesystem::path& dir, bool detach) {
  connection_->call_once("unmount", {{"dir", dir}, {"detach", detach}},
                         [&] { return !mount_at(dir.lexically_normal()); });
}

AcquiredImage ControlClient::acquire(const ImageSpec& image, MountMode mode, const MountOptions& options) {
  json arguments = options;
  arguments.update({{"image", image}, {"mode", mode}});
  return read_message<AcquiredImage>(connection_->repeatable_call("acquire", arguments));
}

LookedUpImage ControlClient::look_up(const ImageSpec& image, std::chrono::milliseconds limit) {
  return read_message<LookedUpImage>(
      connection_->repeatable_call("look_up", {{"image", image}, {"limit_ms", limit.count()}}));
}

HeldTree ControlClient::hold(const std::string& name, const ImageSpec& image, std::uint32_t layers, MountMode mode) {
  return read_message<HeldTree>(
      connection_->repeatable_call("hold", {{"name", name}, {"image", image}, {"layers", layers}, {"mode", mode}}));
}

void ControlClient::release(const std::string& name) { connection_->repeatable_call("release", {{"name", name}}); }

std::vector<HeldTree> ControlClient::held() {
  return read_message<std::vector<HeldTree>>(connection_->repeatable_call("held", json::object()));
}

Bytes ControlClient::recording() { return connection_->call("recording", json::object())["profile"].base64(); }

std::optional<ImageStats> ControlClient::image_stats(const Digest& image) {
  const auto answer = connection_->repeatable_call("image_stats", {{"digest", image}});
  if (answer.raw().is_null()) return std::nullopt;
  return read_message<ImageStats>(answer);
}

DaemonStatus ControlClient::status() {
  return read_message<DaemonStatus>(connection_->repeatable_call("status", json::object()));
}

PullResult ControlClient::pull(const ImageSpec& image, bool wait, bool cold, const ProgressCallback& progress,
                               const CancelFlag& cancel) {
  return read_message<PullResult>(
      connection_->repeatable_call("pull", {{"image", image}, {"wait", wait}, {"cold", cold}}, progress, &cancel));
}

std::vector<LayerRanges> ControlClient::present(const ImageSpec& image) {
  return read_layer_ranges(connection_->call("present", {{"image", image}}));
}

PullResult ControlClient::fetch(const ImageSpec& image, const std::vector<LayerRanges>& wanted,
                                const ProgressCallback& progress, const CancelFlag& cancel) {
  return read_message<PullResult>(
      connection_->call("fetch", {{"image", image}, {"layers", wanted}}, progress, &cancel));
}

VerifyResult ControlClient::verify(const ImageSpec& image, bool deep, const ProgressCallback& progress,
                                   const CancelFlag& cancel) {
  return read_message<VerifyResult>(
      connection_->repeatable_call("verify", {{"image", image}, {"deep", deep}}, progress, &cancel));
}

VerifyResult ControlClient::verify_store(const ProgressCallback& progress, const CancelFlag& cancel) {
  return read_message<VerifyResult>(connection_->repeatable_call("verify_store", json::object(), progress, &cancel));
}

RemovedImage ControlClient::remove_image(const Digest& image) {
  return read_message<RemovedImage>(connection_->repeatable_call("remove_image", {{"digest", image}}));
}

void ControlClient::replace(const std::filesystem::path& program, HandoverFormats reads) {
  connection_->call("replace", with_formats({{"program", program}}, reads));
  const auto patience_ends = std::chrono::steady_clock::now() + kStartPatience;
  while (connection_->socket.read_line(kPollMs) || connection_->socket.timed_out()) {
    if (std::chrono::steady_clock::now() >= patience_ends)
      fail<Error>("the daemon did not give way to {}; its log: {}", program.string(),
                  connection_->paths.log_file().string());
  }
  if (!connection_->reconnect(nullptr))
    fail<Error>("no daemon has followed; its log: {}", connection_->paths.log_file().string());
  connection_->repeatable_call("ping", json::object());  // the socket of the one that goes may have taken us
}

// The daemon closes its connections when everything is unmounted, as its last act.
void ControlClient::wait_for_end() {
  while (connection_->socket.read_line()) {
  }
}

StopResult ControlClient::shutdown() {
  auto result = read_message<StopResult>(connection_->call("shutdown", json::object()));
  if (result.in_use.empty()) wait_for_end();
  return result;
}

void ControlClient::end_all(std::chrono::seconds grace) {
  connection_->call("shutdown", {{"force", true}, {"grace_seconds", grace.count()}});
  wait_for_end();
}

void ControlClient::leave(HandoverFormats reads) {
  connection_->call("leave", with_formats(json::object(), reads));
  wait_for_end();
}

}  // namespace varve::fuse
