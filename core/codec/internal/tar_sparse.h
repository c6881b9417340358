#pragma once
// Sparse maps: GNU tar's old format (in the header), and pax formats 0.0, 0.1 (in records) and 1.0 (in front of the
// data).
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/bytes.h"
#include "core/codec/internal/pax.h"
#include "core/codec/internal/tar_header.h"
#include "core/codec/tar_parser.h"

namespace varve::codec::internal {

// Offset and length of each stored piece of a file, as the archive lists them.
using SparseMap = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

// The pairs of an old GNU header (4 at 386) or of a continuation block (21 at 0). True if a continuation block follows.
bool append_old_gnu_pairs(ByteView block, bool continuation, SparseMap& map, const TarPlace& place);

enum class PaxSparse { kNone, kInRecords, kInData };
PaxSparse pax_sparse_kind(const PaxRecords& records);
SparseMap sparse_map_of_records(const PaxRecords& records, const TarPlace& place);

// Format 1.0: decimal numbers, one a line: the count, then offset and length of each; then padding to a whole block.
class SparseMapReader {
 public:
  // True once the map is complete; the data follows this block.
  bool feed_block(ByteView block, const TarPlace& place);
  SparseMap take() { return std::move(map_); }

 private:
  void add_number(std::uint64_t number, const TarPlace& place);
  std::optional<std::uint64_t> pairs_;
  std::optional<std::uint64_t> offset_;
  std::uint64_t number_ = 0;
  std::size_t digits_ = 0;
  SparseMap map_;
};

// The map as runs of a stream; pieces of length 0 vanish. Throws CorruptData if pieces overlap, are out of order, leave
// the file, or do not add up to what is stored.
std::vector<ContentRun> runs_of(const SparseMap& map, std::uint64_t file_size, std::uint64_t data_stream_offset,
                                std::uint64_t stored_bytes, const TarPlace& place);

}  // namespace varve::codec::internal
