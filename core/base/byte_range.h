#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace varve {

// A run of bytes of a blob or stream. The name of the variable says which side it is on (compressed_, stream_).
struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  // Ranges are checked against the size of their object when they are read from outside, so end() does not overflow.
  std::uint64_t end() const { return offset + length; }
  bool contains(std::uint64_t at) const { return at >= offset && at - offset < length; }
  // True if this range lies inside an object of `size` bytes; safe for any values.
  bool fits_in(std::uint64_t size) const { return offset <= size && length <= size - offset; }
  // The bytes that are in both; of length 0 if there are none.
  ByteRange common_with(ByteRange other) const {
    const auto from = std::max(offset, other.offset);
    const auto to = std::min(end(), other.end());
    return {.offset = from, .length = to > from ? to - from : 0};
  }
  bool overlaps(ByteRange other) const { return common_with(other).length > 0; }
  bool operator==(const ByteRange&) const = default;
};

// The same bytes in order, each once: what overlaps or touches is one range.
inline std::vector<ByteRange> joined_ranges(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges, {}, &ByteRange::offset);
  std::vector<ByteRange> joined;
  for (const auto& range : ranges) {
    if (joined.empty() || joined.back().end() < range.offset)
      joined.push_back(range);
    else
      joined.back().length = std::max(joined.back().end(), range.end()) - joined.back().offset;
  }
  return joined;
}

}  // namespace varve
