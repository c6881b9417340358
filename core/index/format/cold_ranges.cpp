#include "core/index/format/cold_ranges.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/index/format/internal/byte_codec.h"

namespace varve::index {
namespace {

constexpr std::string_view kColdMagic = "VRVCLD1\n";
constexpr std::uint64_t kMinColdRangeBytes = 2;  // encoded
constexpr std::uint64_t kMinLayerBytes = Digest::kBytes + 1 + kMinColdRangeBytes;

// "" if all is well.
std::string_view fault(const ColdRanges& cold) {
  if (cold.layers.size() > kMaxColdLayers) return "too many layers";
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < cold.layers.size(); ++i) {
    const auto& layer = cold.layers[i];
    if (i != 0 && !(cold.layers[i - 1].layer_digest < layer.layer_digest)) return "layers that are not in order";
    if (layer.ranges.empty()) return "a layer without ranges";
    count += layer.ranges.size();
    std::uint64_t end = 0;
    for (const auto& range : layer.ranges) {
      if (range.length == 0 || !range.fits_in(kMaxStreamBytes)) return "a range that cannot be";
      if (&range != &layer.ranges.front() && range.offset <= end) return "ranges that overlap or touch";
      end = range.end();
    }
  }
  return count > kMaxColdRanges ? "too many ranges" : "";
}

}  // namespace

const std::vector<ByteRange>& ColdRanges::of(const Digest& layer_digest) const {
  static const std::vector<ByteRange> kNone;
  const auto at = std::ranges::lower_bound(layers, layer_digest, {}, &LayerCold::layer_digest);
  return at != layers.end() && at->layer_digest == layer_digest ? at->ranges : kNone;
}

std::uint64_t ColdRanges::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& layer : layers) {
    for (const auto& range : layer.ranges) bytes += range.length;
  }
  return bytes;
}

Bytes ColdRanges::encode() const {
  if (const auto reason = fault(*this); !reason.empty()) fail<CorruptData>("cold ranges: {}", reason);
  Bytes out = to_bytes(as_bytes(kColdMagic));
  append_varint(out, layers.size());
  for (const auto& layer : layers) {
    append_digest(out, layer.layer_digest);
    append_varint(out, layer.ranges.size());
    std::uint64_t end = 0;
    for (const auto& range : layer.ranges) {
      append_varint(out, range.offset - end);
      append_varint(out, range.length);
      end = range.end();
    }
  }
  return out;
}

ColdRanges ColdRanges::decode(ByteView bytes, std::string_view what) {
  ByteReader reader(bytes, what);
  reader.magic(kColdMagic);
  ColdRanges cold;
  const auto layers = reader.varint_up_to(kMaxColdLayers, "too many layers");
  if (layers > reader.left() / kMinLayerBytes) reader.corrupt("more layers than bytes for them");
  cold.layers.resize(layers);
  std::uint64_t more =
      kMaxColdRanges;  // of all layers together, so that memory is bounded before anything else is looked at
  for (auto& layer : cold.layers) {
    layer.layer_digest = reader.digest();
    const auto ranges = reader.varint_up_to(more, "too many ranges");
    more -= ranges;
    if (ranges > reader.left() / kMinColdRangeBytes) reader.corrupt("more ranges than bytes for them");
    layer.ranges.resize(ranges);
    std::uint64_t end = 0;
    for (auto& range : layer.ranges) {
      range.offset = end + reader.varint_up_to(kMaxStreamBytes - end, "a range outside of any layer");
      range.length = reader.varint_up_to(kMaxStreamBytes - range.offset, "a range outside of any layer");
      end = range.end();
    }
  }
  reader.end();
  if (const auto reason = fault(cold); !reason.empty()) fail<CorruptData>("{}: {}", what, reason);
  return cold;
}

void ColdRanges::check(const std::vector<std::shared_ptr<const LayerMap>>& maps, std::string_view what) const {
  for (const auto& layer : layers) {
    const auto stream_bytes = stream_bytes_of({layer.layer_digest}, maps, what).front();
    if (layer.ranges.back().end() > stream_bytes)
      fail<CorruptData>("{}: a range ends at {}, layer {} at {}", what, layer.ranges.back().end(),
                        layer.layer_digest.to_string(), stream_bytes);
  }
}

}  // namespace varve::index
