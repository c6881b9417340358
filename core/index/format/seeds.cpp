#include "core/index/format/seeds.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/codec/span_decoder.h"
#include "core/codec/tar_block.h"
#include "core/index/format/image_index.h"
#include "core/index/format/internal/byte_codec.h"

namespace varve::index {
namespace {

constexpr std::string_view kSeedsMagic = "VRVSED1\n";
// Encoded, at least.
constexpr std::uint64_t kMinSourceBytes = 3 * Digest::kBytes;
constexpr std::uint64_t kMinSeedRangeBytes = 4;
constexpr std::uint64_t kMinSeededLayerBytes = Digest::kBytes + 1 + kMinSeedRangeBytes + 1;
constexpr std::uint64_t kMinSeedLiteralBytes = 1 + kSeedLiteralBytes;

// "" if all is well.
std::string_view fault(const SeededLayer& layer, std::vector<bool>& used_sources) {
  if (layer.ranges.empty()) return "a layer without ranges";
  std::uint64_t at = 0;
  for (const auto& range : layer.ranges) {
    if (range.source >= used_sources.size()) return "a range of no source";
    if (range.stream_range.length == 0 || !range.stream_range.fits_in(kMaxStreamBytes) ||
        !ByteRange{.offset = range.source_offset, .length = range.stream_range.length}.fits_in(kMaxStreamBytes))
      return "a range that cannot be";
    if (range.stream_range.offset % codec::kTarBlock != 0 || range.source_offset % codec::kTarBlock != 0)
      return "a range that is not aligned as tar does";
    if (range.stream_range.offset < at) return "ranges that are not in order";
    at = codec::next_tar_block(range.stream_range.end());
    used_sources[range.source] = true;
  }
  at = 0;
  auto range = layer.ranges.begin();
  for (const auto& literal : layer.literals) {
    if (literal.stream_offset < at) return "literals that are not in order";
    if (!literal.stream_range().fits_in(kMaxStreamBytes)) return "a literal that cannot be";
    at = literal.stream_range().end();
    while (range != layer.ranges.end() && range->stream_range.end() < at) ++range;
    if (range == layer.ranges.end() || range->stream_range.offset > literal.stream_offset)
      return "a literal of no range";
  }
  return "";
}

std::string_view fault(const Seeds& seeds) {
  if (seeds.sources.size() > kMaxSeedLayers || seeds.layers.size() > kMaxSeedLayers) return "too many layers";
  if (std::ranges::adjacent_find(seeds.sources, std::ranges::greater_equal()) != seeds.sources.end())
    return "sources that are not in order";
  std::vector<bool> used(seeds.sources.size());
  std::uint64_t pieces = 0;
  const SeededLayer* last = nullptr;
  for (const auto& layer : seeds.layers) {
    if (last != nullptr && last->layer >= layer.layer) return "layers that are not in order";
    last = &layer;
    pieces += layer.ranges.size() + layer.literals.size();
    if (pieces > kMaxSeedRanges) return "too many ranges";
    if (const auto reason = fault(layer, used); !reason.empty()) return reason;
  }
  return std::ranges::find(used, false) != used.end() ? "a source without ranges" : "";
}

constexpr std::uint64_t kMaxStreamBlocks = kMaxStreamBytes / codec::kTarBlock;

std::uint64_t blocks_to(std::uint64_t offset) { return codec::next_tar_block(offset) / codec::kTarBlock; }

// Where a range of a source is expected, in blocks: files that stayed follow each other as they did.
class SourceEnds {
 public:
  explicit SourceEnds(std::size_t sources) : ends_(sources) {}
  std::uint64_t expected(std::uint32_t source, std::uint64_t gap) const { return ends_[source] + gap; }
  void note(const SeedRange& range) {
    ends_[range.source] = blocks_to(range.source_offset + range.stream_range.length);
  }

 private:
  std::vector<std::uint64_t> ends_;  // in this layer
};

void encode_layer(Bytes& out, const SeededLayer& layer, std::size_t sources) {
  append_digest(out, layer.layer);
  append_varint(out, layer.ranges.size());
  SourceEnds ends(sources);
  std::uint64_t at = 0;
  for (const auto& range : layer.ranges) {
    const auto gap = blocks_to(range.stream_range.offset) - at;
    append_varint(out, gap);
    append_varint(out, range.stream_range.length);
    append_varint(out, range.source);
    append_varint(out, zigzag(std::int64_t(blocks_to(range.source_offset) - ends.expected(range.source, gap))));
    ends.note(range);
    at = blocks_to(range.stream_range.end());
  }
  append_varint(out, layer.literals.size());
  at = 0;
  for (const auto& literal : layer.literals) {
    append_varint(out, literal.stream_offset - at);
    append(out, literal.bytes);
    at = literal.stream_range().end();
  }
}

SeededLayer decode_layer(ByteReader& reader, std::size_t sources, std::uint64_t& pieces_left) {
  constexpr std::string_view kOutside = "a range outside of any layer";
  const auto count = [&](std::uint64_t least_bytes) {
    const auto number = reader.varint_up_to(pieces_left, "too many ranges");
    if (number > reader.left() / least_bytes) reader.corrupt("more ranges than bytes for them");
    pieces_left -= number;
    return number;
  };
  SeededLayer layer{.layer = reader.digest(), .ranges = {}, .literals = {}};
  layer.ranges.resize(count(kMinSeedRangeBytes));
  SourceEnds ends(sources);
  std::uint64_t at = 0;
  for (auto& range : layer.ranges) {
    if (sources == 0) reader.corrupt("a range of no source");
    const auto gap = reader.varint_up_to(kMaxStreamBlocks - at, kOutside);
    range.stream_range.offset = (at + gap) * codec::kTarBlock;
    range.stream_range.length = reader.varint_up_to(kMaxStreamBytes - range.stream_range.offset, kOutside);
    range.source = std::uint32_t(reader.varint_up_to(sources - 1, "a range of no source"));
    const auto distance = unzigzag(reader.varint_up_to(4 * kMaxStreamBlocks, kOutside));
    const auto source_block = ends.expected(range.source, gap) + std::uint64_t(distance);
    if (source_block > kMaxStreamBlocks) reader.corrupt(kOutside);
    range.source_offset = source_block * codec::kTarBlock;
    if (!ByteRange{.offset = range.source_offset, .length = range.stream_range.length}.fits_in(kMaxStreamBytes))
      reader.corrupt(kOutside);
    ends.note(range);
    at = blocks_to(range.stream_range.end());
  }
  layer.literals.resize(count(kMinSeedLiteralBytes));
  at = 0;
  for (auto& literal : layer.literals) {
    literal.stream_offset = at + reader.varint_up_to(kMaxStreamBytes - at, "a literal outside of any layer");
    std::ranges::copy(reader.take(kSeedLiteralBytes), literal.bytes.begin());
    at = std::min(literal.stream_range().end(), kMaxStreamBytes);
  }
  return layer;
}

}  // namespace

std::uint64_t Seeds::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& layer : layers)
    for (const auto& range : layer.ranges) sum += range.stream_range.length;
  return sum;
}

Bytes Seeds::encode() const {
  if (const auto reason = fault(*this); !reason.empty()) fail<CorruptData>("seeds: {}", reason);
  Bytes out = to_bytes(as_bytes(kSeedsMagic));
  append_varint(out, sources.size());
  for (const auto& source : sources)
    for (const auto* digest : {&source.layer, &source.map, &source.entries}) append_digest(out, *digest);
  append_varint(out, layers.size());
  for (const auto& layer : layers) encode_layer(out, layer, sources.size());
  return out;
}

Seeds Seeds::decode(ByteView bytes, std::string_view what) {
  ByteReader reader(bytes, what);
  reader.magic(kSeedsMagic);
  Seeds seeds;
  const auto sources = reader.varint_up_to(kMaxSeedLayers, "too many sources");
  if (sources > reader.left() / kMinSourceBytes) reader.corrupt("more sources than bytes for them");
  for (std::uint64_t i = 0; i < sources; ++i) {
    auto& source = seeds.sources.emplace_back();
    for (auto* digest : {&source.layer, &source.map, &source.entries}) *digest = reader.digest();
  }
  const auto layers = reader.varint_up_to(kMaxSeedLayers, "too many layers");
  if (layers > reader.left() / kMinSeededLayerBytes) reader.corrupt("more layers than bytes for them");
  std::uint64_t pieces_left = kMaxSeedRanges;
  for (std::uint64_t i = 0; i < layers; ++i)
    seeds.layers.push_back(decode_layer(reader, seeds.sources.size(), pieces_left));
  reader.end();
  if (const auto reason = fault(seeds); !reason.empty()) fail<CorruptData>("{}: {}", what, reason);
  return seeds;
}

void Seeds::check(const std::vector<std::shared_ptr<const LayerMap>>& maps, std::string_view what) const {
  std::vector<Digest> digests;
  for (const auto& layer : layers) digests.push_back(layer.layer);
  const auto stream_bytes = stream_bytes_of(digests, maps, what);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& last = layers[i].ranges.back().stream_range;
    if (!last.fits_in(stream_bytes[i]))
      fail<CorruptData>("{}: a range ends at {}, layer {} at {}", what, last.end(), digests[i].to_string(),
                        stream_bytes[i]);
  }
}

Bytes pack_seeds(const Seeds& seeds) { return codec::compress_zstd(seeds.encode(), kIndexZstdLevel); }

Seeds unpack_seeds(ByteView blob, std::string_view what, std::uint64_t limit_bytes) {
  return Seeds::decode(codec::decompress_zstd(blob, limit_bytes, what), what);
}

}  // namespace varve::index
