#include "gpu/probe_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varve::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string said(const std::string& json) { return std::string(kProbeMark) + " " + json + "\n"; }

StepResult parse(const std::string& output, int exit_status = 0, const std::string& error_output = "",
                 bool timed_out = false) {
  return parse_probe_output("gemm", output, error_output, exit_status, timed_out);
}

const std::string kOkLine = said(R"({"result": "ok", "detail": "fine"})");

TEST(ProbeOutputTest, AResultIsReadWithAllItsParts) {
  const auto result = parse(
      "chatter\n" + said(R"({"doing": "sgemm"})") +
      said(R"({"result": "ok", "detail": "residual 1e-7", "metrics": [{"name": "sgemm.steady", "kind": "steady", )"
           R"("seconds": 0.25}, )"
           R"({"name": "sgemm.first", "kind": "first", "seconds": 3}], "facts": {"gpu": "NVIDIA T4"}, "warnings": )"
           R"(["ECC"], "throttled": true, "more": [1]})"));
  EXPECT_EQ(result.step, "gemm");
  EXPECT_EQ(result.outcome, Outcome::kOk) << result.detail;
  EXPECT_EQ(result.detail, "residual 1e-7");
  ASSERT_EQ(result.metrics.size(), 2u);
  EXPECT_EQ(result.metrics[0].name, "sgemm.steady");
  EXPECT_EQ(result.metrics[1].kind, MetricKind::kFirstCall);
  EXPECT_EQ(result.metrics[1].seconds, 3);
  EXPECT_EQ(result.facts.at("gpu"), "NVIDIA T4");
  EXPECT_THAT(result.warnings, ElementsAre("ECC"));
  EXPECT_TRUE(result.throttled);
}

TEST(ProbeOutputTest, TheLastResultCounts) {
  EXPECT_EQ(parse(kOkLine + said(R"({"result": "failed", "detail": "wrong at 7"})"), 1).detail, "wrong at 7");
}

TEST(ProbeOutputTest, SkippedNeedsItsStatus) {
  const auto skipped = said(R"({"result": "skipped", "detail": "no driver"})");
  EXPECT_EQ(parse(skipped, 77).outcome, Outcome::kSkipped);
  const auto result = parse(skipped, 0);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.detail, "it said \"skipped\" (no driver), then exit status 0");
}

TEST(ProbeOutputTest, ACrashAfterAGoodResultIsAFailureAndItsTimesAreGone) {
  const auto result =
      parse(said(R"({"result": "ok", "detail": "fine", "metrics": [{"name": "a", "kind": "steady", "seconds": 1}], )"
                 R"("facts": {"gpu": "T4"}})"),
            139, "boom\n");
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.detail, "it said \"ok\" (fine), then killed by SIGSEGV: boom");
  EXPECT_THAT(result.metrics, IsEmpty());
  EXPECT_EQ(result.facts.at("gpu"), "T4");
}

TEST(ProbeOutputTest, AFailureMayEndWithAnyStatusButSuccess) {
  const auto failure = said(R"({"result": "failed", "detail": "wrong"})");
  EXPECT_EQ(parse(failure, 134).detail, "wrong");
  EXPECT_THAT(parse(failure, 0).detail, HasSubstr("then exit status 0"));
}

TEST(ProbeOutputTest, AHangIsNamedByWhatItWasDoing) {
  const auto result = parse(said(R"({"doing": "ncclAllReduce on 2 devices"})"), 137, "", true);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.detail, "no end before its limit, while doing: ncclAllReduce on 2 devices");
  EXPECT_THAT(parse(kOkLine, 137, "", true).detail, HasSubstr("no end before its limit"));
}

TEST(ProbeOutputTest, ACrashIsNamedByWhatItWasDoingAndItsLastWords) {
  const auto result = parse(kOkLine + said(R"({"doing": "cuInit"})"), 1, "one\ntwo\n\n");
  EXPECT_EQ(result.detail, "exit status 1 after its result, while doing: cuInit: two");
  EXPECT_EQ(parse("nothing of ours\n", 127, "sh: not found\n").detail, "no result, exit status 127: sh: not found");
}

TEST(ProbeOutputTest, OnlyLinesThatBeginWithTheMarkCount) {
  EXPECT_THAT(parse("x " + kOkLine).detail, HasSubstr("no result"));
  EXPECT_THAT(parse(std::string(kProbeMark) + "{\"result\": \"ok\", \"detail\": \"\"}\n").detail,
              HasSubstr("no result"));
}

TEST(ProbeOutputTest, WhatMakesNoSenseIsAFailureThatSaysWhy) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(nonsense)", "no valid JSON"},
      {R"([1])", "must be an object"},
      {R"({"result": "fine", "detail": "x"})", "none of ok, failed, skipped"},
      {R"({"result": 1, "detail": "x"})", "\"result\" must be a string"},
      {R"({"result": "ok"})", "\"detail\" is missing"},
      {R"({"result": "ok", "detail": 7})", "\"detail\" must be a string"},
      {R"({"result": "ok", "detail": "", "metrics": {}})", "\"metrics\" must be an array"},
      {R"({"result": "ok", "detail": "", "metrics": [1]})", "\"metrics[0]\" must be an object"},
      {R"({"result": "ok", "detail": "", "metrics": [{"name": "a b", "kind": "steady", "seconds": 1}]})",
       "\"metrics[0].name\" is no proper name"},
      {R"({"result": "ok", "detail": "", "metrics": [{"name": "a", "kind": "fast", "seconds": 1}]})",
       "\"metrics[0].kind\" is none of"},
      {R"({"result": "ok", "detail": "", "metrics": [{"name": "a", "kind": "steady", "seconds": "1"}]})",
       "\"metrics[0].seconds\" must be a number"},
      {R"({"result": "ok", "detail": "", "metrics": [{"name": "a", "kind": "steady", "seconds": -1}]})",
       "\"metrics[0].seconds\" must be a number from 0"},
      {R"({"result": "ok", "detail": "", "metrics": [{"name": "a", "kind": "steady", "seconds": 1e300}]})",
       "\"metrics[0].seconds\" must be a number from 0"},
      {R"({"result": "ok", "detail": "", "metrics": [{"name": "a", "kind": "steady", "seconds": 1}, {"name": "a", )"
       R"("kind": "steady", "seconds": 2}]})",
       "twice"},
      {R"({"result": "ok", "detail": "", "facts": []})", "\"facts\" must be an object"},
      {R"({"result": "ok", "detail": "", "facts": {"gpu": 7}})", "\"facts.gpu\" must be a string"},
      {R"({"result": "ok", "detail": "", "warnings": "x"})", "\"warnings\" must be an array"},
      {R"({"result": "ok", "detail": "", "throttled": 1})", "\"throttled\" must be true or false"},
      {"[[[[[[[[[[]]]]]]]]]]", "nested deeper"},
  };
  for (const auto& [line, why] : cases) {
    const auto result = parse("\n" + said(line) + kOkLine);
    EXPECT_EQ(result.outcome, Outcome::kFailed) << line;
    EXPECT_THAT(result.detail, HasSubstr("line 2 of its output makes no sense: ")) << line;
    EXPECT_THAT(result.detail, HasSubstr(why)) << line;
  }
}

TEST(ProbeOutputTest, MoreThanTheLimitsIsRefused) {
  std::string metrics, warnings;
  for (std::size_t i = 0; i <= kMaxProbeMetrics; ++i)
    metrics += (i == 0 ? "" : ",") + std::string(R"({"name": "m)") + std::to_string(i) +
               R"(", "kind": "steady", "seconds": 1})";
  for (std::size_t i = 0; i <= kMaxProbeWarnings; ++i) warnings += i == 0 ? "\"w\"" : ",\"w\"";
  EXPECT_THAT(parse(said(R"({"result": "ok", "detail": "", "metrics": [)" + metrics + "]}")).detail,
              HasSubstr("\"metrics\": 201 items, the limit is 200"));
  EXPECT_THAT(parse(said(R"({"result": "ok", "detail": "", "warnings": [)" + warnings + "]}")).detail,
              HasSubstr("\"warnings\": 101 items, the limit is 100"));
  EXPECT_THAT(parse(said(R"({"result": "ok", "detail": ")" + std::string(2 << 20, 'x') + "\"}")).detail,
              HasSubstr("bytes, the limit is"));
}

TEST(ProbeOutputTest, TextsAreOneShortLineThatPrints) {
  const auto result = parse(said(R"({"result": "ok", "detail": "a\nb\u001b[2Jc\u0085d", "warnings": [")" +
                                 std::string(100'000, 'x') + "\"]}"));
  EXPECT_EQ(result.detail, "a b [2Jc d");
  EXPECT_EQ(result.warnings.front().size(), kMaxProbeText);
  EXPECT_EQ(parse("", 1,
                  "a\xff"
                  "b\tc")
                .detail,
            "no result, exit status 1: a\uFFFDb c");
}

}  // namespace
}  // namespace varve::gpu
