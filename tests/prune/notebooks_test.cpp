// Does the forecast hold on notebooks that nobody wrote for it? Those that tests/notebooks/make_notebooks.py makes, of
// eight groups of people with favourites of their own and a long tail that hardly anybody else uses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "analyzer/notebooks/scan.h"
#include "analyzer/packages/distribution_names.h"
#include "analyzer/prune/apply/replay_sets.h"
#include "analyzer/prune/forecast.h"
#include "analyzer/prune/probe_edges.h"
#include "testing/temp_dir.h"

namespace varve::prune {
namespace {

struct GroupNotebook {
  std::string group;
  std::uint64_t key = 0;
  std::set<std::string> distributions;
};

// "" if it is of none, or a command.
std::string distribution_of(const notebooks::Import& import) {
  const auto names = import.module.empty() ? std::vector<std::string>() : packages::DistributionNames().of(import);
  return names.empty() ? "" : names.front();
}

const notebooks::ScanResult& scanned() {
  static const auto kScan = [] {
    const CancelFlag cancel;
    return notebooks::scan({VARVE_NOTEBOOKS}, {.jobs = 2, .is_distribution = {}}, cancel);
  }();
  return kScan;
}

const std::vector<GroupNotebook>& all_notebooks() {
  static const auto kNotebooks = [] {
    std::vector<GroupNotebook> all;
    std::set<Digest> codes;  // those without code are one
    for (const auto& file : scanned().files) {
      if (file.language != "python" || !codes.insert(file.code_digest).second) continue;
      const auto inner = file.path.substr(file.path.find('!') + 1);
      GroupNotebook notebook{.group = inner.substr(0, inner.find('/')),
                             .key = load_le<std::uint64_t>(file.code_digest.raw().data()),
                             .distributions = {}};
      for (const auto& import : file.imports)
        if (auto name = distribution_of(import); !name.empty()) notebook.distributions.insert(std::move(name));
      all.push_back(std::move(notebook));
    }
    return all;
  }();
  return kNotebooks;
}

// An image that has all that these notebooks import, and where everything may go that nobody uses.
class Notebooks : public testing::Test {
 protected:
  Notebooks() {
    std::map<std::string, std::uint32_t> numbers;
    for (const auto& notebook : all_notebooks())
      for (const auto& name : notebook.distributions) numbers.try_emplace(name, 0);
    for (auto& [name, number] : numbers) {
      number = std::uint32_t(candidates_.size());
      candidates_.push_back({.name = name, .cold = false, .may_go = true});
    }
    for (const auto& notebook : all_notebooks()) {
      UseSet set{.key = notebook.key, .needs = {}};
      for (const auto& name : notebook.distributions) set.needs.push_back(numbers.at(name));
      sets_.push_back(std::move(set));
    }
    fixed_.resize(candidates_.size());
  }

  // What a plan made on `history` would have broken in `later`; counted without the code under test.
  static double broken(const std::vector<const UseSet*>& history, const std::vector<const UseSet*>& later,
                       std::uint64_t max_uses) {
    std::map<std::uint32_t, std::uint64_t> uses;
    for (const auto* set : history)
      for (const auto need : set->needs) ++uses[need];
    std::size_t touching = 0;
    for (const auto* set : later) {
      bool cold = false;
      for (const auto need : set->needs) cold = cold || uses[need] <= max_uses;
      touching += cold;
    }
    return double(touching) / double(later.size());
  }

  std::vector<ForecastCandidate> candidates_;
  std::vector<UseSet> sets_;
  std::vector<bool> fixed_;
};

TEST_F(Notebooks, AreEnough) {
  ASSERT_TRUE(scanned().errors.empty());
  EXPECT_GE(sets_.size(), 2'500U);
  EXPECT_GE(candidates_.size(), 300U);
}

// The claim of plans: what half of the notebooks foretells is within 20 % of what the other half shows. Each half is
// held out once.
TEST_F(Notebooks, ForetellEachOthersNeedsWithinAFifth) {
  for (const std::uint64_t max_uses : {0U, 1U, 2U, 5U}) {
    unsigned one_way_within = 0, one_way = 0;
    double least = 10, most = 0, expected = 0, seen = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      std::vector<const UseSet*> first, second;
      for (const auto& set : sets_)
        (load_le<std::uint64_t>(digest_of(fmt::format("{} {}", seed, set.key)).raw().data()) % 2 == 0 ? first : second)
            .push_back(&set);
      const ForecastOptions options{.max_uses = max_uses, .splits = 1, .least = 1};
      const auto there = hold_out(candidates_, fixed_, first, second, options),
                 back = hold_out(candidates_, fixed_, second, first, options);
      ASSERT_DOUBLE_EQ(there.seen, broken(first, second, max_uses));
      ASSERT_DOUBLE_EQ(back.seen, broken(second, first, max_uses));
      for (const auto& way : {there, back}) {
        ++one_way;
        one_way_within += std::abs(way.expected / way.seen - 1) <= 0.2;
      }
      const auto both_expected = there.expected + back.expected, both_seen = there.seen + back.seen;
      EXPECT_NEAR(both_expected / both_seen, 1, 0.2) << "seed " << seed << ", cold up to " << max_uses << " uses";
      least = std::min(least, both_expected / both_seen);
      most = std::max(most, both_expected / both_seen);
      expected += both_expected / 40;
      seen += both_seen / 40;
    }
    std::cout << fmt::format(
        "cold up to {} uses: foretold {:.2f} %, seen {:.2f} %; both ways, 20 seeds: {:.2f} to {:.2f} of what is "
        "seen; one way alone: {} of {} within 20 %\n",
        max_uses, expected * 100, seen * 100, least, most, one_way_within, one_way);
    EXPECT_NEAR(expected / seen, 1, 0.05) << "no bias, cold up to " << max_uses << " uses";
  }
}

TEST_F(Notebooks, ForetellMoreTheFewerTheyAre) {
  double last = 1;
  for (const std::size_t history : {100U, 300U, 1'000U, 2'000U}) {
    double expected = 0, seen = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      std::map<std::uint64_t, const UseSet*> shuffled;
      for (const auto& set : sets_)
        shuffled.emplace(load_le<std::uint64_t>(digest_of(fmt::format("{} {}", seed, set.key)).raw().data()), &set);
      std::vector<const UseSet*> first, second;
      for (const auto& [key, set] : shuffled) (first.size() < history ? first : second).push_back(set);
      const auto result = hold_out(candidates_, fixed_, first, second, {.max_uses = 0, .splits = 1, .least = 1});
      expected += result.expected / 20;
      seen += result.seen / 20;
    }
    std::cout << fmt::format("history of {} notebooks: foretold {:.1f} %, seen {:.1f} %\n", history, expected * 100,
                             seen * 100);
    EXPECT_NEAR(expected / seen, 1, 0.1);
    EXPECT_LT(seen, last);
    last = seen;
  }
}

// Where it fails, and must: a population that history has never met. The guide to plans says so.
TEST_F(Notebooks, CannotForetellAnotherPopulation) {
  std::set<std::string> groups;
  for (const auto& notebook : all_notebooks()) groups.insert(notebook.group);
  ASSERT_EQ(groups.size(), 8U);
  unsigned too_low = 0;
  for (const auto& held_out : groups) {
    std::vector<const UseSet*> first, second;
    for (std::size_t i = 0; i < sets_.size(); ++i)
      (all_notebooks()[i].group == held_out ? second : first).push_back(&sets_[i]);
    const auto result = hold_out(candidates_, fixed_, first, second, {.max_uses = 0, .splits = 1, .least = 1});
    std::cout << fmt::format("without {} ({} notebooks): foretold {:.1f} %, seen {:.1f} %\n", held_out, second.size(),
                             result.expected * 100, result.seen * 100);
    too_low += result.expected < result.seen;
  }
  EXPECT_EQ(too_low, groups.size()) << "if this holds now, the documentation says less than is true";
}

// What a session does is more than what its notebook names: a third of the libraries load another one that their
// records do not tell of. Plans made on one half of the notebooks, the probe known, are judged by what the sessions of
// the other half load.
class Sessions : public Notebooks {
 protected:
  Sessions() : loads_(candidates_.size()) {
    const auto draw = [&](std::size_t i, std::string_view what) {
      return load_le<std::uint64_t>(digest_of(fmt::format("{} {}", what, candidates_[i].name)).raw().data());
    };
    probe_.image = digest_of("image");
    for (std::uint32_t i = 0; i < candidates_.size(); ++i) {
      const auto other = std::uint32_t(draw(i, "which") % candidates_.size());
      probe_.items.push_back({.kind = usage::ProbedKind::kImport,
                              .name = candidates_[i].name,
                              .distribution = candidates_[i].name,
                              .outcome = "ok",
                              .detail = ""});
      if (draw(i, "whether") % 3 != 0 || other == i) continue;
      loads_[i] = other;
      probe_.edges.push_back({.kind = usage::ProbeEdge::Kind::kLoads,
                              .item = i,
                              .to = candidates_[other].name,
                              .to_distribution = candidates_[other].name});
    }
  }

  // By what was made up above.
  std::set<std::uint32_t> loaded_by(const UseSet& set) const {
    std::set<std::uint32_t> loaded(set.needs.begin(), set.needs.end());
    for (const auto need : set.needs)
      if (loads_[need]) loaded.insert(*loads_[need]);
    return loaded;
  }

  // By the code under test.
  UseSet closed(const UseSet& set, const ImportClosure& closure) const {
    usage::NotebookImports notebook;
    for (const auto need : set.needs) notebook.distributions.push_back(candidates_[need].name);
    notebook.modules = notebook.distributions;
    closure.close(notebook);
    UseSet result{.key = set.key, .needs = {}};
    for (std::uint32_t i = 0; i < candidates_.size(); ++i)
      if (std::ranges::binary_search(notebook.distributions, candidates_[i].name)) result.needs.push_back(i);
    return result;
  }

  // A plan on these, and the share of later sessions that read something it made cold, both as {stated bound, seen}.
  std::pair<double, double> judged(std::vector<UseSet> history, const std::vector<const UseSet*>& later) const {
    UseSets sets{.basis = "notebooks", .total = history.size(), .uses = {}, .sets = std::move(history)};
    sets.uses.resize(candidates_.size());
    for (const auto& set : sets.sets)
      for (const auto need : set.needs) ++sets.uses[need];
    auto candidates = candidates_;
    for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].cold = sets.uses[i] == 0;
    const auto foretold = forecast(candidates, fixed_, sets, {.max_uses = 0, .splits = 1, .least = 1});
    std::size_t reading = 0;
    for (const auto* set : later)
      reading += std::ranges::any_of(loaded_by(*set), [&](std::uint32_t i) { return candidates[i].cold; });
    return {foretold.at_most, double(reading) / double(later.size())};
  }

  std::vector<std::optional<std::uint32_t>> loads_;
  usage::Probe probe_;
};

TEST_F(Sessions, ReadWhatIsColdNoMoreOftenThanIsStatedInNineteenOfTwentySplits) {
  const ImportClosure closure(probe_);
  unsigned inside = 0, blind_inside = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<UseSet> named, history;
    std::vector<const UseSet*> later;
    for (const auto& set : sets_) {
      if (load_le<std::uint64_t>(digest_of(fmt::format("{} {}", seed, set.key)).raw().data()) % 2 == 0) {
        named.push_back(set);
        history.push_back(closed(set, closure));
      } else {
        later.push_back(&set);
      }
    }
    const auto [bound, seen] = judged(std::move(history), later);
    const auto [blind_bound, blind_seen] = judged(std::move(named), later);
    inside += seen <= bound;
    blind_inside += blind_seen <= blind_bound;
    std::cout << fmt::format(
        "split {}: at most {:.2f} %, seen {:.2f} %; without the probe at most {:.2f} %, seen {:.2f} %\n", seed,
        bound * 100, seen * 100, blind_bound * 100, blind_seen * 100);
  }
  EXPECT_GE(inside, 19u);
  EXPECT_LT(blind_inside, 10u) << "the probe should have mattered";
}

// The same by way of the database, an inventory and a plan.
TEST_F(Notebooks, ArePlannedForThroughTheDatabase) {
  const test::TempDir folder;
  const auto database = usage::open_database((folder.path() / "usage.db").string());
  packages::Inventory inventory;
  inventory.image = digest_of("image");
  std::map<std::string, std::uint32_t> numbers;
  for (const auto& file : scanned().files)
    for (const auto& import : file.imports) {
      const auto name = distribution_of(import);
      if (name.empty()) continue;
      const auto [at, is_new] = numbers.try_emplace(name, std::uint32_t(inventory.distributions.size()));
      if (is_new) {
        packages::Distribution one;
        one.name = one.normalized = name;
        one.version = "1";
        inventory.distributions.push_back(std::move(one));
      }
      inventory.modules[import.name] = {at->second};
    }
  database->put_inventory(inventory, "all");
  database->put_scan(scanned());
  const usage::SnapshotQuery query{.window = {.first = 0, .last = 30'000}, .image = inventory.image};
  const auto snapshot = database->snapshot(query);
  Plan plan;
  plan.image = *inventory.image;
  std::uint64_t twice_at_most = 0;
  for (const auto& use : snapshot.distributions) {
    auto& row = plan.verdicts.emplace_back();
    row.name = use.name;
    row.source = "pip";
    row.verdict = use.notebooks <= 2 ? Verdict::kCold : Verdict::kHot;
    row.reasons = {{.kind = "notebooks", .by = "", .text = ""}};
    twice_at_most += use.notebooks <= 2;
  }
  ASSERT_GT(twice_at_most, 100U);
  add_forecast(plan, snapshot, read_forecast_evidence(*database, query, plan.image), {.max_uses = 2});
  add_affected_users(plan, *database, query);
  EXPECT_EQ(plan.forecast.basis, "notebooks");
  EXPECT_EQ(plan.forecast.sessions, all_notebooks().size());
  EXPECT_EQ(plan.forecast.touching, plan.affected.size());
  EXPECT_GT(plan.forecast.expected_rate, double(plan.forecast.touching) / double(plan.forecast.sessions));
  EXPECT_NEAR(plan.forecast.held_out_expected / plan.forecast.held_out_seen, 1, 0.05);
  EXPECT_EQ(plan.affected_users, 0U) << "no session was heard of";
  for (const auto& notebook : plan.affected) EXPECT_FALSE(notebook.distributions.empty());
  std::cout << fmt::format(
      "through the database, cold up to 2 uses: {} distributions, {} of {} notebooks touch one; foretold {:.2f} %, "
      "at most {:.2f} %; held out {:.2f} and {:.2f} %\n",
      twice_at_most, plan.forecast.touching, plan.forecast.sessions, plan.forecast.expected_rate * 100,
      plan.forecast.at_most * 100, plan.forecast.held_out_expected * 100, plan.forecast.held_out_seen * 100);

  const auto replay = replay_sets(*database, *inventory.image, 100'000);
  EXPECT_EQ(replay.left_out, 0U);
  EXPECT_EQ(replay.covered, replay.notebooks);
  std::set<std::vector<std::string>> distinct;
  for (std::size_t i = 0; i < replay.sets.size(); ++i) {
    EXPECT_TRUE(distinct.insert(replay.sets[i].modules).second);
    EXPECT_FALSE(replay.sets[i].modules.empty());
    if (i > 0) {
      EXPECT_GE(replay.sets[i - 1].notebooks, replay.sets[i].notebooks);
    }
  }
  const auto some = replay_sets(*database, *inventory.image, 10);
  ASSERT_EQ(some.sets.size(), 10U);
  EXPECT_EQ(some.left_out, replay.sets.size() - 10);
  EXPECT_LT(some.covered, some.notebooks);
  EXPECT_EQ(some.sets[0].modules, replay.sets[0].modules);
  std::cout << fmt::format(
      "replay: {} distinct import sets of {} notebooks; the first 10 are those of {}, the most frequent is {} ({})\n",
      replay.sets.size(), replay.notebooks, some.covered, fmt::join(some.sets[0].modules, " "), some.sets[0].notebooks);
}

}  // namespace
}  // namespace varve::prune
