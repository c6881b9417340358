#pragma once
// Where bytes of a tree lie: on which device, and at which of its bytes.
#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/byte_range.h"

namespace varve::fuse {

struct DevicePlace {
  std::uint32_t device = 0;  // of the tree, from 1
  std::uint64_t offset = 0;
  auto operator<=>(const DevicePlace&) const = default;
};

struct DeviceExtent {
  DevicePlace place;
  std::uint64_t length = 0;
};

// Of what is sorted by its `place`, that which begins in the range.
template <typename T>
std::span<const T> begun_in(const std::vector<T>& sorted, std::uint32_t device, ByteRange device_range) {
  const auto first = std::ranges::lower_bound(sorted, DevicePlace{device, device_range.offset}, {}, &T::place);
  const auto last = std::ranges::lower_bound(sorted, DevicePlace{device, device_range.end()}, {}, &T::place);
  return {first, last};
}

}  // namespace varve::fuse
