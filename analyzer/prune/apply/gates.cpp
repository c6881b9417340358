#include "analyzer/prune/apply/gates.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "core/base/clock.h"

namespace varve::prune {
namespace {

std::string label_of(const packages::Distribution& distribution) {
  return fmt::format("{} {}", distribution.name, distribution.version);
}

// Where it is recorded tells copies of one distribution apart; dpkg has one file for all.
using Place = std::pair<std::string, std::string>;
std::multimap<Place, const packages::Distribution*> by_place(const packages::Inventory& inventory) {
  std::multimap<Place, const packages::Distribution*> places;
  for (const auto& distribution : inventory.distributions) {
    const auto folder =
        distribution.record.substr(0, distribution.record.rfind('/') + 1);  // its last part has the version
    places.emplace(Place(distribution.normalized, folder), &distribution);
  }
  return places;
}

void add_waiver(GateResult& result, const std::vector<Waiver>& waivers) {
  for (const auto& waiver : waivers) {
    if (waiver.gate != result.name || result.ok) continue;
    result.waived = true;
    result.detail +=
        fmt::format("; waived by the plan: {}{}", waiver.reason, waiver.owner.empty() ? "" : " (" + waiver.owner + ")");
    return;
  }
}

}  // namespace

GateResult run_gate(const std::string& name, const std::vector<Waiver>& waivers,
                    const std::function<void(GateResult& result)>& judge) {
  const Stopwatch watch;
  GateResult result;
  result.name = name;
  try {
    judge(result);
    result.ok = result.findings.empty();
  } catch (const Cancelled&) {
    throw;
  } catch (const std::exception& error) {
    result.ok = false;
    result.asked = true;
    result.detail = fmt::format("could not run: {}", error.what());
    result.findings.insert(result.findings.begin(), result.detail);
  }
  result.seconds = watch.seconds();
  add_waiver(result, waivers);
  return result;
}

std::vector<std::uint32_t> planned_distributions(const Plan& plan, const packages::Inventory& inventory,
                                                 Verdict least) {
  std::set<std::pair<std::string, std::string_view>> planned;  // normalised name, source
  for (const auto& one : plan.verdicts)
    if (one.verdict >= least) planned.emplace(one.name, one.source);
  std::vector<std::uint32_t> indexes;
  std::set<std::string_view> names;
  for (std::uint32_t i = 0; i < inventory.distributions.size(); ++i) {
    const auto& one = inventory.distributions[i];
    if (!one.vendored_by.empty() || !planned.contains({one.normalized, packages::source_name(one.source)})) continue;
    indexes.push_back(i);
    names.insert(one.normalized);
  }
  for (std::uint32_t i = 0; i < inventory.distributions.size(); ++i)
    if (names.contains(inventory.distributions[i].vendored_by)) indexes.push_back(i);
  std::ranges::sort(indexes);
  return indexes;
}

std::vector<std::uint32_t> archived_distributions(const Plan* plan, const packages::Inventory& inventory) {
  if (plan == nullptr) return {};
  auto indexes = planned_distributions(*plan, inventory, Verdict::kArchived);
  for (const auto i : indexes) {
    const auto& one = inventory.distributions[i];
    if (one.source == packages::Source::kDpkg && one.vendored_by.empty())
      fail<Unsupported>(
          "the plan archives {}, which belongs to the operating system: dpkg would still list it; write cold instead",
          one.name);
  }
  return indexes;
}

void judge_metadata(const ImagePair& images, GateResult& result) {
  const auto gone = archived_distributions(images.plan, images.before);
  auto places = by_place(images.after);
  for (std::uint32_t i = 0; i < images.before.distributions.size(); ++i) {
    const auto& before = images.before.distributions[i];
    const bool archived = std::ranges::binary_search(gone, i);
    const auto folder = before.record.substr(0, before.record.rfind('/') + 1);
    const auto [first, last] = places.equal_range(Place(before.normalized, folder));
    const auto same =
        std::find_if(first, last, [&](const auto& place) { return place.second->version == before.version; });
    if (archived) {
      if (same != last)
        result.findings.push_back(
            fmt::format("{}: the plan archives it, and {} is still there", label_of(before), before.record));
      continue;
    }
    if (first == last) {
      result.findings.push_back(fmt::format("{}: it is no longer installed ({})", label_of(before), before.record));
    } else if (same == last) {
      result.findings.push_back(fmt::format("{}: {} is installed instead", label_of(before), first->second->version));
    }
  }
  std::multiset<std::pair<std::string, std::string>> known;
  for (const auto& finding : packages::check_inventory(images.before))
    known.emplace(finding.distribution, finding.text);
  std::size_t old = 0;
  for (const auto& finding : packages::check_inventory(images.after)) {
    if (const auto found = known.find({finding.distribution, finding.text}); found != known.end()) {
      known.erase(found);
      ++old;
    } else {
      result.findings.push_back(
          finding.distribution.empty() ? finding.text : fmt::format("{} {}", finding.distribution, finding.text));
    }
  }
  const auto archived = packages::count_packages(images.before, gone);
  result.detail =
      fmt::format("{} distributions stay, {} archived; {} new problems, {} as before",
                  packages::count_packages(images.before) - archived, archived, result.findings.size(), old);
}

}  // namespace varve::prune
