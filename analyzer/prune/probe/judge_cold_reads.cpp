#include <algorithm>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "analyzer/prune/apply/import_session.h"
#include "analyzer/prune/probe/probe_gates.h"
#include "core/base/image_path.h"
#include "core/index/merge/mark_cold.h"

namespace varve::prune {
namespace {

constexpr std::size_t kMaxColdFindings = 1000;
constexpr std::size_t kImportsAtOnce = 40;

std::string source_of(const packages::Distribution& distribution) {
  return std::string(packages::source_name(distribution.source));
}

// What the plan says of distributions of the new image.
class Near {
 public:
  explicit Near(const ImagePair& images) : inventory_(images.after) {
    if (images.plan == nullptr) return;
    for (const auto& one : images.plan->verdicts)
      if (one.verdict >= Verdict::kCold) cold_.emplace(one.name, one.source);
  }
  bool is_near(std::uint32_t distribution) const {
    const auto& one = inventory_.distributions[distribution];
    return !cold_.contains({one.vendored_by.empty() ? one.normalized : one.vendored_by, source_of(one)});
  }

 private:
  const packages::Inventory& inventory_;
  std::set<std::pair<std::string, std::string>> cold_;
};

}  // namespace

void judge_cold_reads(const ProbedPair& pair, const index::ColdRanges& cold,
                      const std::vector<std::shared_ptr<const index::LayerMap>>& maps, GateResult& result) {
  const auto& after = pair.images.after;
  const auto shares = index::cold_shares(pair.after.tree(), maps, cold);
  if (shares.empty()) {
    result.detail = "nothing in the new image is cold";
    return;
  }
  const Near near(pair.images);
  // A file of something that is kept near may be cold in part, by a decision of its own: opening it reads no such byte.
  const auto is_cold = [&](std::string_view path) {
    const auto found = shares.find(path);
    if (found == shares.end()) return false;
    const auto& owners = after.owners_of_path(path);
    if (pair.images.plan == nullptr || owners.empty()) return found->second.whole;
    return std::ranges::none_of(owners, [&](std::uint32_t owner) { return near.is_near(owner); });
  };
  std::size_t names = 0;
  for (const auto& of_python : distributions_by_python(after)) {
    std::set<std::string> wanted;
    for (const auto i : of_python.distributions)
      if (near.is_near(i)) wanted.insert(after.distributions[i].imports.begin(), after.distributions[i].imports.end());
    std::vector<ImportTask> tasks;
    const auto run = [&] {
      pair.cancel.throw_if_cancelled();
      auto options = pair.options.imports;
      if (options.jobs == 0) options.jobs = std::max(1u, std::thread::hardware_concurrency());
      const auto outcomes = import_in_session(pair.sessions, after.image.value(), of_python.python, tasks, options);
      for (const auto& outcome : outcomes) {
        const auto& one = outcome.front();
        std::size_t count = 0;
        std::string first;
        for (const auto& file : one.files) {
          const auto path = without_leading_slashes(file);
          if (is_cold(path) && count++ == 0) first = path;
        }
        if (count != 0 && result.findings.size() < kMaxColdFindings)
          result.findings.push_back(fmt::format("import {}: it reads {} that {} cold, {} {}", one.name,
                                                count == 1 ? "a file" : fmt::format("{} files", count),
                                                count == 1 ? "is" : "are", count == 1 ? "namely" : "the first is",
                                                first));
      }
      tasks.clear();
    };
    for (const auto& name : wanted) {
      ++names;
      tasks.push_back({.names = {name}, .archived = false, .spy = true});
      if (tasks.size() == kImportsAtOnce) run();
    }
    if (!tasks.empty()) run();
  }
  result.detail = fmt::format("{} names of what is kept near imported; {} files have cold bytes", names, shares.size());
}

}  // namespace varve::prune
