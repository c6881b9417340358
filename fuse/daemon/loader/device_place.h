#pragma once
// Where a byte of a tree lies: on which device, and at which of its bytes.
#include <compare>
#include <cstdint>

namespace varve::fuse {

struct DevicePlace {
  std::uint32_t device = 0;  // of the tree, from 1
  std::uint64_t offset = 0;
  auto operator<=>(const DevicePlace&) const = default;
};

}  // namespace varve::fuse
