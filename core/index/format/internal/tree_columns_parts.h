#pragma once
// What the encoder and the decoder of a tree's columns share; byte table in tree_columns.h.
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/index/format/internal/erofs_format.h"

namespace varve::index::columns {

inline constexpr std::string_view kColumnsMagic = "VRVTREE2";

enum Column : std::uint8_t { kNames, kLinks, kKinds, kSizes, kTimes, kChunks, kTargets, kRaw, kColumns };

// Where the next piece of content on a device is likely to be: behind the last and the tar header of the next file.
// Block numbers are of 32 bits, and so are their distances.
class ChunkGuesses {
 public:
  std::uint32_t guess(std::uint32_t device) const { return device < next_.size() ? next_[device] : 0; }
  void note(std::uint32_t device, std::uint32_t block, std::uint64_t bytes) {
    if (device >= next_.size()) next_.resize(device + 1);
    next_[device] = block + std::uint32_t(erofs::blocks_of(bytes)) + 1;
  }

 private:
  std::vector<std::uint32_t> next_;
};

}  // namespace varve::index::columns
