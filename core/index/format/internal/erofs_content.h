#pragma once
// Where the content of regular files lies: straight in a layer stream, on the ranges device, or nowhere (holes).
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/index/format/erofs.h"
#include "core/index/format/internal/erofs_format.h"
#include "core/index/merge/tree.h"

namespace varve::index::erofs {

struct ChunkTable {
  std::uint32_t chunk_bits = 0;  // above the block bits
  std::vector<ChunkIndex> chunks;
};

class ContentPlanner {
 public:
  // Throws Unsupported for a stream that 32-bit block numbers cannot address (2 TiB).
  explicit ContentPlanner(std::vector<std::uint64_t> layer_stream_bytes);

  // Content that is one aligned run, nearly every file: the only chunk of a table with kMaxChunkBits. Absent for all
  // others.
  std::optional<ChunkIndex> single_chunk(const TreeInode& file) const;
  // Any other file that is not empty. May grow the ranges device. Throws Unsupported naming `path` if that gets too
  // large.
  ChunkTable plan(const TreeInode& file, std::string_view path);
  // Throws CorruptData naming `path` for runs that overlap, are out of order or lie outside the file or their layer.
  void check_runs(const TreeInode& file, std::string_view path) const;

  RangesDevice take_ranges() { return std::move(ranges_); }

 private:
  ChunkIndex plan_chunk(const TreeInode& file, std::size_t first_run, std::uint64_t begin, std::uint64_t end,
                        std::string_view path);

  std::vector<std::uint64_t> layer_stream_bytes_;
  RangesDevice ranges_;
};

}  // namespace varve::index::erofs
