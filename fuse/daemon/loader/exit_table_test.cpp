#include "fuse/daemon/loader/exit_table.h"

#include <gmock/gmock.h>

#include <thread>

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kPart = 64 << 10;
constexpr std::uint64_t kPage = 4096;

// From the end of a library on device 1 to its start.
std::vector<DeviceExtent> parts_of(std::uint64_t begin, std::size_t count) {
  std::vector<DeviceExtent> parts;
  for (auto part = count; part-- > 0;) parts.push_back({.place = {1, begin + part * 10 * kPart}, .length = kPart});
  return parts;
}

class ExitTableTest : public ::testing::Test {
 protected:
  // The offsets of what is told.
  std::vector<std::uint64_t> read(const DeviceExtent& part, std::uint64_t into = 100) {
    std::vector<std::uint64_t> offsets;
    for (const auto& told : exits_.note_read(part.place.device, {part.place.offset + into, kPage}))
      offsets.push_back(told.place.offset);
    return offsets;
  }
  static std::vector<std::uint64_t> offsets_of(const std::vector<DeviceExtent>& parts, std::size_t first) {
    std::vector<std::uint64_t> offsets;
    for (auto part = first; part < parts.size(); ++part) offsets.push_back(parts[part].place.offset);
    return offsets;
  }

  ExitTable exits_;
  std::atomic<std::size_t> turn_ = 0;
};

TEST_F(ExitTableTest, ThreePartsInTheirOrderAreAnExit) {
  const auto parts = parts_of(0, 8);
  EXPECT_THAT(read(parts[0]), IsEmpty()) << "nothing is known";
  exits_.add(turn_++, parts);
  EXPECT_THAT(read(parts[0]), IsEmpty());
  EXPECT_THAT(read(parts[1]), IsEmpty());
  EXPECT_EQ(read(parts[2]), offsets_of(parts, 3));
  for (const auto& part : parts) EXPECT_THAT(read(part), IsEmpty()) << "each is told once";
}

TEST_F(ExitTableTest, AFewMayBeHereAlready) {
  const auto parts = parts_of(0, 20);
  exits_.add(turn_++, parts);
  read(parts[1]);
  read(parts[5]);
  EXPECT_EQ(read(parts[9]), offsets_of(parts, 10));
}

TEST_F(ExitTableTest, WhoReadsHereAndThereDoesNotExit) {
  const auto parts = parts_of(0, 40);
  exits_.add(turn_++, parts);
  for (const auto part : {0, 5, 10, 15, 20, 25})  // too far apart
    EXPECT_THAT(read(parts[part]), IsEmpty()) << part;
  for (int part = 39; part >= 0; --part) EXPECT_THAT(read(parts[part]), IsEmpty()) << part << ": the other way round";
  for (int i = 0; i < 5; ++i) EXPECT_THAT(read(parts[7]), IsEmpty()) << "always the same";
}

TEST_F(ExitTableTest, WhatWasStartedBeforeExitsAfterwards) {
  const auto first = parts_of(0, 5), second = parts_of(1ull << 30, 5), third = parts_of(2ull << 30, 5);
  exits_.add(turn_++, first);
  exits_.add(turn_++, {});
  exits_.add(turn_++, second);
  exits_.add(turn_++, third);
  read(second[0]);
  read(second[1]);
  auto expected = offsets_of(second, 3);
  for (const auto offset : offsets_of(first, 0)) expected.push_back(offset);
  EXPECT_EQ(read(second[2]), expected);
  read(third[0]);
  read(third[1]);
  EXPECT_EQ(read(third[2]), offsets_of(third, 3));
}

// Of a library with much to look at all is known later.
TEST_F(ExitTableTest, TheyBecomeKnownInAnyOrder) {
  const auto first = parts_of(0, 5), second = parts_of(1ull << 30, 5);
  exits_.add(2, second);
  exits_.add(1, first);
  read(second[0]);
  read(second[1]);
  auto expected = offsets_of(second, 3);
  for (const auto offset : offsets_of(first, 0)) expected.push_back(offset);
  EXPECT_EQ(read(second[2]), expected);
}

TEST_F(ExitTableTest, PlacesAreOfOneDeviceAndAsLongAsTheyAre) {
  const auto parts = parts_of(0, 8);
  exits_.add(turn_++, parts);
  for (int part = 0; part < 8; ++part) {
    EXPECT_THAT(exits_.note_read(2, {parts[part].place.offset, kPage}), IsEmpty());
    EXPECT_THAT(read(parts[part], kPart), IsEmpty()) << "behind it";
    EXPECT_THAT(exits_.note_read(1, {parts[part].place.offset, 0}), IsEmpty());
  }
  EXPECT_THAT(read(parts[0], kPart - 1), IsEmpty());
  EXPECT_THAT(read(parts[1], kPart - 1), IsEmpty());
  EXPECT_EQ(exits_.note_read(1, {parts[2].place.offset - kPage, kPage + 1}).size(), 5u);
}

// A kernel reads around a page, and may so read of two parts.
TEST_F(ExitTableTest, OneReadOfSeveralPartsIsOneRead) {
  std::vector<DeviceExtent> parts;
  for (std::uint64_t part = 12; part-- > 0;) parts.push_back({.place = {1, part * kPart}, .length = kPart});
  exits_.add(turn_++, parts);
  EXPECT_THAT(exits_.note_read(1, {9 * kPart, 3 * kPart}), IsEmpty());
  EXPECT_THAT(exits_.note_read(1, {7 * kPart, 2 * kPart}), IsEmpty());
  EXPECT_EQ(exits_.note_read(1, {5 * kPart, 2 * kPart}).size(), 5u);
}

TEST_F(ExitTableTest, HoldsItsBounds) {
  std::vector<DeviceExtent> parts;
  for (std::uint64_t part = 0; part < ExitTable::kMaxParts + 1'000; ++part)
    parts.push_back({.place = {1, part * kPart}, .length = kPart});
  exits_.add(turn_++, parts);
  exits_.add(turn_++, parts_of(1ull << 40, 8));  // nothing is known of it
  read(parts[0]);
  read(parts[1]);
  EXPECT_EQ(read(parts[2]).size(), ExitTable::kMaxParts - 3);
  const auto later = parts_of(2ull << 40, 8);
  exits_.add(turn_++, later);
  read(later[0]);
  read(later[1]);
  EXPECT_EQ(read(later[2]).size(), 5u);
}

TEST_F(ExitTableTest, TwoLibrariesOfTheSamePlaceAreKnownOnce) {
  const auto parts = parts_of(0, 8);
  exits_.add(turn_++, parts);
  exits_.add(turn_++, parts);
  read(parts[0]);
  read(parts[1]);
  EXPECT_EQ(read(parts[2]), offsets_of(parts, 3));
}

TEST_F(ExitTableTest, ManyReadAtOnce) {
  std::vector<std::jthread> readers;
  std::atomic<std::size_t> told = 0;
  for (std::uint64_t reader = 0; reader < 4; ++reader)
    readers.emplace_back([&, reader] {
      const auto parts = parts_of(reader << 40, 200);
      exits_.add(turn_++, parts);
      for (const auto& part : parts) told += exits_.note_read(1, {part.place.offset, kPage}).size();
    });
  readers.clear();
  EXPECT_GE(told, 197u);
  EXPECT_LE(told, 4 * 200u);
}

}  // namespace
}  // namespace varve::fuse
