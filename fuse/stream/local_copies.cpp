#include "fuse/stream/local_copies.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/index/merge/bytecode.h"

namespace varve::fuse {
namespace {

// Of one path may lie in several layers of several images; each costs a read and a digest.
constexpr int kMostBytecodeTries = 4;

// Empty if not all of it is here.
Bytes read_unit(FetchLayer& source, ByteRange range) try {
  Bytes content(range.length);
  if (!source.store.read(range.offset, content).empty()) content.clear();
  return content;
} catch (const std::exception& error) {
  log::warn("copy from {}: {}", source.map->layer_digest.to_string(), error.what());
  return {};
}

}  // namespace

void LocalCopies::set_sources(std::vector<std::shared_ptr<FetchLayer>> sources) {
  any_.store(!sources.empty(), std::memory_order_release);
  liars_.with([](auto& liars) { liars.clear(); });
  auto old = std::make_shared<const Sources>(std::move(sources));
  sources_.with([&](auto& current) { current.swap(old); });  // what goes is freed outside the lock
}

void LocalCopies::forget_source(const Digest& layer) {
  auto left = *sources();
  if (std::erase_if(left, [&](const auto& source) { return source->map->layer_digest == layer; }) > 0)
    set_sources(std::move(left));
}

std::shared_ptr<const LocalCopies::Sources> LocalCopies::sources() const {
  static const auto kNone = std::make_shared<const Sources>();
  auto current = sources_.with([](const auto& sources) { return sources; });
  return current ? current : kNone;
}

bool LocalCopies::keep(std::size_t unit, ByteView content) {
  if (!layer_.store.put_unit(unit, content)) return false;
  layer_.counters.copied_bytes.fetch_add(content.size(), std::memory_order_relaxed);
  return true;
}

bool LocalCopies::copy(ByteRange stream_range) {
  const auto* units = layer_.store.units();
  if (units == nullptr) return false;
  const auto from = sources();
  bool copied = false;
  const auto [first, last] = units->contents_of(stream_range);
  for (auto unit = first; unit < last; ++unit) {
    if (!units->is_unit(unit)) continue;
    const bool is_here = layer_.store.has_unit(unit) || layer_.store.is_readable(units->range(unit));
    copied = is_here || copy_once(*units, unit, *from) || copied;
  }
  return copied;
}

// A large unit is read in many small pieces at a time.
bool LocalCopies::copy_once(const index::UnitTable& units, std::size_t unit, const Sources& sources) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !under_way_.contains(unit); });
    if (layer_.store.has_unit(unit)) return true;
    under_way_.insert(unit);
  }
  bool copied = false;
  try {
    copied = copy_unit(units, unit, sources) || copy_bytecode(units, unit, sources);
  } catch (const std::exception& error) {
    log::warn("copy to {}: {}", layer_.map->layer_digest.to_string(), error.what());
  }
  const std::lock_guard lock(mutex_);
  under_way_.erase(unit);
  changed_.notify_all();
  return copied;
}

bool LocalCopies::copy_unit(const index::UnitTable& units, std::size_t unit, const Sources& sources) {
  const auto digest = units.digest(unit);
  for (const auto& source : sources) {
    const auto* theirs = source->store.units();
    const auto found = theirs == nullptr ? std::nullopt : theirs->find(digest);
    if (!found || theirs->range(*found).length != units.range(unit).length) continue;
    if (liars_.with([&](const auto& liars) { return liars.contains(source.get()); })) continue;
    const auto content = read_unit(*source, theirs->range(*found));
    if (content.empty()) continue;
    if (digest_of(content) == digest) return keep(unit, content);
    note_wrong(*source, *found);
  }
  return false;
}

// The disk has damaged it, or the index of the source lies: then nothing is asked of it any more.
void LocalCopies::note_wrong(FetchLayer& source, std::size_t unit) {
  const auto* theirs = source.store.units();
  if (theirs == nullptr) return;
  const auto range = theirs->range(unit);
  bool damaged = source.store.has_unit(unit) && !source.store.verify_unit(unit);
  const auto [first, last] = source.map->spans_of(range);
  for (auto span = first; span < last; ++span)
    if (source.store.is_readable(span)) damaged = !source.verify_span(span) || damaged;
  const auto name = source.map->layer_digest.to_string();
  if (damaged) return log::warn("store of {}: damaged at stream offset {}; dropped", name, range.offset);
  if (liars_.with([&](auto& liars) { return liars.insert(&source).second; }))
    log::warn("layer {}: the layer entries {} contradict its map at stream offset {}: nothing is copied from it", name,
              theirs->entries_digest().to_string(), range.offset);
}

bool LocalCopies::copy_bytecode(const index::UnitTable& units, std::size_t unit, const Sources& sources) {
  const auto bytecode = units.bytecode(unit);
  if (!bytecode || !bytecode->has_source) return false;
  int tries = 0;
  for (const auto& source : sources) {
    const auto* theirs = source->store.units();
    if (theirs == nullptr) continue;
    for (const auto old : theirs->find_bytecode(bytecode->path, units.range(unit).length)) {
      if (tries == kMostBytecodeTries) return false;
      auto content = read_unit(*source, theirs->range(old));
      if (content.empty()) continue;
      ++tries;
      if (!index::set_bytecode_source(content, bytecode->source_seconds, bytecode->source_bytes)) continue;
      if (digest_of(content) == units.digest(unit)) return keep(unit, content);
    }
  }
  return false;
}

bool LocalCopies::has_all(ByteRange stream_range, Found enough) const {
  const auto* units = layer_.store.units();
  if (units == nullptr) return false;
  const auto from = sources();
  const auto is_found = [&](std::size_t unit) {
    if (!units->is_unit(unit)) return false;
    const auto bytecode = units->bytecode(unit);
    return std::ranges::any_of(*from, [&](const auto& source) {
      const auto* theirs = source->store.units();
      if (theirs == nullptr) return false;
      const auto counts = [&](std::size_t content) {
        return enough == Found::kKnown || source->store.is_readable(theirs->range(content));
      };
      if (const auto found = theirs->find(units->digest(unit))) return counts(*found);
      if (!bytecode || !bytecode->has_source) return false;
      return std::ranges::any_of(theirs->find_bytecode(bytecode->path, units->range(unit).length), counts);
    });
  };
  const auto [first, last] = units->contents_of(stream_range);
  for (auto unit = first; unit < last; ++unit)
    if (!layer_.store.has_unit(unit) && !layer_.store.is_readable(units->range(unit)) && !is_found(unit)) return false;
  return true;
}

}  // namespace varve::fuse
