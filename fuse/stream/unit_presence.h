#pragma once
// Which units of a layer are in its data file though the spans around them are not: contents that were copied from
// another layer. SpanStore's part; on disk "content.presence" of docs/formats/store.md.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/threads/guarded.h"
#include "core/index/unit_table.h"
#include "fuse/stream/presence_log.h"

namespace varve::fuse {

// States are safe to use from any thread; what is said of the log is for who holds the lock of the store's logs.
//
//      kAbsent --set_present()--> kPresent --begin_leaving()--> kLeaving
//                                     ^---take_back(), stay()------'
//
// set_absent() leads to kAbsent from anywhere.
class UnitPresence {
 public:
  enum class State : std::uint8_t { kAbsent, kLeaving, kPresent };

  // What `log_path` records of the same units is used, anything else is thrown away. Throws std::system_error.
  UnitPresence(const std::filesystem::path& log_path, std::shared_ptr<const index::UnitTable> table,
               std::uint64_t data_bytes);

  const index::UnitTable& table() const { return *table_; }
  State state(std::size_t unit) const { return states_[unit].load(std::memory_order_acquire); }
  // Not kAbsent.
  bool none() const { return held_.load(std::memory_order_acquire) == 0; }
  // Each byte of the range (inside the stream) is in a present unit or in the zeros behind one.
  bool covers(ByteRange stream_range) const;
  // The same, and a use of it: what is about to leave stays.
  bool take_back(ByteRange stream_range);
  // True if content of the range lies in no present unit; what no file has, as headers of the tar, is not asked for.
  bool lacks_content(ByteRange stream_range) const;
  // Stream bytes of units that touch the range and are not absent.
  std::uint64_t held_bytes(ByteRange stream_range) const;

  // In the file, not recorded yet.
  void set_present(std::size_t unit);
  // True if it was not absent.
  bool set_absent(std::size_t unit);
  // Of all that touch the range. begin_leaving(): true if there is one.
  bool begin_leaving(ByteRange stream_range);
  void stay(ByteRange stream_range);
  bool any_present(ByteRange stream_range) const;
  // Returns those that were not absent.
  std::vector<std::uint32_t> set_absent(ByteRange stream_range);

  // What was set present since the last call and is so still.
  std::vector<std::uint32_t> take_pending();
  void put_back_pending(const std::vector<std::uint32_t>& units);
  // Durable when it returns. Throws as PresenceLog::append().
  void record(const std::vector<std::uint32_t>& units, bool present) { log_->append(runs_of(units), present); }

 private:
  bool covers(ByteRange stream_range, bool take) const;

  const std::shared_ptr<const index::UnitTable> table_;
  std::unique_ptr<std::atomic<State>[]> states_;
  std::atomic<std::uint64_t> held_ = 0;  // units that are not absent
  Guarded<std::vector<std::uint32_t>> pending_;
  std::unique_ptr<PresenceLog> log_;
};

}  // namespace varve::fuse
