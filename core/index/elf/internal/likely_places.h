#pragma once
// Looks for rare pairs of bytes in gigabytes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/bytes.h"

namespace varve::index {

// Sixteen bytes compared at once, on any machine the compiler knows.
using Vector = unsigned char __attribute__((vector_size(16)));
constexpr std::size_t kBlockBytes = 4 * sizeof(Vector);

inline Vector load_vector(const std::byte* at) {
  Vector value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

inline bool any(Vector mask) {
  std::array<std::uint64_t, 2> halves;
  std::memcpy(halves.data(), &mask, sizeof halves);
  return (halves[0] | halves[1]) != 0;
}

// Calls `check(i)` for every place of `bytes` in whose block `may_match(vector, the same shifted by one)` is true
// anywhere, and for those at the end that fill no block. Returns early if `check` returns true.
template <typename MayMatch, typename Check>
void for_likely_places(ByteView bytes, const MayMatch& may_match, const Check& check) {
  std::size_t i = 0;
  for (; i + kBlockBytes + 1 <= bytes.size(); i += kBlockBytes) {
    Vector found{};
    for (std::size_t k = i; k < i + kBlockBytes; k += sizeof(Vector))
      found |= may_match(load_vector(bytes.data() + k), load_vector(bytes.data() + k + 1));
    if (!any(found)) [[likely]]
      continue;
    for (std::size_t k = i; k < i + kBlockBytes; ++k) {
      if (check(k)) return;
    }
  }
  for (; i < bytes.size(); ++i) {
    if (check(i)) return;
  }
}

}  // namespace varve::index
