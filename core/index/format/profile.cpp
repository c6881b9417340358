#include "core/index/format/profile.h"

#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "core/index/format/internal/byte_codec.h"

namespace varve::index {
namespace {

constexpr std::string_view kProfileMagic = "VRVPRF1\n";
constexpr std::uint64_t kMinProfileRangeBytes = 5;  // encoded

bool have_common_bytes(const std::vector<ProfileRange>& ranges) {
  std::vector<const ProfileRange*> sorted;
  sorted.reserve(ranges.size());
  for (const auto& range : ranges) sorted.push_back(&range);
  std::ranges::sort(sorted, {},
                    [](const ProfileRange* range) { return std::pair(range->layer, range->stream_range.offset); });
  return std::ranges::adjacent_find(sorted, [](const ProfileRange* a, const ProfileRange* b) {
           return a->layer == b->layer && a->stream_range.end() > b->stream_range.offset;
         }) != sorted.end();
}

// "" if all is well.
std::string_view fault(const Profile& profile) {
  if (profile.recordings == 0 || profile.recordings > kMaxProfileRecordings)
    return "a number of recordings that cannot be";
  if (profile.layers.size() > kMaxProfileLayers) return "too many layers";
  if (profile.ranges.size() > kMaxProfileRanges) return "too many ranges";
  if (std::ranges::adjacent_find(profile.layers, std::ranges::greater_equal()) != profile.layers.end())
    return "layers that are not in order";
  std::vector<bool> used(profile.layers.size());
  std::uint64_t ms = 0;
  for (const auto& range : profile.ranges) {
    if (range.layer >= used.size()) return "a range of no layer";
    if (range.stream_range.length == 0 || !range.stream_range.fits_in(kMaxStreamBytes)) return "a range that cannot be";
    if (range.ms < ms || range.ms > kMaxProfileMs) return "a time that cannot be";
    if (range.recordings == 0 || range.recordings > profile.recordings)
      return "a range of more recordings than there are";
    used[range.layer] = true;
    ms = range.ms;
  }
  if (std::ranges::find(used, false) != used.end()) return "a layer without ranges";
  return have_common_bytes(profile.ranges) ? "ranges that overlap" : "";
}

// Ranges name their layers by number in `digests`, which may hold others and in any order.
Profile with_layers_in_order(std::uint32_t recordings, const std::vector<Digest>& digests,
                             std::vector<ProfileRange> ranges) {
  Profile profile{.recordings = recordings, .layers = {}, .ranges = std::move(ranges)};
  std::vector<bool> used(digests.size());
  for (const auto& range : profile.ranges) used[range.layer] = true;
  for (std::size_t i = 0; i < digests.size(); ++i) {
    if (used[i]) profile.layers.push_back(digests[i]);
  }
  std::ranges::sort(profile.layers);
  std::vector<std::uint32_t> numbers(digests.size());
  for (std::size_t i = 0; i < digests.size(); ++i)
    numbers[i] = std::uint32_t(std::ranges::lower_bound(profile.layers, digests[i]) - profile.layers.begin());
  for (auto& range : profile.ranges) range.layer = numbers[range.layer];
  return profile;
}

// A range of one of the profiles that are merged, and where in that profile it comes.
struct Placed {
  ByteRange stream_range;
  std::uint64_t position = 0;  // bytes of the profile before it
  std::uint64_t ms = 0;
  std::uint32_t recordings = 0;
};

// A piece that the same profiles have from end to end.
struct Segment {
  std::uint32_t layer = 0;
  ByteRange stream_range;
  std::uint64_t position = 0;
  std::uint64_t ms = 0;
  std::uint32_t recordings = 0;
};

// The smallest value that at least half of the weight does not exceed.
std::uint64_t weighted_median(std::vector<std::pair<std::uint64_t, std::uint32_t>>& values) {
  std::ranges::sort(values);
  std::uint64_t weight = 0, half = 0;
  for (const auto& [value, count] : values) weight += count;
  for (const auto& [value, count] : values) {
    half += count;
    if (2 * half >= weight) return value;
  }
  return 0;
}

class Merger {
 public:
  explicit Merger(const std::vector<Profile>& profiles) {
    for (const auto& profile : profiles) add(profile);
    if (recordings_ > kMaxProfileRecordings)
      fail<Unsupported>("{} recordings in one profile are more than {}", recordings_, kMaxProfileRecordings);
  }

  Profile merged(double min_share) {
    std::vector<Digest> digests;
    for (auto& [digest, placed] : placed_) {
      cut(std::uint32_t(digests.size()), placed, min_share);
      digests.push_back(digest);
    }
    std::ranges::sort(segments_, {},
                      [](const Segment& one) { return std::tuple(one.position, one.layer, one.stream_range.offset); });
    std::vector<ProfileRange> ranges;
    for (const auto& one : segments_) append(ranges, one);
    return with_layers_in_order(std::uint32_t(recordings_), digests, std::move(ranges));
  }

 private:
  void add(const Profile& profile) {
    recordings_ += profile.recordings;
    std::uint64_t position = 0;
    for (const auto& range : profile.ranges) {
      placed_[profile.layers[range.layer]].push_back(
          {.stream_range = range.stream_range, .position = position, .ms = range.ms, .recordings = range.recordings});
      position += range.stream_range.length;
    }
  }

  // A layer's ranges, cut where one of them begins or ends.
  void cut(std::uint32_t layer, std::vector<Placed>& placed, double min_share) {
    std::ranges::sort(placed, {}, [](const Placed& one) { return one.stream_range.offset; });
    std::set<std::uint64_t> edges;
    for (const auto& one : placed) edges.insert({one.stream_range.offset, one.stream_range.end()});
    std::vector<const Placed*> here;
    auto next = placed.begin();
    for (auto edge = edges.begin(); std::next(edge) != edges.end(); ++edge) {
      const ByteRange range{.offset = *edge, .length = *std::next(edge) - *edge};
      std::erase_if(here, [&](const Placed* one) { return one->stream_range.end() <= range.offset; });
      for (; next != placed.end() && next->stream_range.offset == range.offset; ++next) here.push_back(&*next);
      if (!here.empty()) add_segment(layer, range, here, min_share);
    }
  }

  void add_segment(std::uint32_t layer, ByteRange range, const std::vector<const Placed*>& here, double min_share) {
    Segment segment{.layer = layer, .stream_range = range};
    std::vector<std::pair<std::uint64_t, std::uint32_t>> positions, times;
    for (const auto* one : here) {
      segment.recordings += one->recordings;
      positions.emplace_back(one->position + (range.offset - one->stream_range.offset), one->recordings);
      times.emplace_back(one->ms, one->recordings);
    }
    if (double(segment.recordings) < min_share * double(recordings_) - 1e-9) return;
    if (segments_.size() >= kMaxProfileRanges)
      fail<Unsupported>("the merged profile would have more than {} ranges", kMaxProfileRanges);
    segment.position = weighted_median(positions);
    segment.ms = weighted_median(times);
    segments_.push_back(segment);
  }

  static void append(std::vector<ProfileRange>& ranges, const Segment& segment) {
    const auto ms = ranges.empty() ? segment.ms : std::max(segment.ms, ranges.back().ms);
    if (!ranges.empty()) {
      auto& last = ranges.back();
      if (last.layer == segment.layer && last.stream_range.end() == segment.stream_range.offset &&
          last.recordings == segment.recordings) {
        last.stream_range.length += segment.stream_range.length;
        return;
      }
    }
    ranges.push_back(
        {.layer = segment.layer, .stream_range = segment.stream_range, .ms = ms, .recordings = segment.recordings});
  }

  std::uint64_t recordings_ = 0;
  std::map<Digest, std::vector<Placed>> placed_;
  std::vector<Segment> segments_;
};

}  // namespace

std::uint64_t Profile::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& range : ranges) bytes += range.stream_range.length;
  return bytes;
}

Bytes Profile::encode() const {
  if (const auto reason = fault(*this); !reason.empty()) fail<CorruptData>("profile: {}", reason);
  Bytes out = to_bytes(as_bytes(kProfileMagic));
  append_varint(out, recordings);
  append_varint(out, layers.size());
  for (const auto& layer : layers) append_digest(out, layer);
  append_varint(out, ranges.size());
  std::uint64_t ms = 0;
  for (const auto& range : ranges) {
    append_varint(out, range.layer);
    append_varint(out, range.stream_range.offset);
    append_varint(out, range.stream_range.length);
    append_varint(out, range.ms - ms);
    append_varint(out, recordings - range.recordings);
    ms = range.ms;
  }
  return out;
}

Profile Profile::decode(ByteView bytes, std::string_view what) {
  ByteReader reader(bytes, what);
  reader.magic(kProfileMagic);
  Profile profile;
  profile.recordings = std::uint32_t(reader.varint_up_to(kMaxProfileRecordings, "too many recordings"));
  const auto layers = reader.varint_up_to(kMaxProfileLayers, "too many layers");
  if (layers > reader.left() / Digest::kBytes) reader.corrupt("more layers than bytes for them");
  for (std::uint64_t i = 0; i < layers; ++i) profile.layers.push_back(reader.digest());
  const auto ranges = reader.varint_up_to(kMaxProfileRanges, "too many ranges");
  if (ranges > reader.left() / kMinProfileRangeBytes) reader.corrupt("more ranges than bytes for them");
  profile.ranges.resize(ranges);
  std::uint64_t ms = 0;
  for (auto& range : profile.ranges) {
    range.layer = std::uint32_t(reader.varint_up_to(kMaxProfileLayers, "a range of no layer"));
    range.stream_range.offset = reader.varint_up_to(kMaxStreamBytes, "a range outside of any layer");
    range.stream_range.length =
        reader.varint_up_to(kMaxStreamBytes - range.stream_range.offset, "a range outside of any layer");
    ms += reader.varint_up_to(kMaxProfileMs - ms, "a time that cannot be");
    range.ms = ms;
    range.recordings = profile.recordings -
                       std::uint32_t(reader.varint_up_to(profile.recordings, "a range of fewer than no recordings"));
  }
  reader.end();
  if (const auto reason = fault(profile); !reason.empty()) fail<CorruptData>("{}: {}", what, reason);
  return profile;
}

void Profile::check(const std::vector<std::shared_ptr<const LayerMap>>& maps, std::string_view what) const {
  const auto stream_bytes = stream_bytes_of(layers, maps, what);
  for (const auto& range : ranges) {
    if (!range.stream_range.fits_in(stream_bytes[range.layer]))
      fail<CorruptData>("{}: a range ends at {}, layer {} at {}", what, range.stream_range.end(),
                        layers[range.layer].to_string(), stream_bytes[range.layer]);
  }
}

Profile Profile::of_layers(const std::vector<std::shared_ptr<const LayerMap>>& maps) const {
  std::map<Digest, std::uint64_t> stream_bytes;
  for (const auto& map : maps) stream_bytes[map->layer_digest] = map->stream_bytes;
  std::vector<ProfileRange> kept;
  for (const auto& range : ranges) {
    const auto found = stream_bytes.find(layers[range.layer]);
    if (found != stream_bytes.end() && range.stream_range.fits_in(found->second)) kept.push_back(range);
  }
  return with_layers_in_order(recordings, layers, std::move(kept));
}

Profile merge_profiles(const std::vector<Profile>& profiles, double min_share) {
  if (profiles.empty()) fail<UsageError>("there are no profiles to merge");
  return Merger(profiles).merged(min_share);
}

void ProfileBuilder::touch(const Digest& layer, ByteRange stream_range, std::uint64_t ms) {
  if (stream_range.length == 0 || !stream_range.fits_in(kMaxStreamBytes)) return;
  const auto [entry, fresh] = numbers_.try_emplace(layer, std::uint32_t(digests_.size()));
  if (fresh) {
    digests_.push_back(layer);
    touched_.emplace_back();
  }
  auto& touched = touched_[entry->second];
  auto begin = stream_range.offset;
  const auto end = stream_range.end();
  auto next = touched.upper_bound(begin);
  if (next != touched.begin() && std::prev(next)->second >= begin) --next;  // it reaches up to here
  auto joined_begin = begin, joined_end = end;
  while (next != touched.end() && next->first <= end) {
    if (next->first > begin) append(entry->second, {.offset = begin, .length = next->first - begin}, ms);
    begin = std::max(begin, next->second);
    joined_begin = std::min(joined_begin, next->first);
    joined_end = std::max(joined_end, next->second);
    next = touched.erase(next);
  }
  if (begin < end) append(entry->second, {.offset = begin, .length = end - begin}, ms);
  touched[joined_begin] = joined_end;
}

void ProfileBuilder::append(std::uint32_t layer, ByteRange stream_range, std::uint64_t ms) {
  ms = std::min(std::max(ms, ranges_.empty() ? 0 : ranges_.back().ms), kMaxProfileMs);
  if (!ranges_.empty() && ranges_.back().layer == layer && ranges_.back().stream_range.end() == stream_range.offset) {
    ranges_.back().stream_range.length += stream_range.length;
    return;
  }
  if (!full()) ranges_.push_back({.layer = layer, .stream_range = stream_range, .ms = ms});
}

Profile ProfileBuilder::profile() const { return with_layers_in_order(1, digests_, ranges_); }

}  // namespace varve::index
