#pragma once
// The daemon's side of the control socket.
#include <sys/types.h>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/files/unique_fd.h"
#include "fuse/daemon/daemon.h"

namespace varve::fuse {

inline constexpr std::size_t kMaxConnections = 1024;  // sessions keep one each

class ControlServer {
 public:
  struct Events {
    std::function<void()> shutdown;                           // a client asks for the end, which has begun
    std::function<void()> leave;                              // the end, with all mounts left to a next daemon
    std::function<void(const std::string& program)> replace;  // that program is to take the daemon's place
  };
  // Listens at once; the socket is for this user alone. Events come from the threads of connections, after the client
  // has its answer.
  ControlServer(Daemon& daemon, const std::filesystem::path& socket, Events events);
  ~ControlServer();

  // No new connections; the socket's name goes away.
  void stop_listening();
  // Hangs up on all clients and waits until their calls have ended, at most so long. False if some have not.
  bool hang_up(std::chrono::milliseconds patience);
  std::size_t connections();

 private:
  void accept_clients(const std::stop_token& stop);
  void serve(UniqueFd socket) noexcept;

  Daemon& daemon_;
  std::filesystem::path path_;
  const Events events_;
  UniqueFd listener_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::list<int> sockets_;  // of the connections being served; each thread removes its own
  std::jthread acceptor_;
};

// Why a process may not ask for mounts here; absent if it may. It would not see them from another mount namespace.
std::optional<std::string> why_not_for_peer(pid_t pid);

}  // namespace varve::fuse
