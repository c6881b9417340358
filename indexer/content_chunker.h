#pragma once
// Where the content of a file is cut: by what the bytes are, so that an insertion moves only the cuts around it. The
// cut points are a contract between versions of an image: a changed constant makes every large file new.
// docs/formats/zstd-chunked.md.
#include <cstdint>

#include "core/base/bytes.h"

namespace varve::indexer {

inline constexpr std::size_t kMinChunkBytes = 256 * 1024;
inline constexpr std::size_t kMeanChunkBytes = 1024 * 1024;  // what the masks aim at
inline constexpr std::size_t kMaxChunkBytes = 4 * 1024 * 1024;
inline constexpr std::size_t kZeroBlockBytes =
    64 * 1024;  // zeros are told apart in blocks of this, from where a chunk begins

struct ChunkCut {
  std::size_t bytes = 0;  // of the chunk that `content` begins with
  bool zeros = false;     // all of it
};

// `content`: a file's bytes from the end of its last chunk on, at least kMaxChunkBytes of them or all that are left.
// Not empty.
ChunkCut next_cut(ByteView content);

}  // namespace varve::indexer
