#include "fuse/mount/image_packs.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/stream/attempts.h"

namespace varve::fuse {
namespace {

// Under way at once: enough to keep a link of 10 Gbit/s and 1 ms busy, and little enough for frames to come in order.
constexpr std::uint64_t kBytesUnderWay = 6 << 20;
constexpr unsigned kMostFailures = 2;
// Frames wanted in one piece: few at first, as somebody waits for the first.
constexpr std::size_t kMostFramesAtOnce = 8;

}  // namespace

void PackSource::note_failure(const std::exception_ptr& error) {
  if (!failed.exchange(true))
    log::warn("start-up pack of {}: {}; what it holds is read from the layers", name, message_of(error));
}

ImagePacks::ImagePacks(const index::StartPacks& packs, const std::vector<std::shared_ptr<LayerStream>>& layers,
                       std::shared_ptr<const ImageSeeds> seeds, OpenPack open, KeepPack keep)
    : seeds_(std::move(seeds)), open_(std::move(open)), keep_(std::move(keep)) {
  for (const auto& digest : packs.layers) {
    const auto stream = std::ranges::find(layers, digest, [](const auto& layer) { return layer->map().layer_digest; });
    if (stream == layers.end())
      fail<CorruptData>("start-up packs: layer {} is none of the image's", digest.to_string());
    layer_streams_.push_back(stream->get());
    layers_[stream->get()];
  }
  for (const auto& group : packs.groups) {
    auto& one = groups_.emplace_back();
    one.group = &group;
    one.source.name = group.name;
    auto& layer = layers_[layer_streams_[group.trigger.layer]];
    layer.triggers.emplace_back(group.trigger.stream_range, &one);
    layer.longest_trigger = std::max(layer.longest_trigger, group.trigger.stream_range.length);
  }
  for (auto& [stream, layer] : layers_)
    std::ranges::sort(layer.triggers, {}, [](const auto& trigger) { return trigger.first.offset; });
}

ImagePacks::~ImagePacks() {
  const std::lock_guard guard(mutex_);
  thread_.request_stop();
  if (under_way_) under_way_->stop();
}

void ImagePacks::enable(const std::function<bool(const index::StartPack&)>& is_here) {
  if (enabled_.exchange(true)) return;
  for (auto& group : groups_)
    if (is_here(group.group->pack)) use_once(group);
}

void ImagePacks::look_for_triggers(const Layer& layer, ByteRange range) {
  const auto from = range.offset - std::min(range.offset, layer.longest_trigger);
  auto trigger = std::ranges::lower_bound(layer.triggers, from, {}, [](const auto& one) { return one.first.offset; });
  for (; trigger != layer.triggers.end() && trigger->first.offset < range.end(); ++trigger)
    if (trigger->first.overlaps(range)) {
      auto& group = *trigger->second;
      use_once(group);
      if (group.used) tell(group);
    }
}

void ImagePacks::tell(const Group& group) {
  auto listeners = listeners_->lock();
  if (!listeners->empty()) listeners->back()(*group.group);
}

std::shared_ptr<void> ImagePacks::listen(OnStart on_start) {
  auto listeners = listeners_->lock();
  const auto here = listeners->insert(listeners->end(), std::move(on_start));
  return {nullptr, [all = listeners_, here](void*) { all->lock()->erase(here); }};
}

void ImagePacks::use_once(Group& group) {
  std::call_once(group.triggered, [&] { use(group); });
}

void ImagePacks::use(Group& group) {
  const std::lock_guard guard(use_mutex_);
  try {
    group.source.stream = open_(group.group->pack);
    group.before = group.source.stream->stats();
  } catch (...) {
    return group.source.note_failure(std::current_exception());
  }
  const auto& pack = group.group->pack;
  std::vector<Places> fresh(layer_streams_.size());
  group.ends.reserve(pack.ranges.size());
  group.is_read.resize(group.source.stream->map().spans.size());
  std::uint64_t at = 0;
  for (const auto& range : pack.ranges) {
    fresh[range.layer].push_back({.stream_range = range.stream_range, .group = &group, .pack_offset = at});
    group.ends.push_back(at += range.stream_range.length);
  }
  for (const auto& literal : pack.literals)
    fresh[literal.layer].push_back({.stream_range = {.offset = literal.stream_offset, .length = literal.bytes.size()},
                                    .group = &group,
                                    .literal = literal.bytes.data()});
  for (std::uint32_t layer = 0; layer < fresh.size(); ++layer)
    if (!fresh[layer].empty()) add_places(layer, std::move(fresh[layer]), group);
  group.used = true;
  log::debug("start-up pack of {}: {} bytes", group.group->name, pack.compressed_bytes());
  const std::lock_guard bringing(mutex_);
  bringing_.insert(bringing_.begin(), {.group = &group});
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { bring_loop(stop); });
  changed_.notify_all();
}

// What packs have in common stays with the one that was used first, unless that has failed.
void ImagePacks::add_places(std::uint32_t layer, Places fresh, Group& group) {
  std::ranges::sort(fresh, {}, [](const Placed& one) { return one.stream_range.offset; });
  auto& known = layers_.at(layer_streams_[layer]).places;
  auto old = known.with([](const auto& places) { return places ? *places : Places(); });
  std::erase_if(old, [](const Placed& one) { return one.group->source.failed.load(); });
  auto merged = std::make_shared<Places>();
  merged->reserve(fresh.size() + old.size());
  auto next = old.cbegin();
  const auto end = old.cend();
  for (auto one : fresh) {
    while (next != end && next->stream_range.end() <= one.stream_range.offset) merged->push_back(*next++);
    // Cut by those that are there; the last of them may reach into the next fresh one.
    for (auto other = next; one.stream_range.length > 0;) {
      if (other == end || other->stream_range.offset >= one.stream_range.end()) {
        merged->push_back(one);
        break;
      }
      const auto before = other->stream_range.offset - std::min(other->stream_range.offset, one.stream_range.offset);
      if (before > 0) {
        auto head = one;
        head.stream_range.length = before;
        merged->push_back(head);
      }
      if (other->stream_range.end() < one.stream_range.end()) {
        merged->push_back(*other);
        next = std::next(other);
      }
      const auto cut = std::min(other->stream_range.end(), one.stream_range.end()) - one.stream_range.offset;
      one.stream_range.offset += cut;
      one.stream_range.length -= cut;
      if (one.literal != nullptr)
        one.literal += cut;
      else
        one.pack_offset += cut;
      other = next;
    }
  }
  while (next != end) merged->push_back(*next++);
  for (const auto& one : *merged) {
    if (one.group != &group || one.literal != nullptr) continue;
    const auto last = (one.pack_offset + one.stream_range.length - 1) / index::kPackFrameBytes;
    for (auto frame = one.pack_offset / index::kPackFrameBytes; frame <= last; ++frame) group.is_read[frame] = true;
  }
  known.with([&](auto& places) { places = std::move(merged); });
}

void ImagePacks::find_pieces(const StreamPiece& piece, std::vector<StreamPiece>& pieces) {
  const auto found = enabled_ ? layers_.find(piece.stream) : layers_.end();
  if (found == layers_.end()) return pieces.push_back(piece);
  auto& layer = found->second;
  const ByteRange wanted{.offset = piece.stream_offset, .length = piece.length};
  look_for_triggers(layer, wanted);
  const auto places = layer.places.with([](const auto& known) { return known; });
  if (!places) return pieces.push_back(piece);
  auto next =
      std::ranges::upper_bound(*places, wanted.offset, {}, [](const Placed& one) { return one.stream_range.end(); });
  if (piece.stream->is_readable(wanted)) {
    pieces.push_back(piece);
    pieces.back().learnt = next != places->end() && next->stream_range.offset < wanted.end();
    return;
  }
  auto at = wanted.offset;
  const auto take = [&](std::uint64_t end, const Placed* placed) {
    if (end <= at) return;
    auto part = piece.part(at, end);
    part.learnt = placed != nullptr;
    if (placed != nullptr && placed->literal != nullptr) {
      part.literal = placed->literal + (at - placed->stream_range.offset);
    } else if (placed != nullptr) {
      part.pack = &placed->group->source;
      part.pack_offset = placed->pack_offset + (at - placed->stream_range.offset);
    }
    pieces.push_back(part);
    at = end;
  };
  for (; next != places->end() && next->stream_range.offset < wanted.end(); ++next) {
    if (next->group->source.failed) continue;
    take(std::max(at, next->stream_range.offset), nullptr);
    take(std::min(wanted.end(), next->stream_range.end()), &*next);
  }
  take(wanted.end(), nullptr);
}

void ImagePacks::bring_loop(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !bringing_.empty(); })) {
    auto bringing = bringing_.front();
    if (!under_way_) under_way_ = std::make_shared<PiecesUnderWay>(Priority::kReadAhead, kBytesUnderWay);
    const auto under_way = under_way_;
    lock.unlock();
    bool more = true;
    keep(bringing);
    try {
      more = bring_next(bringing, *under_way);
    } catch (const Cancelled&) {
      return;
    } catch (const std::exception& error) {
      // It may have been another's piece. Readers ask for what they need themselves, and go to the layers if that
      // fails, too.
      more = ++bringing.failures < kMostFailures;
      log::info("start-up pack of {}{}: {}", bringing.group->group->name, more ? "" : " is not brought further",
                error.what());
    }
    lock.lock();
    if (bringing.failures > 0 && under_way_ == under_way) under_way_ = nullptr;
    if (stop.stop_requested()) return;
    const auto here = std::ranges::find(bringing_, bringing.group, &Bringing::group);
    if (more)
      *here = bringing;
    else
      bringing_.erase(here);
  }
}

void ImagePacks::keep(Bringing& bringing) {
  if (std::exchange(bringing.kept, true)) return;
  const auto& group = *bringing.group->group;
  try {
    keep_(group.pack);
  } catch (const std::exception& error) {
    log::warn("start-up pack of {}: what describes it is not kept: {}", group.name, error.what());
  }
}

// False if there is nothing more to bring.
bool ImagePacks::bring_next(Bringing& bringing, PiecesUnderWay& under_way) {
  auto& source = bringing.group->source;
  const auto& spans = source.stream->map().spans;
  const auto needed = [&](std::size_t frame) {
    return bringing.group->is_read[frame] && !source.stream->is_readable(spans[frame].stream_range) &&
           !is_here_otherwise(*bringing.group, spans[frame].stream_range);
  };
  auto& frame = bringing.next_frame;
  while (frame < spans.size() && !needed(frame)) ++frame;
  if (frame == spans.size() || source.failed) return false;
  auto range = spans[frame].stream_range;
  auto compressed_bytes = spans[frame].compressed_range.length;
  const auto last = frame + bringing.frames_at_once;
  while (++frame < std::min(last, spans.size()) && needed(frame)) {
    range.length += spans[frame].stream_range.length;
    compressed_bytes += spans[frame].compressed_range.length;
  }
  under_way.want(*source.stream, range, compressed_bytes);
  bringing.frames_at_once = std::min(2 * bringing.frames_at_once, kMostFramesAtOnce);
  return true;
}

std::span<const index::PackRange> ImagePacks::Group::ranges_in(ByteRange pack_range) const {
  const auto first = std::ranges::upper_bound(ends, pack_range.offset) - ends.begin();
  const auto last = std::ranges::lower_bound(ends.begin() + first, ends.end(), pack_range.end()) - ends.begin();
  const auto count = std::min<std::ptrdiff_t>(last + 1, std::ptrdiff_t(ends.size())) - first;
  return std::span(group->pack.ranges).subspan(std::size_t(first), std::size_t(count));
}

bool ImagePacks::is_here_otherwise(const Group& group, ByteRange pack_range) const {
  return std::ranges::all_of(group.ranges_in(pack_range), [&](const index::PackRange& range) {
    return seeds_->is_here(*layer_streams_[range.layer], range.stream_range);
  });
}

std::vector<std::shared_ptr<LayerStream>> ImagePacks::streams() const {
  std::vector<std::shared_ptr<LayerStream>> streams;
  for (const auto& group : groups_)
    if (group.used) streams.push_back(group.source.stream);
  return streams;
}

StreamStats ImagePacks::stats() const {
  StreamStats sum;
  for (const auto& group : groups_) {
    if (group.used) sum.add(group.source.stream->stats(), group.before);
  }
  return sum;
}

std::vector<std::pair<LayerStream*, ByteRange>> ImagePacks::places_of(
    const LayerStream& pack, const std::vector<ByteRange>& stream_ranges) const {
  std::vector<std::pair<LayerStream*, ByteRange>> places;
  for (const auto& group : groups_) {
    if (!group.used || group.source.stream.get() != &pack) continue;
    const index::PackRange* last = nullptr;  // a long range may reach from one bad one into the next
    for (const auto bad : stream_ranges)
      for (const auto& range : group.ranges_in(bad)) {
        if (last != nullptr && &range <= last) continue;
        places.emplace_back(layer_streams_[range.layer], range.stream_range);
        last = &range;
      }
  }
  return places;
}

}  // namespace varve::fuse
