#pragma once
// Compresses pieces on several threads and gives them back in the order they came.
#include <cstddef>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/threads/ordered_pool.h"
#include "core/codec/frame_encoder.h"

namespace varve::indexer {

// Pieces that are compressed by one thread in one go; each becomes a frame of its own.
struct FrameBatch {
  Bytes content;                          // of all pieces
  std::vector<std::size_t> content_ends;  // of each piece, in `content`
  Bytes frames;
  std::vector<std::size_t> frame_ends;  // of each piece, in `frames`
};

using FramePool = OrderedPool<FrameBatch, FrameBatch>;

// `jobs`: 0 means all processors.
FramePool make_frame_pool(codec::FrameFormat format, int level, unsigned jobs);

}  // namespace varve::indexer
