#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "analyzer/prune/probe/probe_gates.h"
#include "core/base/text/safe_text.h"

namespace varve::prune {
namespace {

using usage::ProbedItem;
using usage::ProbedKind;

constexpr std::size_t kMaxStartFindings = 1000;
constexpr std::size_t kShownDetail = 300;

using Key = std::tuple<ProbedKind, std::string, std::string>;  // kind, name, distribution
Key key_of(const ProbedItem& item) { return {item.kind, item.name, item.distribution}; }

bool is_alive(const ProbedItem& item) { return item.outcome == "ok" || item.outcome == "runs"; }

// What is to be compared: programs by how they end, be it with an error; all else only where it worked.
bool counts(const ProbedItem& before) {
  if (before.kind == ProbedKind::kScript) return before.outcome.starts_with("exit ");
  return is_alive(before) || before.outcome.starts_with("exit ");
}

bool differs(const ProbedItem& before, const ProbedItem& after) {
  if (is_alive(before) && is_alive(after)) return false;  // which of the two is a matter of time
  if (before.outcome != after.outcome) return true;
  return before.kind == ProbedKind::kPython && before.detail != after.detail;
}

std::string outcome_text(const ProbedItem& item) {
  return item.detail.empty() ? item.outcome : fmt::format("{}: {}", item.outcome, visible(item.detail, kShownDetail));
}

// The items of some kinds in both images.
class Comparison {
 public:
  Comparison(const ProbedPair& pair, const std::function<bool(const ProbedItem&)>& asked) : pair_(pair) {
    if (pair.before.image != pair.images.before.image.value())
      fail<CouldNotRun>("the probe is of {}, not of the old image", pair.before.image.to_string());
    for (const auto& item : pair.before.items) {
      if (!asked(item)) continue;
      ++asked_;
      if (counts(item)) before_.emplace(key_of(item), &item);
    }
  }

  void judge(GateResult& result) {
    auto targets = pair_.targets();
    std::erase_if(targets, [&](const ProbeTarget& target) { return !is_wanted(target); });
    take(targets, pair_.options);
    std::erase_if(targets, [&](const ProbeTarget& target) { return !is_in_doubt(target); });
    if (!targets.empty()) {
      auto patient = pair_.options;
      patient.imports.jobs = patient.programs.jobs = 1;
      patient.imports.limit *= 2;
      patient.programs.limit *= 2;
      take(targets, patient);
    }
    for (const auto& [key, before] : before_) {
      if (result.findings.size() >= kMaxStartFindings) break;
      const auto what = fmt::format("{} {}", usage::probed_kind_name(before->kind), visible(before->name));
      const auto found = after_.find(key);
      if (found == after_.end()) {
        result.findings.push_back(fmt::format("{}: it is not there any more; before: {}", what, outcome_text(*before)));
      } else if (differs(*before, found->second)) {
        result.findings.push_back(
            fmt::format("{}: {}; before: {}", what, outcome_text(found->second), outcome_text(*before)));
      }
    }
  }

  std::size_t compared() const { return before_.size(); }
  std::size_t failed_before() const { return asked_ - before_.size(); }

 private:
  // Lists have no name before they are made.
  bool is_wanted(const ProbeTarget& target) const {
    return std::ranges::any_of(before_, [&](const auto& one) {
      return std::get<0>(one.first) == target.kind &&
             (target.name.empty() ||
              (std::get<1>(one.first) == target.name && std::get<2>(one.first) == target.distribution));
    });
  }
  bool is_in_doubt(const ProbeTarget& target) const {
    return std::ranges::any_of(before_, [&](const auto& one) {
      const auto& [key, before] = one;
      if (std::get<0>(key) != target.kind || (!target.name.empty() && std::get<1>(key) != target.name)) return false;
      const auto found = after_.find(key);
      return found == after_.end() || differs(*before, found->second);
    });
  }

  void take(const std::vector<ProbeTarget>& targets, const ProbeOptions& options) {
    if (targets.empty()) return;
    Progress progress;
    const auto probe = probe_image(pair_.sessions, pair_.images.after, pair_.after.tree().entries, targets, options,
                                   {progress, pair_.cancel});
    for (const auto& item : probe.items) after_.insert_or_assign(key_of(item), item);
  }

  const ProbedPair& pair_;
  std::map<Key, const ProbedItem*> before_;
  std::map<Key, ProbedItem> after_;
  std::size_t asked_ = 0;
};

void compare(const ProbedPair& pair, const std::function<bool(const ProbedItem&)>& asked, std::string_view what,
             GateResult& result) {
  Comparison comparison(pair, asked);
  comparison.judge(result);
  result.detail = fmt::format("{} {} asked in the new image", comparison.compared(), what);
  if (comparison.failed_before() != 0)
    result.detail += fmt::format("; {} did not work before", comparison.failed_before());
}

}  // namespace

void judge_starts(const ProbedPair& pair, GateResult& result) {
  compare(
      pair,
      [](const ProbedItem& item) {
        return item.kind == ProbedKind::kPython || item.kind == ProbedKind::kKernel ||
               item.kind == ProbedKind::kCommand;
      },
      "kernels and starts", result);
}

void judge_listed(const ProbedPair& pair, GateResult& result) {
  compare(
      pair,
      [](const ProbedItem& item) {
        return item.kind == ProbedKind::kServerExtension || item.kind == ProbedKind::kLabExtension ||
               item.kind == ProbedKind::kEntryPoint;
      },
      "extensions and entry points", result);
}

void judge_scripts(const ProbedPair& pair, const std::set<std::string>& named, GateResult& result) {
  compare(
      pair, [&](const ProbedItem& item) { return item.kind == ProbedKind::kScript && named.contains(item.name); },
      "scripts that notebooks name", result);
}

}  // namespace varve::prune
