#include "analyzer/prune/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include <fmt/format.h>

namespace varve::prune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

UseSets sets_of(std::size_t candidates, const std::vector<std::vector<std::uint32_t>>& needs,
                const std::string& basis = "notebooks") {
  UseSets sets{.basis = basis, .total = needs.size(), .uses = std::vector<std::uint64_t>(candidates), .sets = {}};
  for (const auto& one : needs) {
    sets.sets.push_back({.key = sets.sets.size(), .needs = one});
    for (const auto need : one) ++sets.uses[need];
  }
  return sets;
}

std::vector<ForecastCandidate> all_may_go(std::size_t count) {
  std::vector<ForecastCandidate> candidates;
  for (std::size_t i = 0; i < count; ++i)
    candidates.push_back({.name = fmt::format("d{}", i), .cold = false, .may_go = true});
  return candidates;
}

const ForecastOptions kAny{.max_uses = 0, .splits = 8, .least = 1};

// 0: used by all; 1: by the first two; 2 and 3: by the third alone; 4: by the fourth alone; 5: by nobody.
const std::vector<std::vector<std::uint32_t>> kFive{{0, 1}, {0, 1}, {0, 2, 3}, {0, 4}, {0}};

TEST(Forecast, CountsThoseWhoNeedWhatNobodyElseDoes) {
  const std::vector<bool> fixed(6);
  auto candidates = all_may_go(6);
  candidates[5].cold = true;
  auto result = forecast(candidates, fixed, sets_of(6, kFive), kAny);
  EXPECT_EQ(result.basis, "notebooks");
  EXPECT_EQ(result.sessions, 5U);
  EXPECT_EQ(result.touching, 0U) << "nobody needs what is cold";
  EXPECT_DOUBLE_EQ(result.expected_rate, 2.0 / 5)
      << "left out in turn, the third and the fourth would miss something; two things missed are one notebook";
  EXPECT_GT(result.at_most, 0.4);
  EXPECT_LE(result.at_most, 1);

  // One use is still cold: those with two count.
  result = forecast(candidates, fixed, sets_of(6, kFive), {.max_uses = 1, .splits = 8, .least = 1});
  EXPECT_DOUBLE_EQ(result.expected_rate, 4.0 / 5);
  // What stays whatever evidence says is missed by nobody.
  candidates[4].may_go = false;
  EXPECT_DOUBLE_EQ(forecast(candidates, fixed, sets_of(6, kFive), kAny).expected_rate, 1.0 / 5);
  // Nor is what other evidence keeps.
  EXPECT_DOUBLE_EQ(
      forecast(candidates, {false, false, true, true, false, false}, sets_of(6, kFive), kAny).expected_rate, 0);
}

TEST(Forecast, CountsWhatIsColdAlthoughItIsUsed) {
  auto candidates = all_may_go(6);
  candidates[1].cold = true;
  const auto result = forecast(candidates, std::vector<bool>(6), sets_of(6, kFive), kAny);
  EXPECT_EQ(result.touching, 2U);
  EXPECT_DOUBLE_EQ(result.expected_rate, 4.0 / 5);
}

TEST(Forecast, SaysNothingFromTooLittle) {
  const auto result =
      forecast(all_may_go(6), std::vector<bool>(6), sets_of(6, kFive), {.max_uses = 0, .splits = 8, .least = 6});
  EXPECT_EQ(result.basis, "");
  EXPECT_EQ(result.expected_rate, 0);
  EXPECT_EQ(result.judged, 0U);
}

TEST(Forecast, TakesCountsWhereSetsAreASampleOnly) {
  // 1,000 sessions; 10 distributions used once each, by 5 sessions. The sample knows four of these ten and that they
  // come in twos.
  UseSets sets{.basis = "sessions", .total = 1'000, .uses = std::vector<std::uint64_t>(11, 1), .sets = {}};
  sets.uses[10] = 900;
  for (std::uint64_t i = 0; i < 100; ++i) sets.sets.push_back({.key = i, .needs = {}});
  sets.sets[1].needs = {0, 1};
  sets.sets[2].needs = {2, 3, 10};
  auto candidates = all_may_go(11);
  candidates[10].may_go = false;
  auto result = forecast(candidates, std::vector<bool>(11), sets, {.max_uses = 0, .splits = 8, .least = 100});
  EXPECT_EQ(result.sessions, 1'000U);
  EXPECT_DOUBLE_EQ(result.expected_rate, 5.0 / 1'000);
  EXPECT_GT(result.judged, 0U);
  // Without enough of a sample each counts for itself, which is the most it can be.
  sets.sets.clear();
  result = forecast(candidates, std::vector<bool>(11), sets, {.max_uses = 0, .splits = 8, .least = 100});
  EXPECT_DOUBLE_EQ(result.expected_rate, 10.0 / 1'000);
  EXPECT_EQ(result.judged, 0U);
}

TEST(HoldOut, PlansOnOneHalfAndLooksAtTheOther) {
  const auto history = sets_of(6, {{0, 1}, {0, 2}, {0, 2}, {0, 1}, {0, 3}});
  const auto later = sets_of(6, {{0}, {4, 5}, {0, 5}, {3}});
  std::vector<const UseSet*> first, second;
  for (const auto& set : history.sets) first.push_back(&set);
  for (const auto& set : later.sets) second.push_back(&set);
  const auto result = hold_out(all_may_go(6), std::vector<bool>(6), first, second, kAny);
  EXPECT_DOUBLE_EQ(result.expected, 1.0 / 5) << "3 is used once";
  EXPECT_DOUBLE_EQ(result.seen, 2.0 / 4) << "4 and 5 were never used";
  EXPECT_EQ(result.judged, 4U);
  const auto one =
      hold_out(all_may_go(6), std::vector<bool>(6), first, second, {.max_uses = 1, .splits = 8, .least = 1});
  EXPECT_DOUBLE_EQ(one.expected, 5.0 / 5);
  EXPECT_DOUBLE_EQ(one.seen, 3.0 / 4);
  EXPECT_EQ(hold_out(all_may_go(6), std::vector<bool>(6), first, {}, kAny).judged, 0U);
}

TEST(HoldOut, JudgesEveryNotebookOncePerSplit) {
  const auto sets = sets_of(6, kFive);
  EXPECT_EQ(
      hold_out(all_may_go(6), std::vector<bool>(6), sets.sets, {.max_uses = 0, .splits = 3, .least = 1}).judged % 5,
      0U);
  EXPECT_EQ(hold_out(all_may_go(6), std::vector<bool>(6), std::vector<UseSet>(), kAny).judged, 0U);
}

// Notebooks as real ones are: few libraries in nearly all, most in few.
UseSets random_sets(unsigned seed, std::size_t notebooks, std::uint32_t libraries) {
  std::mt19937_64 random(seed);
  UseSets sets{.basis = "notebooks", .total = notebooks, .uses = std::vector<std::uint64_t>(libraries), .sets = {}};
  for (std::size_t i = 0; i < notebooks; ++i) {
    UseSet set{.key = random(), .needs = {}};
    for (std::uint32_t library = 0; library < libraries; ++library)
      if (std::uniform_real_distribution<double>(0, 1)(random) < 0.7 / std::pow(library + 1, 1.2))
        set.needs.push_back(library);
    for (const auto need : set.needs) ++sets.uses[need];
    sets.sets.push_back(std::move(set));
  }
  return sets;
}

TEST(Forecast, IsARateAndGrowsWithWhatIsCold) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto sets = random_sets(seed, 400, 120);
    std::mt19937 random(seed);
    auto candidates = all_may_go(120);
    for (auto& one : candidates) one.may_go = random() % 4 != 0;
    std::vector<bool> fixed(120);
    for (std::size_t i = 0; i < fixed.size(); ++i) fixed[i] = random() % 5 == 0;
    const ForecastOptions options{.max_uses = seed % 3, .splits = 2, .least = 1};
    double last = 0;
    std::uint64_t last_touching = 0;
    for (unsigned step = 0; step < 30; ++step) {
      const auto result = forecast(candidates, fixed, sets, options);
      for (const auto rate : {result.expected_rate, result.at_most, result.held_out_expected, result.held_out_seen}) {
        ASSERT_GE(rate, 0);
        ASSERT_LE(rate, 1);
      }
      ASSERT_GE(result.at_most, result.expected_rate);
      ASSERT_GE(result.expected_rate, last);
      ASSERT_GE(result.touching, last_touching);
      ASSERT_LE(double(result.touching), result.expected_rate * 400 + 1e-6);
      last = result.expected_rate;
      last_touching = result.touching;
      auto& next = candidates[random() % candidates.size()];
      next.cold = next.may_go = true;
    }
  }
}

// The estimate has no bias: over many histories what it says and what then comes agree, for any number of uses that is
// still cold.
TEST(Forecast, IsRightOnAverage) {
  for (const std::uint64_t max_uses : {0U, 1U, 3U}) {
    double expected = 0, seen = 0;
    for (unsigned seed = 0; seed < 60; ++seed) {
      const auto history = random_sets(seed, 300, 150), later = random_sets(seed + 1'000, 300, 150);
      std::vector<const UseSet*> first, second;
      for (const auto& set : history.sets) first.push_back(&set);
      for (const auto& set : later.sets) second.push_back(&set);
      const auto result = hold_out(all_may_go(150), std::vector<bool>(150), first, second,
                                   {.max_uses = max_uses, .splits = 1, .least = 1});
      expected += result.expected;
      seen += result.seen;
    }
    EXPECT_NEAR(expected / seen, 1, 0.08) << max_uses;
  }
}

// --- from plans and databases' data

PlannedDistribution verdict_of(const std::string& name, Verdict verdict, const std::string& kind) {
  PlannedDistribution one;
  one.name = name;
  one.source = "pip";
  one.verdict = verdict;
  one.reasons = {{.kind = kind, .by = "", .text = "t"}};
  return one;
}

usage::DistributionUse use_of(const std::string& name, std::uint64_t sessions, std::uint64_t users, const Digest& image,
                              std::vector<std::string> required = {}) {
  usage::DistributionUse use;
  use.name = name;
  use.sessions = sessions;
  use.users = {.at_least = users, .at_most = users};
  auto& package = use.packages.emplace_back();
  package.image = image;
  package.required = std::move(required);
  return use;
}

class PlanForecast : public testing::Test {
 protected:
  PlanForecast() {
    plan_.image = digest_of("image");
    plan_.verdicts = {verdict_of("hot", Verdict::kHot, "used"),        verdict_of("kept", Verdict::kHot, "keep-rule"),
                      verdict_of("needed", Verdict::kHot, "used"),     verdict_of("once", Verdict::kWatch, "few-users"),
                      verdict_of("rare", Verdict::kCold, "few-users"), verdict_of("unused", Verdict::kCold, "unused")};
    snapshot_.distributions = {use_of("hot", 9, 9, plan_.image, {"needed"}),
                               use_of("kept", 0, 0, plan_.image),
                               use_of("needed", 0, 0, plan_.image),
                               use_of("once", 1, 1, plan_.image),
                               use_of("rare", 3, 2, plan_.image),
                               use_of("unused", 0, 0, plan_.image)};
  }
  void add_notebook(const std::string& path, std::vector<std::string> distributions,
                    const std::string& language = "python") {
    evidence_.notebooks.push_back({.path = path,
                                   .copies = 1,
                                   .code = digest_of(path),
                                   .language = language,
                                   .distributions = std::move(distributions),
                                   .modules = {}});
  }

  Plan plan_;
  usage::Snapshot snapshot_;
  ForecastEvidence evidence_;
};

TEST_F(PlanForecast, NamesTheNotebooksAndTheirUsersAtMost) {
  add_notebook("c.ipynb", {"hot"});
  add_notebook("b.ipynb", {"hot", "rare", "unused"});
  add_notebook("a.ipynb", {"rare"});
  add_forecast(plan_, snapshot_, evidence_, kAny);
  ASSERT_EQ(plan_.affected.size(), 2U);
  EXPECT_EQ(plan_.affected[0].path, "a.ipynb");
  EXPECT_EQ(plan_.affected[0].users, 2U);
  EXPECT_THAT(plan_.affected[0].distributions, ElementsAre("rare"));
  EXPECT_THAT(plan_.affected[1].distributions, ElementsAre("rare", "unused"));
  EXPECT_EQ(plan_.affected[1].users, 0U);
}

TEST_F(PlanForecast, TakesNotebooksWhereSessionsAreTooFew) {
  for (unsigned i = 0; i < 8; ++i) add_notebook(fmt::format("{}.ipynb", i), {"hot"});
  add_notebook("once.ipynb", {"kept", "needed", "once"});
  add_notebook("alone.ipynb", {"needed"});
  add_notebook("r.ipynb", {}, "r");
  snapshot_.distributions[3].sessions = 0;
  snapshot_.distributions[4].sessions = 0;
  add_forecast(plan_, snapshot_, evidence_, kAny);
  EXPECT_EQ(plan_.forecast.basis, "notebooks");
  EXPECT_EQ(plan_.forecast.sessions, 10U) << "in Python";
  EXPECT_DOUBLE_EQ(plan_.forecast.expected_rate, 1.0 / 10)
      << "`once` would be missed; `needed` stays for `hot`, `kept` by its rule";
  // A session uses it as well: it would stay without the notebook.
  snapshot_.distributions[3].sessions = 1;
  add_forecast(plan_, snapshot_, evidence_, kAny);
  EXPECT_DOUBLE_EQ(plan_.forecast.expected_rate, 0);
}

TEST_F(PlanForecast, TakesSessionsWhereThereAreEnough) {
  snapshot_.images.push_back({});
  snapshot_.images.back().heard = 10;
  for (unsigned i = 0; i < 10; ++i)
    evidence_.sessions.push_back({.key = i * 77'777, .day = 1, .distributions = {"hot"}});
  evidence_.sessions[0].distributions.emplace_back("once");
  for (unsigned i = 1; i < 4; ++i) evidence_.sessions[i].distributions.emplace_back("rare");
  evidence_.sample = {.kept = 10, .given = 10};
  add_forecast(plan_, snapshot_, evidence_, {.max_uses = 0, .splits = 4, .least = 10});
  EXPECT_EQ(plan_.forecast.basis, "sessions");
  EXPECT_EQ(plan_.forecast.touching, 3U);
  EXPECT_DOUBLE_EQ(plan_.forecast.expected_rate, 4.0 / 10);
  EXPECT_EQ(plan_.forecast.judged, 40U);
  // The other six of sixteen are no longer kept one by one.
  plan_.unsure.clear();
  snapshot_.images.back().heard = 16;
  add_forecast(plan_, snapshot_, evidence_, {.max_uses = 0, .splits = 4, .least = 10});
  EXPECT_DOUBLE_EQ(plan_.forecast.expected_rate, 4.0 / 16);
  ASSERT_FALSE(plan_.unsure.empty());
  EXPECT_THAT(plan_.unsure[0], HasSubstr("Of 16 sessions only counts per day"));
}

TEST_F(PlanForecast, SaysThatItKnowsTooLittle) {
  add_forecast(plan_, snapshot_, evidence_, {});
  EXPECT_EQ(plan_.forecast.basis, "");
  ASSERT_EQ(plan_.unsure.size(), 1U);
  EXPECT_THAT(plan_.unsure[0], HasSubstr("Nothing is foretold"));
}

TEST_F(PlanForecast, HasOneAnswerForANameFromTwoSources) {
  // Debian's copy stays: the name can be imported.
  plan_.verdicts.push_back(verdict_of("rare", Verdict::kHot, "dpkg"));
  add_notebook("a.ipynb", {"rare"});
  add_forecast(plan_, snapshot_, evidence_, kAny);
  EXPECT_THAT(plan_.affected, IsEmpty());
}

}  // namespace
}  // namespace varve::prune
