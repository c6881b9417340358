// link_proxy: a TCP relay that behaves like one network link: a fixed rate in each direction shared by all connections,
// and a delay. It stands in for netem where the kernel lacks it. Not modelled: loss, slow start.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "core/base/files/unique_fd.h"

namespace {

using varve::UniqueFd;
using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

// One connection may have this much on the link: several times the bytes that fit on 1 Gbit/s x 2 ms, so one stream can
// fill the link also when this process waits for a core for some milliseconds.
constexpr std::size_t kWindow = 1024 * 1024;
// And what such a wait lost is made up for: the bucket holds this much of the link's time.
constexpr std::chrono::milliseconds kBurst{4};
constexpr std::size_t kSegment = 16 * 1024;

struct Options {
  std::uint16_t listen_port = 0;  // 0 = any
  std::uint16_t target_port = 0;
  double bytes_per_second = 119e6;  // what TCP payload gets of 1 Gbit/s Ethernet
  std::chrono::nanoseconds one_way{1'000'000};
};

// When the next byte may leave, in one direction.
class Link {
 public:
  explicit Link(const Options& options) : options_(options) {}

  // Puts bytes on the link and says when they arrive at the other end.
  Time send(std::size_t bytes, Time now) {
    free_at_ = std::max(free_at_, now - kBurst) +
               std::chrono::nanoseconds(std::int64_t(double(bytes) * 1e9 / options_.bytes_per_second));
    total_ += bytes;
    return std::max(free_at_, now) + options_.one_way;
  }
  std::uint64_t total() const { return total_; }

 private:
  const Options& options_;
  Time free_at_{};
  std::uint64_t total_ = 0;
};

struct Segment {
  Time arrives;
  std::vector<char> bytes;
  std::size_t sent = 0;
};

// Bytes of one connection in one direction.
struct Pipe {
  int from = -1;
  int to = -1;
  Link* link = nullptr;
  std::deque<Segment> segments;
  std::size_t queued = 0;
  Time not_before{};     // the connection's handshake
  bool ended = false;    // `from` will send no more
  bool closed = false;   // and `to` was told
  bool blocked = false;  // `to` takes no more for now: epoll will say when
};

struct Connection {
  UniqueFd client;
  UniqueFd server;
  Pipe up;
  Pipe down;
  bool broken = false;
};

void check(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

class Proxy {
 public:
  explicit Proxy(const Options& options) : options_(options), up_(options), down_(options) {
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    check(listener_.get(), "socket");
    const int on = 1;
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    auto address = loopback(options.listen_port);
    check(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
    check(::listen(listener_.get(), 512), "listen");
    epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    signals_ = UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC));
    for (const int fd : {listener_.get(), timer_.get(), signals_.get()}) watch(fd, EPOLLIN);
  }

  std::uint16_t port() const {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    check(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length), "getsockname");
    return ntohs(address.sin_port);
  }

  // Runs until SIGTERM or SIGINT.
  void run() {
    std::array<epoll_event, 64> events{};
    for (;;) {
      const int count = ::epoll_wait(epoll_.get(), events.data(), int(events.size()), -1);
      if (count < 0 && errno != EINTR) check(count, "epoll_wait");
      for (int i = 0; i < count; ++i) {
        const int fd = events[std::size_t(i)].data.fd;
        if (fd == signals_.get()) return;
        if (fd == listener_.get()) accept_all();
        if (fd == timer_.get()) drain(fd);
      }
      // Few connections: visiting all in turn is what shares the link fairly between them.
      move_bytes();
      drop_finished();
      arm_timer();
    }
  }

  std::uint64_t bytes_up() const { return up_.total(); }
  std::uint64_t bytes_down() const { return down_.total(); }
  std::uint64_t connections() const { return accepted_; }

 private:
  void watch(int fd, std::uint32_t what) {
    epoll_event event{};
    event.events = what;
    event.data.fd = fd;
    check(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
  }

  static void drain(int fd) {
    std::uint64_t ticks = 0;
    [[maybe_unused]] const auto count = ::read(fd, &ticks, sizeof ticks);
  }

  void accept_all() {
    for (;;) {
      UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (client.get() < 0) return;
      UniqueFd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      auto address = loopback(options_.target_port);
      if (server.get() < 0 || ::connect(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0)
        continue;
      const int on = 1;
      for (const int fd : {client.get(), server.get()}) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      auto connection = std::make_unique<Connection>();
      // A real client would wait one round trip for the handshake before it may send.
      const Time ready = Clock::now() + 2 * options_.one_way;
      connection->up = {.from = client.get(), .to = server.get(), .link = &up_, .segments = {}, .not_before = ready};
      connection->down = {
          .from = server.get(), .to = client.get(), .link = &down_, .segments = {}, .not_before = ready};
      // Edge-triggered: every wake-up visits every connection until it would block, so no edge is lost.
      watch(client.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
      watch(server.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
      connection->client = std::move(client);
      connection->server = std::move(server);
      connections_.push_back(std::move(connection));
      ++accepted_;
    }
  }

  void move_bytes() {
    const Time now = Clock::now();
    for (bool more = true; more;) {
      more = false;
      for (const auto& connection : connections_) {
        for (Pipe* pipe : {&connection->up, &connection->down}) {
          more |= take_one_segment(*pipe, *connection, now);
          // What was delivered makes room for bytes that wait since an edge that has passed: they must be looked for
          // again.
          const bool was_full = pipe->queued >= kWindow;
          deliver(*pipe, *connection, now);
          more |= was_full && pipe->queued < kWindow;
        }
      }
    }
  }

  bool take_one_segment(Pipe& pipe, Connection& connection, Time now) {
    if (pipe.ended || connection.broken || pipe.queued >= kWindow) return false;
    std::array<char, kSegment> buffer;
    const auto count = ::recv(pipe.from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count > 0) {
      const Time arrives = pipe.link->send(std::size_t(count), std::max(now, pipe.not_before));
      pipe.segments.push_back({.arrives = arrives, .bytes = {buffer.data(), buffer.data() + count}});
      pipe.queued += std::size_t(count);
      return true;
    }
    if (count == 0)
      pipe.ended = true;
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
      connection.broken = true;
    return false;
  }

  static void deliver(Pipe& pipe, Connection& connection, Time now) {
    pipe.blocked = false;
    while (!pipe.segments.empty() && pipe.segments.front().arrives <= now) {
      Segment& segment = pipe.segments.front();
      const auto count = ::send(pipe.to, segment.bytes.data() + segment.sent, segment.bytes.size() - segment.sent,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) connection.broken = true;
        pipe.blocked = true;
        return;
      }
      segment.sent += std::size_t(count);
      pipe.queued -= std::size_t(count);
      if (segment.sent < segment.bytes.size()) {
        pipe.blocked = true;
        return;
      }
      pipe.segments.pop_front();
    }
    if (pipe.ended && pipe.segments.empty() && !pipe.closed) {
      ::shutdown(pipe.to, SHUT_WR);
      pipe.closed = true;
    }
  }

  void drop_finished() {
    std::erase_if(connections_, [](const auto& connection) {
      return connection->broken || (connection->up.closed && connection->down.closed);
    });
  }

  void arm_timer() {
    Time next = Time::max();
    const Time now = Clock::now();
    for (const auto& connection : connections_) {
      for (const Pipe* pipe : {&connection->up, &connection->down}) {
        if (!pipe->segments.empty() && !pipe->blocked) next = std::min(next, pipe->segments.front().arrives);
      }
    }
    itimerspec when{};
    if (next != Time::max()) {
      // A wake-up for every segment would cost more than it tells: 50 us of granularity.
      const auto wait =
          std::max<std::int64_t>(50'000, std::chrono::duration_cast<std::chrono::nanoseconds>(next - now).count());
      when.it_value.tv_sec = wait / 1'000'000'000;
      when.it_value.tv_nsec = wait % 1'000'000'000;
    }
    ::timerfd_settime(timer_.get(), 0, &when, nullptr);
  }

  const Options options_;
  Link up_;
  Link down_;
  UniqueFd listener_, epoll_, timer_, signals_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::uint64_t accepted_ = 0;
};

int usage() {
  std::cerr << "usage: link_proxy --to PORT [--listen PORT] [--rate-mbit 1000] [--rtt-ms 2]\n"
               "Relays loopback connections as a link of that rate and round-trip time would. Prints its port; on "
               "SIGTERM, what it carried.\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const double value = std::atof(argv[i + 1]);
    if (name == "--to")
      options.target_port = std::uint16_t(value);
    else if (name == "--listen")
      options.listen_port = std::uint16_t(value);
    // A frame of 1538 bytes on the wire carries 1464 bytes of TCP payload at most: the usual 119 MB/s of a Gbit.
    else if (name == "--rate-mbit")
      options.bytes_per_second = value * 1e6 / 8 * 0.952;
    else if (name == "--rtt-ms")
      options.one_way = std::chrono::nanoseconds(std::int64_t(value * 1e6 / 2));
    else
      return usage();
  }
  if (options.target_port == 0 || argc % 2 == 0) return usage();
  Proxy proxy(options);
  std::cout << proxy.port() << std::endl;
  proxy.run();
  std::cout << "{\"up\":" << proxy.bytes_up() << ",\"down\":" << proxy.bytes_down()
            << ",\"connections\":" << proxy.connections() << "}" << std::endl;
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
