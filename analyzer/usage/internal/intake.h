#pragma once
// What a node may send, in numbers that its rights do not state (schema.cpp has these) and that both sides keep to.
#include <cstddef>
#include <cstdint>

namespace varve::usage {

inline constexpr std::size_t kMaxPartBytes = std::size_t(1) << 20;
// Of one node a day; what is more waits in the intake, whose bound the node then meets.
inline constexpr std::int64_t kMaxNodeDayBytes = std::int64_t(1) << 30;

}  // namespace varve::usage
