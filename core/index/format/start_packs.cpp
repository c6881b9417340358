#include "core/index/format/start_packs.h"

#include <algorithm>
#include <numeric>

#include "core/base/errors.h"
#include "core/base/text/safe_text.h"
#include "core/index/format/image_index.h"
#include "core/index/format/internal/byte_codec.h"

namespace varve::index {
namespace {

constexpr std::string_view kStartPacksMagic = "VRVPCK1\n";
constexpr std::uint64_t kMaxNameBytes = 1024;
constexpr std::uint64_t kMaxFrameOverheadBytes = 2048;  // more than zstd needs around bytes that it cannot compress
// Encoded, at least.
constexpr std::uint64_t kMinFrameBytes = 1 + 2 * Digest::kBytes;
constexpr std::uint64_t kMinRangeBytes = 3;
constexpr std::uint64_t kMinLiteralBytes = 4;
constexpr std::uint64_t kMinGroupBytes = 2 + 3 + 2 * Digest::kBytes + 1 + kMinFrameBytes + 1 + kMinRangeBytes + 1;

std::uint64_t frames_of(std::uint64_t stream_bytes) { return (stream_bytes + kPackFrameBytes - 1) / kPackFrameBytes; }

// All layers one behind the other, so that places are compared as numbers: a list has some 60,000.
ByteRange of_all_layers(std::uint32_t layer, ByteRange stream_range) {
  static_assert(kMaxPackLayers <= UINT64_MAX / kMaxStreamBytes);
  return {.offset = layer * kMaxStreamBytes + stream_range.offset, .length = stream_range.length};
}

// "" if all is well.
std::string_view fault(const StartPack& pack, std::vector<bool>& used_layers) {
  std::vector<ByteRange> pieces;
  pieces.reserve(pack.ranges.size() + pack.literals.size());
  std::uint64_t stream_bytes = 0;
  for (const auto& range : pack.ranges) {
    if (range.layer >= used_layers.size()) return "a range of no layer";
    if (range.stream_range.length == 0 || !range.stream_range.fits_in(kMaxStreamBytes)) return "a range that cannot be";
    stream_bytes += range.stream_range.length;
    if (stream_bytes > kMaxPackStreamBytes) return "a pack that is too long";
    used_layers[range.layer] = true;
    pieces.push_back(of_all_layers(range.layer, range.stream_range));
  }
  const PackLiteral* last = nullptr;
  for (const auto& literal : pack.literals) {
    if (literal.layer >= used_layers.size()) return "a literal of no layer";
    const ByteRange range{.offset = literal.stream_offset, .length = literal.bytes.size()};
    if (range.length == 0 || range.length > kMaxPackLiteralBytes || !range.fits_in(kMaxStreamBytes))
      return "a literal that cannot be";
    if (last != nullptr && last->place() >= literal.place()) return "literals that are not in order";
    last = &literal;
    used_layers[literal.layer] = true;
    pieces.push_back(of_all_layers(literal.layer, range));
  }
  std::ranges::sort(pieces, {}, &ByteRange::offset);
  if (std::ranges::adjacent_find(pieces, [](const auto& a, const auto& b) { return a.end() > b.offset; }) !=
      pieces.end())
    return "ranges that overlap";
  if (stream_bytes == 0) return "a pack of nothing";
  if (pack.frames.size() != frames_of(stream_bytes)) return "a number of frames that is not its pack's";
  for (const auto& frame : pack.frames)
    if (frame.compressed_bytes == 0 || frame.compressed_bytes > kPackFrameBytes + kMaxFrameOverheadBytes)
      return "a frame that cannot be";
  return "";
}

std::string_view fault(const StartPacks& packs) {
  if (packs.layers.size() > kMaxPackLayers) return "too many layers";
  if (packs.groups.size() > kMaxStartGroups) return "too many groups";
  if (std::ranges::adjacent_find(packs.layers, std::ranges::greater_equal()) != packs.layers.end())
    return "layers that are not in order";
  std::vector<bool> used(packs.layers.size());
  std::uint64_t pieces = 0;
  const StartGroup* last = nullptr;
  for (const auto& group : packs.groups) {
    if (group.kind > StartGroup::Kind::kImport) return "a group of no known kind";
    if (group.name.empty() || group.name.size() > kMaxNameBytes || printable(group.name) != group.name)
      return "a name that cannot be";
    if (last != nullptr && std::tie(last->kind, last->name) >= std::tie(group.kind, group.name))
      return "groups that are not in order";
    last = &group;
    const auto& trigger = group.trigger;
    if (trigger.layer >= used.size()) return "a trigger of no layer";
    if (trigger.stream_range.length == 0 || !trigger.stream_range.fits_in(kMaxStreamBytes))
      return "a trigger that cannot be";
    used[trigger.layer] = true;
    pieces += group.pack.ranges.size() + group.pack.literals.size();
    if (pieces > kMaxPackRanges) return "too many ranges";
    if (const auto reason = fault(group.pack, used); !reason.empty()) return reason;
  }
  return std::ranges::find(used, false) != used.end() ? "a layer without ranges" : "";
}

// Offsets are written as distances from where the last range of the same layer ended: starts read files in the order
// in which they were installed more often than not.
class Places {
 public:
  explicit Places(std::size_t layers) : ends_(layers) {}
  void append(Bytes& out, std::uint32_t layer, ByteRange range) {
    append_varint(out, layer);
    append_varint(out, zigzag(std::int64_t(range.offset) - std::int64_t(ends_[layer])));
    append_varint(out, range.length);
    ends_[layer] = range.end();
  }
  std::pair<std::uint32_t, ByteRange> read(ByteReader& reader) {
    if (ends_.empty()) reader.corrupt("a range of no layer");
    const auto layer = std::uint32_t(reader.varint_up_to(ends_.size() - 1, "a range of no layer"));
    const auto distance = unzigzag(reader.varint_up_to(2 * kMaxStreamBytes, "a range outside of any layer"));
    const auto offset = std::uint64_t(std::int64_t(ends_[layer]) + distance);
    if (offset > kMaxStreamBytes) reader.corrupt("a range outside of any layer");
    const auto length = reader.varint_up_to(kMaxStreamBytes - offset, "a range outside of any layer");
    ends_[layer] = offset + length;
    return {layer, {.offset = offset, .length = length}};
  }

 private:
  std::vector<std::uint64_t> ends_;
};

void encode_pack(Bytes& out, const StartPack& pack, Places& places) {
  append_digest(out, pack.blob);
  append_digest(out, pack.stream_digest);
  append_varint(out, pack.frames.size());
  for (const auto& frame : pack.frames) {
    append_varint(out, frame.compressed_bytes);
    append_digest(out, frame.compressed_digest);
    append_digest(out, frame.stream_digest);
  }
  append_varint(out, pack.ranges.size());
  for (const auto& range : pack.ranges) places.append(out, range.layer, range.stream_range);
  append_varint(out, pack.literals.size());
  for (const auto& literal : pack.literals) {
    places.append(out, literal.layer, {.offset = literal.stream_offset, .length = literal.bytes.size()});
    append(out, literal.bytes);
  }
}

StartPack decode_pack(ByteReader& reader, Places& places, std::uint64_t& pieces_left) {
  const auto count = [&](std::uint64_t limit, std::uint64_t least_bytes) {
    const auto number = reader.varint_up_to(limit, "too many ranges or frames");
    if (number > reader.left() / least_bytes) reader.corrupt("more ranges or frames than bytes for them");
    return number;
  };
  StartPack pack{.blob = reader.digest(), .stream_digest = reader.digest(), .frames = {}, .ranges = {}, .literals = {}};
  pack.frames.resize(count(frames_of(kMaxPackStreamBytes), kMinFrameBytes));
  for (auto& frame : pack.frames) {
    frame.compressed_bytes = reader.varint();
    frame.compressed_digest = reader.digest();
    frame.stream_digest = reader.digest();
  }
  pack.ranges.resize(count(pieces_left, kMinRangeBytes));
  pieces_left -= pack.ranges.size();
  for (auto& range : pack.ranges) std::tie(range.layer, range.stream_range) = places.read(reader);
  pack.literals.resize(count(pieces_left, kMinLiteralBytes));
  pieces_left -= pack.literals.size();
  for (auto& literal : pack.literals) {
    const auto [layer, range] = places.read(reader);
    literal = {.layer = layer, .stream_offset = range.offset, .bytes = to_bytes(reader.take(range.length))};
  }
  return pack;
}

}  // namespace

std::string_view to_string(StartGroup::Kind kind) { return kind == StartGroup::Kind::kProgram ? "program" : "import"; }

std::uint64_t StartPack::stream_bytes() const {
  return std::accumulate(ranges.begin(), ranges.end(), std::uint64_t(0),
                         [](std::uint64_t sum, const PackRange& range) { return sum + range.stream_range.length; });
}

std::uint64_t StartPack::compressed_bytes() const {
  return std::accumulate(frames.begin(), frames.end(), std::uint64_t(0),
                         [](std::uint64_t sum, const PackFrame& frame) { return sum + frame.compressed_bytes; });
}

oci::Descriptor StartPack::descriptor() const {
  oci::Descriptor descriptor;
  descriptor.media_type = kPackMediaType;
  descriptor.digest = blob;
  descriptor.size = compressed_bytes();
  return descriptor;
}

LayerMap StartPack::map() const {
  LayerMap map;
  map.layer_digest = blob;
  map.diff_id = stream_digest;
  map.format = LayerFormat::kZstd;
  map.compressed_bytes = compressed_bytes();
  map.stream_bytes = stream_bytes();
  std::uint64_t at = 0, compressed_at = 0;
  for (const auto& frame : frames) {
    Span span;
    span.stream_range = {.offset = at, .length = std::min(kPackFrameBytes, map.stream_bytes - at)};
    span.compressed_range = {.offset = compressed_at, .length = frame.compressed_bytes};
    map.digests.push_back({.compressed = frame.compressed_digest, .stream = frame.stream_digest});
    at = span.stream_range.end();
    compressed_at = span.compressed_range.end();
    map.spans.push_back(span);
  }
  return map;
}

Bytes StartPacks::encode() const {
  if (const auto reason = fault(*this); !reason.empty()) fail<CorruptData>("start-up packs: {}", reason);
  Bytes out = to_bytes(as_bytes(kStartPacksMagic));
  append_varint(out, layers.size());
  for (const auto& layer : layers) append_digest(out, layer);
  append_varint(out, groups.size());
  Places places(layers.size());
  for (const auto& group : groups) {
    append_varint(out, std::uint64_t(group.kind));
    append_varint(out, group.name.size());
    append(out, as_bytes(group.name));
    places.append(out, group.trigger.layer, group.trigger.stream_range);
    encode_pack(out, group.pack, places);
  }
  return out;
}

StartPacks StartPacks::decode(ByteView bytes, std::string_view what) {
  ByteReader reader(bytes, what);
  reader.magic(kStartPacksMagic);
  StartPacks packs;
  const auto layers = reader.varint_up_to(kMaxPackLayers, "too many layers");
  if (layers > reader.left() / Digest::kBytes) reader.corrupt("more layers than bytes for them");
  for (std::uint64_t i = 0; i < layers; ++i) packs.layers.push_back(reader.digest());
  const auto groups = reader.varint_up_to(kMaxStartGroups, "too many groups");
  if (groups > reader.left() / kMinGroupBytes) reader.corrupt("more groups than bytes for them");
  Places places(packs.layers.size());
  std::uint64_t pieces_left = kMaxPackRanges;
  for (std::uint64_t i = 0; i < groups; ++i) {
    StartGroup group;
    group.kind =
        StartGroup::Kind(reader.varint_up_to(std::uint64_t(StartGroup::Kind::kImport), "a group of no known kind"));
    group.name = as_text(reader.take(reader.varint_up_to(kMaxNameBytes, "a name that is too long")));
    std::tie(group.trigger.layer, group.trigger.stream_range) = places.read(reader);
    group.pack = decode_pack(reader, places, pieces_left);
    packs.groups.push_back(std::move(group));
  }
  reader.end();
  if (const auto reason = fault(packs); !reason.empty()) fail<CorruptData>("{}: {}", what, reason);
  return packs;
}

void StartPacks::check(const std::vector<std::shared_ptr<const LayerMap>>& maps, std::string_view what) const {
  const auto stream_bytes = stream_bytes_of(layers, maps, what);
  const auto check_range = [&](const StartGroup& group, std::uint32_t layer, ByteRange range) {
    if (!range.fits_in(stream_bytes[layer]))
      fail<CorruptData>("{}: a range of {} ends at {}, layer {} at {}", what, group.name, range.end(),
                        layers[layer].to_string(), stream_bytes[layer]);
  };
  for (const auto& group : groups) {
    check_range(group, group.trigger.layer, group.trigger.stream_range);
    for (const auto& range : group.pack.ranges) check_range(group, range.layer, range.stream_range);
    for (const auto& literal : group.pack.literals)
      check_range(group, literal.layer, {.offset = literal.stream_offset, .length = literal.bytes.size()});
  }
}

}  // namespace varve::index
