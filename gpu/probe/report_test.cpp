#include "gpu/probe/report.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <array>

#include "gpu/probe/device_watch.h"
#include "gpu/probe_output.h"

namespace varve::gpu::probe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What the suite makes of what was printed.
class ReportTest : public ::testing::Test {
 protected:
  ReportTest() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  ~ReportTest() override {
    ::close(ends_[0]);
    if (ends_[1] >= 0) ::close(ends_[1]);
  }
  std::string printed() {
    ::close(ends_[1]);
    ends_[1] = -1;
    std::string text;
    std::array<char, 4096> part;
    for (ssize_t got; (got = ::read(ends_[0], part.data(), part.size())) > 0;)
      text.append(part.data(), static_cast<std::size_t>(got));
    return text;
  }
  std::array<int, 2> ends_{-1, -1};
};

TEST_F(ReportTest, IsReadBackAsItWasMeant) {
  Report report(ends_[1]);
  report.step("something that may hang");
  report.metric("gemm.steady", MetricKind::kSteady, 0.25);
  report.metric("gemm.first", MetricKind::kFirstCall, 1.5);
  report.fact("gpu", "NVIDIA \"H200\"\n");
  report.warn("Xid 79");
  report.set_throttled();
  EXPECT_EQ(report.end(Outcome::kOk, "all right"), 0);
  const auto result = parse_probe_output("gemm", printed(), "", 0, false);
  EXPECT_EQ(result.outcome, Outcome::kOk) << result.detail;
  EXPECT_EQ(result.detail, "all right");
  ASSERT_EQ(result.metrics.size(), 2u);
  EXPECT_EQ(result.metrics[0].name, "gemm.steady");
  EXPECT_EQ(result.metrics[0].kind, MetricKind::kSteady);
  EXPECT_EQ(result.metrics[0].seconds, 0.25);
  EXPECT_EQ(result.metrics[1].kind, MetricKind::kFirstCall);
  EXPECT_THAT(result.facts.at("gpu"), HasSubstr("H200"));
  EXPECT_THAT(result.warnings, ElementsAre("Xid 79"));
  EXPECT_TRUE(result.throttled);
}

TEST_F(ReportTest, SurvivesWordsThatAreNoUtf8AndLinesThatLibrariesLeftUnfinished) {
  ASSERT_EQ(::write(ends_[1], "chatter", 7), 7);
  Report report(ends_[1]);
  EXPECT_EQ(report.end(Outcome::kFailed, "lib\xff.so: no"), 1);
  const auto result = parse_probe_output("gemm", printed(), "", 1, false);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_THAT(result.detail, HasSubstr(".so: no"));
}

TEST_F(ReportTest, NamesWhatItWasDoing) {
  Report report(ends_[1]);
  report.step("ncclCommInitAll on devices 0,1");
  const auto result = parse_probe_output("nccl", printed(), "", 137, true);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_THAT(result.detail, HasSubstr("ncclCommInitAll on devices 0,1"));
}

TEST_F(ReportTest, FailsWithAFaultOfTheDeviceEvenIfAllResultsAreRight) {
  Report report(ends_[1]);
  report.fault("device 1: Xid 79");
  EXPECT_EQ(report.end(Outcome::kOk, "sgemm is right"), 1);
  const auto result = parse_probe_output("gemm", printed(), "", 1, false);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.detail, "device 1: Xid 79; for the rest: sgemm is right");
}

TEST_F(ReportTest, SkippedIs77) {
  Report report(ends_[1]);
  EXPECT_EQ(report.end(Outcome::kSkipped, "no driver"), 77);
  EXPECT_EQ(parse_probe_output("driver", printed(), "", 77, false).outcome, Outcome::kSkipped);
}

TEST(ClockReasons, AreHeldBackByHeatAndPowerSupplyOnly) {
  EXPECT_EQ(held_back(api::kNvmlReasonGpuIdle | api::kNvmlReasonApplicationClocks | api::kNvmlReasonSwPowerCap |
                      api::kNvmlReasonSyncBoost | api::kNvmlReasonDisplayClocks),
            0u);
  for (const auto reason :
       {api::kNvmlReasonHwSlowdown, api::kNvmlReasonSwThermal, api::kNvmlReasonHwThermal, api::kNvmlReasonHwPowerBrake})
    EXPECT_EQ(held_back(reason | api::kNvmlReasonGpuIdle), reason);
  EXPECT_EQ(lasting(api::kNvmlReasonHwSlowdown | api::kNvmlReasonSwPowerCap, 0), api::kNvmlReasonSwPowerCap);
  EXPECT_EQ(lasting(api::kNvmlReasonHwSlowdown, api::kNvmlReasonHwSlowdown), api::kNvmlReasonHwSlowdown);
  EXPECT_EQ(lasting(api::kNvmlReasonHwSlowdown | api::kNvmlReasonHwThermal, 0),
            api::kNvmlReasonHwSlowdown | api::kNvmlReasonHwThermal);
  EXPECT_EQ(lasting(api::kNvmlReasonSwThermal, 0), api::kNvmlReasonSwThermal);
  EXPECT_EQ(reason_names(0), "none");
  EXPECT_EQ(reason_names(api::kNvmlReasonHwPowerBrake | api::kNvmlReasonGpuIdle | 0x10000),
            "idle, power brake, 0x10000");
}

}  // namespace
}  // namespace varve::gpu::probe
