#include "analyzer/packages/inventory.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analyzer/packages/internal/interpreters.h"
#include "analyzer/packages/internal/joins.h"
#include "analyzer/packages/internal/modules.h"
#include "analyzer/packages/internal/needs.h"
#include "analyzer/packages/internal/ownership.h"
#include "analyzer/packages/internal/record.h"
#include "analyzer/packages/internal/summaries.h"
#include "analyzer/python/name.h"
#include "core/base/text/image_path.h"

namespace varve::packages {
namespace {

const std::vector<std::uint32_t> kNobody;

// An extra in effect: somebody needs "name[extra]", and that need counts.
using ActiveExtras = std::map<std::string, std::set<std::string>>;  // normalised name -> normalised extras

bool counts(const Distribution& distribution, const Need& need, const ActiveExtras& active) {
  if (need.applies) return true;
  const auto found = active.find(distribution.normalized);
  return found != active.end() && std::ranges::any_of(need.extras, [&](const std::string& extra) {
           return found->second.contains(python::normalize_name(extra));
         });
}

// Extras ask for extras: until nothing is added.
ActiveExtras find_active_extras(const Inventory& inventory) {
  ActiveExtras active;
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& distribution : inventory.distributions) {
      for (const auto& need : distribution.needs) {
        if (need.from != Source::kPip || need.requirement.extras.empty() || !counts(distribution, need, active))
          continue;
        for (const auto& extra : need.requirement.extras)
          grown = active[need.requirement.normalized].insert(extra).second || grown;
      }
    }
  }
  return active;
}

}  // namespace

std::string_view source_name(Source source) {
  switch (source) {
    case Source::kPip:
      return "pip";
    case Source::kEgg:
      return "egg";
    case Source::kConda:
      return "conda";
    case Source::kDpkg:
      return "dpkg";
  }
  return "unknown";
}

std::string_view why_name(Waste::Why why) {
  switch (why) {
    case Waste::Why::kReplaced:
      return "replaced";
    case Waste::Why::kDeleted:
      return "deleted";
    case Waste::Why::kDuplicated:
      return "duplicated";
    case Waste::Why::kStaleMetadata:
      return "stale-metadata";
  }
  return "unknown";
}

const std::vector<std::uint32_t>& Inventory::owners_of_path(std::string_view path) const {
  if (const auto found = path_owners.find(std::string(path)); found != path_owners.end()) return found->second;
  for (auto slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/', slash + 1)) {
    if (const auto found = path_owners.find(std::string(path.substr(0, slash + 1))); found != path_owners.end())
      return found->second;
  }
  return kNobody;
}

std::size_t count_packages(const Inventory& inventory) {
  std::vector<std::uint32_t> all(inventory.distributions.size());
  std::iota(all.begin(), all.end(), 0);
  return count_packages(inventory, all);
}

std::size_t count_packages(const Inventory& inventory, std::span<const std::uint32_t> of) {
  std::set<std::pair<std::string_view, Source>> packages;
  for (const auto i : of) {
    const auto& one = inventory.distributions[i];
    if (one.vendored_by.empty()) packages.emplace(one.normalized, one.source);
  }
  return packages.size();
}

std::string_view program_of_path(std::string_view path) {
  const auto folder = name_of(parent_of(path));
  return folder == "bin" || folder == "sbin" ? name_of(path) : std::string_view();
}

Inventory read_inventory(const index::FileSource& files) {
  const FileTable table(files);
  auto records = internal::read_records(files, table);
  Inventory inventory;
  inventory.image = files.facts().image;
  inventory.interpreters = internal::find_interpreters(files, table, records);
  if (inventory.interpreters.size() == internal::kMaxInterpreters)
    records.problems.push_back(
        fmt::format("more than {} Pythons: the others are left out", internal::kMaxInterpreters));
  const auto joined = internal::join_records(records, table, inventory.interpreters);
  for (const auto& installed : joined.installed) inventory.distributions.push_back(installed.distribution);
  internal::Ownership ownership(table, joined.installed);
  ownership.count_into(table, !files.facts().layers.empty(), inventory.distributions);
  internal::find_modules(files, table, records, joined.installed, ownership, inventory);
  internal::find_needs(records, joined.installed, table, inventory);
  internal::sum_waste(files, table, records, joined.stale, inventory);
  internal::sum_layers(files, table, ownership, inventory);
  internal::sum_unowned(table, ownership, inventory);
  internal::find_path_owners(table, ownership, inventory);
  inventory.path_files = std::move(records.path_files);
  inventory.problems = std::move(records.problems);
  return inventory;
}

std::vector<Finding> check_inventory(const Inventory& inventory) {
  const auto active = find_active_extras(inventory);
  std::vector<Finding> findings;
  for (const auto& distribution : inventory.distributions) {
    for (const auto& need : distribution.needs) {
      if (need.from == Source::kDpkg || !counts(distribution, need, active)) continue;
      const auto because =
          need.applies ? std::string() : fmt::format(", with the extra {}", fmt::join(need.extras, " or "));
      if (need.satisfied_by.empty()) {
        if (need.from == Source::kConda && need.requirement.name.starts_with("__"))
          continue;  // a property of the machine
        findings.push_back(
            {distribution.name, fmt::format("needs {}{}, which is not installed", need.requirement.text, because)});
      } else if (!need.compatible) {
        findings.push_back({distribution.name, fmt::format("needs {}{}; {} is installed", need.requirement.text,
                                                           because, need.satisfied_by)});
      }
    }
    if (distribution.missing_files > 0 && distribution.source != Source::kDpkg && distribution.vendored_by.empty())
      findings.push_back(
          {distribution.name, fmt::format("{} of its recorded files are not there", distribution.missing_files)});
  }
  for (const auto& problem : inventory.problems) findings.push_back({"", problem});
  return findings;
}

}  // namespace varve::packages
