#pragma once
// A tree that comes in pieces (core/index/format/tree_columns.h), put together.
#include <algorithm>
#include <mutex>

#include "core/index/format/tree_columns.h"

namespace varve::test {

class CollectedTree {
 public:
  index::TreeSink sink() {
    return [this](std::uint64_t offset, ByteView piece) {
      const std::lock_guard lock(mutex_);
      bytes.resize(std::max<std::size_t>(bytes.size(), offset + piece.size()));
      std::ranges::copy(piece, bytes.begin() + std::ptrdiff_t(offset));
      written += piece.size();
      largest_piece = std::max(largest_piece, piece.size());
    };
  }

  Bytes bytes;
  std::uint64_t written = 0;  // more than bytes.size() if some came twice, less if some did not come
  std::size_t largest_piece = 0;

 private:
  std::mutex mutex_;
};

}  // namespace varve::test
