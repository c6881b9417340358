#include "gpu/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace varve::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

StepResult result_of(const std::string& step, Outcome outcome, std::vector<Metric> metrics = {}) {
  StepResult result;
  result.step = step, result.outcome = outcome, result.metrics = std::move(metrics);
  return result;
}

SuiteRun::Check check_of(const SuiteRun& run, const std::string& step, Outcome outcome, const std::string& detail,
                         std::size_t processes) {
  SuiteRun::Check check;
  check.step = step, check.outcome = outcome, check.detail = detail, check.seconds = 1.5,
  check.first_result = run.results.size() - processes, check.processes = processes;
  return check;
}

// 60 hours at 2 seconds, then three at 3.
Assessment slow_gemm() {
  Series series;
  series.key = {.metric = "sgemm.steady",
                .gpu = "NVIDIA T4",
                .driver = "580.1",
                .family = "team/<notebook>",
                .kind = MetricKind::kSteady};
  for (std::int64_t hour = 0; hour < 63; ++hour) {
    series.hours.push_back({.hour = hour, .samples = {}, .suspicious = false});
    for (int i = 0; i < 7; ++i)
      series.hours.back().samples.push_back((hour < 60 ? 2 : 3) + 0.001 * double((hour * 7 + i) % 5));
    series.hours.back().suspicious = judge(series.hours, MetricKind::kSteady).suspicious();
  }
  const auto judgement = judge(series.hours, MetricKind::kSteady);
  auto alarm = make_alarm(series, judgement, {{.name = "image", .before = "sha256:0", .now = "sha256:1"}});
  return {.series = std::move(series), .judgement = judgement, .alarm = std::move(alarm), .driver_change = {}};
}

// A good step in two processes, one that failed with hostile words, one that was skipped; an alarm.
Report sample() {
  Report report;
  report.identity = {.unix_seconds = 1'700'000'000,
                     .machine = {.gpu = "NVIDIA T4", .driver = "580.1", .name = "host"},
                     .family = "team/<notebook>",
                     .image = "sha256:1"};
  auto& run = report.run;
  run.results.push_back(
      result_of("gemm", Outcome::kOk, {{.name = "sgemm.steady", .kind = MetricKind::kSteady, .seconds = 2}}));
  run.results.push_back(
      result_of("gemm", Outcome::kOk, {{.name = "sgemm.steady", .kind = MetricKind::kSteady, .seconds = 4}}));
  run.results.back().facts["gpu"] = "NVIDIA T4";
  run.checks.push_back(check_of(run, "gemm", Outcome::kOk, "residual 1e-7", 2));
  run.checks.back().lazy = true, run.checks.back().fetched_bytes = 77, run.checks.back().warnings = {"ECC & more"};
  run.results.push_back(result_of("fft", Outcome::kFailed));
  run.checks.push_back(check_of(run, "fft", Outcome::kFailed, "]]> \"<wrong>\" & \x1b\xff\n\xEF\xBF\xBF", 1));
  run.results.push_back(result_of("nccl", Outcome::kSkipped));
  run.checks.push_back(check_of(run, "nccl", Outcome::kSkipped, "no libnccl", 1));
  report.metrics = metrics_of(run);
  attach(report, {slow_gemm()});
  return report;
}

TEST(GpuReportTest, AMetricIsTheMedianOfGoodProcessesThatWereNotThrottled) {
  SuiteRun run;
  for (const double seconds : {1.0, 5.0, 2.0})
    run.results.push_back(
        result_of("gemm", Outcome::kOk, {{.name = "m", .kind = MetricKind::kSteady, .seconds = seconds}}));
  run.results.push_back(result_of("gemm", Outcome::kOk, {{.name = "m", .kind = MetricKind::kSteady, .seconds = 100}}));
  run.results.back().throttled = true;
  run.results.push_back(result_of("gemm", Outcome::kOk, {{.name = "m", .kind = MetricKind::kCold, .seconds = 9}}));
  const auto metrics = metrics_of(run);
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_THAT(metrics[0].samples, ElementsAre(1, 5, 2));
  EXPECT_EQ(metrics[0].median, 2);
  EXPECT_EQ(metrics[1].kind, MetricKind::kCold);
}

TEST(GpuReportTest, JsonHasWhatTheCommandLinePromises) {
  const auto document = to_json(sample());
  EXPECT_EQ(document["ok"], false);
  EXPECT_EQ(document["lineage"], "team/<notebook>");
  const auto& gemm = document["checks"][0];
  EXPECT_EQ(gemm["name"], "gemm");
  EXPECT_EQ(gemm["result"], "ok");
  EXPECT_EQ(gemm["seconds"], 1.5);
  EXPECT_EQ(gemm["detail"], "residual 1e-7");
  EXPECT_EQ(gemm["fetched_bytes"], 77);
  EXPECT_EQ(gemm["facts"]["gpu"], "NVIDIA T4");
  EXPECT_EQ(gemm["metrics"][0]["median"], 3);
  EXPECT_EQ(gemm["metrics"][0]["state"], "alarm");
  EXPECT_NEAR(gemm["metrics"][0]["baseline"].get<double>(), 2, 0.01);
  EXPECT_TRUE(document["checks"][1]["fetched_bytes"].is_null());
  EXPECT_EQ(document["checks"][2]["result"], "skipped");
  EXPECT_EQ(document["alarms"][0]["metric"], "sgemm.steady");
  EXPECT_NEAR(document["alarms"][0]["slowdown"].get<double>(), 0.5, 0.01);
  EXPECT_EQ(document["alarms"][0]["changes"][0]["now"], "sha256:1");
  EXPECT_FALSE(document["alarms"][0]["evidence"].empty());
}

TEST(GpuReportTest, JUnitCountsAndEscapesWhateverTheTextsHold) {
  const auto xml = to_junit(sample());
  EXPECT_THAT(xml, HasSubstr("tests=\"4\" failures=\"2\" errors=\"0\" skipped=\"1\""));
  EXPECT_THAT(xml, HasSubstr("classname=\"team/&lt;notebook&gt;\" name=\"fft\""));
  EXPECT_THAT(xml, HasSubstr("<failure message=\"]]&gt; &quot;&lt;wrong&gt;&quot; &amp; ??&#10;?\"/>"));
  EXPECT_THAT(xml, HasSubstr("<skipped message=\"no libnccl\"/>"));
  EXPECT_THAT(xml, HasSubstr("warning: ECC &amp; more"));
  EXPECT_THAT(xml, HasSubstr("name=\"sgemm.steady (steady) is no slower than it was\""));
  EXPECT_THAT(xml, Not(HasSubstr("\x1b")));
}

TEST(GpuReportTest, OnlyFailuresAndAlarmsAreNotGood) {
  auto report = sample();
  EXPECT_FALSE(report.good());
  report.metrics.front().assessment.reset();
  EXPECT_FALSE(report.good());
  report.run.checks[1].outcome = Outcome::kSkipped;
  EXPECT_TRUE(report.good());
}

}  // namespace
}  // namespace varve::gpu
