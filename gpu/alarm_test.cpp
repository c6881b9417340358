#include "gpu/alarm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/temp_dir.h"

namespace varve::gpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;
using State = Judgement::State;

constexpr std::int64_t kFirstHour = 490'000;

class AlarmTest : public testing::Test {
 protected:
  AlarmTest() : history_(History::open((folder_.path() / "gpu.db").string())) {
    run_.machine = {.gpu = "NVIDIA Test", .driver = "580.1", .name = "vm-1"};
    run_.family = "registry/notebook";
    run_.image = "sha256:old";
  }
  // A run with two metrics: one of `seconds`, one that never changes.
  void hour(double seconds) {
    run_.unix_seconds = next_++ * 3600;
    std::vector<StepResult> results(7);
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i].step = "gemm";
      results[i].outcome = Outcome::kOk;
      const double off = 1 + 0.002 * double((i * 3 + std::size_t(next_)) % 7);
      results[i].metrics = {{.name = "sgemm", .kind = MetricKind::kSteady, .seconds = seconds * off},
                            {.name = "copy", .kind = MetricKind::kSteady, .seconds = 1e-3 * off}};
      results[i].facts = {{"lib.libcublas.so.12", library_}};
    }
    history_.add(run_, results);
  }
  void hours(std::uint32_t count, double seconds) {
    for (std::uint32_t i = 0; i < count; ++i) hour(seconds);
  }
  std::vector<Assessment> assessed() const { return assess(history_, SeriesFilter::of(run_), next_ - 1); }

  test::TempDir folder_;
  History history_;
  RunIdentity run_;
  std::string library_ = "/usr/lib/libcublas.so.12";
  std::int64_t next_ = kFirstHour;
};

TEST_F(AlarmTest, TellsTheWholeStoryOfASlowdown) {
  hours(60, 7e-3);
  run_.image = "sha256:new";
  library_ = "/opt/libcublas.so.12";
  hours(3, 8e-3);
  const auto all = assessed();
  ASSERT_THAT(all, SizeIs(2));
  ASSERT_TRUE(all[0].alarm) << "alarms come first";
  const auto& alarm = *all[0].alarm;
  EXPECT_EQ(alarm.since_hour, kFirstHour + 60);
  EXPECT_EQ(alarm.slow_hours, 3U);
  EXPECT_NEAR(alarm.slowdown, 1.0 / 7, 0.01);
  EXPECT_EQ(alarm.baseline_first_hour, kFirstHour);
  EXPECT_EQ(alarm.baseline_last_hour, kFirstHour + 59);
  EXPECT_THAT(alarm.samples, SizeIs(7));
  ASSERT_THAT(alarm.changes, SizeIs(2));
  const auto lines = evidence(all[0]);
  ASSERT_THAT(lines, SizeIs(8));
  EXPECT_THAT(lines[0], StartsWith("sgemm (steady) is 14."));
  EXPECT_THAT(lines[0], HasSubstr("8.05 ms instead of 7.04 ms"));
  EXPECT_EQ(lines[1], "on NVIDIA Test, driver 580.1, image registry/notebook");
  EXPECT_EQ(lines[2], "since 2025-11-27 04:00 UTC: 3 slow hours, 3 of the last 3");
  EXPECT_THAT(lines[3],
              StartsWith("baseline of 60 clean hours from 2025-11-24 16:00 UTC to 2025-11-27 03:00 UTC, spread "));
  EXPECT_THAT(lines[4], StartsWith("rank test of the last hours against clean ones: z = "));
  EXPECT_THAT(lines[5], StartsWith("last samples: 8."));
  EXPECT_EQ(lines[6], "changed meanwhile: image was sha256:old, is sha256:new");
  EXPECT_EQ(lines[7], "changed meanwhile: lib.libcublas.so.12 was /usr/lib/libcublas.so.12, is /opt/libcublas.so.12");
  EXPECT_THAT(remark(all[0]), StartsWith("alarm: 14."));
  EXPECT_EQ(all[1].series.key.metric, "copy");
  EXPECT_EQ(all[1].judgement.state, State::kGood);
  EXPECT_THAT(evidence(all[1]), IsEmpty());
}

TEST_F(AlarmTest, SaysWhenNothingChanged) {
  hours(60, 7e-3);
  hours(2, 8e-3);
  ASSERT_TRUE(assessed()[0].alarm);
  EXPECT_EQ(evidence(assessed()[0]).back(), "nothing that the runs tell of the machine or the image changed meanwhile");
}

TEST_F(AlarmTest, SaysHowMuchIsToBeLearned) {
  hours(12, 7e-3);
  EXPECT_THAT(remark(assessed()[1]), StartsWith("learning: 7.0"));
  EXPECT_THAT(remark(assessed()[1]), HasSubstr(", 11 of 48 clean hours"));
  hours(60, 7e-3);
  EXPECT_THAT(remark(assessed()[1]), StartsWith("good: 7.0"));
  hours(2, 8e-3);
  history_.accept({.metric = "sgemm", .gpu = {}, .driver = {}, .family = {}},
                  {.from_hour = 0, .unix_seconds = 1, .user = "ann", .reason = "new cooling"});
  EXPECT_THAT(remark(assessed()[1]),
              HasSubstr("1 of 48 clean hours since 2025-11-27 16:00 UTC, as ann accepted: new cooling"));
}

TEST_F(AlarmTest, ComparesANewDriverWithTheOneBefore) {
  hours(60, 7e-3);
  run_.machine.driver = "590.1";
  hours(3, 8e-3);
  const auto all = assessed();
  ASSERT_THAT(all, SizeIs(2));
  const auto& gemm = all[1];
  EXPECT_EQ(gemm.judgement.state, State::kLearning);
  ASSERT_TRUE(gemm.driver_change);
  EXPECT_EQ(gemm.driver_change->driver_before, "580.1");
  EXPECT_TRUE(gemm.driver_change->slower);
  EXPECT_NEAR(gemm.driver_change->ratio, 8.0 / 7, 0.01);
  EXPECT_THAT(remark(gemm), HasSubstr("% slower than with driver 580.1"));
  ASSERT_TRUE(all[0].driver_change);
  EXPECT_FALSE(all[0].driver_change->slower);
}

TEST_F(AlarmTest, LeavesOutWhatWasNotMeasuredThen) {
  hours(3, 7e-3);
  EXPECT_THAT(assess(history_, SeriesFilter::of(run_), next_), IsEmpty());
  EXPECT_THAT(assess(history_, SeriesFilter::of(run_), next_ - 2), SizeIs(2));
}

}  // namespace
}  // namespace varve::gpu
