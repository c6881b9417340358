#pragma once
// The windows blob of a layer on local disk, in blocks fetched as spans need them. By maps of versions before 0.3
// blocks have no digests: a wrong one shows when the span decoded with it does not match its own, and then they are
// dropped. On disk: docs/formats/store.md.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/files/unique_fd.h"
#include "core/base/threads/done_once.h"
#include "core/base/threads/guarded.h"
#include "core/index/format/layer_map.h"
#include "fuse/stream/presence_log.h"

namespace varve::fuse {

// A windows blob up to this size is fetched whole, as one block, and checked against its digest.
inline constexpr std::uint64_t kWholeWindowsBytes = 1 << 20;

// Safe to use from any thread.
class WindowStore {
 public:
  // Files are made with the first block to keep; for a map without windows never.
  WindowStore(std::filesystem::path dir, std::shared_ptr<const index::LayerMap> map);
  ~WindowStore();  // syncs
  WindowStore(const WindowStore&) = delete;
  WindowStore& operator=(const WindowStore&) = delete;

  std::size_t blocks() const { return blocks_; }
  ByteRange block_range(std::size_t block) const;  // in the windows blob
  // Blocks that this record (LayerMap::record_range) needs and that are not here.
  std::vector<std::size_t> missing_blocks(ByteRange record) const;

  // Throws CorruptData if the block does not match its digest, or that of the blob if it is the whole. If the disk
  // takes no more, the block is kept in memory.
  void put(std::size_t block, ByteView bytes);
  // Throws TemporaryError if a block of it is not here, index::CorruptSpan if the disk does not give it back.
  Bytes load(ByteRange record);
  // Reads the blocks of a record again; true if they are not what they were put as, as far as that can be told.
  bool damaged(ByteRange record);
  // Forgets the blocks of a record that proved wrong.
  void drop(ByteRange record);
  // Brings what was put since the last call to disk and records it. False: not recorded, tried again next time. What
  // the disk has lost is absent.
  bool sync();

 private:
  struct Memory {
    std::vector<Bytes> blocks;  // those that are not in the file; sized on first use
    std::vector<std::uint32_t> unsynced;
  };
  std::pair<std::size_t, std::size_t> blocks_of(ByteRange record) const;
  void check(std::size_t block, ByteView bytes) const;
  void open_files();
  void make_files() {
    files_.run([this] { open_files(); });
  }

  const std::shared_ptr<const index::LayerMap> map_;
  std::filesystem::path data_path_, presence_path_;
  std::uint64_t block_bytes_ = index::kWindowBlockBytes;
  std::size_t blocks_ = 0;
  DoneOnce files_;  // its lock is taken last; until they are there nothing is present
  UniqueFd data_;
  enum class State : std::uint8_t { kAbsent, kInMemory, kPresent };
  std::unique_ptr<std::atomic<State>[]> states_;
  Guarded<Memory> memory_;
  std::mutex log_mutex_;  // held over the I/O of sync() and drop()
  std::unique_ptr<PresenceLog> log_;
};

}  // namespace varve::fuse
