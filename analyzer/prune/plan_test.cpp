#include "analyzer/prune/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::prune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Plan small_plan() {
  Plan plan;
  plan.image = digest_of("image");
  plan.reference = "oci:images:v144";
  plan.window = {.first = 20689, .last = 20778};
  plan.made_on = 20778;
  plan.parameters = {{"max-rate", "0.01"}, {"window", "90d"}};
  plan.sessions = 41'200;
  plan.verdicts = {{.name = "numpy",
                    .version = "2.1.0",
                    .source = "pip",
                    .verdict = Verdict::kHot,
                    .reasons = {{.kind = "requires", .by = "pandas", .text = "needs numpy>=1.26.0"},
                                {.kind = "elf", .by = "scipy", .text = "_lib.so needs libopenblas.so"}},
                    .bytes = 60,
                    .compressed_bytes = 20,
                    .unique_compressed_bytes = 5,
                    .sessions = 0,
                    .users = {},
                    .bound = 0.25,
                    .unused_since = 0,
                    .imports = {"numpy"}},
                   {.name = "pandas",
                    .version = "2.2",
                    .source = "pip",
                    .verdict = Verdict::kHot,
                    .reasons = {{.kind = "used", .by = "", .text = "used in 300 of 41,200 sessions"}},
                    .bytes = 70,
                    .compressed_bytes = 30,
                    .unique_compressed_bytes = 0,
                    .sessions = 300,
                    .users = {.at_least = 2, .at_most = 9},
                    .bound = 0.5,
                    .unused_since = 0,
                    .imports = {"pandas"}},
                   {.name = "rare",
                    .version = "1",
                    .source = "pip",
                    .verdict = Verdict::kCold,
                    .reasons = {{.kind = "unused", .by = "", .text = "0 uses in 41,200 sessions"}},
                    .bytes = 7,
                    .compressed_bytes = 3,
                    .unique_compressed_bytes = 3,
                    .sessions = 0,
                    .users = {},
                    .bound = 0.007,
                    .unused_since = 20000,
                    .unused_days = 12,
                    .imports = {"rare_module"}}};
  plan.affected = {{.path = "a.ipynb", .users = 3, .distributions = {"rare"}}};
  plan.affected_users = 3;
  plan.forecast = {.sessions = 10,
                   .touching = 1,
                   .expected_rate = 0.1,
                   .at_most = 0.4,
                   .held_out_expected = 0.25,
                   .held_out_seen = 0.5,
                   .judged = 20,
                   .basis = "notebooks"};
  plan.cold_bytes = 3;
  plan.saved_bytes = 2;
  plan.unsure = {"nobody asked"};
  plan.waivers = {{.gate = "rebuild", .reason = "no time", .owner = "ops"}};
  return plan;
}

std::string edited(std::string_view from, std::string_view to) {
  auto text = to_json(small_plan());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_refused(const std::string& text, std::string_view why) {
  try {
    parse_plan(text, "plan.json");
    FAIL() << "taken: " << why;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith("plan.json: "));
    EXPECT_THAT(error.what(), HasSubstr(why));
  }
}

TEST(Plan, IsReadAsItWasWritten) {
  const auto text = to_json(small_plan());
  const auto plan = parse_plan(text, "plan.json");
  EXPECT_EQ(to_json(plan), text);
  EXPECT_EQ(plan.image, digest_of("image"));
  EXPECT_EQ(plan.window.first, 20689);
  ASSERT_EQ(plan.verdicts.size(), 3u);
  EXPECT_EQ(plan.verdicts[0].reasons[1].by, "scipy");
  EXPECT_EQ(plan.verdicts[1].users.at_most, 9u);
  EXPECT_EQ(plan.verdicts[2].verdict, Verdict::kCold);
  EXPECT_EQ(plan.verdicts[2].unused_since, 20000);
  EXPECT_EQ(plan.verdicts[2].unused_days, 12u);
  EXPECT_DOUBLE_EQ(plan.forecast.held_out_expected, 0.25);
  EXPECT_EQ(plan.waivers[0].owner, "ops");
  EXPECT_EQ(plan.affected[0].distributions, std::vector<std::string>{"rare"});
}

TEST(Plan, OneThatCountedNoDaysOfEvidenceIsReadAsNone) {
  const auto plan = parse_plan(edited("   \"unused_days\": 12,\n", ""), "plan.json");
  EXPECT_EQ(plan.verdicts[2].unused_since, 20000);
  EXPECT_EQ(plan.verdicts[2].unused_days, 0u);
}

TEST(Plan, SaysWhichFieldIsWrong) {
  expect_refused("[]", "must be an object");
  expect_refused("{", "no valid JSON at byte");
  expect_refused("{}", "not a plan");
  expect_refused(edited("\"version\": 1,", "\"version\": 2,"), "plan version 2");
  expect_refused(edited("\"sessions\": 41200,", ""), "\"sessions\" is missing");
  expect_refused(edited("\"sessions\": 41200", "\"sesions\": 41200"), "\"sesions\" is not known here");
  expect_refused(edited("\"sessions\": 41200", "\"sessions\": -1"), "\"sessions\" must be a whole number");
  expect_refused(edited("\"unsure\": [", "\"extra\": 1, \"unsure\": ["), "\"extra\" is not known here");
  expect_refused(edited("\"verdict\": \"cold\"", "\"verdict\": \"gone\""), "\"verdicts[2].verdict\" is none of hot");
  expect_refused(edited("\"bound\": 0.007", "\"bound\": 7"), "\"verdicts[2].bound\" must be a number from 0 to 1");
  expect_refused(edited("\"unused_since\": \"2024-10-04\"", "\"unused_since\": \"2024-02-31\""),
                 "\"verdicts[2].unused_since\" is not a day");
  expect_refused(edited("\"owner\": \"ops\"", "\"owner\": \"\""), "\"waivers[0].owner\" is empty");
  expect_refused(edited("\"name\": \"pandas\"", "\"name\": \"numpy\""), "\"verdicts[1].name\" is there twice");
  expect_refused(edited("\"name\": \"pandas\"", "\"name\": \"abc\""), "\"verdicts[1].name\" is out of order");
  expect_refused(std::string(100, '['), "nested deeper");
}

Plan plan_with_gpu_code() {
  auto plan = small_plan();
  plan.parameters["gpu-arch"] = "sm_80";
  plan.gpu_cold_bytes = 55;
  plan.gpu_cold = {{.path = "lib/liba.so",
                    .content = digest_of("a"),
                    .bytes = 1000,
                    .code = {{.target = "sm_50", .entries = 2, .bytes = 300, .cold = true},
                             {.target = "sm_80", .entries = 1, .bytes = 100, .cold = false}},
                    .ranges = {{100, 200}, {300, 100}}},
                   {.path = "lib/libb.so", .content = digest_of("b"), .bytes = 10, .code = {}, .ranges = {{0, 10}}}};
  return plan;
}

TEST(Plan, CodeForOtherGpusIsReadAsItWasWritten) {
  const auto text = to_json(plan_with_gpu_code());
  const auto plan = parse_plan(text, "plan.json");
  EXPECT_EQ(to_json(plan), text);
  ASSERT_EQ(plan.gpu_cold.size(), 2u);
  EXPECT_EQ(plan.gpu_cold[0].ranges, (std::vector<ByteRange>{{100, 200}, {300, 100}}));
  EXPECT_EQ(plan.gpu_cold[0].cold_bytes(), 300u);
  EXPECT_EQ(plan.gpu_cold[0].code, plan_with_gpu_code().gpu_cold[0].code);
  EXPECT_EQ(plan.gpu_cold_bytes, 55u);
  EXPECT_EQ(to_json(small_plan()).find("gpu_cold"), std::string::npos)
      << "plans that nobody asked it of stay as they were";
}

TEST(Plan, CodeForOtherGpusThatCannotBeIsRefused) {
  const auto with = [](const auto& edit) {
    auto plan = plan_with_gpu_code();
    edit(plan.gpu_cold);
    return to_json(plan);
  };
  using Files = std::vector<GpuColdFile>;
  const auto ranges = [&](std::vector<ByteRange> wanted) {
    return with([&](Files& files) { files[0].ranges = wanted; });
  };
  expect_refused(ranges({{900, 101}}), "\"gpu_cold[0].ranges[0]\" with its length ends behind the file's 1000 bytes");
  expect_refused(ranges({{1001, 1}}), "ends behind");
  expect_refused(ranges({{1, ~std::uint64_t(0)}}), "ends behind");
  expect_refused(ranges({{0, 10}, {9, 10}}), "\"gpu_cold[0].ranges[2]\" lies before the end");
  expect_refused(ranges({{50, 10}, {0, 10}}), "lies before the end");
  expect_refused(ranges({{0, 0}}), "ranges[1]");
  expect_refused(ranges({}), "is no list of offsets and lengths");
  expect_refused(with([](Files& files) { files[0].path = "/lib/liba.so"; }), "\"gpu_cold[0].path\" is no path");
  expect_refused(with([](Files& files) { files[0].path = ""; }), "\"gpu_cold[0].path\" is no path");
  expect_refused(with([](Files& files) { files[0].path = files[1].path; }), "\"gpu_cold[1].path\" is out of order");
  auto odd = to_json(plan_with_gpu_code());
  odd.replace(odd.find("\"ranges\": ["), 11, "\"ranges\": [ 7,");
  expect_refused(odd, "is no list of offsets and lengths");
}

TEST(Plan, ExplainsAVerdictAsAChainOfWhatHoldsWhat) {
  const auto plan = small_plan();
  EXPECT_THAT(explain(plan, "NumPy"), ElementsAre(StartsWith("numpy 2.1.0 (pip) is hot; 60 B installed"),
                                                  "  pandas: needs numpy>=1.26.0 [requires]",
                                                  "    pandas is hot; used in 300 of 41,200 sessions [used]",
                                                  "  also scipy: _lib.so needs libopenblas.so [elf]"));
  EXPECT_THAT(explain(plan, "rare_module"),
              ElementsAre(StartsWith("rare 1 (pip) is cold"), "  0 uses in 41,200 sessions [unused]"));
}

TEST(Plan, EndsAChainThatAnEditTurnedIntoACircle) {
  auto plan = small_plan();
  plan.verdicts[1].reasons = {{.kind = "requires", .by = "numpy", .text = "needs pandas"}};
  EXPECT_EQ(explain(plan, "pandas").size(), 3u);
}

TEST(Plan, NamesTheNearestOfANameThatItDoesNotHave) {
  try {
    explain(small_plan(), "numpi");
    FAIL();
  } catch (const NotFound& error) {
    EXPECT_STREQ(error.what(), "numpi: the plan has no distribution of this name; did you mean numpy");
  }
}

}  // namespace
}  // namespace varve::prune
