#include "fuse/daemon/pages/start_pages.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>

#include "core/base/errors.h"
#include "core/base/files/unique_fd.h"
#include "core/base/log.h"
#include "fuse/daemon/pages/shown_files.h"
#include "fuse/mount/mount_child.h"

namespace varve::fuse {
namespace {

using namespace std::chrono_literals;

// A trigger is read again when its page was dropped, or by a mount that came later.
constexpr auto kBeginAgain = 10s;
constexpr int kLookAtInterruptMs = 20;
constexpr int kQueueBytes = 16 << 10;  // to the child: what a later start needs goes behind no more than this
// The kernel takes no more of one call, whatever read-ahead the mount has (bdi.io_pages).
constexpr std::uint64_t kReadAheadBytes = 128 << 10;

struct Message {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::array<char, PATH_MAX> path{};  // as much of it as there is, with its 0
};
constexpr std::size_t kMessageHead = offsetof(Message, path);

// --- in the child: nothing may allocate or lock

int open_below(int folder, const char* path) {
  const open_how how{
      .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, .mode = 0, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
  return int(::syscall(SYS_openat2, folder, path, &how, sizeof how));
}

int read_ahead_loop(int from, const char* dir) {
  const int folder = ::open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return errno;
  Message message;
  std::array<char, PATH_MAX> open_path{};
  int file = -1;
  while (true) {
    const auto got = ::recv(from, &message, sizeof message, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= ssize_t(kMessageHead)) return 0;
    if (file < 0 || std::strcmp(open_path.data(), message.path.data()) != 0) {
      if (file >= 0) ::close(file);
      file = open_below(folder, message.path.data());
      open_path = message.path;
    }
    if (file < 0) continue;
    const auto end = message.offset + message.length;
    for (auto at = message.offset / kReadAheadBytes * kReadAheadBytes; at < end; at += kReadAheadBytes) {
      const auto begin = std::max(at, message.offset);
      ::readahead(file, off_t(begin), std::min(end, at + kReadAheadBytes) - begin);
    }
  }
}

}  // namespace

// --- in the daemon

// The child process, from the first part on.
class StartPages::Reader {
 public:
  explicit Reader(StartPages& pages) : pages_(pages) {}

  // False if interrupted, or the child cannot go on.
  bool read(const std::string& path, ByteRange range) {
    if (path.size() >= PATH_MAX) return true;
    if (!child_) start();
    message_.offset = range.offset;
    message_.length = range.length;
    std::memcpy(message_.path.data(), path.c_str(), path.size() + 1);
    while (true) {
      if (::send(to_.get(), &message_, kMessageHead + path.size() + 1, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
      if (errno != EAGAIN && errno != EINTR) return false;
      pollfd writable{.fd = to_.get(), .events = POLLOUT, .revents = 0};
      ::poll(&writable, 1, kLookAtInterruptMs);
      if (pages_.is_interrupted()) return false;
    }
  }
  // Until it has asked for all that it was told of; at once if interrupted.
  void end() {
    to_.reset();
    while (child_ && !child_->has_ended() && !pages_.is_interrupted()) std::this_thread::sleep_for(1ms);
    child_.reset();
  }

 private:
  void start() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) fail_errno("make sockets");
    to_.reset(ends[0]);
    const UniqueFd from(ends[1]);
    ::setsockopt(to_.get(), SOL_SOCKET, SO_SNDBUF, &kQueueBytes, sizeof kQueueBytes);
    const auto dir = pages_.dir_.string();
    child_.emplace(std::array{from.get()}, [&, from = from.get()] { return read_ahead_loop(from, dir.c_str()); });
  }

  StartPages& pages_;
  UniqueFd to_;
  std::optional<MountChild> child_;
  Message message_;
};

namespace {

bool overlap(const std::vector<ByteRange>& ascending, ByteRange range) {
  const auto found = std::ranges::upper_bound(ascending, range.offset, {}, &ByteRange::end);
  return found != ascending.end() && found->overlaps(range);
}

}  // namespace

PackedFiles::PackedFiles(const ServedImage& image, const index::StartGroup* only) {
  const auto& layers = image.packs()->layers();
  // What packs have of each layer, to leave other files out.
  std::unordered_map<const LayerStream*, std::vector<ByteRange>> packed;
  for (const auto& group : image.index().packs.groups)
    if (only == nullptr || &group == only)
      for (const auto& range : group.pack.ranges) packed[layers[range.layer]].push_back(range.stream_range);
  for (auto& [layer, ranges] : packed) ranges = joined_ranges(std::move(ranges));
  // Most files are in none, and their pieces need not be found: a layer's device is its stream.
  std::vector<const std::vector<ByteRange>*> of_device;
  for (const auto& layer : image.layers()) {
    const auto ranges = packed.find(layer.get());
    of_device.push_back(ranges == packed.end() ? nullptr : &ranges->second);
  }
  const auto may_be_packed = [&](const index::DeviceRun& run) {
    if (run.device == 0 || run.device > of_device.size()) return run.device != 0;
    const auto* ranges = of_device[run.device - 1];
    return ranges != nullptr && overlap(*ranges, {.offset = run.device_offset, .length = run.length});
  };
  const auto& tree = *image.index().tree;
  for_each_file(tree, [&](index::Nid file, const std::string& folder, std::string_view name) {
    const auto runs = tree.runs(file);
    if (std::ranges::none_of(runs, may_be_packed)) return;
    bool is_named = false;
    for (const auto& piece : pieces_of(runs, image.devices(), {.offset = 0, .length = tree.inode(file).size})) {
      const auto ranges = packed.find(piece.stream);
      if (ranges == packed.end()) continue;
      const ByteRange stream_range{.offset = piece.stream_offset, .length = piece.length};
      if (!overlap(ranges->second, stream_range)) continue;
      if (!std::exchange(is_named, true)) paths_.push_back(join_path(folder, name));
      shown_[piece.stream].push_back({.stream_range = stream_range,
                                      .part = {.file = std::uint32_t(paths_.size() - 1),
                                               .range = {.offset = piece.into, .length = piece.length}}});
    }
  });
  for (auto& [layer, shown] : shown_)
    std::ranges::sort(shown, {}, [](const Shown& one) { return one.stream_range.offset; });
}

std::vector<ShownPart> PackedFiles::parts_of(const LayerStream& layer, ByteRange stream_range) const {
  std::vector<ShownPart> parts;
  const auto shown = shown_.find(&layer);
  if (shown == shown_.end()) return parts;
  auto next = std::ranges::upper_bound(shown->second, stream_range.offset, {},
                                       [](const Shown& one) { return one.stream_range.end(); });
  for (; next != shown->second.end() && next->stream_range.offset < stream_range.end(); ++next) {
    const auto seen = next->stream_range.common_with(stream_range);
    if (seen.length == 0) continue;
    parts.push_back({.file = next->part.file,
                     .range = {.offset = next->part.range.offset + (seen.offset - next->stream_range.offset),
                               .length = seen.length}});
  }
  return parts;
}

StartPages::StartPages(std::shared_ptr<ServedImage> image, std::filesystem::path dir)
    : image_(std::move(image)), dir_(std::move(dir)) {
  listening_ = image_->packs()->listen([this](const auto& group) { begin(group); });
}

StartPages::~StartPages() {
  listening_.reset();
  let_go();
}

void StartPages::begin(const index::StartGroup& group) {
  const std::lock_guard guard(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (const auto [known, is_new] = begun_.try_emplace(&group, now); !is_new) {
    if (now - known->second < kBeginAgain || std::ranges::find(starts_, &group, &Start::group) != starts_.end()) return;
    known->second = now;
  }
  starts_.insert(starts_.begin(), {.group = &group});
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
  changed_.notify_all();
}

bool StartPages::is_interrupted() {
  const std::lock_guard guard(mutex_);
  return interrupted_;
}

void StartPages::let_go() {
  std::unique_lock lock(mutex_);
  starts_.clear();
  if (frames_) frames_->stop();
  interrupted_ = reading_;
  changed_.wait(lock, [&] { return !reading_; });
  starts_.clear();  // what began meanwhile
  interrupted_ = false;
}

void StartPages::loop(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  // Not while let_go() waits: it would never find this thread at rest, as what began meanwhile is not taken up.
  while (changed_.wait(lock, stop, [&] { return !starts_.empty() && !interrupted_; })) {
    reading_ = true;
    Reader reader(*this);
    while (!starts_.empty() && !interrupted_) {
      auto start = starts_.front();
      if (!frames_) frames_ = std::make_shared<PiecesUnderWay>(Priority::kReadAhead, 1);
      const auto frames = frames_;
      lock.unlock();
      bool more = true;
      try {
        find_files(*start.group);
        more = go_on(start, *frames, reader);
      } catch (const Cancelled&) {
        more = false;
      } catch (const std::exception& error) {
        more = false;
        log::info("start-up pack of {}: its pages are read when they are asked for: {}", start.group->name,
                  error.what());
      }
      lock.lock();
      if (!more) frames_.reset();  // it may have failed
      const auto here = std::ranges::find(starts_, start.group, &Start::group);
      if (here == starts_.end()) continue;
      if (more)
        *here = start;
      else
        starts_.erase(here);
    }
    lock.unlock();
    reader.end();
    lock.lock();
    frames_.reset();
    reading_ = false;
    changed_.notify_all();
  }
}

// The first start, often of a program with a small pack, need not wait until the files of all are known.
void StartPages::find_files(const index::StartGroup& group) {
  if (files_ && (files_of_ == nullptr || files_of_ == &group)) return;
  files_of_ = files_ ? nullptr : &group;
  files_.emplace(*image_, files_of_);
}

// One range of the pack. False if there is nothing more to do for this start.
bool StartPages::go_on(Start& start, PiecesUnderWay& frames, Reader& reader) {
  const auto& ranges = start.group->pack.ranges;
  if (start.next_range == ranges.size()) return false;
  const auto& range = ranges[start.next_range++];
  auto& layer = *image_->packs()->layers()[range.layer];
  // Of another pack, where that has it too.
  std::vector<StreamPiece> of_packs, pieces;
  image_->packs()->find_pieces(
      {.stream = &layer, .stream_offset = range.stream_range.offset, .length = range.stream_range.length}, of_packs);
  for (const auto& piece : of_packs) image_->seeds().find_pieces(piece, pieces);
  for (const auto& piece : pieces) {
    if (piece.is_elsewhere()) continue;
    const ByteRange in_pack{.offset = piece.pack_offset, .length = piece.length};
    if (piece.pack == nullptr) {
      // What a pack that failed would have had comes when it is asked for.
      if (piece.literal == nullptr && !layer.is_readable({piece.stream_offset, piece.length})) return true;
    } else if (!piece.pack->stream->is_readable(in_pack)) {
      frames.want(*piece.pack->stream, in_pack, 1);
      frames.wait();
    }
  }
  for (const auto& part : files_->parts_of(layer, range.stream_range))
    if (!reader.read(files_->paths()[part.file], part.range)) return false;
  return true;
}

}  // namespace varve::fuse
