#include "indexer/internal/settled_times.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace varve::indexer {
namespace {

struct KnownComponent {
  const RecordedComponent* component = nullptr;
  bool same_writer = false;
};

class KnownComponents {
 public:
  KnownComponents(const LayoutRecord* previous, std::string_view writer) {
    if (previous == nullptr) return;
    for (const auto& layer : previous->layers) {
      for (const auto& [name, component] : layer.components)
        by_name_.emplace(name, KnownComponent{.component = &component, .same_writer = layer.writer == writer});
    }
  }
  KnownComponent of(const PackUnit& unit) const {
    const auto found = by_name_.find(unit.facts.name);
    return found == by_name_.end() ? KnownComponent() : found->second;
  }

 private:
  std::unordered_map<std::string_view, KnownComponent> by_name_;
};

}  // namespace

SettledTimes::SettledTimes(const index::RepackTimes& times, const index::FlatTree& tree, std::vector<PackUnit>& units,
                           const LayoutRecord* previous, std::string_view writer, const BytecodeOrigin& origin,
                           const Work& work) {
  const KnownComponents known(previous, writer);
  std::vector<PackUnit*> others;  // than those that are exactly what they were
  for (auto& unit : units) {
    const auto* before = known.of(unit).component;
    if (!times.latest && before != nullptr && before->content == unit.facts.content && before->timeless) {
      unit.facts.timeless = before->timeless;
    } else {
      others.push_back(&unit);
    }
  }
  bytecode_ = read_bytecode(origin, tree, {others.begin(), others.end()}, times.latest, work);
  if (times.latest) set_back(tree, units, *times.latest);
  const auto bound = bound_sources(tree, bytecode_);
  for (auto* unit : others) {
    unit->facts.timeless = timeless_digest(unit->entries, bytecode_, bound);
    const auto before = known.of(*unit);
    if (!times.of_previous || !before.same_writer || before.component->content == unit->facts.content ||
        before.component->timeless != unit->facts.timeless)
      continue;
    own_contents_.emplace(unit->facts.name, std::exchange(unit->facts.content, before.component->content));
  }
}

void SettledTimes::set_back(const index::FlatTree& tree, std::vector<PackUnit>& units, std::int64_t latest) {
  set_back_ = std::make_unique<SetBackTimes>(tree, units, bytecode_, latest);
  for (auto& unit : units) {
    for (auto& entry : unit.entries) entry.set_back = set_back_->find(entry);
    unit.facts.content = unit_digest(unit.entries);
  }
}

const WrittenTime* SettledTimes::find(const UnitEntry& entry) { return set_back_ ? set_back_->find(entry) : nullptr; }

void SettledTimes::restore_contents(const std::vector<PackedLayer>& layers, std::vector<ComponentFacts>& facts) const {
  std::unordered_set<std::string_view> stand;
  for (const auto& layer : layers)
    if (layer.same_as >= 0) stand.insert(layer.components.begin(), layer.components.end());
  for (auto& one : facts) {
    const auto* own = own_content(one.name);
    if (own != nullptr && !stand.contains(one.name)) one.content = *own;
  }
}

const Digest* SettledTimes::own_content(std::string_view component) const {
  const auto found = own_contents_.find(component);
  return found == own_contents_.end() ? nullptr : &found->second;
}

bool SettledTimes::stands_in(const PackedLayer& layer) const {
  return layer.same_as >= 0 &&
         std::ranges::any_of(layer.components, [&](const auto& name) { return own_content(name) != nullptr; });
}

}  // namespace varve::indexer
