#pragma once
// From files, and parts of files, that are cold to the spans that need not be fetched.
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/index/format/cold_ranges.h"
#include "core/index/merge/flat_tree.h"

namespace varve::index {

// What nobody is expected to read. Paths of the tree, without leading "/".
struct ColdContent {
  std::set<std::string, std::less<>> files;  // one of several names is cold if all of them are
  // Under any name of the file, whatever its other names: inside it, in order, not overlapping.
  std::map<std::string, std::vector<ByteRange>, std::less<>> parts;
};

// What marking came to.
struct ColdSummary {
  std::uint64_t files = 0;          // cold ones, hard links once
  std::uint64_t content_bytes = 0;  // of these files
  std::uint64_t stream_bytes =
      0;  // marked: spans that hold something cold and nothing else that a reader of the tree can reach
  std::uint64_t compressed_bytes = 0;    // what need not be fetched for it
  std::uint64_t part_files = 0;          // others, of which a part is cold
  std::uint64_t part_bytes = 0;          // content of these parts
  std::uint64_t shared_span_bytes = 0;   // cold content in spans that something else needs too: they stay
  std::uint64_t single_frame_bytes = 0;  // cold content in layers that can only be fetched whole: they stay
};

// The spans that hold something cold and nothing else that a reader of the tree can reach. Bytes that nobody can read
// (headers, what a layer above replaced) between two cold spans go with them. `maps`: one per layer, base first. Throws
// CorruptData for parts that are not as ColdContent has them.
ColdRanges mark_cold(const FlatTree& tree, const std::vector<std::shared_ptr<const LayerMap>>& maps,
                     const ColdContent& cold, ColdSummary* summary = nullptr);

// What of a file is cold.
struct ColdShare {
  std::uint64_t bytes = 0;  // of its content, as it lies in layers
  bool whole = false;       // all of it
};
// The other way round: files of the tree of which a byte is cold, by path; every name of a hard-linked one.
std::map<std::string, ColdShare, std::less<>> cold_shares(const FlatTree& tree,
                                                          const std::vector<std::shared_ptr<const LayerMap>>& maps,
                                                          const ColdRanges& cold);

}  // namespace varve::index
