#include "analyzer/packages/why_installed.h"

#include <set>

#include <fmt/ranges.h>

#include "analyzer/python/name.h"
#include "core/base/errors.h"
#include "core/base/text/safe_text.h"

namespace varve::packages {
namespace {

// Python metadata names distributions; conda and dpkg name packages of their own.
bool is_need_of(const Need& need, const Distribution& wanted) {
  if (need.from == Source::kPip) return need.requirement.normalized == wanted.normalized;
  return need.requirement.name == (wanted.package.empty() ? wanted.name : wanted.package);
}

}  // namespace

std::vector<const Distribution*> find_named(const Inventory& inventory, const std::string& name) {
  std::vector<const Distribution*> found;
  const auto normalized = python::normalize_name(name);
  for (const auto& one : inventory.distributions) {
    if (one.normalized == normalized || one.package == name) found.push_back(&one);
  }
  if (found.empty()) {
    for (const auto i : inventory.modules.owners(name)) found.push_back(&inventory.distributions[i]);
  }
  if (found.empty()) fail<NotFound>("{}: no distribution of that name, and none gives it to import", printable(name));
  return found;
}

std::vector<std::string> needed_by(const Inventory& inventory, const Distribution& wanted) {
  std::set<std::string> names;
  for (const auto& one : inventory.distributions) {
    if (&one == &wanted) continue;
    for (const auto& need : one.needs) {
      if (!is_need_of(need, wanted) || (!need.applies && need.extras.empty())) continue;
      names.insert(need.applies ? one.name : fmt::format("{}[{}]", one.name, fmt::join(need.extras, ",")));
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace varve::packages
