#include "fuse/stream/store_limit.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/stream/stream_metrics.h"

namespace varve::fuse {
namespace {

// Evicting begins above the first share of the limit and goes on to the second: in strides, and in time for what
// arrives until the grace is over.
constexpr double kHighShare = 0.95;
constexpr double kLowShare = 0.90;

std::uint64_t share_of(std::uint64_t bytes, double share) { return std::uint64_t(double(bytes) * share); }

}  // namespace

void StoreLimit::note_evicted(std::uint64_t bytes) const {
  if (metrics_) metrics_->note_evicted(bytes);
}

bool StoreLimit::enforce(StoreContents& contents) {
  if (options_.max_bytes == 0) return false;
  const auto now = coarse_seconds();
  finish_leaving(now);
  std::uint64_t leaving = 0;
  for (const auto& some : leaving_) leaving += some.bytes;

  const auto used = contents.bytes_on_disk();
  const auto staying = used - std::min(used, leaving);
  if (staying <= share_of(options_.max_bytes, kHighShare)) {
    full_ = crowded_ = false;
    reader_waited_ = false;
    return !leaving_.empty();
  }
  const auto min_idle = reader_waited_ ? options_.reader_idle_seconds : options_.ahead_idle_seconds;
  const auto wanted = staying - share_of(options_.max_bytes, kLowShare);
  const auto taken = take(contents, candidates(contents, min_idle, now), wanted, now);
  // Twice in a row: what is just being written takes more of the disk for a moment, and belongs to no span yet.
  const bool full = std::exchange(crowded_, staying - std::min(staying, taken) > options_.max_bytes) && crowded_;
  if (full && !full_)
    log::warn(
        "the store holds {} bytes and may hold {}; what is in use does not fit: nothing is fetched ahead until some of "
        "it is idle",
        used, options_.max_bytes);
  full_ = full;
  return !leaving_.empty();
}

void StoreLimit::finish_leaving(std::uint32_t now) {
  std::erase_if(leaving_, [&](const Leaving& some) {
    if (some.began + options_.grace_seconds > now) return false;
    const auto layer = some.layer.lock();
    if (!layer) return true;  // closed meanwhile: its spans are present as recorded
    try {
      const auto gone = layer->store.finish_evict(some.spans, some.began);
      note_evicted(gone);
      if (gone > 0) log::debug("store of {}: {} bytes evicted", layer->map->layer_digest.to_string(), gone);
    } catch (const std::system_error& error) {
      log::warn("store of {}: {}: its space is not given back", layer->map->layer_digest.to_string(), error.what());
    }
    return true;
  });
}

std::vector<StoreLimit::Candidate> StoreLimit::candidates(StoreContents& contents, std::uint32_t min_idle,
                                                          std::uint32_t now) {
  std::vector<Candidate> found;
  for (auto& closed : contents.closed_layers())
    if (closed.idle_seconds >= min_idle)
      found.push_back({.idle_seconds = closed.idle_seconds, .bytes = closed.bytes, .closed = std::move(closed.name)});
  for (const auto& layer : contents.open_layers()) {
    const auto& spans = layer->map->spans;
    for (std::uint32_t span = 0; span < spans.size(); ++span) {
      const auto bytes = layer->store.evictable_bytes(span);
      if (bytes == 0) continue;
      const auto last_use = std::max(layer->store.last_use(span), layer->opened_seconds);
      const auto idle = now - std::min(now, last_use);
      if (idle >= min_idle) found.push_back({.idle_seconds = idle, .bytes = bytes, .layer = layer, .span = span});
    }
  }
  std::ranges::stable_sort(found, std::greater(), &Candidate::idle_seconds);
  return found;
}

// Returns the bytes that are gone, or will be.
std::uint64_t StoreLimit::take(StoreContents& contents, const std::vector<Candidate>& oldest_first,
                               std::uint64_t wanted, std::uint32_t now) {
  std::uint64_t taken = 0;
  std::map<std::shared_ptr<FetchLayer>, Leaving> leaving;
  for (const auto& candidate : oldest_first) {
    if (taken >= wanted) break;
    if (!candidate.layer) {
      if (!contents.remove_closed(candidate.closed)) continue;
      note_evicted(candidate.bytes);
      log::info("store of {}: evicted, {} bytes, not used for {} s", candidate.closed, candidate.bytes,
                candidate.idle_seconds);
    } else {
      if (!candidate.layer->store.begin_evict(candidate.span)) continue;
      auto& some = leaving[candidate.layer];
      some.spans.push_back(candidate.span);
      some.bytes += candidate.bytes;
    }
    taken += candidate.bytes;
  }
  for (auto& [layer, some] : leaving) {
    some.layer = layer;
    some.began = now;
    leaving_.push_back(std::move(some));
  }
  return taken;
}

}  // namespace varve::fuse
