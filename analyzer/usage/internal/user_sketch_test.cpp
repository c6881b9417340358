#include "analyzer/usage/internal/user_sketch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/base/errors.h"

namespace varve::usage {
namespace {

UserSketch sketch_of(std::uint64_t first, std::uint64_t count) {
  UserSketch sketch;
  for (std::uint64_t user = first; user < first + count; ++user) {
    std::mt19937_64 random(user);
    sketch.add(random());
  }
  return sketch;
}

TEST(UserSketch, IsExactWhileSmall) {
  EXPECT_EQ(UserSketch().count(), 0U);
  for (const std::uint64_t count : {1, 7, 100, 256}) EXPECT_EQ(sketch_of(0, count).count(), count);
}

TEST(UserSketch, IsCloseWhenLarge) {
  // Four standard errors; the hashes are fixed, so this passes always or never.
  for (const std::uint64_t count : {257, 1000, 5000, 12'000, 100'000})
    EXPECT_NEAR(double(sketch_of(0, count).count()), double(count), double(count) * 4 * 0.01625) << count;
}

TEST(UserSketch, CountsNobodyTwice) {
  auto sketch = sketch_of(0, 5000);
  const auto bytes = sketch.bytes();
  for (std::uint64_t user = 0; user < 5000; ++user) {
    std::mt19937_64 random(user);
    EXPECT_FALSE(sketch.add(random()));
  }
  EXPECT_EQ(sketch.bytes(), bytes);
}

TEST(UserSketch, MergesInAnyOrderAndForm) {
  for (const auto& [a, b] : {std::pair(10, 20), {10, 5000}, {5000, 10}, {5000, 6000}, {200, 200}}) {
    const auto left = sketch_of(0, std::uint64_t(a)), right = sketch_of(std::uint64_t(a) / 2, std::uint64_t(b));
    auto one = left, other = right;
    one.merge(right);
    other.merge(left);
    EXPECT_EQ(one.bytes(), other.bytes());
    EXPECT_EQ(one.bytes(),
              sketch_of(0, std::max<std::uint64_t>(std::uint64_t(a), std::uint64_t(a) / 2 + std::uint64_t(b))).bytes());
  }
}

TEST(UserSketch, IsStoredAndReadAgain) {
  for (const std::uint64_t count : {0, 1, 256, 257, 10'000}) {
    const auto sketch = sketch_of(0, count);
    EXPECT_EQ(UserSketch::parse(sketch.bytes()).bytes(), sketch.bytes());
  }
}

TEST(UserSketch, RefusesOtherBytes) {
  auto bytes = sketch_of(0, 3).bytes();
  bytes.pop_back();
  EXPECT_THROW(UserSketch::parse(bytes), CorruptData);
  EXPECT_THROW(UserSketch::parse(Bytes(9, std::byte{3})), CorruptData);
  auto registers = sketch_of(0, 1000).bytes();
  registers.back() = std::byte{0xff};
  EXPECT_THROW(UserSketch::parse(registers), CorruptData);
  registers.pop_back();
  EXPECT_THROW(UserSketch::parse(registers), CorruptData);
  Bytes unordered{std::byte{1}};
  append_le<std::uint64_t>(unordered, 2);
  append_le<std::uint64_t>(unordered, 1);
  EXPECT_THROW(UserSketch::parse(unordered), CorruptData);
}

}  // namespace
}  // namespace varve::usage
