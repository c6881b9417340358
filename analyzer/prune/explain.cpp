#include <algorithm>
#include <array>
#include <set>

#include "analyzer/prune/plan.h"
#include "analyzer/python/name.h"
#include "core/base/errors.h"
#include "core/base/text/nearest.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"

namespace varve::prune {
namespace {

std::vector<std::string> names_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const auto& one : plan.verdicts) names.push_back(one.name);
  return names;
}

std::vector<const PlannedDistribution*> named(const Plan& plan, std::string_view name) {
  const auto normalized = python::normalize_name(name);
  std::vector<const PlannedDistribution*> found;
  for (const auto& one : plan.verdicts) {
    if (one.name == name || one.name == normalized) found.push_back(&one);
  }
  if (!found.empty()) return found;
  for (const auto& one : plan.verdicts) {
    if (std::ranges::find(one.imports, name) != one.imports.end()) found.push_back(&one);
  }
  return found;
}

// The distribution that a reason leads on to: one that stays put as long as the one explained.
const PlannedDistribution* next_of(const Plan& plan, const PlannedDistribution& from, const Reason& reason) {
  if (!names_distribution(reason)) return nullptr;
  const PlannedDistribution* next = nullptr;
  for (const auto& one : plan.verdicts) {
    if (one.name != reason.by || one.verdict > from.verdict) continue;
    if (next == nullptr || one.verdict < next->verdict || (one.verdict == next->verdict && one.source == from.source))
      next = &one;
  }
  return next;
}

std::string reason_line(const Reason& reason) {
  return reason.by.empty() ? visible(reason.text, 400)
                           : fmt::format("{}: {}", visible(reason.by, 200), visible(reason.text, 400));
}

std::string heading(const PlannedDistribution& one) {
  auto line = fmt::format("{} {} ({}) is {}", visible(one.name, 100), visible(one.version, 40), one.source,
                          verdict_name(one.verdict));
  line += fmt::format("; {} installed, {} compressed", human_bytes(one.bytes), human_bytes(one.compressed_bytes));
  if (one.unique_compressed_bytes > 0)
    line += fmt::format(", {} of it only here", human_bytes(one.unique_compressed_bytes));
  return line;
}

void add_chain(const Plan& plan, const PlannedDistribution& one, std::vector<std::string>& lines) {
  std::set<const PlannedDistribution*> seen{&one};
  std::string indent = "  ";
  for (const auto* at = &one; at != nullptr;) {
    const auto& reason = at->reasons.front();
    const auto prefix = at == &one ? "" : fmt::format("{} is {}; ", visible(at->name, 100), verdict_name(at->verdict));
    lines.push_back(fmt::format("{}{}{} [{}]", indent, prefix, reason_line(reason), reason.kind));
    const auto* next = next_of(plan, *at, reason);
    at = next != nullptr && seen.insert(next).second ? next : nullptr;
    indent += "  ";
  }
}

}  // namespace

bool names_distribution(const Reason& reason) {
  constexpr std::array<std::string_view, 16> kKinds{
      "requires", "extra",       "imports",   "entry-point", "script",    "elf",   "dlopen", "dpkg",
      "conda",    "shares-path", "namespace", "vendored",    "needed-by", "loads", "tries",  "runs"};
  return !reason.by.empty() && std::ranges::find(kKinds, reason.kind) != kKinds.end();
}

std::vector<std::string> explain(const Plan& plan, std::string_view name) {
  const auto found = named(plan, name);
  if (found.empty())
    fail<NotFound>("{}: the plan has no distribution of this name{}", visible(name, 100),
                   did_you_mean(name, names_of(plan)));
  std::vector<std::string> lines;
  for (const auto* one : found) {
    lines.push_back(heading(*one));
    add_chain(plan, *one, lines);
    for (std::size_t i = 1; i < one->reasons.size(); ++i)
      lines.push_back(fmt::format("  also {} [{}]", reason_line(one->reasons[i]), one->reasons[i].kind));
  }
  return lines;
}

}  // namespace varve::prune
