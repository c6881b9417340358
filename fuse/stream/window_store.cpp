#include "fuse/stream/window_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/index/span_reader.h"

namespace varve::fuse {

WindowStore::WindowStore(std::filesystem::path dir, std::shared_ptr<const index::LayerMap> map)
    : map_(std::move(map)), data_path_(dir / "windows"), presence_path_(dir / "windows.presence") {
  if (map_->windows_bytes == 0) return;
  if (map_->windows_bytes <= kWholeWindowsBytes) block_bytes_ = map_->windows_bytes;
  blocks_ = std::size_t((map_->windows_bytes + block_bytes_ - 1) / block_bytes_);
  states_.reset(new std::atomic<State>[blocks_]);
  for (std::size_t block = 0; block < blocks_; ++block) states_[block] = State::kAbsent;
  if (std::filesystem::exists(presence_path_) || std::filesystem::exists(data_path_)) make_files();
}

void WindowStore::open_files() {
  std::filesystem::create_directories(data_path_.parent_path());
  Bytes cut;
  append_le<std::uint64_t>(cut, block_bytes_);
  auto opened = PresenceLog::open(presence_path_, {.kind = PresenceIdentity::Kind::kWindowBlocks,
                                                   .object = map_->windows_digest,
                                                   .cut = digest_of(cut),
                                                   .units = blocks_,
                                                   .data_bytes = map_->windows_bytes});
  log_ = std::move(opened.log);
  data_ = open_file(data_path_, O_RDWR | O_CREAT);
  const bool same =
      opened.found == PresenceLog::Found::kSame && file_size(data_.get(), data_path_) == map_->windows_bytes;
  if (!opened.reason.empty())
    log::warn("windows of {}: presence log: {}", map_->layer_digest.to_string(), opened.reason);
  if (!same && ::ftruncate(data_.get(), 0) != 0) fail_errno("truncate {}", data_path_.string());
  if (::ftruncate(data_.get(), off_t(map_->windows_bytes)) != 0) fail_errno("set the size of {}", data_path_.string());
  for (std::size_t block = 0; block < blocks_ && same; ++block)
    if (opened.present[block]) states_[block] = State::kPresent;
  if (opened.found == PresenceLog::Found::kSame && !same)
    log_->append({{.first = 0, .count = std::uint32_t(blocks_)}}, false);
}

WindowStore::~WindowStore() { sync(); }

ByteRange WindowStore::block_range(std::size_t block) const {
  const auto offset = block * block_bytes_;
  return {.offset = offset, .length = std::min(block_bytes_, map_->windows_bytes - offset)};
}

std::pair<std::size_t, std::size_t> WindowStore::blocks_of(ByteRange record) const {
  if (record.length == 0) return {0, 0};
  if (!record.fits_in(map_->windows_bytes))
    fail<CorruptData>("{}: window at {} lies outside the windows blob of {} bytes", map_->layer_digest.to_string(),
                      record.offset, map_->windows_bytes);
  return {std::size_t(record.offset / block_bytes_), std::size_t((record.end() - 1) / block_bytes_) + 1};
}

std::vector<std::size_t> WindowStore::missing_blocks(ByteRange record) const {
  std::vector<std::size_t> missing;
  const auto [first, last] = blocks_of(record);
  for (auto block = first; block < last; ++block)
    if (states_[block].load(std::memory_order_acquire) == State::kAbsent) missing.push_back(block);
  return missing;
}

void WindowStore::check(std::size_t block, ByteView bytes) const {
  if (blocks_ == 1 && digest_of(bytes) != map_->windows_digest)
    fail<CorruptData>("windows blob {} of layer {}: its digest does not match", map_->windows_digest.to_string(),
                      map_->layer_digest.to_string());
  if (blocks_ != 1) index::check_window_blocks(*map_, block * block_bytes_, bytes);
}

bool WindowStore::damaged(ByteRange record) {
  const auto [first, last] = blocks_of(record);
  try {
    for (auto block = first; block < last; ++block)
      if (states_[block].load(std::memory_order_acquire) != State::kAbsent) check(block, load(block_range(block)));
  } catch (const CorruptData&) {
    return true;
  } catch (const TemporaryError&) {  // dropped meanwhile
  }
  return false;
}

void WindowStore::put(std::size_t block, ByteView bytes) {
  const auto range = block_range(block);
  if (bytes.size() != range.length)
    fail<CorruptData>("windows of {}: block at {} has {} bytes, not {}", map_->layer_digest.to_string(), range.offset,
                      bytes.size(), range.length);
  check(block, bytes);
  try {
    make_files();
    pwrite_all(data_.get(), range.offset, bytes, data_path_.string());
    memory_.with([&](Memory& memory) { memory.unsynced.push_back(std::uint32_t(block)); });
    states_[block].store(State::kPresent, std::memory_order_release);
  } catch (const std::system_error&) {  // the span store beside us says in the log that the disk is full
    auto memory = memory_.lock();
    memory->blocks.resize(blocks_);
    memory->blocks[block] = to_bytes(bytes);
    states_[block].store(State::kInMemory, std::memory_order_release);
  }
}

Bytes WindowStore::load(ByteRange record) {
  Bytes bytes(record.length);
  const auto [first, last] = blocks_of(record);
  for (auto block = first; block < last; ++block) {
    const auto range = block_range(block);
    const auto from = std::max(range.offset, record.offset);
    const auto into = std::span(bytes).subspan(from - record.offset, std::min(range.end(), record.end()) - from);
    switch (states_[block].load(std::memory_order_acquire)) {
      case State::kPresent:
        try {
          pread_exactly(data_.get(), from, into, data_path_.string());
        } catch (const std::exception& error) {
          // What our disk does not give back is no fault of the layer's source: the window alone is fetched again.
          throw index::CorruptSpan(index::CorruptSpan::Part::kWindowOrStream,
                                   fmt::format("windows of {}: {}", map_->layer_digest.to_string(), error.what()));
        }
        break;
      case State::kInMemory:
        memory_.with([&](Memory& memory) {
          if (memory.blocks[block].empty())
            fail<TemporaryError>("{}: a window block was dropped", map_->layer_digest.to_string());
          std::copy_n(memory.blocks[block].begin() + std::ptrdiff_t(from - range.offset), into.size(), into.begin());
        });
        break;
      case State::kAbsent:
        fail<TemporaryError>("{}: window at {} is not here", map_->layer_digest.to_string(), record.offset);
    }
  }
  return bytes;
}

void WindowStore::drop(ByteRange record) {
  const std::lock_guard log_lock(log_mutex_);
  const auto [first, last] = blocks_of(record);
  if (first == last) return;
  for (auto block = first; block < last; ++block) states_[block].store(State::kAbsent, std::memory_order_release);
  memory_.with([first_block = first, last_block = last](Memory& memory) {
    for (auto block = first_block; block < last_block; ++block) {
      if (!memory.blocks.empty()) memory.blocks[block].clear();
      std::erase(memory.unsynced, std::uint32_t(block));
    }
  });
  if (!files_.is_done()) return;
  try {
    log_->append({{.first = std::uint32_t(first), .count = std::uint32_t(last - first)}}, false);
  } catch (const std::system_error& error) {
    // After a restart the bad block would be believed once more, fail once more and be dropped once more.
    log::warn("windows of {}: {}", map_->layer_digest.to_string(), error.what());
  }
}

bool WindowStore::sync() {
  if (blocks_ == 0) return true;
  const std::lock_guard log_lock(log_mutex_);
  auto unsynced = memory_.with([](Memory& memory) { return std::exchange(memory.unsynced, {}); });
  if (unsynced.empty()) return true;
  if (::fdatasync(data_.get()) != 0) {  // once: the kernel takes the pages for clean from then on
    for (const auto block : unsynced) states_[block].store(State::kAbsent, std::memory_order_release);
    return true;
  }
  try {
    log_->append(runs_of(unsynced), true);
    return true;
  } catch (const std::system_error&) {
    memory_.with(
        [&](Memory& memory) { memory.unsynced.insert(memory.unsynced.end(), unsynced.begin(), unsynced.end()); });
    return false;
  }
}

}  // namespace varve::fuse
