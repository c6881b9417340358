#pragma once
// What people say must stay, whatever is counted: files in images/keep/. docs/guide/prune-plan.md.
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/prune/needs.h"
#include "analyzer/prune/nodes.h"
#include "analyzer/prune/plan.h"

namespace varve::prune {

inline constexpr std::size_t kMaxKeepRules = 100'000;  // of one file, of all kinds

struct KeepRule {
  std::vector<std::string> names;  // globs over normalised names of distributions
  std::vector<std::string> paths;  // globs over paths of the image: whoever owns such a file
  bool veto = false;               // somebody objects to a plan, as against what the platform needs
  std::string reason, owner;
  std::int32_t expires = 0;  // last day on which it counts; 0 = never
  std::string place;         // "notebook.toml:12"
};

struct WaiverRule {
  Waiver waiver;
  std::int32_t expires = 0;
  std::string place;
};

struct KeepRules {
  std::vector<KeepRule> rules;
  std::vector<WaiverRule> waivers;
  std::vector<GroupConsumer> consumers;
};

// Throws CorruptData "WHAT:LINE: why": a rule without reason or owner, a key that is not known, a gate that does not
// exist, text that is no TOML.
KeepRules parse_keep_rules(std::string_view toml, std::string_view what);
// images/keep/notebook.toml as it was when Varve was built: the program carries it.
const KeepRules& built_in_keep_rules();

struct AppliedRules {
  std::vector<Root> roots;           // in the order of the rules
  std::vector<Waiver> waivers;       // that count today
  std::vector<std::string> remarks;  // expired rules, and those of `rules` that match nothing
};
// The built-in rules first where they are wanted; what these do not match is no remark.
AppliedRules apply_keep_rules(const KeepRules& rules, bool with_built_in, const Nodes& nodes,
                              const index::FlatTree::Entries& files, std::int32_t today);

}  // namespace varve::prune
