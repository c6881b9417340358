#include "core/index/format/layer_map.h"

#include <algorithm>
#include <array>

#include "core/base/errors.h"
#include "core/index/format/internal/byte_codec.h"

namespace varve::index {
namespace {

constexpr std::string_view kMapMagic = "VRVMAP1\n";
constexpr std::string_view kRecordsMagic = "VRVMAP2\n";  // the digests are in the windows blob
constexpr std::array<std::string_view, 6> kFormatNames{"tar", "gzip", "estargz", "zstd", "zstd-chunked", "zstd-single"};

// The flags column.
constexpr std::uint8_t kBitsMask = 0x07;
constexpr std::uint8_t kMemberHeader = 0x08;
constexpr std::uint8_t kHasWindow = 0x10;
constexpr std::uint8_t kFollows = 0x20;

bool is_gzip(LayerFormat format) { return format == LayerFormat::kGzip || format == LayerFormat::kEstargz; }

// Where a span's compressed bytes begin if nothing lies between it and the one before.
std::uint64_t adjoining(std::uint64_t previous_end, std::uint8_t bits) {
  return bits != 0 && previous_end != 0 ? previous_end - 1 : previous_end;
}

std::uint64_t window_blocks(std::uint64_t windows_bytes) {
  return (windows_bytes + kWindowBlockBytes - 1) / kWindowBlockBytes;
}

class MapChecker {
 public:
  MapChecker(const LayerMap& map, std::string_view what) : map_(map), what_(what) {}

  void check() {
    if (map_.stream_bytes > kMaxStreamBytes || map_.compressed_bytes > kMaxStreamBytes)
      corrupt("a layer larger than any can be");
    if (map_.spans.size() > kMaxSpans) corrupt("too many spans");
    if ((map_.windows_bytes == 0) != (map_.windows_digest == Digest()))
      corrupt("windows without digest, or digest without windows");
    if (map_.windows_bytes != 0 && !is_gzip(map_.format)) corrupt("windows for a format that needs none");
    if (map_.format == LayerFormat::kTar && map_.compressed_bytes != map_.stream_bytes)
      corrupt("a plain layer whose sizes differ");
    if (map_.has_digests_in_windows() ? !map_.digests.empty() : map_.digests.size() != map_.spans.size())
      corrupt("not two digests for each span");
    if (map_.has_digests_in_windows() &&
        (map_.spans.empty() || map_.window_digests.size() != window_blocks(map_.windows_bytes)))
      corrupt("not one digest for each block of the windows blob");
    for (at_ = 0; at_ < map_.spans.size(); ++at_) check_span(map_.spans[at_]);
    if (stream_end_ != map_.stream_bytes) corrupt("spans do not end where the stream does");
    if (map_.has_digests_in_windows() && record_end_ != map_.windows_bytes)
      corrupt("records do not end where the windows blob does");
  }

 private:
  [[noreturn]] void corrupt(std::string_view reason) const {
    fail<CorruptData>("{}: layer {}, span {} of {}: {}", what_, map_.layer_digest.to_string(), at_, map_.spans.size(),
                      reason);
  }

  void check_span(const Span& span) {
    if (span.stream_range.offset != stream_end_) corrupt("does not begin where the one before ends");
    if (span.stream_range.length == 0 || span.stream_range.length > kMaxSpanStreamBytes ||
        !span.stream_range.fits_in(map_.stream_bytes))
      corrupt("impossible length in the stream");
    stream_end_ = span.stream_range.end();
    if (is_gzip(map_.format)) {
      check_gzip(span);
    } else if (span.bits != 0 || span.member_header || span.follows || span.window != ByteRange{}) {
      corrupt("gzip details in a layer that is not gzip");
    }
    if (map_.format == LayerFormat::kZstdSingle) {
      if (span.compressed_range != ByteRange{} || map_.digests[at_].compressed != Digest())
        corrupt("compressed bytes in a layer of one frame");
      return;
    }
    if (span.compressed_range.length == 0 || !span.compressed_range.fits_in(map_.compressed_bytes))
      corrupt("compressed bytes outside the layer");
    if (span.compressed_range.offset < adjoining(compressed_end_, span.bits))
      corrupt("compressed bytes overlap those of the span before");
    compressed_end_ = span.compressed_range.end();
    if (map_.format == LayerFormat::kTar &&
        (span.compressed_range != span.stream_range || map_.digests[at_].compressed != map_.digests[at_].stream))
      corrupt("the two sides of a plain layer differ");
  }

  void check_gzip(const Span& span) {
    followers_ = span.follows ? followers_ + 1 : 0;
    if (span.follows && (at_ == 0 || map_.spans[at_ - 1].stream_range.length < kFollowedBytes))
      corrupt("follows a span that is too short to be its window");
    if (span.follows && (span.member_header || span.window.length != 0))
      corrupt("follows another span, and can be decoded alone");
    if (followers_ > kMaxFollowers) corrupt("too many spans follow each other");
    if (span.bits > 7) corrupt("impossible bit position");
    if (map_.has_digests_in_windows()) {
      if (span.window.offset != record_end_) corrupt("its record does not begin where the one before ends");
      record_end_ = map_.record_range(at_).end();
    } else if (span.window.length == 0 && span.window.offset != 0) {
      corrupt("an empty window that has a place");
    }
    if (span.window.length > kMaxWindowBytes || !span.window.fits_in(map_.windows_bytes))
      corrupt("window outside the windows blob");
    if (span.member_header && (span.window.length != 0 || span.bits != 0))
      corrupt("a member's start that needs a window");
  }

  const LayerMap& map_;
  std::string_view what_;
  std::size_t at_ = 0;
  std::uint64_t stream_end_ = 0;
  std::uint64_t compressed_end_ = 0;
  std::uint64_t record_end_ = 0;
  std::size_t followers_ = 0;  // in a row
};

}  // namespace

std::string_view to_string(LayerFormat format) { return kFormatNames.at(std::size_t(format)); }

std::size_t LayerMap::span_at(std::uint64_t stream_offset) const {
  const auto after =
      std::ranges::upper_bound(spans, stream_offset, {}, [](const Span& span) { return span.stream_range.offset; });
  return std::size_t(after - spans.begin()) - 1;
}

ByteRange LayerMap::record_range(std::size_t span) const {
  auto range = spans[span].window;
  if (has_digests_in_windows()) range.length += kDigestsBytes;
  return range;
}

SpanDigests LayerMap::digests_of(std::size_t span, ByteView record) const {
  if (!has_digests_in_windows()) return digests[span];
  if (record.size() != record_range(span).length)
    fail<CorruptData>("layer {}: {} bytes of a record of {}", layer_digest.to_string(), record.size(),
                      record_range(span).length);
  const auto both = record.last(kDigestsBytes);
  return {.compressed = Digest::from_raw(both.first<Digest::kBytes>()),
          .stream = Digest::from_raw(both.last<Digest::kBytes>())};
}

ByteRange LayerMap::window_in_stream(std::size_t span) const {
  return {.offset = spans[span].stream_range.offset - kFollowedBytes, .length = kFollowedBytes};
}

std::pair<std::size_t, std::size_t> LayerMap::spans_of(ByteRange stream_range) const {
  if (stream_range.length == 0) return {0, 0};
  return {span_at(stream_range.offset), span_at(stream_range.end() - 1) + 1};
}

Bytes LayerMap::encode() const {
  MapChecker(*this, "layer map").check();
  Bytes out;
  const bool records = has_digests_in_windows();
  out.reserve(160 + spans.size() * 12 + digests.size() * kDigestsBytes + window_digests.size() * Digest::kBytes);
  append(out, as_bytes(records ? kRecordsMagic : kMapMagic));
  append_digest(out, layer_digest);
  append_digest(out, diff_id);
  append_digest(out, windows_digest);
  append_le(out, compressed_bytes);
  append_le(out, stream_bytes);
  append_le(out, windows_bytes);
  append_le(out, std::uint64_t(spans.size()));
  append_le(out, std::uint64_t(format));
  for (const auto& span : spans) append_varint(out, span.stream_range.length);
  if (is_gzip(format)) {
    for (const auto& span : spans)
      out.push_back(std::byte(span.bits | (span.member_header ? kMemberHeader : 0) |
                              (span.window.length != 0 ? kHasWindow : 0) | (span.follows ? kFollows : 0)));
    std::uint64_t window_end = 0;
    for (const auto& span : spans) {
      if (span.window.length == 0) continue;
      if (!records) append_varint(out, zigzag(std::int64_t(span.window.offset - window_end)));
      append_varint(out, span.window.length);
      window_end = span.window.end();
    }
  }
  if (format != LayerFormat::kTar && format != LayerFormat::kZstdSingle) {
    std::uint64_t compressed_end = 0;
    for (const auto& span : spans) {
      append_varint(out, span.compressed_range.offset - adjoining(compressed_end, span.bits));
      append_varint(out, span.compressed_range.length);
      compressed_end = span.compressed_range.end();
    }
    for (const auto& both : digests) append_digest(out, both.compressed);
  }
  for (const auto& both : digests) append_digest(out, both.stream);
  for (const auto& digest : window_digests) append_digest(out, digest);
  return out;
}

namespace {

void decode_gzip_columns(ByteReader& reader, LayerMap& map, bool records) {
  std::vector<bool> has_window(map.spans.size());
  for (std::size_t i = 0; i < map.spans.size(); ++i) {
    const auto flags = reader.integer<std::uint8_t>();
    if ((flags & ~(kBitsMask | kMemberHeader | kHasWindow | kFollows)) != 0) reader.corrupt("unknown flags");
    map.spans[i].bits = flags & kBitsMask;
    map.spans[i].member_header = (flags & kMemberHeader) != 0;
    map.spans[i].follows = (flags & kFollows) != 0;
    has_window[i] = (flags & kHasWindow) != 0;
  }
  std::uint64_t window_end = 0;
  for (std::size_t i = 0; i < map.spans.size(); ++i) {
    auto& window = map.spans[i].window;
    if (records) window.offset = window_end;
    if (has_window[i]) {
      // Wraps for hostile distances; the range is checked against the blob below.
      if (!records) window.offset = window_end + std::uint64_t(unzigzag(reader.varint()));
      window.length = reader.varint();
      if (window.length == 0) reader.corrupt("window outside the windows blob");
    }
    if (!records && !has_window[i]) continue;
    if (!window.fits_in(map.windows_bytes)) reader.corrupt("window outside the windows blob");
    window_end = window.end() + (records ? kDigestsBytes : 0);
  }
}

void decode_compressed_columns(ByteReader& reader, LayerMap& map) {
  std::uint64_t compressed_end = 0;
  for (auto& span : map.spans) {
    auto& range = span.compressed_range;
    range.offset = adjoining(compressed_end, span.bits) +
                   reader.varint_up_to(kMaxStreamBytes, "compressed bytes outside the layer");
    range.length = reader.varint();
    if (!range.fits_in(map.compressed_bytes)) reader.corrupt("compressed bytes outside the layer");
    compressed_end = range.end();
  }
  for (auto& both : map.digests) both.compressed = reader.digest();
}

}  // namespace

LayerMap LayerMap::decode(ByteView bytes, std::string_view what) {
  ByteReader reader(bytes, what);
  LayerMap map;
  const bool records =
      bytes.size() >= kRecordsMagic.size() && as_text(bytes.first(kRecordsMagic.size())) == kRecordsMagic;
  reader.magic(records ? kRecordsMagic : kMapMagic);
  map.layer_digest = reader.digest();
  map.diff_id = reader.digest();
  map.windows_digest = reader.digest();
  map.compressed_bytes = reader.integer<std::uint64_t>();
  map.stream_bytes = reader.integer<std::uint64_t>();
  map.windows_bytes = reader.integer<std::uint64_t>();
  const auto span_count = reader.integer<std::uint64_t>();
  const auto format = reader.integer<std::uint64_t>();
  if (format >= kFormatNames.size()) reader.corrupt("unknown layer format");
  map.format = LayerFormat(format);
  if (map.stream_bytes > kMaxStreamBytes || map.compressed_bytes > kMaxStreamBytes)
    reader.corrupt("a layer larger than any can be");
  if (records && !is_gzip(map.format)) reader.corrupt("records in a layer that is not gzip");
  // At least so much each, so the bytes that are there bound the memory taken.
  const std::uint64_t least = records ? 4 : Digest::kBytes + 1;
  if (span_count > kMaxSpans || span_count > reader.left() / least) reader.corrupt("too many spans");
  map.spans.resize(span_count);
  if (!records) map.digests.resize(span_count);
  std::uint64_t stream_end = 0;
  for (auto& span : map.spans) {
    span.stream_range = {.offset = stream_end,
                         .length = reader.varint_up_to(kMaxSpanStreamBytes, "a span longer than any can be")};
    stream_end = span.stream_range.end();
  }
  if (is_gzip(map.format)) decode_gzip_columns(reader, map, records);
  if (map.format != LayerFormat::kTar && map.format != LayerFormat::kZstdSingle) decode_compressed_columns(reader, map);
  for (auto& both : map.digests) both.stream = reader.digest();
  if (records) {
    const auto blocks = window_blocks(map.windows_bytes);
    if (blocks == 0 || blocks > reader.left() / Digest::kBytes) reader.corrupt("too few digests of the windows blob");
    map.window_digests.resize(blocks);
    for (auto& digest : map.window_digests) digest = reader.digest();
  }
  reader.end();
  if (map.format == LayerFormat::kTar) {
    for (auto& span : map.spans) span.compressed_range = span.stream_range;
    for (auto& both : map.digests) both.compressed = both.stream;
  }
  MapChecker(map, what).check();
  return map;
}

void move_digests_to_windows(LayerMap& map, Bytes& windows) {
  Bytes records;
  records.reserve(windows.size() + map.spans.size() * kDigestsBytes);
  for (std::size_t i = 0; i < map.spans.size(); ++i) {
    auto& window = map.spans[i].window;
    const auto bytes = ByteView(windows).subspan(window.offset, window.length);
    window.offset = records.size();
    append(records, bytes);
    append_digest(records, map.digests[i].compressed);
    append_digest(records, map.digests[i].stream);
  }
  windows = std::move(records);
  map.digests.clear();
  map.window_digests.clear();
  for (std::size_t at = 0; at < windows.size(); at += kWindowBlockBytes)
    map.window_digests.push_back(
        digest_of(ByteView(windows).subspan(at, std::min<std::size_t>(kWindowBlockBytes, windows.size() - at))));
  map.windows_bytes = windows.size();
  map.windows_digest = windows.empty() ? Digest() : digest_of(windows);
}

std::vector<std::uint64_t> stream_bytes_of(const std::vector<Digest>& layers,
                                           const std::vector<std::shared_ptr<const LayerMap>>& maps,
                                           std::string_view what) {
  std::vector<std::uint64_t> stream_bytes;
  for (const auto& layer : layers) {
    const auto map = std::ranges::find(maps, layer, [](const auto& one) { return one->layer_digest; });
    if (map == maps.end()) fail<CorruptData>("{}: layer {} is none of the image's", what, layer.to_string());
    stream_bytes.push_back((*map)->stream_bytes);
  }
  return stream_bytes;
}

}  // namespace varve::index
