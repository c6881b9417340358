#pragma once
// The bytes of one layer stream on local disk: a sparse file with the stream at its own offsets, and logs of which
// spans of it are there, and which contents without the spans around them. On disk: docs/formats/store.md.
#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/files/unique_fd.h"
#include "core/base/threads/done_once.h"
#include "core/base/threads/guarded.h"
#include "core/index/format/layer_map.h"
#include "fuse/stream/presence_log.h"
#include "fuse/stream/unit_presence.h"

namespace varve::fuse {

// CLOCK_MONOTONIC, never 0: the clock of last_use().
std::uint32_t coarse_seconds();

struct SpanStoreOptions {
  // The store's own page cache of a span is dropped once the span is on disk and has not been read for a while: for
  // mounts that keep a copy of their own (kernel mode).
  bool drop_pages = false;
  // Decoded spans kept in memory while the disk is full.
  std::uint64_t overflow_bytes = 8 << 20;
  // The layer entries that the units of this folder are from; without them it has none.
  std::optional<Digest> entries = std::nullopt;
};

// Safe to use from any thread, except that put() of one span must not run twice at a time. Readers take no lock but to
// get ahead of drops.
//
//      kUnchecked --check()--> kPresent <--put()-- kAbsent --put(), the disk is full--> kInMemory
//           |                   |    ^                ^                                     |
//           |        begin_evict()   | who reads or   |                     pushed out by newer spans
//           |                   v    | wants it       |                                     |
//           |                  kLeaving --finish_evict()                                    |
//           '--check(): wrong ----------------------->|<------------------------------------'
//
// drop(), verify() of a wrong span and a failed sync() lead to kAbsent from anywhere. What is verified is readable.
class SpanStore {
 public:
  enum class State : std::uint8_t {
    kAbsent,
    kUnchecked,  // bytes are on disk, but nothing says that they are right: check() finds out
    kLeaving,    // verified and in the file, about to be evicted; still read, but not is_readable(): see begin_evict()
    kInMemory,   // verified, but the disk took it not: kept for a while
    kPresent,    // verified and in the file
  };

  // What is in `dir` from an earlier run is used; what does not fit `map` is thrown away, and the log says so. Where
  // there is none it is made with the first bytes to keep: of an image's layers most starts read few. Throws
  // std::system_error.
  SpanStore(std::filesystem::path dir, std::shared_ptr<const index::LayerMap> map, SpanStoreOptions options = {});
  ~SpanStore();  // syncs
  SpanStore(const SpanStore&) = delete;
  SpanStore& operator=(const SpanStore&) = delete;

  State state(std::size_t span) const { return spans_[span].state.load(std::memory_order_acquire); }
  bool is_readable(std::size_t span) const { return state(span) >= State::kInMemory; }
  // Each byte of the range (inside the stream) is in a readable span, in a present unit or in the zeros behind one.
  bool is_readable(ByteRange stream_range) const;
  // is_readable(), and a use of it: a span that is about to be evicted is readable again and stays.
  bool touch_if_readable(std::size_t span);
  // The spans of the range of which not all that is in it is readable; a use of the others. `contents_only`: nor those
  // of which only what no file has is missing, as headers of the tar, while contents came as units.
  std::vector<std::uint32_t> missing_spans(ByteRange stream_range, bool contents_only);
  bool complete() const { return present_spans_.load(std::memory_order_acquire) == map_->spans.size(); }
  // Of spans, and of units where the spans around them are not present.
  std::uint64_t present_bytes() const;

  // Keeps the verified bytes of a span. Never fails: if the disk takes no more, the span stays in memory for a while
  // (false).
  bool put(std::size_t span, ByteView stream);
  // Reads an unchecked span (into a buffer of its length) and digests it; it becomes present (true) or absent (false).
  // `digest`: what the layer's map or windows blob says of it, here and below.
  bool check(std::size_t span, const Digest& digest, std::span<std::byte> stream);

  // What the entries say of the layer's contents (UnitTable::make): from now on units are kept, too, and the table
  // beside them. Ignored if it is known. Throws CorruptData if it is of another layer, and std::system_error.
  void set_units(ByteView table);
  // Null: not known, or found to contradict the layer.
  const index::UnitTable* units() const;
  bool has_unit(std::size_t unit) const;
  // Keeps a unit whose content has its digest. Not where spans say otherwise, or the disk takes no more: false.
  bool put_unit(std::size_t unit, ByteView content);
  // Re-digests a unit; a wrong one is dropped (false).
  bool verify_unit(std::size_t unit);
  // How entries and layer contradict each other; "" if nothing of the kind was found.
  std::string contradiction() const;

  // Reads what is here of these bytes, and says which spans are not: their part of `into` may hold anything. A use of
  // the others, as touch_if_readable(). Past the end of the stream there are zeros. However fast spans are dropped
  // meanwhile, what is not said to be missing is right. What the disk does not give back is dropped, and missing.
  std::vector<std::uint32_t> read(std::uint64_t stream_offset, std::span<std::byte> into);

  // Brings what was put since the last call to disk and records it. Logs failures, and tries again next time. `first`
  // brings there what says what those spans must be, without which nobody could verify what is recorded; false: it
  // could not.
  void sync(const std::function<bool()>& first = {});
  // Bytes put and not yet recorded.
  std::uint64_t unsynced_bytes() const {
    return unsynced_bytes_.load(std::memory_order_relaxed) + unsynced_unit_bytes_.load(std::memory_order_relaxed);
  }
  // Drops the page cache of spans not read for `idle_seconds`, if the options say so.
  void drop_idle_pages(std::uint32_t idle_seconds);

  // Forgets a span, durably, and gives its disk space back unless the file is kept whole.
  void drop(std::size_t span);
  // Seconds (CLOCK_MONOTONIC) when the span was last read or put; 0 = not since the store was opened. For choosing what
  // to evict.
  std::uint32_t last_use(std::size_t span) const { return spans_[span].last_use.load(std::memory_order_relaxed); }

  // What evicting the span would free: its bytes, or those of units in it; 0 = nothing.
  std::uint64_t evictable_bytes(std::size_t span) const;
  // Evicting takes two steps, so that nobody is in the middle of reading a span that goes, and what is wanted again in
  // the meantime stays. Units go with the spans that they touch. False if there is nothing in the file, or the file is
  // kept whole.
  bool begin_evict(std::size_t span);
  // Drops, durably, those of the spans that nobody wanted, and nobody read after `began` (seconds, CLOCK_MONOTONIC).
  // Returns the stream bytes dropped. Throws std::system_error.
  std::uint64_t finish_evict(const std::vector<std::uint32_t>& spans, std::uint32_t began);
  // For a mount of the file itself: if it is complete, no hole is punched into it until the machine starts anew, as the
  // kernel would read zeros there: a mount may outlive the daemon, and be detached. Only the whole folder may go. False
  // if it is not complete, or that cannot be noted on disk.
  bool keep_whole();
  // The same for a file that was complete when an earlier process mounted it, whatever was recorded.
  void keep_mounted();
  // Somebody mounted the file since the machine started: all of its bytes ought to be there.
  bool is_kept_whole() const { return kept_whole_.load(std::memory_order_acquire); }

  // Re-digests one readable span, or any of a file that is kept whole. True if it is right; a wrong one is dropped.
  bool verify(std::size_t span, const Digest& digest);

  std::filesystem::path data_path() const { return dir_ / "data"; }
  std::filesystem::path mounted_path() const { return dir_ / "mounted"; }
  std::filesystem::path units_path() const { return dir_ / "units"; }
  std::filesystem::path content_presence_path() const { return dir_ / "content.presence"; }
  bool disk_full() const { return disk_full_.load(std::memory_order_relaxed); }

 private:
  struct SpanState {
    std::atomic<State> state = State::kAbsent;
    std::atomic<bool> pages_cached = false;
    std::atomic<std::uint32_t> last_use = 0;
  };
  using SharedBytes = std::shared_ptr<const Bytes>;
  struct Overflow {
    std::deque<std::pair<std::size_t, SharedBytes>> kept;  // oldest first
    std::uint64_t kept_bytes = 0;
  };
  struct Pending {
    std::vector<std::uint32_t> spans;  // in the file, not recorded yet
  };

  std::string name() const;
  std::uint64_t data_bytes() const;  // of the file: whole pages
  void open_files();
  void make_files() {
    files_.run([this] { open_files(); });
  }
  void mark_data_unchecked();
  void open_units();
  void use_units(std::shared_ptr<const index::UnitTable> table);
  void forget_contradicted(std::size_t span, ByteView stream);
  bool units_cover(ByteRange stream_range);
  ByteRange part_in(std::size_t span, ByteRange stream_range) const;
  bool was_mounted_since_boot() const;
  bool note_mounted();
  void keep_in_memory(std::size_t span, ByteView stream, const std::string& reason);
  SharedBytes find_in_memory(std::size_t span);
  // Spans as read() names them.
  struct NotRead {
    std::vector<std::uint32_t> missing;
    std::vector<std::uint32_t> unreadable;  // those that the disk did not give back: some of the missing ones
  };
  NotRead try_read(std::uint64_t stream_offset, std::span<std::byte> into);
  void read_present(ByteRange stream_range, std::span<std::byte> into, NotRead& not_read) const;
  void drop_bad(std::size_t span);
  Digest digest_of_file(std::size_t span);
  void set_present(std::size_t span);
  void set_absent(std::size_t span);
  bool take_back(std::size_t span);
  bool leave(std::size_t span, std::uint32_t began);
  std::uint64_t forget(const std::vector<std::uint32_t>& spans);
  void record_gone(const std::vector<std::uint32_t>& spans);
  void touch(std::size_t span);

  const std::filesystem::path dir_;
  const std::shared_ptr<const index::LayerMap> map_;
  const SpanStoreOptions options_;
  DoneOnce files_;  // its lock is taken last; until they are there nothing is present
  UniqueFd data_;
  std::unique_ptr<SpanState[]> spans_;
  std::atomic<std::uint64_t> present_spans_ = 0;
  std::atomic<std::uint64_t> present_bytes_ = 0;
  std::atomic<std::uint64_t> unsynced_bytes_ = 0;
  std::atomic<std::uint64_t> unsynced_unit_bytes_ = 0;
  std::atomic<std::uint64_t> drops_ = 0;  // readers look at it before and after: a span may be dropped under them
  std::atomic<bool> disk_full_ = false;
  std::atomic<bool> kept_whole_ = false;  // changed under drop_mutex_; never false again
  Guarded<Overflow> overflow_;
  Guarded<Pending> pending_;
  std::unique_ptr<UnitPresence> units_owner_;   // set once, under log_mutex_
  std::atomic<UnitPresence*> units_ = nullptr;  // what it has
  std::atomic<bool> units_contradict_ = false;
  std::atomic<bool> record_is_behind_ = false;  // a span that is absent may be recorded: its bytes are left alone
  mutable Guarded<std::string> contradiction_;
  // In this order: log_mutex_, drop_mutex_, overflow_ or pending_.
  // Held over the I/O of sync() and drop(): what is recorded must be in the order of what was done.
  std::mutex log_mutex_;
  std::unique_ptr<PresenceLog> log_;
  bool log_failed_ = false;  // under log_mutex_
  // put() and a read() that drops disturbed too often shared, drop() and put_unit() alone: a hole must not be punched
  // into bytes put after the span was forgotten, nor under who reads them; nor a unit written over a span.
  std::shared_mutex drop_mutex_;
};

}  // namespace varve::fuse
