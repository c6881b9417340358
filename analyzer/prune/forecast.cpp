#include "analyzer/prune/forecast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include <fmt/format.h>

#include "analyzer/report/report.h"
#include "core/base/bytes.h"

namespace varve::prune {
namespace {

constexpr std::size_t kMaxAffected = 10'000;
constexpr double kTolerated = 0.2;  // between what halves of the evidence foretell and what the others show

// Reasons that are a distribution's own evidence, or the lack of it: nothing else holds it.
constexpr std::array<std::string_view, 7> kOwnUse{"used",   "few-users", "notebooks", "unused",
                                                  "unsure", "no-data",   "new"};

// What as many sessions to come stay below, at 95 %. Their share strays from the rate as that of the sessions that were
// counted does: with twice the variance of the one, which is that of half as many. The rate alone stays below less, but
// nobody ever sees it.
double bound_of_as_many_again(double touching, std::uint64_t sessions) {
  return report::upper_bound(std::uint64_t(std::ceil(touching / 2)), sessions / 2).value_or(1);
}

bool goes(Verdict verdict) { return verdict == Verdict::kCold || verdict == Verdict::kArchived; }

// Which half a set is in: a bit that depends on nothing but its key and the number of the split (the finalizer of
// SplitMix64).
bool in_second_half(std::uint64_t key, unsigned split) {
  auto mixed = key + 0x9e3779b97f4a7c15u * (split + 1u);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return ((mixed ^ (mixed >> 31)) & 1) != 0;
}

std::vector<std::uint64_t> count_uses(std::size_t candidates, const std::vector<const UseSet*>& sets) {
  std::vector<std::uint64_t> uses(candidates);
  for (const auto* set : sets)
    for (const auto need : set->needs) ++uses[need];
  return uses;
}

bool needs_one_of(const UseSet& set, const std::vector<bool>& these) {
  return std::any_of(set.needs.begin(), set.needs.end(), [&](std::uint32_t need) { return these[need]; });
}

std::uint64_t count_touching(const std::vector<const UseSet*>& sets, const std::vector<bool>& these) {
  return std::uint64_t(
      std::count_if(sets.begin(), sets.end(), [&](const UseSet* set) { return needs_one_of(*set, these); }));
}

std::vector<const UseSet*> pointers_to(const std::vector<UseSet>& sets) {
  std::vector<const UseSet*> pointers;
  pointers.reserve(sets.size());
  for (const auto& set : sets) pointers.push_back(&set);
  return pointers;
}

// The verdicts that evidence decides, and those that it does not.
class Rule {
 public:
  // `all_uses`: over all that is known, by which those are found that are cold for another reason than little use.
  Rule(const std::vector<ForecastCandidate>& candidates, const std::vector<bool>& fixed, std::uint64_t max_uses,
       const std::vector<std::uint64_t>& all_uses)
      : decided_(candidates.size()), always_(candidates.size()), max_uses_(max_uses) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      decided_[i] = (candidates[i].may_go || candidates[i].cold) && !fixed[i];
      always_[i] = candidates[i].cold && (fixed[i] || all_uses[i] > max_uses);
    }
  }
  // Cold in a plan made on evidence with these counts.
  std::vector<bool> cold(const std::vector<std::uint64_t>& uses) const { return chosen(uses, max_uses_); }
  // Cold in the eyes of a set that counts itself out.
  std::vector<bool> cold_without_one(const std::vector<std::uint64_t>& uses) const {
    return chosen(uses, max_uses_ + 1);
  }

 private:
  std::vector<bool> chosen(const std::vector<std::uint64_t>& uses, std::uint64_t most) const {
    std::vector<bool> result(uses.size());
    for (std::size_t i = 0; i < uses.size(); ++i) result[i] = always_[i] || (decided_[i] && uses[i] <= most);
    return result;
  }

  std::vector<bool> decided_, always_;
  std::uint64_t max_uses_;
};

// How many sets touch one of `these`, where only counts over all of them and a sample are at hand: the sum of the
// counts, times how far sums overstate in the sample what `of_sample` (chosen there as `these` were in all) touches.
double touching_by_counts(const UseSets& sets, const std::vector<bool>& these, const std::vector<bool>& of_sample,
                          std::uint64_t least) {
  std::uint64_t sum = 0, largest = 0;
  for (std::size_t i = 0; i < these.size(); ++i) {
    if (!these[i]) continue;
    sum += sets.uses[i];
    largest = std::max(largest, sets.uses[i]);
  }
  double together = 1;
  if (sets.sets.size() >= least) {
    std::uint64_t touching = 0, mentions = 0;
    for (const auto& set : sets.sets) {
      const auto found =
          std::count_if(set.needs.begin(), set.needs.end(), [&](std::uint32_t need) { return of_sample[need]; });
      touching += found > 0;
      mentions += std::uint64_t(found);
    }
    if (mentions > 0) together = double(touching) / double(mentions);
  }
  return std::clamp(double(sum) * together, double(largest), double(sets.total));
}

std::vector<std::uint32_t> candidates_of(const std::vector<std::string>& names,
                                         const std::unordered_map<std::string, std::uint32_t>& places) {
  std::vector<std::uint32_t> needs;
  for (const auto& name : names)
    if (const auto found = places.find(name); found != places.end()) needs.push_back(found->second);
  std::sort(needs.begin(), needs.end());
  needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
  return needs;
}

// One per name: a copy that stays keeps the others importable.
std::vector<ForecastCandidate> candidates_of(const Plan& plan, const usage::Snapshot& snapshot) {
  std::map<std::string, ForecastCandidate> by_name;
  std::set<std::string> staying;
  for (const auto& one : plan.verdicts) {
    const bool cold = goes(one.verdict);
    const bool own = std::all_of(one.reasons.begin(), one.reasons.end(), [](const Reason& reason) {
      return std::find(kOwnUse.begin(), kOwnUse.end(), reason.kind) != kOwnUse.end();
    });
    const auto [at, is_new] =
        by_name.try_emplace(one.name, ForecastCandidate{.name = one.name, .cold = cold, .may_go = cold || own});
    if (!is_new)
      at->second = {.name = one.name, .cold = at->second.cold && cold, .may_go = at->second.may_go && (cold || own)};
    if (!cold) staying.insert(one.name);
  }
  // What stays for its own use and is needed by something else that stays would not go without that use.
  for (const auto& use : snapshot.distributions) {
    if (!staying.contains(use.name)) continue;
    for (const auto& package : use.packages) {
      if (package.image != plan.image) continue;
      for (const auto& needed : package.required) {
        const auto found = by_name.find(needed);
        if (found != by_name.end() && needed != use.name && !found->second.cold) found->second.may_go = false;
      }
    }
  }
  std::vector<ForecastCandidate> candidates;
  for (auto& [name, candidate] : by_name) candidates.push_back(std::move(candidate));
  return candidates;
}

bool is_python(const usage::NotebookImports& notebook) {
  return notebook.language == "python" || notebook.language.empty();
}

UseSets sets_of_notebooks(const ForecastEvidence& evidence,
                          const std::unordered_map<std::string, std::uint32_t>& places) {
  UseSets sets;
  sets.basis = "notebooks";
  sets.uses.resize(places.size());
  for (const auto& notebook : evidence.notebooks) {
    if (!is_python(notebook)) continue;
    sets.sets.push_back({.key = load_le<std::uint64_t>(notebook.code.raw().data()),
                         .needs = candidates_of(notebook.distributions, places)});
    for (const auto need : sets.sets.back().needs) ++sets.uses[need];
  }
  sets.total = sets.sets.size();
  return sets;
}

UseSets sets_of_sessions(const usage::Snapshot& snapshot, const ForecastEvidence& evidence,
                         const std::unordered_map<std::string, std::uint32_t>& places) {
  UseSets sets;
  sets.basis = "sessions";
  sets.uses.resize(places.size());
  for (const auto& image : snapshot.images) sets.total += image.heard;
  for (const auto& session : evidence.sessions)
    sets.sets.push_back({.key = session.key, .needs = candidates_of(session.distributions, places)});
  for (const auto& use : snapshot.distributions)
    if (const auto found = places.find(use.name); found != places.end())
      sets.uses[found->second] = std::max(use.sessions, use.file_sessions);
  return sets;
}

void say_basis(Plan& plan, const UseSets& sets, const ForecastEvidence& evidence, const Forecast& forecast,
               const ForecastOptions& options) {
  if (forecast.basis.empty()) {
    plan.unsure.push_back(fmt::format(
        "Nothing is foretold: there are {} sessions and {} notebooks, and at least {} of one kind are needed",
        plan.sessions, evidence.notebooks.size(), options.least));
    return;
  }
  if (evidence.notebooks_left_out)
    plan.unsure.push_back(fmt::format("Only the first {} notebooks by path were looked at", kMaxForecastNotebooks));
  if (!sets.complete())
    plan.unsure.push_back(fmt::format(
        "Of {} sessions only counts per day are looked at; what was used together is known from {} of the {} that "
        "are still kept one by one",
        sets.total, evidence.sample.given, evidence.sample.kept));
  if (forecast.judged == 0) {
    plan.unsure.push_back("The forecast could not be checked on held-out halves: too few sessions are kept one by one");
  } else if (std::abs(forecast.held_out_expected - forecast.held_out_seen) > kTolerated * forecast.held_out_seen) {
    plan.unsure.push_back(fmt::format(
        "Checked on held-out halves of the evidence the forecast was off by more than {:.0f} %: {:.2f} % foretold, "
        "{:.2f} % seen",
        kTolerated * 100, forecast.held_out_expected * 100, forecast.held_out_seen * 100));
  }
  if (forecast.basis == "notebooks")
    plan.unsure.emplace_back("The forecast is over notebooks, each counted once, however often it is run");
}

void add_affected(Plan& plan, const usage::Snapshot& snapshot, const ForecastEvidence& evidence,
                  const std::vector<ForecastCandidate>& candidates) {
  std::map<std::string, std::uint64_t> users;  // of cold ones
  for (const auto& candidate : candidates)
    if (candidate.cold) users[candidate.name] = 0;
  for (const auto& use : snapshot.distributions)
    if (const auto found = users.find(use.name); found != users.end()) found->second = use.users.at_most;
  plan.affected.clear();
  std::size_t left_out = 0;
  for (const auto& notebook : evidence.notebooks) {
    AffectedNotebook affected{.path = notebook.path, .users = UINT64_MAX, .distributions = {}};
    for (const auto& name : notebook.distributions) {
      const auto found = users.find(name);
      if (found == users.end()) continue;
      affected.distributions.push_back(name);
      // Who runs it uses all of them.
      affected.users = std::min(affected.users, found->second);
    }
    if (affected.distributions.empty()) continue;
    if (plan.affected.size() < kMaxAffected)
      plan.affected.push_back(std::move(affected));
    else
      ++left_out;
  }
  std::sort(plan.affected.begin(), plan.affected.end(),
            [](const AffectedNotebook& a, const AffectedNotebook& b) { return a.path < b.path; });
  if (left_out > 0)
    plan.unsure.push_back(
        fmt::format("{} more notebooks import something cold; the first {} are listed", left_out, kMaxAffected));
}

}  // namespace

HoldOut hold_out(const std::vector<ForecastCandidate>& candidates, const std::vector<bool>& fixed,
                 const std::vector<const UseSet*>& history, const std::vector<const UseSet*>& later,
                 const ForecastOptions& options) {
  if (history.empty() || later.empty()) return {};
  const auto uses = count_uses(candidates.size(), history);
  auto all_uses = count_uses(candidates.size(), later);
  for (std::size_t i = 0; i < uses.size(); ++i) all_uses[i] += uses[i];
  const Rule rule(candidates, fixed, options.max_uses, all_uses);
  return {.expected = double(count_touching(history, rule.cold_without_one(uses))) / double(history.size()),
          .seen = double(count_touching(later, rule.cold(uses))) / double(later.size()),
          .judged = later.size()};
}

HoldOut hold_out(const std::vector<ForecastCandidate>& candidates, const std::vector<bool>& fixed,
                 const std::vector<UseSet>& sets, const ForecastOptions& options) {
  HoldOut sum;
  for (unsigned split = 0; split < options.splits; ++split) {
    std::vector<const UseSet*> first, second;
    for (const auto& set : sets) (in_second_half(set.key, split) ? second : first).push_back(&set);
    for (const bool swapped : {false, true}) {
      const auto part = swapped ? hold_out(candidates, fixed, second, first, options)
                                : hold_out(candidates, fixed, first, second, options);
      sum.expected += part.expected * double(part.judged);
      sum.seen += part.seen * double(part.judged);
      sum.judged += part.judged;
    }
  }
  if (sum.judged > 0) {
    sum.expected /= double(sum.judged);
    sum.seen /= double(sum.judged);
  }
  return sum;
}

Forecast forecast(const std::vector<ForecastCandidate>& candidates, const std::vector<bool>& fixed, const UseSets& sets,
                  const ForecastOptions& options) {
  Forecast result;
  if (sets.total < options.least) return result;
  result.basis = sets.basis;
  result.sessions = sets.total;
  std::vector<bool> cold(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) cold[i] = candidates[i].cold;
  const auto all = pointers_to(sets.sets);
  double expected = 0;
  if (sets.complete()) {
    const auto uses = count_uses(candidates.size(), all);
    result.touching = count_touching(all, cold);
    expected = double(count_touching(all, Rule(candidates, fixed, options.max_uses, uses).cold_without_one(uses)));
  } else {
    const auto in_sample = count_uses(candidates.size(), all);
    const auto chosen = Rule(candidates, fixed, options.max_uses, sets.uses).cold_without_one(sets.uses);
    const auto of_sample = Rule(candidates, fixed, options.max_uses, in_sample).cold_without_one(in_sample);
    result.touching = std::uint64_t(std::llround(touching_by_counts(sets, cold, of_sample, options.least)));
    expected = touching_by_counts(sets, chosen, of_sample, options.least);
  }
  expected = std::max(expected, double(result.touching));
  result.expected_rate = expected / double(sets.total);
  result.at_most = bound_of_as_many_again(expected, sets.total);
  if (sets.sets.size() >= options.least) {
    const auto checked = hold_out(candidates, fixed, sets.sets, options);
    result.held_out_expected = checked.expected;
    result.held_out_seen = checked.seen;
    result.judged = checked.judged;
  }
  return result;
}

ForecastEvidence read_forecast_evidence(usage::Database& database, const usage::SnapshotQuery& query,
                                        const Digest& image) {
  ForecastEvidence evidence;
  database.notebooks(image, [&](usage::NotebookImports&& notebook) {
    if (evidence.notebooks.size() < kMaxForecastNotebooks)
      evidence.notebooks.push_back(std::move(notebook));
    else
      evidence.notebooks_left_out = true;
  });
  evidence.sample = database.sessions(
      query, kForecastSessions, [&](usage::SessionUse&& session) { evidence.sessions.push_back(std::move(session)); });
  return evidence;
}

void add_forecast(Plan& plan, const usage::Snapshot& snapshot, const ForecastEvidence& evidence,
                  const ForecastOptions& options) {
  const auto candidates = candidates_of(plan, snapshot);
  std::unordered_map<std::string, std::uint32_t> places;
  for (const auto& candidate : candidates) places.emplace(candidate.name, std::uint32_t(places.size()));
  const auto sessions = sets_of_sessions(snapshot, evidence, places);
  const auto notebooks = sets_of_notebooks(evidence, places);
  const bool by_sessions =
      sessions.total >= options.least && !(options.notebooks_first && notebooks.total >= options.least);
  const auto& basis = by_sessions ? sessions : notebooks;
  const auto& other = by_sessions ? notebooks : sessions;
  std::vector<bool> fixed(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) fixed[i] = other.uses[i] > 0;
  plan.forecast = forecast(candidates, fixed, basis, options);
  say_basis(plan, basis, evidence, plan.forecast, options);
  add_affected(plan, snapshot, evidence, candidates);
}

void add_affected_users(Plan& plan, usage::Database& database, const usage::SnapshotQuery& query) {
  std::vector<std::string> names;
  for (const auto& one : plan.verdicts)
    if (goes(one.verdict)) names.push_back(one.name);
  plan.affected_users = database.set_use(query, names).users.at_most;
}

}  // namespace varve::prune
