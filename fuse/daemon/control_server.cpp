#include "fuse/daemon/control_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <ranges>

#include "core/base/errors.h"
#include "core/base/journal.h"
#include "core/base/log.h"
#include "core/base/process/unix_socket.h"
#include "core/base/threads/ticker.h"
#include "fuse/control/control_protocol.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

constexpr int kBacklog = 64;
constexpr std::size_t kMaxOpenImages = 256;
constexpr auto kMaxGrace = std::chrono::seconds(86'400);
constexpr auto kProgressInterval = std::chrono::milliseconds(200);

ucred peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) fail_errno("ask who is at the control socket");
  return peer;
}

bool has_hung_up(int socket) {
  pollfd look{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

// While it lives, tells the client how far its call is, and cancels the call when the client hangs up.
class Attendant {
 public:
  Attendant(LineSocket& lines, const CancelFlag& whole)
      : lines_(lines), cancel_(&whole), ticker_(kProgressInterval, [this] { look(); }) {}
  Work work() { return {.progress = progress_, .cancel = cancel_}; }

 private:
  void look() noexcept try {
    if (has_hung_up(lines_.fd())) cancel_.cancel();
    if (cancel_.cancelled() || progress_.expected_bytes() == 0) return;
    const json made{{"done", progress_.done_bytes()}, {"expected", progress_.expected_bytes()}};
    lines_.write_line(json{{"progress", made}}.dump());
  } catch (const std::exception& error) {
    log::debug("connection: {}", error.what());
    cancel_.cancel();
  }

  LineSocket& lines_;
  Progress progress_;
  CancelFlag cancel_;
  Ticker ticker_;  // the last: it looks at the others
};

// One client: its requests in order, and the leases that end with it.
class Connection {
 public:
  Connection(Daemon& daemon, UniqueFd socket, const ControlServer::Events& events)
      : daemon_(daemon), lines_(std::move(socket), kMaxRequestBytes), events_(events) {}

  void serve() {
    peer_ = peer_of(lines_.fd());
    if (peer_.uid != ::geteuid() && peer_.uid != 0) {
      lines_.write_line(
          json{{"error", error_to_json(Error(fmt::format("this daemon serves user {} only", ::geteuid())))}}.dump());
      return;
    }
    while (const auto line = lines_.read_line()) {
      std::function<void()> afterwards;
      const auto document = answer(*line, afterwards).dump(-1, ' ', false, json::error_handler_t::replace);
      try {
        lines_.write_line(document);
      } catch (...) {  // the client is gone; an end that has begun goes on
        if (afterwards) afterwards();
        throw;
      }
      if (afterwards) afterwards();
    }
  }

 private:
  json answer(const std::string& line, std::function<void()>& afterwards) {
    std::string call, reference;
    const log::Field about_call("CALL", call), about_image("IMAGE", reference);
    try {
      const auto request = parse_control_line(line, "request");
      const int version = request.maybe("version").number<int>();
      if (version != kControlVersion)
        fail<Unsupported>("the daemon speaks version {} of its protocol, the command {}; restart the daemon",
                          kControlVersion, version);
      call = request.maybe("call").text();
      if (const auto image = request.maybe("image")) reference = image.maybe("reference").text();
      if (call == "shutdown") {
        const auto stop = shut_down(request);
        if (stop.in_use.empty()) afterwards = events_.shutdown;
        return {{"result", stop}};
      }
      if (call == "leave") {
        daemon_.check_leave(formats_of(request));
        afterwards = events_.leave;
      }
      if (call == "replace") {
        daemon_.check_successor(formats_of(request));
        afterwards = [this, program = program_of(request)] { events_.replace(program); };
      }
      return {{"result", carry_out(call, request)}};
    } catch (const std::exception& error) {
      log::info("a request failed: {}", error.what());
      return {{"error", error_to_json(error)}};
    }
  }

  json carry_out(const std::string& call, const JsonValue& request) {
    if (call == "ping" || call == "leave" || call == "replace") return json::object();
    if (call == "status") return daemon_.status();
    if (call == "image_stats") {
      const auto stats = daemon_.image_stats(request["digest"].digest());
      return stats ? json(*stats) : json(nullptr);
    }
    if (call == "remove_image") return daemon_.remove_image(request["digest"].digest());
    if (call == "verify_store") return daemon_.verify_store(attendant().work());
    if (call == "unmount") {
      refuse_other_namespace();
      daemon_.unmount(request["dir"].text(), request.maybe("detach").flag());
      return json::object();
    }
    if (call == "held") return daemon_.held();
    if (call == "release") {
      daemon_.release(request["name"].text());
      return json::object();
    }
    if (call == "recording") return recording_to_json(recording());
    if (call != "mount" && call != "acquire" && call != "pull" && call != "verify" && call != "present" &&
        call != "fetch" && call != "look_up" && call != "hold")
      fail<Unsupported>("the daemon knows no call {:?}", call);
    const auto image = read_image_spec(request["image"]);
    if (call == "pull")
      return daemon_.pull(image, request.maybe("wait").flag(), request.maybe("cold").flag(), attendant().work());
    if (call == "verify") return daemon_.verify(image, request.maybe("deep").flag(), attendant().work());
    if (call == "present") return Daemon::present(*opened(image, request["image"].raw()));
    if (call == "fetch")
      return daemon_.fetch(opened(image, request["image"].raw()), read_layer_ranges(request["layers"]),
                           attendant().work());
    if (call == "look_up")
      return daemon_.look_up(image, std::chrono::milliseconds(request["limit_ms"].number<std::uint32_t>()));
    refuse_other_namespace();
    const auto mode = parse_mount_mode(request["mode"].text());
    if (call == "hold")
      return daemon_.hold(request["name"].text(), image, request.maybe("layers").number<std::uint32_t>(), mode);
    const auto options = read_message<MountOptions>(request);
    if (call == "mount") return daemon_.mount(image, request["dir"].text(), mode, options);
    return daemon_.acquire(image, mode, options, peer_.pid, leases_);
  }

  StopResult shut_down(const JsonValue& request) {
    if (!request.maybe("force").flag()) return daemon_.begin_stop();
    const auto grace =
        std::min(std::chrono::seconds(request.maybe("grace_seconds").number<std::uint32_t>()), kMaxGrace);
    daemon_.end_sessions(grace);
    return {};
  }

  // Stays open as long as the connection: its index is not read again for each piece that is wanted of it.
  const std::shared_ptr<ServedImage>& opened(const ImageSpec& image, const json& as_asked) {
    auto& kept = opened_[as_asked.dump()];
    if (!kept) {
      if (opened_.size() > kMaxOpenImages) fail<Unsupported>("more than {} images over one connection", kMaxOpenImages);
      kept = daemon_.open_image(image);
    }
    return kept;
  }

  Bytes recording() const {
    for (const auto& lease : leases_ | std::views::reverse)
      if (const auto recorder = daemon_.recorder_of(lease)) return recorder->profile().encode();
    fail<NotFound>("recording: this connection has no image that is recorded");
  }

  // A program that names one format reads no other.
  static HandoverFormats formats_of(const JsonValue& request) {
    const auto oldest = request["handover_format"].number<int>();
    const auto newest = request.maybe("newest_handover_format");
    return {.oldest = oldest, .newest = newest ? newest.number<int>() : oldest};
  }

  static std::string program_of(const JsonValue& request) {
    const auto program = request["program"].text();
    if (!program.starts_with('/') || ::access(program.c_str(), X_OK) != 0)
      fail<NotFound>("{}: is no program that could take the place of the daemon", program);
    return program;
  }

  void refuse_other_namespace() const {
    if (const auto why = why_not_for_peer(peer_.pid)) throw Unsupported(*why);
  }

  Attendant attendant() { return {lines_, daemon_.stopping()}; }

  Daemon& daemon_;
  LineSocket lines_;
  const ControlServer::Events& events_;
  ucred peer_{};
  std::map<std::string, std::shared_ptr<ServedImage>> opened_;  // for `present` and `fetch`
  std::vector<LeaseTable::Lease> leases_;
};

}  // namespace

std::optional<std::string> why_not_for_peer(pid_t pid) {
  std::error_code error;
  const auto theirs = std::filesystem::read_symlink(fmt::format("/proc/{}/ns/mnt", pid), error);
  if (error) return std::nullopt;  // not ours to look at; it has passed the check of its user
  const auto ours = std::filesystem::read_symlink("/proc/self/ns/mnt", error);
  if (error || theirs == ours) return std::nullopt;
  return "this command runs in another mount namespace than the daemon, so that it would not see the mount; give it "
         "a daemon of its own with --root DIR, or run it outside";
}

ControlServer::ControlServer(Daemon& daemon, const std::filesystem::path& socket, Events events)
    : daemon_(daemon), path_(socket), events_(std::move(events)), listener_(listen_at(socket, SOCK_STREAM, kBacklog)) {
  acceptor_ = std::jthread([this](const std::stop_token& stop) { accept_clients(stop); });
}

ControlServer::~ControlServer() {
  stop_listening();
  hang_up(std::chrono::hours(24));
}

void ControlServer::accept_clients(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (stop.stop_requested()) return;
    if (!client) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      log::error("accept on the control socket: {}", std::strerror(errno));
      if (errno == EMFILE || errno == ENFILE)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      else
        return;
      continue;
    }
    const std::lock_guard guard(mutex_);
    if (sockets_.size() >= kMaxConnections) {
      log::error("more than {} connections: one is refused", kMaxConnections);
      continue;
    }
    const int fd = client.get();
    sockets_.push_back(fd);
    try {
      std::thread([this, socket = std::move(client)]() mutable { serve(std::move(socket)); }).detach();
    } catch (const std::system_error& error) {
      log::error("serve a client: {}", error.what());
      sockets_.remove(fd);
    }
  }
}

void ControlServer::serve(UniqueFd socket) noexcept {
  const int fd = socket.get();
  {
    std::optional<Connection> connection;
    try {
      connection.emplace(daemon_, std::move(socket), events_);
      connection->serve();
    } catch (const std::exception& error) {
      log::debug("connection: {}", error.what());
    }
    // Taken off the list before its number can be given to another descriptor.
    const std::lock_guard guard(mutex_);
    *std::find(sockets_.begin(), sockets_.end(), fd) = -1;
  }
  // Leases have ended with the connection. The server may be destroyed as soon as the lock is released.
  const std::lock_guard guard(mutex_);
  sockets_.erase(std::find(sockets_.begin(), sockets_.end(), -1));
  ended_.notify_all();
}

void ControlServer::stop_listening() {
  if (!acceptor_.joinable()) return;
  acceptor_.request_stop();
  ::shutdown(listener_.get(), SHUT_RDWR);  // wakes accept
  acceptor_.join();
  ::unlink(path_.c_str());
}

bool ControlServer::hang_up(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  for (const int fd : sockets_) {
    if (fd >= 0) ::shutdown(fd, SHUT_RDWR);
  }
  return ended_.wait_for(lock, patience, [this] { return sockets_.empty(); });
}

std::size_t ControlServer::connections() {
  const std::lock_guard guard(mutex_);
  return sockets_.size();
}

}  // namespace varve::fuse
