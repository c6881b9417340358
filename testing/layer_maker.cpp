#include "testing/layer_maker.h"

#include <algorithm>
#include <cstdlib>
#include <random>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/codec/gzip_walker.h"
#include "core/codec/span_decoder.h"
#include "testing/temp_dir.h"

namespace varve::test {
namespace {

oci::Descriptor descriptor_of(ByteView bytes, std::string_view media_type) {
  return {.media_type = std::string(media_type),
          .digest = digest_of(bytes),
          .size = bytes.size(),
          .artifact_type = {},
          .annotations = {},
          .urls = {},
          .platform = {}};
}

// Sets digests and sizes once blob, stream, windows and span ranges are known.
MadeLayer finish(MadeLayer layer, index::LayerFormat format, bool records = false) {
  auto& map = *layer.map;
  map.format = format;
  map.layer_digest = digest_of(layer.blob);
  map.diff_id = digest_of(layer.stream);
  map.compressed_bytes = layer.blob.size();
  map.stream_bytes = layer.stream.size();
  map.windows_bytes = layer.windows.size();
  if (!layer.windows.empty()) map.windows_digest = digest_of(layer.windows);
  for (const auto& [stream, compressed, bits, member, window, follows] : map.spans) {
    auto& both = map.digests.emplace_back();
    both.stream = digest_of(ByteView(layer.stream).subspan(stream.offset, stream.length));
    if (format != index::LayerFormat::kZstdSingle)
      both.compressed = digest_of(ByteView(layer.blob).subspan(compressed.offset, compressed.length));
  }
  if (records) index::move_digests_to_windows(map, layer.windows);
  layer.blob_descriptor = descriptor_of(layer.blob, "application/vnd.oci.image.layer.v1.tar");
  layer.index_blobs.layer_digest = map.layer_digest;
  layer.index_blobs.map = descriptor_of(map.encode(), index::kLayerMapMediaType);
  if (!layer.windows.empty()) layer.index_blobs.windows = descriptor_of(layer.windows, index::kWindowsMediaType);
  return layer;
}

std::vector<ByteRange> cut(std::uint64_t bytes, std::uint64_t span_bytes) {
  std::vector<ByteRange> ranges;
  for (std::uint64_t at = 0; at < bytes; at += span_bytes)
    ranges.push_back({.offset = at, .length = std::min(span_bytes, bytes - at)});
  return ranges;
}

MadeLayer empty_layer(Bytes stream) {
  MadeLayer layer;
  layer.stream = std::move(stream);
  layer.map = std::make_shared<index::LayerMap>();
  return layer;
}

// Begins a span at the first boundary that is far enough from the last.
class GzipCutter final : public codec::GzipListener {
 public:
  GzipCutter(MadeLayer& layer, std::uint64_t span_bytes, bool whole_windows, std::uint64_t follower_bytes)
      : layer_(layer), span_bytes_(span_bytes), whole_windows_(whole_windows), follower_bytes_(follower_bytes) {}

  void on_stream_bytes(ByteView bytes) override { append(layer_.stream, bytes); }

  void on_boundary(const codec::GzipBoundary& boundary, ByteView window) override {
    auto& spans = layer_.map->spans;
    const bool follows = !spans.empty() && boundary.stream_offset - head_ < span_bytes_;
    if (follows && (follower_bytes_ == 0 || boundary.member_start ||
                    boundary.stream_offset - spans.back().stream_range.offset < follower_bytes_))
      return;
    if (!follows) head_ = boundary.stream_offset;
    const auto shared = boundary.bits != 0 ? 1u : 0u;
    end_last(boundary.compressed_offset, boundary.stream_offset);
    index::Span span;
    span.stream_range.offset = boundary.stream_offset;
    span.compressed_range.offset = boundary.compressed_offset - shared;
    span.bits = boundary.bits;
    span.member_header = boundary.member_start;
    span.follows = follows;
    if (!boundary.member_start && !follows) {
      const auto compressed = ByteView(layer_.blob).subspan(span.compressed_range.offset);
      const auto packed = codec::compress_zstd(
          whole_windows_ ? to_bytes(window) : codec::make_window_sparse(compressed, boundary.bits, window), 3);
      span.window = {.offset = layer_.windows.size(), .length = packed.size()};
      append(layer_.windows, packed);
    }
    spans.push_back(span);
  }

  void end_last(std::uint64_t compressed_offset, std::uint64_t stream_offset) {
    if (layer_.map->spans.empty()) return;
    auto& last = layer_.map->spans.back();
    last.stream_range.length = stream_offset - last.stream_range.offset;
    last.compressed_range.length = compressed_offset - last.compressed_range.offset;
  }

 private:
  MadeLayer& layer_;
  const std::uint64_t span_bytes_;
  const bool whole_windows_;
  const std::uint64_t follower_bytes_;  // 0: none
  std::uint64_t head_ = 0;
};

MadeLayer cut_gzip(Bytes gzip_blob, std::uint64_t span_bytes, bool whole_windows, std::uint64_t follower_bytes,
                   bool records) {
  auto layer = empty_layer({});
  layer.blob = std::move(gzip_blob);
  GzipCutter cutter(layer, span_bytes, whole_windows, follower_bytes);
  codec::GzipWalker walker("layer", cutter);
  walker.feed(layer.blob);
  walker.finish();
  cutter.end_last(layer.blob.size(), layer.stream.size());
  // A boundary at the very end of the stream begins nothing.
  if (!layer.map->spans.empty() && layer.map->spans.back().stream_range.length == 0) {
    layer.map->spans.pop_back();
    cutter.end_last(layer.blob.size(), layer.stream.size());
  }
  return finish(std::move(layer), index::LayerFormat::kGzip, records);
}

}  // namespace

void MadeLayer::serve_from(ScriptedRepository& repository) const {
  repository.serve(blob);
  if (!windows.empty()) repository.serve(windows);
}

Bytes some_stream(std::uint64_t bytes, std::uint32_t seed) {
  std::minstd_rand random(seed);
  Bytes stream(bytes);
  for (auto& byte : stream) byte = std::byte("aeinrst \n0123456"[random() >> 8 & 15]);
  for (std::uint64_t at = 0; at + 64 < bytes; at += 256) {
    const auto noise = random();
    std::copy_n(reinterpret_cast<const std::byte*>(&noise), 4, stream.begin() + std::ptrdiff_t(at));
    // Repeats from a little before, so that windows matter.
    if (at >= 4'096)
      std::copy_n(stream.begin() + std::ptrdiff_t(at - 3'000), 60, stream.begin() + std::ptrdiff_t(at + 4));
  }
  return stream;
}

MadeLayer make_tar_layer(Bytes stream, std::uint64_t span_bytes) {
  auto layer = empty_layer(std::move(stream));
  layer.blob = layer.stream;
  for (const auto range : cut(layer.stream.size(), span_bytes)) {
    auto& span = layer.map->spans.emplace_back();
    span.stream_range = range;
    span.compressed_range = range;
  }
  return finish(std::move(layer), index::LayerFormat::kTar);
}

MadeLayer make_zstd_layer(Bytes stream, std::uint64_t span_bytes) {
  auto layer = empty_layer(std::move(stream));
  for (const auto range : cut(layer.stream.size(), span_bytes)) {
    const auto frame = codec::compress_zstd(ByteView(layer.stream).subspan(range.offset, range.length), 3);
    auto& span = layer.map->spans.emplace_back();
    span.stream_range = range;
    span.compressed_range = {.offset = layer.blob.size(), .length = frame.size()};
    append(layer.blob, frame);
  }
  return finish(std::move(layer), index::LayerFormat::kZstd);
}

MadeLayer make_zstd_single_layer(Bytes stream, std::uint64_t span_bytes) {
  auto layer = empty_layer(std::move(stream));
  layer.blob = codec::compress_zstd(layer.stream, 3);
  for (const auto range : cut(layer.stream.size(), span_bytes)) layer.map->spans.emplace_back().stream_range = range;
  return finish(std::move(layer), index::LayerFormat::kZstdSingle);
}

MadeLayer make_gzip_layer(Bytes gzip_blob, std::uint64_t span_bytes, bool whole_windows) {
  return cut_gzip(std::move(gzip_blob), span_bytes, whole_windows, 0, false);
}

MadeLayer make_followed_gzip_layer(Bytes gzip_blob, std::uint64_t head_bytes, std::uint64_t follower_bytes) {
  return cut_gzip(std::move(gzip_blob), head_bytes, false, follower_bytes, true);
}

Bytes gzip_of(ByteView bytes, int level) {
  const TempDir dir;
  write_file_atomically(dir / "in", bytes);
  const auto command = fmt::format("gzip -n -{} -c '{}' > '{}'", level, (dir / "in").string(), (dir / "out").string());
  if (std::system(command.c_str()) != 0) fail<Error>("gzip failed");
  return read_file(dir / "out");
}

}  // namespace varve::test
