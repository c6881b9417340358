#include "gpu/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "core/base/errors.h"
#include "gpu/probe_output.h"

namespace varve::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ProgramOutput answer(const std::string& json, int status) {
  ProgramOutput output;
  output.exit_status = status, output.out = std::string(kProbeMark) + " " + json + "\n", output.seconds = 1;
  return output;
}
ProgramOutput good(const std::string& metrics = "") {
  return answer(R"({"result": "ok", "detail": "fine", "metrics": [)" + metrics + "]}", 0);
}
ProgramOutput bad(const std::string& why) { return answer(R"({"result": "failed", "detail": ")" + why + "\"}", 1); }
ProgramOutput none(const std::string& why) { return answer(R"({"result": "skipped", "detail": ")" + why + "\"}", 77); }
std::string metric(const std::string& name, const std::string& kind, double seconds) {
  return R"({"name": ")" + name + R"(", "kind": ")" + kind + R"(", "seconds": )" + std::to_string(seconds) + "}";
}

SuiteOptions options(std::uint32_t repetitions, std::vector<std::string> only = {},
                     std::vector<std::string> required = {}) {
  SuiteOptions of;
  of.repetitions = repetitions, of.only = std::move(only), of.required = std::move(required);
  return of;
}

// Answers as it was told, in turn, and is fine with all else.
class ScriptedRunner final : public StepRunner {
 public:
  ProgramOutput probe(const std::vector<std::string>& words, Store store, std::chrono::seconds limit) override {
    this->words[words.at(0)] = words;
    return next(words.at(0), store, limit);
  }
  ProgramOutput python(std::string_view script, const std::vector<std::string>&, Store store,
                       std::chrono::seconds limit) override {
    for (const auto& step : steps())
      if (step.python && script.find("def " + step.name + "_step()") != script.npos)
        return next(step.name, store, limit);
    throw std::logic_error("an unknown script");
  }
  StepResult manifest() override {
    ran.emplace_back("manifest");
    StepResult result;
    result.step = "manifest", result.outcome = Outcome::kSkipped, result.detail = "none given";
    return result;
  }

  void say(const std::string& step, ProgramOutput output) { answers[step].push_back(std::move(output)); }

  std::map<std::string, std::deque<ProgramOutput>> answers;
  std::vector<std::string> ran;  // steps; "*" behind cold ones
  std::map<std::string, std::chrono::seconds> limits;
  std::map<std::string, std::vector<std::string>> words;

 private:
  ProgramOutput next(const std::string& step, Store store, std::chrono::seconds limit) {
    const auto name = step + (store == Store::kCold ? "*" : "");
    ran.push_back(name);
    limits[name] = limit;
    auto& waiting = answers[name];
    if (waiting.empty()) return good();
    auto output = std::move(waiting.front());
    waiting.pop_front();
    return output;
  }
};

class SuiteTest : public ::testing::Test {
 protected:
  SuiteRun run(const SuiteOptions& of = options(1)) {
    return run_suite(runner_, of, cancel_, [&](const SuiteRun::Check& check) { told_.push_back(check.step); });
  }
  static SuiteRun::Check check_of(const SuiteRun& run, const std::string& step, bool cold = false) {
    for (const auto& check : run.checks)
      if (check.step == step && check.cold == cold) return check;
    ADD_FAILURE() << "no check " << step;
    return {};
  }

  ScriptedRunner runner_;
  CancelFlag cancel_;
  std::vector<std::string> told_;
};

TEST_F(SuiteTest, EveryStepRunsInOrderManifestAndDriverFirst) {
  const auto done = run();
  std::vector<std::string> names;
  for (const auto& step : steps()) names.push_back(step.name);
  EXPECT_EQ(runner_.ran, names);
  EXPECT_EQ(told_, names);
  EXPECT_EQ(names[0], "manifest");
  EXPECT_EQ(names[1], "driver");
  EXPECT_TRUE(done.all_good());
  EXPECT_EQ(runner_.limits.at("gemm"), std::chrono::seconds(300));
}

TEST_F(SuiteTest, WithoutAGpuNothingElseRuns) {
  runner_.say("driver", none("libcuda.so.1 is not here"));
  const auto done = run();
  EXPECT_TRUE(done.no_gpu);
  EXPECT_EQ(done.no_gpu_reason, "libcuda.so.1 is not here");
  EXPECT_THAT(runner_.ran, ElementsAre("manifest", "driver"));
}

TEST_F(SuiteTest, AMissingGpuThatIsRequiredIsAFailure) {
  runner_.say("driver", none("no device"));
  const auto done = run(options(1, {}, {"driver"}));
  EXPECT_FALSE(done.no_gpu);
  EXPECT_FALSE(done.all_good());
  EXPECT_EQ(check_of(done, "driver").detail, "required, but skipped: no device");
}

TEST_F(SuiteTest, WhenTheDriverFailsTheOtherStepsAreNotRun) {
  runner_.say("driver", bad("cuInit: 999"));
  runner_.say("driver", bad("cuInit: 999"));
  const auto done = run(options(1, {}, {"gemm"}));
  EXPECT_THAT(runner_.ran, ElementsAre("manifest", "driver", "driver"));
  EXPECT_EQ(check_of(done, "driver").outcome, Outcome::kFailed);
  EXPECT_EQ(check_of(done, "torch").outcome, Outcome::kSkipped);
  EXPECT_EQ(check_of(done, "gemm").outcome, Outcome::kFailed);
}

TEST_F(SuiteTest, OneFailureIsTriedAgainInAFreshProcess) {
  runner_.say("gemm", bad("wrong"));
  const auto done = run();
  const auto check = check_of(done, "gemm");
  EXPECT_EQ(check.outcome, Outcome::kOk);
  EXPECT_TRUE(check.retried);
  EXPECT_EQ(check.processes, 2u);
  EXPECT_EQ(check.seconds, 2);
  EXPECT_THAT(check.warnings, ElementsAre("failed once, and not when tried again: wrong"));
  EXPECT_EQ(done.results[check.first_result].outcome, Outcome::kFailed);
  EXPECT_EQ(done.results[check.first_result + 1].outcome, Outcome::kOk);
}

TEST_F(SuiteTest, TwoFailuresInARowFailTheCheckAndEndItsRepetitions) {
  runner_.say("gemm", good());
  runner_.say("gemm", bad("wrong"));
  runner_.say("gemm", bad("wrong again"));
  const auto check = check_of(run(options(7)), "gemm");
  EXPECT_EQ(check.outcome, Outcome::kFailed);
  EXPECT_EQ(check.detail, "wrong again");
  EXPECT_EQ(check.processes, 3u);
}

TEST_F(SuiteTest, ATimedOutStepIsAFailure) {
  auto hang = answer(R"({"doing": "ncclCommInitAll"})", 137);
  hang.timed_out = true;
  for (int i = 0; i < 2; ++i) runner_.say("nccl", hang);
  const auto check = check_of(run(), "nccl");
  EXPECT_EQ(check.outcome, Outcome::kFailed);
  EXPECT_THAT(check.detail, HasSubstr("ncclCommInitAll"));
}

TEST_F(SuiteTest, ASkippedStepIsNotRepeatedAndFailsOnlyIfRequired) {
  runner_.say("nccl", none("no libnccl"));
  runner_.say("torch", answer("{}", 127));
  const auto done = run(options(7));
  EXPECT_EQ(check_of(done, "nccl").processes, 1u);
  EXPECT_TRUE(done.all_good());
  EXPECT_EQ(check_of(done, "torch").detail, "there is no Python");
  runner_.say("nccl", none("no libnccl"));
  const auto required = run(options(1, {}, {"nccl"}));
  EXPECT_FALSE(required.all_good());
  EXPECT_EQ(check_of(required, "nccl").detail, "required, but skipped: no libnccl");
}

TEST_F(SuiteTest, WhatWorkedAndIsThenSkippedIsAFailure) {
  runner_.say("fft", good());
  runner_.say("fft", none("no libcufft"));
  EXPECT_EQ(check_of(run(options(3)), "fft").outcome, Outcome::kFailed);
  runner_.say("fft", bad("x"));
  runner_.say("fft", none("no libcufft"));
  EXPECT_EQ(check_of(run(options(3)), "fft").outcome, Outcome::kFailed);
}

TEST_F(SuiteTest, OnlyStepsWithTimesAreRepeated) {
  const auto done = run(options(3, {"device", "gemm"}));
  EXPECT_THAT(runner_.ran, ElementsAre("driver", "device", "gemm", "gemm", "gemm"));
  EXPECT_EQ(done.results.size(), 5u);
}

TEST_F(SuiteTest, ThrottledProcessesAreCountedAndMarked) {
  for (int i = 0; i < 2; ++i)
    runner_.say(
        "gemm",
        answer(R"({"result": "ok", "detail": "fine", "throttled": true, "warnings": ["clocks held back: power"]})", 0));
  const auto done = run(options(3, {"gemm"}));
  EXPECT_THAT(
      check_of(done, "gemm").warnings,
      ElementsAre("clocks held back: power", "clocks were held back in 2 of 3 processes, whose times do not count"));
  EXPECT_TRUE(done.results[1].throttled);
  EXPECT_FALSE(done.results[3].throttled);
}

TEST_F(SuiteTest, ColdStepsRunOnceMoreAndTheirTimesAreTheMounts) {
  auto fetched = good(metric("libraries.dlopen", "first", 9) + "," + metric("sgemm.steady", "steady", 1));
  fetched.lazy = true, fetched.fetched_bytes = 1000, fetched.requests = 3;
  runner_.say("libraries*", fetched);
  auto of = options(2, {"libraries", "fft"});
  of.cold = true;
  const auto done = run(of);
  EXPECT_THAT(runner_.ran, ElementsAre("driver", "libraries", "libraries", "libraries*", "fft", "fft"));
  const auto check = check_of(done, "libraries", true);
  EXPECT_EQ(check.fetched_bytes, 1000u);
  EXPECT_TRUE(check.lazy);
  const auto& metrics = done.results[check.first_result].metrics;
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].kind, MetricKind::kCold);
  EXPECT_TRUE(done.results[check.first_result].cold);
  EXPECT_EQ(runner_.limits.at("libraries*"), 3 * runner_.limits.at("libraries"));
}

TEST_F(SuiteTest, TheMachineIsWhatTheStepsSay) {
  runner_.say("driver", answer(R"({"result": "ok", "detail": "", "facts": {"driver": "580.95.05"}})", 0));
  runner_.say("device",
              answer(R"({"result": "ok", "detail": "", "facts": {"gpu": "NVIDIA H200", "driver": "other"}})", 0));
  const auto done = run();
  EXPECT_EQ(done.machine.gpu, "NVIDIA H200");
  EXPECT_EQ(done.machine.driver, "580.95.05");
}

TEST_F(SuiteTest, AStepThatDoesNotExistIsAMistakeOfTheUser) {
  EXPECT_THROW(run(options(1, {"gem"})), UsageError);
  EXPECT_THROW(run(options(1, {}, {"cudnn"})), UsageError);
  EXPECT_THAT(runner_.ran, IsEmpty());
}

TEST_F(SuiteTest, ALimitOfTheUserHoldsForEveryStep) {
  auto of = options(1, {"gemm"});
  of.limit = std::chrono::seconds(7);
  run(of);
  EXPECT_EQ(runner_.limits.at("gemm"), std::chrono::seconds(7));
  EXPECT_EQ(runner_.limits.at("driver"), std::chrono::seconds(7));
}

TEST_F(SuiteTest, ASizeIsHandedToTheProbe) {
  auto of = options(1, {"gemm", "fft"});
  of.sizes = {{"gemm", 64}};
  run(of);
  EXPECT_THAT(runner_.words.at("gemm"), ElementsAre("gemm", "--size", "64"));
  EXPECT_THAT(runner_.words.at("fft"), ElementsAre("fft"));
  of.sizes = {{"nothing", 64}};
  EXPECT_THROW(run(of), UsageError);
}

TEST_F(SuiteTest, CancellingEndsTheRun) {
  cancel_.cancel();
  EXPECT_THROW(run(), Cancelled);
}

TEST_F(SuiteTest, PairsTakeTurnsAndKeepWhatBothHave) {
  ScriptedRunner other;
  for (int i = 0; i < 4; ++i) {
    runner_.say("gemm", good(metric("sgemm.steady", "steady", 1 + i) + "," + metric("only.a", "steady", 1)));
    auto of_b = good(metric("sgemm.steady", "steady", 2 + i));
    if (i == 1)
      of_b = answer(R"({"result": "ok", "detail": "", "throttled": true, "metrics": [)" +
                        metric("sgemm.steady", "steady", 9) + "]}",
                    0);
    other.say("gemm", of_b);
  }
  const auto done = run_pairs(runner_, other, 4, options(1, {"gemm"}), cancel_, {});
  ASSERT_EQ(done.metrics.size(), 1u);
  EXPECT_EQ(done.metrics[0].name, "sgemm.steady");
  EXPECT_THAT(done.metrics[0].seconds, ElementsAre(std::pair(1.0, 2.0), std::pair(3.0, 4.0), std::pair(4.0, 5.0)));
  EXPECT_THAT(runner_.ran, ElementsAre("driver", "gemm", "gemm", "gemm", "gemm"));
  EXPECT_EQ(check_of(done.b, "gemm").processes, 4u);
}

TEST_F(SuiteTest, APairEndsWhereOneSideFails) {
  ScriptedRunner other;
  for (int i = 0; i < 2; ++i) other.say("gemm", bad("wrong"));
  const auto done = run_pairs(runner_, other, 4, options(1, {"gemm"}), cancel_, {});
  EXPECT_FALSE(done.b.all_good());
  EXPECT_TRUE(done.a.all_good());
  EXPECT_THAT(done.metrics, IsEmpty());
}

}  // namespace
}  // namespace varve::gpu
