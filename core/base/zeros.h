#pragma once
// What holes of files, and what fills a block up, read as.
#include <algorithm>
#include <array>
#include <cstdint>

#include "core/base/bytes.h"

namespace varve {

inline constexpr std::array<std::byte, 64 << 10> kZeros{};

// So many zero bytes, a piece at a time: take(ByteView).
template <typename Take>
void give_zeros(std::uint64_t count, const Take& take) {
  while (count > 0) {
    const auto piece = std::min<std::uint64_t>(count, kZeros.size());
    take(ByteView(kZeros).first(piece));
    count -= piece;
  }
}

}  // namespace varve
