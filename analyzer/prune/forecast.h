#pragma once
// Who would notice that something went cold, and how sure that is. Method, formulae and figures:
// docs/guide/prune-plan.md.
//
// The question of a plan is not what was used, but what will be: a distribution that none of n sessions used is used by
// some of the next ones. How often is estimated by leaving out: each session in turn is judged by the plan that the
// others would have made. That has no bias as long as sessions to come are of the same kind as those that were, and is
// checked on the evidence at hand by letting each half of it foretell the other.
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/prune/plan.h"
#include "analyzer/usage/database.h"

namespace varve::prune {

// What a plan thinks of one distribution, as far as a forecast needs it.
struct ForecastCandidate {
  std::string name;     // normalised
  bool cold = false;    // cold or archived by the plan
  bool may_go = false;  // that, or it stays for its own use alone: without it, the plan would let it go
};

// What one session or notebook needs: a set of candidates.
struct UseSet {
  std::uint64_t key = 0;             // uniform, the same in every run: decides the half
  std::vector<std::uint32_t> needs;  // indexes of candidates, ascending, each once
};

// All that one kind of evidence says.
struct UseSets {
  std::string basis;                // "sessions" "notebooks"
  std::uint64_t total = 0;          // sessions or notebooks that `uses` counts over
  std::vector<std::uint64_t> uses;  // of each candidate
  std::vector<UseSet> sets;         // all of them, or a sample
  bool complete() const { return sets.size() == total; }
};

struct ForecastOptions {
  std::uint64_t max_uses = 0;    // a distribution that may go is cold up to so many uses
  unsigned splits = 8;           // ways to halve the evidence; each half foretells the other in each of them
  std::uint64_t least = 200;     // sessions or notebooks; from less nothing is foretold
  bool notebooks_first = false;  // where there are enough of both
};

// Rates are shares of sessions (notebooks), 0 to 1.
struct HoldOut {
  double expected = 0;       // foretold by the half that the plan was made on
  double seen = 0;           // in the other
  std::uint64_t judged = 0;  // sets that were looked at, over all splits
};

// The plan is made on `history` alone, and `later` judges it. `fixed`: of each candidate, whether other evidence keeps
// it whatever history says.
HoldOut hold_out(const std::vector<ForecastCandidate>& candidates, const std::vector<bool>& fixed,
                 const std::vector<const UseSet*>& history, const std::vector<const UseSet*>& later,
                 const ForecastOptions& options);
// Over all splits, each half being held out once.
HoldOut hold_out(const std::vector<ForecastCandidate>& candidates, const std::vector<bool>& fixed,
                 const std::vector<UseSet>& sets, const ForecastOptions& options);

// Empty basis in the result where there is too little evidence. `fixed` as above.
Forecast forecast(const std::vector<ForecastCandidate>& candidates, const std::vector<bool>& fixed, const UseSets& sets,
                  const ForecastOptions& options);

// The evidence as the database has it, for one image.
struct ForecastEvidence {
  std::vector<usage::NotebookImports> notebooks;  // distinct ones, by path
  std::vector<usage::SessionUse> sessions;        // a sample of those that are kept one by one
  usage::SessionSample sample;                    // of what it is one
  bool notebooks_left_out = false;                // there were more than kMaxForecastNotebooks
};
inline constexpr std::size_t kMaxForecastNotebooks = 500'000;
inline constexpr std::uint64_t kForecastSessions = 5'000;

// Notebooks by what they need of `image`; sessions of the query's window and images, each by the packages of its own.
ForecastEvidence read_forecast_evidence(usage::Database& database, const usage::SnapshotQuery& query,
                                        const Digest& image);

// Fills `forecast` and `affected` of a plan whose verdicts stand, and says in `unsure` what the figures rest on.
// Sessions decide where there are enough of them, else notebooks. `snapshot` is of the query that the evidence is of.
void add_forecast(Plan& plan, const usage::Snapshot& snapshot, const ForecastEvidence& evidence,
                  const ForecastOptions& options);
// Fills `affected_users`: of the window, over the images of the query.
void add_affected_users(Plan& plan, usage::Database& database, const usage::SnapshotQuery& query);

}  // namespace varve::prune
