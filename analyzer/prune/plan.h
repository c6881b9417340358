#pragma once
// What may go cold, and why: made from an inventory and the evidence of use, written as a file that people review and
// keep under version control. docs/formats/plan.md.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/usage/snapshot.h"
#include "core/base/byte_range.h"
#include "core/base/digest.h"

namespace varve::prune {

inline constexpr std::size_t kMaxPlanBytes = 256u << 20;

enum class Verdict : std::uint8_t { kHot, kWatch, kCold, kArchived };
std::string_view verdict_name(Verdict verdict);  // "hot" "watch" "cold" "archived"

// Why, in a form that a person can check. `by` is another distribution, a rule, a file or a notebook: following it from
// reason to reason is the chain of --explain.
struct Reason {
  std::string kind;  // "used" "requires" "imports" "entry-point" "script" "elf" "dpkg" "shares-path" "namespace"
                     // "keep-rule" "veto" "cuda" "system" "unused" "few-users" "gpu-arch" …
  std::string by;    // "" = nobody else
  std::string
      text;  // a sentence without the name of the distribution: "0 uses in 41,200 sessions of 90 days, at most 0.007 %"
};

// `by` is a distribution: "requires" "imports" "elf" and so on, as against a rule, a program or nobody.
bool names_distribution(const Reason& reason);

// One per normalised name and source. Copies of one distribution in several site folders are one; vendored ones follow
// the outer one and are not listed.
struct PlannedDistribution {
  std::string name;  // normalised
  std::string version;
  std::string source;  // "pip" "conda" "dpkg" …
  Verdict verdict = Verdict::kHot;
  std::vector<Reason> reasons;  // the decisive one first; never empty
  std::uint64_t bytes = 0;
  std::uint64_t compressed_bytes = 0;
  std::uint64_t unique_compressed_bytes =
      0;  // over all pinned versions: what would not be stored or fetched if it went; 0 = not known
  std::uint64_t sessions = 0;
  usage::UserCount users;
  double bound = 1;               // its share of sessions is below this, at 95 %
  std::int32_t unused_since = 0;  // day from which plans saw zero use without a break; 0 = it was used
  std::uint64_t unused_days = 0;  // days after that one on which sessions were heard, as far as plans looked
  std::vector<std::string> imports;
};

struct AffectedNotebook {
  std::string path;                        // as scanned
  std::uint64_t users = 0;                 // at most; 0 = not known
  std::vector<std::string> distributions;  // cold or archived ones that it imports
};

// How good the forecast of cold touches is: half of the evidence predicts, the other half judges.
struct Forecast {
  std::uint64_t sessions = 0;  // or notebooks, that the rate is over
  std::uint64_t touching = 0;  // that would touch something cold, by what is known
  double expected_rate = 0;    // for sessions to come, unseen needs included
  double at_most = 0;          // as many sessions again stay below it, at 95 %
  double held_out_expected = 0,
         held_out_seen = 0;  // rates: what halves of the evidence foretold of the others, and what these showed
  std::uint64_t judged = 0;  // sessions or notebooks that this was seen in, over all splits; 0 = not checked
  std::string basis;         // "sessions" "notebooks"; "" = too little evidence
};

struct Waiver {
  std::string gate;  // its name
  std::string reason, owner;
};

// How much of a file is for some kind of GPU.
struct GpuCodeShare {
  std::string target;  // "sm_80" "sm_90a" "compute_90" "other": packages::CodeTarget
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  // as stored, compressed or not
  bool cold = false;        // nobody has a GPU that runs it
  bool operator==(const GpuCodeShare&) const = default;
};

// A file that stays, with code in it that goes cold.
struct GpuColdFile {
  std::string path;  // without leading "/"; the first name of its inode
  Digest content;    // of the whole file
  std::uint64_t bytes = 0;
  std::vector<GpuCodeShare> code;  // all of it, by target
  std::vector<ByteRange> ranges;   // that are cold: inside the file, in order, not empty, not overlapping
  std::uint64_t cold_bytes() const;
};
inline constexpr std::size_t kMaxGpuRanges = 400'000;  // of all files together
inline constexpr std::size_t kMaxGpuTargets = 256;     // of one file; real ones have about 20

struct Plan {
  Digest image;
  std::string reference;  // as the image was named
  usage::DayRange window;
  std::int32_t made_on = 0;                       // day
  std::map<std::string, std::string> parameters;  // thresholds, by option name
  std::uint64_t sessions = 0;                     // heard in the window, over the images counted
  std::vector<PlannedDistribution> verdicts;      // by name, then source
  std::vector<AffectedNotebook> affected;
  std::uint64_t affected_users = 0;  // at most
  Forecast forecast;
  std::uint64_t cold_bytes = 0;     // compressed, of this image
  std::uint64_t saved_bytes = 0;    // unique compressed bytes over all pinned versions
  std::vector<std::string> unsure;  // sentences
  std::vector<Waiver> waivers;
  std::vector<GpuColdFile> gpu_cold;  // by path
  std::uint64_t gpu_cold_bytes = 0;   // compressed, of this image: spans that hold nothing else
};

std::string to_json(const Plan& plan);                          // indented, the same plan gives the same bytes
Plan parse_plan(std::string_view json, std::string_view what);  // throws CorruptData naming `what` and the field

// One distribution (its name, or what code imports), as a chain from what is known to the verdict; every line can be
// checked. Throws NotFound for a name that the plan does not have, with those nearest to it.
std::vector<std::string> explain(const Plan& plan, std::string_view name);

}  // namespace varve::prune
