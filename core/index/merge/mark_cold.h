#pragma once
// From files that are cold to the spans that need not be fetched.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/index/format/cold_ranges.h"
#include "core/index/merge/flat_tree.h"

namespace varve::index {

// What marking came to.
struct ColdSummary {
  std::uint64_t files = 0;          // cold ones, hard links once
  std::uint64_t content_bytes = 0;  // of these files
  std::uint64_t stream_bytes =
      0;  // marked: spans that hold something cold and nothing else that a reader of the tree can reach
  std::uint64_t compressed_bytes = 0;    // what need not be fetched for it
  std::uint64_t shared_span_bytes = 0;   // content of cold files in spans that something else needs too: they stay
  std::uint64_t single_frame_bytes = 0;  // content of cold files in layers that can only be fetched whole: they stay
};

// The spans that nothing but `cold_paths` (files of the tree, without leading "/") needs. A file of several names is
// cold if all of them are. Bytes that nobody can read (headers, what a layer above replaced) between two cold spans go
// with them. `maps`: one per layer, base first.
ColdRanges mark_cold(const FlatTree& tree, const std::vector<std::shared_ptr<const LayerMap>>& maps,
                     const std::set<std::string, std::less<>>& cold_paths, ColdSummary* summary = nullptr);

}  // namespace varve::index
