#include "analyzer/prune/nodes.h"

#include <algorithm>

#include "analyzer/python/name.h"

namespace varve::prune {
namespace {

bool seen_by_first_python(const packages::Inventory& inventory, const packages::Distribution& one) {
  if (inventory.interpreters.empty()) return false;
  const auto& sites = inventory.interpreters.front().sites;
  return std::ranges::find(sites, one.site) != sites.end();
}

// Outer distributions may be vendored themselves; a circle of them is only in a hostile inventory.
constexpr int kMaxVendoredDepth = 16;

}  // namespace

Nodes::Nodes(const packages::Inventory& inventory) : inventory_(inventory), of_(inventory.distributions.size()) {
  const auto& distributions = inventory.distributions;
  std::map<std::pair<std::string, std::string>, std::vector<std::uint32_t>> groups;
  for (std::uint32_t i = 0; i < distributions.size(); ++i) {
    const auto& one = distributions[i];
    if (one.vendored_by.empty() && !one.normalized.empty() && one.normalized.size() <= kMaxNodeName)
      groups[{one.normalized, std::string(packages::source_name(one.source))}].push_back(i);
  }
  for (auto& [key, members] : groups) {
    Node node{
        .name = key.first, .source = key.second, .version = distributions[members.front()].version, .members = members};
    for (const auto member : members) {
      of_[member] = count();
      if (!seen_by_first_python(inventory, distributions[member])) continue;
      node.version = distributions[member].version;
      break;
    }
    for (const auto member : members) of_[member] = count();
    nodes_.push_back(std::move(node));
  }
  for (std::uint32_t i = 0; i < count(); ++i) {
    by_name_[nodes_[i].name].push_back(i);
    for (const auto member : nodes_[i].members) {
      const auto package = python::normalize_name(distributions[member].package);
      if (package.empty() || package == nodes_[i].name) continue;
      auto& owners = by_name_[package];
      if (owners.empty() || owners.back() != i) owners.push_back(i);
    }
  }
  std::map<std::string_view, std::uint32_t> outer;  // of equal names the first
  for (std::uint32_t i = 0; i < distributions.size(); ++i) {
    if (distributions[i].vendored_by.empty()) outer.emplace(distributions[i].normalized, i);
  }
  for (std::uint32_t i = 0; i < distributions.size(); ++i) {
    if (distributions[i].vendored_by.empty()) continue;
    auto at = i;
    for (int depth = 0; depth < kMaxVendoredDepth && !distributions[at].vendored_by.empty(); ++depth) {
      const auto found = outer.find(distributions[at].vendored_by);
      if (found == outer.end()) break;
      at = found->second;
    }
    if (distributions[at].vendored_by.empty()) of_[i] = of_[at];
  }
}

std::optional<std::uint32_t> Nodes::of(std::uint32_t distribution) const { return of_.at(distribution); }

std::vector<std::uint32_t> Nodes::of_all(const std::vector<std::uint32_t>& distributions) const {
  std::vector<std::uint32_t> found;
  for (const auto distribution : distributions) {
    if (const auto node = of(distribution)) found.push_back(*node);
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<std::uint32_t> Nodes::named(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::vector<std::uint32_t>() : found->second;
}

bool seen_together(const packages::Inventory& inventory, const std::string& site, const std::string& other) {
  if (site == other) return true;
  return std::ranges::any_of(inventory.interpreters, [&](const packages::Interpreter& python) {
    return std::ranges::find(python.sites, site) != python.sites.end() &&
           std::ranges::find(python.sites, other) != python.sites.end();
  });
}

}  // namespace varve::prune
