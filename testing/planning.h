#pragma once
// For tests: a plan of a made-up image, made as `varve prune plan` makes it.
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "analyzer/prune/elf_needs.h"
#include "analyzer/prune/make_plan.h"
#include "analyzer/prune/start_needs.h"
#include "analyzer/prune/static_imports.h"
#include "testing/packages_image.h"

namespace varve::prune::test {

inline constexpr std::int32_t kToday = 20778;

inline void heard_every_day(usage::Snapshot& snapshot) {
  snapshot.heard_days.clear();
  for (auto day = snapshot.window.first; day <= snapshot.window.last; ++day)
    snapshot.heard_days.push_back({.day = day, .sessions = 10});
}

// One plan of a made-up image: 1,000 sessions were heard, and `tell` says what they used.
struct Planning {
  explicit Planning(FakeImage image)
      : image(std::move(image)),
        inventory(packages::read_inventory(this->image.files)),
        snapshot(snapshot_of(inventory, 1000)) {}

  // Later by a day on which sessions were heard.
  void next_day() {
    ++today;
    ++snapshot.window.last;
    heard_every_day(snapshot);
  }

  MadePlan make() {
    const Nodes nodes(inventory);
    auto graph = installed_graph(nodes, image.files.tree().entries, rules.consumers);
    add_import_edges(snapshot, nodes, graph);
    auto roots = system_roots(nodes);
    for (auto& root : unknown_group_roots(nodes, rules.consumers)) roots.push_back(root);
    std::vector<std::string> unsure;
    if (elf.has_elf_facts) unsure = add_elf_edges(elf::Loader(elf, {}), nodes, graph, roots);
    for (auto& root : cuda_roots(cuda, nodes)) roots.push_back(root);
    auto start = start_needs(image.files, nodes, config);
    for (auto& root : start.roots) roots.push_back(root);
    unsure.insert(unsure.end(), start.unsure.begin(), start.unsure.end());
    Progress progress;
    const CancelFlag cancel;
    for (auto& text : add_static_imports(image.files, nodes, {progress, cancel}, graph)) unsure.push_back(text);
    auto applied = apply_keep_rules(rules, built_in_rules, nodes, image.files.tree().entries, today);
    unsure.insert(unsure.end(), applied.remarks.begin(), applied.remarks.end());
    for (auto& root : applied.roots) roots.push_back(root);
    return make_plan({.nodes = nodes,
                      .snapshot = snapshot,
                      .graph = graph,
                      .roots = roots,
                      .thresholds = thresholds,
                      .image = digest_of("image"),
                      .reference = "oci:made:up",
                      .today = today,
                      .previous = previous ? &*previous : nullptr,
                      .waivers = applied.waivers,
                      .unsure = unsure,
                      .problems = {}});
  }

  std::string verdicts() {
    std::string text;
    for (const auto& one : make().plan.verdicts)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", one.name, verdict_name(one.verdict));
    return text;
  }

  FakeImage image;
  packages::Inventory inventory;
  usage::Snapshot snapshot;
  index::FlatTree elf;
  cuda::Selection cuda;
  KeepRules rules;
  bool built_in_rules = false;
  oci::ImageConfig config;
  Thresholds thresholds;
  std::int32_t today = kToday;
  std::optional<Plan> previous;
};

inline const PlannedDistribution& find(const Plan& plan, const std::string& name) {
  for (const auto& one : plan.verdicts) {
    if (one.name == name) return one;
  }
  throw std::runtime_error("no verdict on " + name);
}

inline std::string first_reason(Planning& planning, const std::string& name) {
  const auto made = planning.make();
  const auto& reason = find(made.plan, name).reasons.front();
  return fmt::format("{}|{}|{}", reason.kind, reason.by, reason.text);
}

}  // namespace varve::prune::test
