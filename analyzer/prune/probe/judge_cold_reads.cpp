#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "analyzer/prune/apply/import_session.h"
#include "analyzer/prune/probe/probe_gates.h"
#include "core/base/text/image_path.h"
#include "core/index/merge/mark_cold.h"

namespace varve::prune {
namespace {

constexpr std::size_t kMaxColdFindings = 1000;

void look_at_files(const ImportOutcome& import, const std::function<bool(std::string_view path)>& is_cold,
                   GateResult& result) {
  std::size_t count = 0;
  std::string first;
  for (const auto& file : import.files) {
    const auto path = without_leading_slashes(file);
    if (is_cold(path) && count++ == 0) first = path;
  }
  if (count == 0 || result.findings.size() >= kMaxColdFindings) return;
  result.findings.push_back(fmt::format("import {}: it reads {} that {} cold, {} {}", import.name,
                                        count == 1 ? "a file" : fmt::format("{} files", count),
                                        count == 1 ? "is" : "are", count == 1 ? "namely" : "the first is", first));
}

}  // namespace

void judge_cold_reads(const ProbedPair& pair, const index::ColdRanges& cold,
                      const std::vector<std::shared_ptr<const index::LayerMap>>& maps, GateResult& result) {
  const auto& after = pair.images.after;
  const auto shares = index::cold_shares(pair.after.tree(), maps, cold);
  if (shares.empty()) {
    result.detail = "nothing in the new image is cold";
    return;
  }
  const auto cold_ones = pair.images.plan == nullptr ? std::vector<std::uint32_t>()
                                                     : planned_distributions(*pair.images.plan, after, Verdict::kCold);
  const auto is_near = [&](std::uint32_t distribution) { return !std::ranges::binary_search(cold_ones, distribution); };
  // A file of something that is kept near may be cold in part, by a decision of its own: opening it reads no such byte.
  const auto is_cold = [&](std::string_view path) {
    const auto found = shares.find(path);
    if (found == shares.end()) return false;
    const auto& owners = after.owners_of_path(path);
    if (pair.images.plan == nullptr || owners.empty()) return found->second.whole;
    return std::ranges::none_of(owners, is_near);
  };
  std::size_t names = 0;
  for (const auto& of_python : distributions_by_python(after)) {
    std::set<std::string> wanted;
    for (const auto i : of_python.distributions)
      if (is_near(i)) wanted.insert(after.distributions[i].imports.begin(), after.distributions[i].imports.end());
    std::vector<ImportTask> tasks;
    for (const auto& name : wanted) tasks.push_back({.names = {name}, .archived = false, .spy = true});
    names += tasks.size();
    const auto take = [&](std::size_t task, std::vector<ImportOutcome>&& outcomes) {
      pair.cancel.throw_if_cancelled();
      look_at_files(outcomes.front(), is_cold, result);
      keep_answer(pair.answers.after, of_python.python, tasks[task].names, std::move(outcomes), pair.images.before);
    };
    import_in_sessions(pair.sessions, after.image.value(), of_python.python, tasks, pair.options.imports, take);
  }
  result.detail = fmt::format("{} names of what is kept near imported; {} files have cold bytes", names, shares.size());
}

}  // namespace varve::prune
