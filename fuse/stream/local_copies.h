#pragma once
// Contents that a layer lacks and that are here under another one: copied, digested, kept. Asks no network. Bytecode
// that pip has compiled anew differs from the old one by the time of its source alone: it is made from that.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "core/base/threads/guarded.h"
#include "fuse/stream/fetch_layer.h"

namespace varve::fuse {

// Safe to use from any thread. The layer must outlive it.
class LocalCopies {
 public:
  explicit LocalCopies(FetchLayer& layer) : layer_(layer) {}

  // Likely ones first.
  void set_sources(std::vector<std::shared_ptr<FetchLayer>> sources);
  void forget_source(const Digest& layer);
  // There may be something to copy.
  bool any() const { return any_.load(std::memory_order_acquire) && layer_.store.units() != nullptr; }

  // Copies what is found of the contents that touch the range and are missing; reads up to 1 MiB for each. True if
  // some of them are here now, whoever brought them since the caller looked. What is found and is not what it should be
  // is dropped where it was.
  bool copy(ByteRange stream_range);
  // All content of the range is here, or was found without looking at its bytes: kHere to be copied, kKnown also
  // where only a source's entries have it, and nobody has read it there.
  enum class Found : std::uint8_t { kHere, kKnown };
  bool has_all(ByteRange stream_range, Found found) const;

 private:
  using Sources = std::vector<std::shared_ptr<FetchLayer>>;
  std::shared_ptr<const Sources> sources() const;
  bool copy_once(const index::UnitTable& units, std::size_t unit, const Sources& sources);
  bool copy_unit(const index::UnitTable& units, std::size_t unit, const Sources& sources);
  bool copy_bytecode(const index::UnitTable& units, std::size_t unit, const Sources& sources);
  bool keep(std::size_t unit, ByteView content);
  void note_wrong(FetchLayer& source, std::size_t unit);

  FetchLayer& layer_;
  std::atomic<bool> any_ = false;
  mutable Guarded<std::shared_ptr<const Sources>> sources_;
  Guarded<std::set<const FetchLayer*>> liars_;  // among the sources
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::size_t> under_way_;  // under mutex_: who wants one of these waits for who copies it
};

}  // namespace varve::fuse
