#include "fuse/stream/presence_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using Found = PresenceLog::Found;

class PresenceLogTest : public ::testing::Test {
 protected:
  PresenceLog::Opened open() { return PresenceLog::open(path_, identity_); }
  void append_bytes(std::string_view text) {
    auto content = read_file(path_);
    append(content, as_bytes(text));
    write_file_atomically(path_, content);
  }

  test::TempDir dir_;
  const std::filesystem::path path_ = dir_ / "presence";
  PresenceIdentity identity_{.kind = PresenceIdentity::Kind::kSpans,
                             .object = digest_of("layer"),
                             .cut = digest_of("cut"),
                             .units = 10,
                             .data_bytes = 4096};
};

TEST(RunsOf, JoinsNeighboursAndForgetsRepeats) {
  EXPECT_THAT(runs_of({7, 1, 2, 3, 2, 9}), ElementsAre(UnitRun{1, 3}, UnitRun{7, 1}, UnitRun{9, 1}));
  EXPECT_TRUE(runs_of({}).empty());
}

TEST_F(PresenceLogTest, BeginsEmptyAndKeepsWhatWasRecorded) {
  auto opened = open();
  EXPECT_EQ(opened.found, Found::kNothing);
  opened.log->append({{1, 3}, {7, 1}}, true);
  opened.log->append({{2, 1}}, false);
  opened = open();
  EXPECT_EQ(opened.found, Found::kSame);
  EXPECT_EQ(opened.reason, "");
  EXPECT_THAT(opened.present, ElementsAre(false, true, false, true, false, false, false, true, false, false));
}

TEST_F(PresenceLogTest, DropsATornTailWhereverItIsTornAndGoesOnBehindIt) {
  auto opened = open();
  opened.log->append({{0, 1}}, true);
  const auto first = read_file(path_);
  opened.log->append({{5, 2}}, true);
  const auto both = read_file(path_);
  for (auto length = first.size() + 1; length < both.size(); ++length) {
    write_file_atomically(path_, ByteView(both).first(length));
    opened = open();
    ASSERT_EQ(opened.found, Found::kSame) << length;
    EXPECT_NE(opened.reason, "");
    EXPECT_TRUE(opened.present[0]);
    EXPECT_FALSE(opened.present[5]);
    opened.log->append({{8, 1}}, true);
    opened = open();
    EXPECT_EQ(opened.reason, "");
    EXPECT_TRUE(opened.present[8]);
  }
}

TEST_F(PresenceLogTest, BelievesNoGroupWithAFlippedBit) {
  auto opened = open();
  opened.log->append({{3, 2}}, true);
  const auto good = read_file(path_);
  for (std::size_t at = 136; at < good.size(); ++at) {
    auto bad = good;
    bad[at] ^= std::byte{4};
    write_file_atomically(path_, bad);
    opened = open();
    EXPECT_EQ(opened.found, Found::kSame) << at;
    EXPECT_THAT(opened.present, ::testing::Each(false)) << at;
  }
}

TEST_F(PresenceLogTest, BelievesNothingUnderADamagedHeader) {
  open().log->append({{3, 2}}, true);
  const auto good = read_file(path_);
  for (std::size_t at = 0; at < 136; ++at) {
    auto bad = good;
    bad[at] ^= std::byte{4};
    write_file_atomically(path_, bad);
    const auto opened = open();
    EXPECT_EQ(opened.found, Found::kUnusable) << at;
    EXPECT_NE(opened.reason, "");
    EXPECT_THAT(opened.present, ::testing::Each(false)) << at;
  }
}

TEST_F(PresenceLogTest, TellsAnotherCutFromAnotherObject) {
  open().log->append({{3, 2}}, true);
  const auto good = read_file(path_);
  identity_.cut = digest_of("finer");
  identity_.units = 20;
  auto opened = open();
  EXPECT_EQ(opened.found, Found::kOtherCut);
  EXPECT_EQ(opened.present.size(), 20u);
  EXPECT_THAT(opened.present, ::testing::Each(false));
  write_file_atomically(path_, good);
  identity_.object = digest_of("other layer");
  EXPECT_EQ(open().found, Found::kUnusable);
  write_file_atomically(path_, good);
  identity_.object = digest_of("layer");
  identity_.data_bytes = 8192;
  EXPECT_EQ(open().found, Found::kUnusable);
}

TEST_F(PresenceLogTest, AGroupOfAnotherPlaceDoesNotCheck) {
  auto opened = open();
  opened.log->append({{0, 1}}, true);
  const auto content = read_file(path_);
  append_bytes(as_text(ByteView(content).subspan(136)));  // the same group again, behind itself
  opened = open();
  EXPECT_NE(opened.reason, "");
  EXPECT_TRUE(opened.present[0]);
}

TEST_F(PresenceLogTest, AGroupOutsideTheUnitsIsTorn) {
  auto opened = open();
  opened.log->append({{9, 2}}, true);
  EXPECT_NE(open().reason, "");
}

TEST_F(PresenceLogTest, IsWrittenAnewWhenItHasGrown) {
  auto opened = open();
  for (int i = 0; i < 520; ++i) opened.log->append({{std::uint32_t(i % 10), 1}}, i % 3 != 0);
  const auto before = open();
  const auto grown = file_size(open_file(path_, O_RDONLY).get(), path_);
  EXPECT_LT(grown, 1'000u);  // opening it wrote it anew
  opened = open();
  EXPECT_EQ(opened.present, before.present);
  EXPECT_EQ(opened.reason, "");
}

}  // namespace
}  // namespace varve::fuse
