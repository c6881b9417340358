#include "core/index/format/internal/erofs_content.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/index/format/internal/erofs_format.h"

namespace varve::index::erofs {
namespace {

// A sparse file's table has at most so many chunks (128 KiB); the larger the file, the larger its chunks.
constexpr std::uint64_t kMaxSparseChunks = 16'384;
constexpr std::uint32_t kMinSparseChunkBits = 3;  // 4096 bytes, a page
constexpr std::uint64_t kMaxDeviceBytes = std::uint64_t(kNullBlock) * kBlock;

}  // namespace

ContentPlanner::ContentPlanner(std::vector<std::uint64_t> layer_stream_bytes)
    : layer_stream_bytes_(std::move(layer_stream_bytes)) {
  for (std::size_t layer = 0; layer < layer_stream_bytes_.size(); ++layer) {
    if (layer_stream_bytes_[layer] > kMaxDeviceBytes)
      fail<Unsupported>("layer {} of {} bytes: a tree addresses at most {} bytes of a layer", layer,
                        layer_stream_bytes_[layer], kMaxDeviceBytes);
  }
}

std::optional<ChunkIndex> ContentPlanner::single_chunk(const TreeInode& file) const {
  if (file.runs.size() != 1 || file.size > kBlock << kMaxChunkBits) return std::nullopt;
  const auto& [layer, run] = file.runs.front();
  if (run.file_offset != 0 || run.length != file.size || run.stream_offset % kBlock != 0) return std::nullopt;
  return ChunkIndex{.device = std::uint16_t(layer + 1), .block = std::uint32_t(run.stream_offset / kBlock)};
}

ChunkTable ContentPlanner::plan(const TreeInode& file, std::string_view path) {
  ChunkTable table;
  if (file.runs.empty()) {
    table.chunk_bits = kMaxChunkBits;
  } else {
    table.chunk_bits = kMinSparseChunkBits;
    while (table.chunk_bits < kMaxChunkBits && ((file.size - 1) >> (table.chunk_bits + kBlockBits)) >= kMaxSparseChunks)
      ++table.chunk_bits;
  }
  const auto chunk_bytes = kBlock << table.chunk_bits;
  const auto count = (file.size - 1) / chunk_bytes + 1;
  if (count > kMaxSparseChunks)
    fail<Unsupported>("{}: a file of {} bytes is larger than a tree can hold", path, file.size);
  table.chunks.reserve(count);
  std::size_t run = 0;
  for (std::uint64_t chunk = 0; chunk < count; ++chunk) {
    const auto begin = chunk * chunk_bytes;
    const auto end = std::min(file.size, begin + chunk_bytes);
    while (run < file.runs.size() && file.runs[run].run.file_offset + file.runs[run].run.length <= begin) ++run;
    table.chunks.push_back(plan_chunk(file, run, begin, end, path));
  }
  return table;
}

// `first_run` is the first that ends after `begin`.
ChunkIndex ContentPlanner::plan_chunk(const TreeInode& file, std::size_t first_run, std::uint64_t begin,
                                      std::uint64_t end, std::string_view path) {
  if (first_run == file.runs.size() || file.runs[first_run].run.file_offset >= end)
    return {.device = 0, .block = kNullBlock};
  const auto& [layer, first] = file.runs[first_run];
  if (first.file_offset <= begin && first.file_offset + first.length >= end) {
    const auto at = first.stream_offset + (begin - first.file_offset);
    if (at % kBlock == 0) return {.device = std::uint16_t(layer + 1), .block = std::uint32_t(at / kBlock)};
  }
  const auto device_offset = ranges_.bytes;
  const auto device_bytes = align_up(end - begin, kBlock);
  if (device_bytes > kMaxDeviceBytes - device_offset)
    fail<Unsupported>("{}: too much sparse content in one image", path);
  ranges_.bytes += device_bytes;
  for (std::size_t i = first_run; i < file.runs.size() && file.runs[i].run.file_offset < end; ++i) {
    const auto& piece = file.runs[i];
    const auto from = std::max(begin, piece.run.file_offset);
    const auto to = std::min(end, piece.run.file_offset + piece.run.length);
    ranges_.ranges.push_back({.device_offset = device_offset + (from - begin),
                              .layer = piece.layer,
                              .stream_offset = piece.run.stream_offset + (from - piece.run.file_offset),
                              .length = to - from});
  }
  return {.device = std::uint16_t(layer_stream_bytes_.size() + 1), .block = std::uint32_t(device_offset / kBlock)};
}

void ContentPlanner::check_runs(const TreeInode& file, std::string_view path) const {
  std::uint64_t previous_end = 0;
  for (const auto& [layer, run] : file.runs) {
    if (layer >= layer_stream_bytes_.size())
      fail<CorruptData>("{}: content in layer {}, which is not there", path, layer);
    const ByteRange in_file{.offset = run.file_offset, .length = run.length};
    const ByteRange in_stream{.offset = run.stream_offset, .length = run.length};
    if (run.length == 0 || !in_file.fits_in(file.size) || run.file_offset < previous_end ||
        !in_stream.fits_in(layer_stream_bytes_[layer]))
      fail<CorruptData>("{}: run of {} bytes at {} does not fit the file of {} bytes or its layer", path, run.length,
                        run.file_offset, file.size);
    previous_end = in_file.end();
  }
}

}  // namespace varve::index::erofs
