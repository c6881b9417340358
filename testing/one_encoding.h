#pragma once
// What formats with exactly one encoding hold.
#include <gtest/gtest.h>

#include "core/base/bytes.h"
#include "core/base/errors.h"

namespace varve::test {

// Every cut of the bytes is refused, and every changed bit is, too, or means something else: then it is written as it
// was read. `Decoded` has decode() and encode().
template <typename Decoded>
void expect_one_encoding(const Bytes& bytes) {
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(Decoded::decode(ByteView(bytes).first(length), "cut"), CorruptData) << length;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto changed = bytes;
    changed[bit / 8] ^= std::byte(1u << (bit % 8));
    try {
      EXPECT_EQ(Decoded::decode(changed, "changed").encode(), changed) << bit;
    } catch (const CorruptData&) {
    }
  }
}

}  // namespace varve::test
