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

#include "core/base/unique_fd.h"
#include "fuse/daemon.h"

namespace varve::fuse {

inline constexpr std::size_t kMaxConnections = 1024;  // sessions keep one each

class ControlServer {
 public:
  // Listens at once; the socket is for this user alone. `on_shutdown` is called when a client asks for the end, from a connection's thread.
  ControlServer(Daemon& daemon, const std::filesystem::path& socket, std::function<void()> on_shutdown);
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
  std::function<void()> on_shutdown_;
  UniqueFd listener_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::list<int> sockets_;  // of the connections being served; each thread removes its own
  std::jthread acceptor_;
};

// Why a process may not ask for mounts here; absent if it may. It would not see them from another mount namespace.
std::optional<std::string> why_not_for_peer(pid_t pid);

}  // namespace varve::fuse
