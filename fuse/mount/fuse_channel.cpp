#include "fuse/mount/fuse_channel.h"

#include <linux/fuse.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/free_with.h"
#include "core/base/log.h"
#include "fuse/mount/fuse_mount.h"

namespace varve::fuse {
namespace {

constexpr const char* kOperationNames[] = {
    "0",
    "LOOKUP",
    "FORGET",
    "GETATTR",
    "SETATTR",
    "READLINK",
    "SYMLINK",
    "7",
    "MKNOD",
    "MKDIR",
    "UNLINK",
    "RMDIR",
    "RENAME",
    "LINK",
    "OPEN",
    "READ",
    "WRITE",
    "STATFS",
    "RELEASE",
    "19",
    "FSYNC",
    "SETXATTR",
    "GETXATTR",
    "LISTXATTR",
    "REMOVEXATTR",
    "FLUSH",
    "INIT",
    "OPENDIR",
    "READDIR",
    "RELEASEDIR",
    "FSYNCDIR",
    "GETLK",
    "SETLK",
    "SETLKW",
    "ACCESS",
    "CREATE",
    "INTERRUPT",
    "BMAP",
    "DESTROY",
    "IOCTL",
    "POLL",
    "NOTIFY_REPLY",
    "BATCH_FORGET",
    "FALLOCATE",
    "READDIRPLUS",
    "RENAME2",
    "LSEEK",
    "COPY_FILE_RANGE",
    "SETUPMAPPING",
    "REMOVEMAPPING",
    "SYNCFS",
    "TMPFILE",
    "STATX",
};

std::string operation_name(std::size_t opcode) {
  return opcode < std::size(kOperationNames) ? kOperationNames[opcode] : std::to_string(opcode);
}

constexpr int kHelloPatienceMs = 10'000;
constexpr std::int32_t kNotifyResend = 7;                         // FUSE_NOTIFY_RESEND; not in the headers of Debian 12
constexpr std::uint64_t kUniqueOfNobody = 0x7fff'ffff'ffff'fffe;  // even, as requests are; none will ever have it

// The kernel's number of the request that this thread is handling; libfuse does not show it.
thread_local std::uint64_t current_unique = 0;

void log_line_of_libfuse(fuse_log_level level, const char* format, va_list arguments) {
  std::array<char, 512> line;
  std::vsnprintf(line.data(), line.size(), format, arguments);
  std::string_view text(line.data());
  while (text.ends_with('\n')) text.remove_suffix(1);
  if (level <= FUSE_LOG_ERR)
    log::error("libfuse: {}", text);
  else
    log::debug("libfuse: {}", text);
}

// True if the thread is dying: a signal that only interrupts must not turn a page fault into SIGBUS.
bool is_being_killed(std::uint32_t thread_id) {
  const auto status = read_file_if_there(fmt::format("/proc/{}/status", thread_id));
  if (!status) return true;
  const auto text = as_text(*status);
  constexpr std::uint64_t kill_bit = 1u << 8;  // SIGKILL is signal 9
  for (const std::string_view field : {"SigPnd:", "ShdPnd:"}) {
    const auto at = text.find(field);
    if (at == std::string_view::npos) continue;
    const auto digits = text.substr(at + field.size() + 1, 16);
    if ((std::strtoull(std::string(digits).c_str(), nullptr, 16) & kill_bit) != 0) return true;
  }
  return false;
}

// Asks the kernel to queue again all requests that have no answer yet: the daemon before us has taken them with it.
void ask_to_resend(int fd, const std::filesystem::path& dir) {
  const fuse_out_header notification{.len = sizeof notification, .error = kNotifyResend, .unique = 0};
  if (::write(fd, &notification, sizeof notification) == static_cast<ssize_t>(sizeof notification)) return;
  if (errno == EINVAL)
    fail<Unsupported>(
        "the connection of {} cannot be taken over: this kernel does not send requests again (Linux 6.9 does)",
        dir.string());
  fail_errno("take over the connection of {}", dir.string());
}

}  // namespace

// A READ that is answered when its bytes arrive. Whoever comes first answers: the bytes, the error, or the interrupt.
struct FuseChannel::LateReply {
  std::shared_ptr<FuseChannel> channel;  // keeps the session alive until the reply is sent
  fuse_req_t req = nullptr;
  std::uint64_t unique = 0;
  std::uint32_t thread_id = 0;
  std::uint64_t inode = 0;
  ByteRange range;
  std::atomic<bool> answered = false;
};

FuseChannel::FuseChannel(FuseMountOptions options, std::shared_ptr<FuseFileSystem> file_system)
    : options_(std::move(options)), file_system_(std::move(file_system)) {
  file_system_->channel = this;
}

std::shared_ptr<FuseChannel> FuseChannel::mount(const FuseMountOptions& options, const fuse_lowlevel_ops& operations,
                                                std::shared_ptr<FuseFileSystem> file_system) {
  fuse_set_log_func(log_line_of_libfuse);
  const std::shared_ptr<FuseChannel> channel(new FuseChannel(options, std::move(file_system)));
  channel->stop_event_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!channel->stop_event_) fail_errno("make an event descriptor");

  char program[] = "varve";
  char option[] = "-o";
  auto max_read = fmt::format("max_read={}", kMaxReadBytes);  // again, as libfuse wants it said here and in init alike
  char* argv[] = {program, option, max_read.data(), nullptr};
  fuse_args arguments{.argc = 3, .argv = argv, .allocated = 0};
  channel->session_.reset(fuse_session_new(&arguments, &operations, sizeof operations, channel->file_system_.get()));
  fuse_opt_free_args(&arguments);  // libfuse has put copies in place of ours
  if (!channel->session_) fail<Unsupported>("libfuse gives no session for {}", options.dir.string());

  const auto& keeping = options.keeping;
  auto fd = channel->open_connection();
  const int number = fd.get();
  if (fuse_session_mount(channel->session_.get(), fmt::format("/dev/fd/{}", number).c_str()) != 0) {
    if (!keeping.earlier) unmount_dir(options.dir, true, channel->by_helper_);
    fail<Unsupported>("libfuse does not take the descriptor of {}", options.dir.string());
  }
  fd.release();  // the session closes it
  if (keeping.earlier) {
    channel->repeat_init_request(keeping.earlier->init_request);
    ask_to_resend(number, options.dir);
  } else {
    try {
      const auto init_request = channel->receive_init_request();
      if (keeping.keep) keeping.keep(number, init_request, channel->by_helper_);
    } catch (...) {
      unmount_dir(options.dir, true, channel->by_helper_);
      throw;
    }
  }
  for (unsigned i = 0; i < std::max(options.threads, 1u); ++i)
    channel->threads_.emplace_back([channel] { channel->serve(); });
  return channel;
}

UniqueFd FuseChannel::open_connection() {
  const auto& earlier = options_.keeping.earlier;
  if (earlier) {
    by_helper_ = earlier->by_helper;
    return std::move(earlier->fd);
  }
  auto mounted = mount_fuse({.dir = options_.dir,
                             .source = options_.source,
                             .subtype = options_.subtype,
                             .check_permissions = options_.check_permissions,
                             .max_read_bytes = kMaxReadBytes});
  by_helper_ = mounted.by_helper;
  return std::move(mounted.fd);
}

// The kernel's first message settles what both sides can do; it comes by itself after a mount. Answers it and returns
// it as it came.
Bytes FuseChannel::receive_init_request() {
  pollfd wait{.fd = fuse_session_fd(session_.get()), .events = POLLIN, .revents = 0};
  fuse_buf buffer{};
  int received = -EAGAIN;
  while (received == -EINTR || received == -EAGAIN) {
    if (::poll(&wait, 1, kHelloPatienceMs) == 0) break;
    received = fuse_session_receive_buf(session_.get(), &buffer);
  }
  const std::unique_ptr<void, FreeWith<std::free>> memory(buffer.mem);
  fuse_in_header header{};
  if (received >= static_cast<int>(sizeof header)) std::memcpy(&header, buffer.mem, sizeof header);
  if (header.opcode != FUSE_INIT)
    fail<Unsupported>("{}: the kernel does not begin with FUSE_INIT", options_.dir.string());
  auto request = to_bytes({static_cast<const std::byte*>(buffer.mem), buffer.size});
  counts_[FUSE_INIT].fetch_add(1, std::memory_order_relaxed);
  fuse_session_process_buf(session_.get(), &buffer);
  return request;
}

// Tells libfuse what the kernel told the first daemon, so that both use the same options. The kernel waits for no
// answer to it any more: under a number that no request has, it turns it away.
void FuseChannel::repeat_init_request(Bytes init_request) {
  fuse_in_header header{};
  if (init_request.size() >= sizeof header) std::memcpy(&header, init_request.data(), sizeof header);
  if (header.opcode != FUSE_INIT || header.len != init_request.size())
    fail<CorruptData>("{}: what was kept is no FUSE_INIT", options_.dir.string());
  header.unique = kUniqueOfNobody;
  std::memcpy(init_request.data(), &header, sizeof header);
  fuse_buf buffer{};
  buffer.mem = init_request.data();
  buffer.size = init_request.size();
  fuse_session_process_buf(session_.get(), &buffer);
}

// The threads own the channel too, so all of them have ended, save perhaps the one that runs this.
FuseChannel::~FuseChannel() {
  for (auto& thread : threads_) {
    if (thread.get_id() == std::this_thread::get_id()) thread.detach();
  }
}

void FuseChannel::stop() {
  const std::uint64_t one = 1;
  if (::write(stop_event_.get(), &one, sizeof one) < 0)
    log::error("stop {}: {}", options_.dir.string(), std::strerror(errno));
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void FuseChannel::unmount(bool detach) { unmount_dir(options_.dir, detach, by_helper_); }

// Each thread takes requests as long as there are any and then waits; of several waiting, the kernel wakes one.
void FuseChannel::serve() {
  const int fuse_fd = fuse_session_fd(session_.get());
  const UniqueFd poller(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event on_request{.events = EPOLLIN | EPOLLEXCLUSIVE, .data = {.fd = fuse_fd}};
  epoll_event on_stop{.events = EPOLLIN, .data = {.fd = stop_event_.get()}};
  if (::epoll_ctl(poller.get(), EPOLL_CTL_ADD, fuse_fd, &on_request) != 0 ||
      ::epoll_ctl(poller.get(), EPOLL_CTL_ADD, stop_event_.get(), &on_stop) != 0) {
    log::error("serve {}: {}", options_.dir.string(), std::strerror(errno));
    return;
  }
  fuse_buf buffer{};
  while (fuse_session_exited(session_.get()) == 0) {
    const int received = fuse_session_receive_buf(session_.get(), &buffer);
    if (received == -EINTR) continue;
    if (received == -EAGAIN) {
      epoll_event event{};
      if (::epoll_wait(poller.get(), &event, 1, -1) > 0 && event.data.fd == stop_event_.get()) break;
      continue;
    }
    if (received <= 0) break;  // 0: unmounted
    if (buffer.size >= sizeof(fuse_in_header)) {
      fuse_in_header header;
      std::memcpy(&header, buffer.mem, sizeof header);
      current_unique = header.unique;
      counts_[std::min<std::size_t>(header.opcode, counts_.size() - 1)].fetch_add(1, std::memory_order_relaxed);
      if (header.opcode == FUSE_INTERRUPT) let_go_if_killed({static_cast<const std::byte*>(buffer.mem), buffer.size});
    }
    fuse_session_process_buf(session_.get(), &buffer);
  }
  std::free(buffer.mem);
  if (fuse_session_exited(session_.get()) != 0) {
    if (!finished_.exchange(true) && options_.keeping.ended) options_.keeping.ended();
    // Wakes the other threads, which see the end for themselves or here.
    const std::uint64_t one = 1;
    if (::write(stop_event_.get(), &one, sizeof one) < 0)
      log::error("stop {}: {}", options_.dir.string(), std::strerror(errno));
  }
}

std::map<std::string, std::uint64_t> FuseChannel::requests() const {
  std::map<std::string, std::uint64_t> requests;
  for (std::size_t opcode = 0; opcode < counts_.size(); ++opcode) {
    if (const auto count = counts_[opcode].load(std::memory_order_relaxed); count > 0)
      requests[operation_name(opcode)] = count;
  }
  return requests;
}

std::function<void(std::exception_ptr, ByteView)> FuseChannel::reply_later(fuse_req_t req, std::uint64_t inode,
                                                                           ByteRange range) {
  const auto late = std::make_shared<LateReply>();
  late->channel = shared_from_this();
  late->req = req;
  late->unique = current_unique;
  late->thread_id = static_cast<std::uint32_t>(fuse_req_ctx(req)->pid);
  late->inode = inode;
  late->range = range;
  late_.with([&](auto& all) { all[late->unique] = late; });
  return [late](std::exception_ptr error, ByteView bytes) { reply(late, error, bytes); };
}

void FuseChannel::reply(const std::shared_ptr<LateReply>& late, std::exception_ptr error, ByteView bytes) {
  late->channel->late_.with([&](auto& all) { all.erase(late->unique); });
  if (late->answered.exchange(true)) return;
  if (!error) {
    fuse_reply_buf(late->req, reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return;
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& failure) {
    log::error("read of inode {} at {}+{} in {}: {}", late->inode, late->range.offset, late->range.length,
               late->channel->file_system_->name(), failure.what());
  }
  fuse_reply_err(late->req, EIO);
}

void FuseChannel::let_go_if_killed(ByteView interrupt_message) {
  fuse_interrupt_in interrupt;
  if (interrupt_message.size() < sizeof(fuse_in_header) + sizeof interrupt) return;
  std::memcpy(&interrupt, interrupt_message.data() + sizeof(fuse_in_header), sizeof interrupt);
  const auto late = late_.with([&](auto& all) {
    const auto found = all.find(interrupt.unique);
    return found == all.end() ? nullptr : found->second.lock();
  });
  if (!late || !is_being_killed(late->thread_id)) return;
  if (!late->answered.exchange(true)) fuse_reply_err(late->req, EINTR);
}

void answer_error(fuse_req_t req, const char* operation_name, const std::exception& error) noexcept {
  log::error("{} in {}: {}", operation_name, FuseChannel::file_system_of(req).name(), error.what());
  // Broken metadata is an I/O error to the reader; only what the operation itself reports keeps its number.
  const int number = errno_for(error);
  fuse_reply_err(req, number == 0 ? EIO : number);
}

}  // namespace varve::fuse
