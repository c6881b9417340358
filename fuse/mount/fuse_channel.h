#pragma once
// One FUSE connection: its mount, its descriptor, its threads. The descriptor is opened by us and only lent to libfuse,
// so that somebody else may keep it while one daemon follows another.
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/files/unique_fd.h"
#include "core/base/threads/guarded.h"

namespace varve::fuse {

inline constexpr std::size_t kMaxReadBytes = 1024 * 1024;
// Attributes and names of an image never change.
inline constexpr double kEndlessSeconds = 1e9;

// How a connection outlives the daemon that mounted it.
struct FuseKeeping {
  // Another daemon's connection to take over, instead of mounting.
  struct Earlier {
    UniqueFd fd;
    Bytes init_request;
    bool by_helper = false;
  };
  std::shared_ptr<Earlier> earlier;
  // Called once the kernel has said hello and before anything else is answered: what the next daemon will need. What it
  // throws ends the mount.
  std::function<void(int fd, ByteView init_request, bool by_helper)> keep;
  // Called when the kernel has closed the connection, from a thread of the channel.
  std::function<void()> ended;
};

struct FuseMountOptions {
  std::filesystem::path dir;
  std::string source;             // first column of /proc/mounts
  std::string subtype = "varve";  // shown as fuse.varve
  bool check_permissions = true;  // by the kernel, from modes and owners
  unsigned threads = 4;
  FuseKeeping keeping;
};

class FuseChannel;

// What the operations of a file system find behind their request: the channel and the file system itself.
struct FuseFileSystem {
  virtual ~FuseFileSystem() = default;
  virtual void init(fuse_conn_info& connection) = 0;
  // For messages: "image sha256:..." or "layer streams".
  virtual std::string name() const = 0;
  FuseChannel* channel = nullptr;
};

class FuseChannel : public std::enable_shared_from_this<FuseChannel> {
 public:
  // Mounts by mount(2) where this process may, else by fusermount3, and starts to serve. Throws std::system_error or
  // Unsupported with what to do. With keeping.earlier nothing is mounted: the kernel is asked to send again what it has
  // no answer to (Linux 6.9; Unsupported if it cannot).
  static std::shared_ptr<FuseChannel> mount(const FuseMountOptions& options, const fuse_lowlevel_ops& operations,
                                            std::shared_ptr<FuseFileSystem> file_system);
  // Lives until the kernel has closed the connection or stop() was called, whoever else lets go of it: a mount that is
  // detached while busy is served to its end.
  ~FuseChannel();

  // Not busy: gone when this returns. Busy: throws std::system_error(EBUSY), or with `detach` vanishes from sight and
  // is served until the last process has left it.
  void unmount(bool detach);
  // True once the kernel has closed the connection.
  bool finished() const { return finished_; }
  // Ends serving: joins the threads. Not from a thread of the channel. When the last pending reply is gone as well, the
  // descriptor is closed, and what the kernel still wants ends with an error.
  void stop();

  // By operation name, since the mount.
  std::map<std::string, std::uint64_t> requests() const;
  const std::filesystem::path& dir() const { return options_.dir; }
  // The file system behind a request.
  static FuseFileSystem& file_system_of(fuse_req_t req) {
    return *static_cast<FuseFileSystem*>(fuse_req_userdata(req));
  }

  // Makes a callback that replies to a READ, from any thread and after any time: bytes, or EIO and one line in the log.
  // If the waiting process is killed first, it is let go. Call while the request is being handled.
  // `inode` and `range` are for the log.
  std::function<void(std::exception_ptr, ByteView)> reply_later(fuse_req_t req, std::uint64_t inode, ByteRange range);

 private:
  struct LateReply;
  struct SessionDeleter {
    void operator()(fuse_session* session) const { fuse_session_destroy(session); }
  };
  FuseChannel(FuseMountOptions options, std::shared_ptr<FuseFileSystem> file_system);
  UniqueFd open_connection();
  Bytes receive_init_request();
  void repeat_init_request(Bytes init_request);
  void serve();
  void let_go_if_killed(ByteView interrupt_message);
  static void reply(const std::shared_ptr<LateReply>& late, std::exception_ptr error, ByteView bytes);

  FuseMountOptions options_;
  std::shared_ptr<FuseFileSystem> file_system_;
  bool by_helper_ = false;                                 // mounted by fusermount3, so it must unmount as well
  std::unique_ptr<fuse_session, SessionDeleter> session_;  // owns the descriptor
  UniqueFd stop_event_;
  std::atomic<bool> finished_ = false;
  std::array<std::atomic<std::uint64_t>, 64> counts_{};
  Guarded<std::unordered_map<std::uint64_t, std::weak_ptr<LateReply>>> late_;  // by the kernel's number of the request
  std::vector<std::jthread> threads_;
};

void answer_error(fuse_req_t req, const char* operation_name, const std::exception& error) noexcept;

// An operation replies last, so nothing can be thrown after a reply.
template <typename Operation>
void answer(fuse_req_t req, const char* operation_name, Operation&& operation) noexcept {
  try {
    operation();
  } catch (const std::exception& error) {
    answer_error(req, operation_name, error);
  }
}

}  // namespace varve::fuse
