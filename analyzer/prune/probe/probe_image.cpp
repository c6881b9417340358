// How it goes: imports and entry points by the import program, a session for some forty of them; programs, kernels and
// lists likewise. What they say is turned into names of the inventory, and the rest is dropped: a module counts by its
// owner, an opened file by its owner; what belongs to the operating system's packages is no edge, as they stay anyway.
#include "analyzer/prune/probe/probe_image.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzer/prune/apply/import_session.h"
#include "core/base/text/image_path.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/threads/parallel.h"

namespace varve::prune {
namespace {

using usage::ProbedItem;
using usage::ProbedKind;
using usage::ProbeEdge;

constexpr std::string_view kLabExtensions = "/labextensions/", kPackageFile = "/package.json";
constexpr std::size_t kAtOnce = 40;  // targets of one session: what it says stays small, and progress is seen

// Distribution -> the first module that was seen of it, "" if only files were.
using Seen = std::map<std::string, std::string>;

class Prober {
 public:
  Prober(SessionRunner& sessions, const packages::Inventory& inventory, const index::FlatTree::Entries& paths,
         const std::vector<ProbeTarget>& targets, const ProbeOptions& options, const Work& work)
      : sessions_(sessions), inventory_(inventory), paths_(paths), targets_(targets), options_(options), work_(work) {
    if (inventory.interpreters.empty())
      throw CouldNotRun("the image has no Python, by which everything in it is started");
    python_ = inventory.interpreters.front().executable;
    found_.resize(targets.size());
    for (const auto& [path, entry] : paths)
      if (const auto at = path.find(kLabExtensions); at != path.npos &&
                                                     path.size() > at + kLabExtensions.size() + kPackageFile.size() &&
                                                     path.ends_with(kPackageFile))
        lab_extensions_.insert(
            path.substr(at + kLabExtensions.size(), path.size() - at - kLabExtensions.size() - kPackageFile.size()));
  }

  usage::Probe make() {
    work_.progress.expect(targets_.size());
    import_all();
    start_all();
    usage::Probe probe{.image = inventory_.image.value(), .day = options_.today, .items = {}, .edges = {}};
    for (auto& found : found_) {
      for (auto& item : found.items) {
        for (auto& [kind, seen] : found.edges)
          for (auto& [distribution, module] : seen)
            probe.edges.push_back({.kind = kind,
                                   .item = std::uint32_t(probe.items.size()),
                                   .to = module,
                                   .to_distribution = distribution});
        probe.items.push_back(std::move(item));
      }
    }
    usage::sort_edges(probe.edges);
    return probe;
  }

 private:
  struct Found {
    std::vector<ProbedItem> items;  // one; of a list each of its names
    std::map<ProbeEdge::Kind, Seen> edges;
  };

  const Digest& image() const { return inventory_.image.value(); }

  // ---- imports

  // Entry points of one module are imported by one process: the first loads, the others only take what is there.
  struct ImportGroup {
    ImportTask task;
    std::vector<std::vector<std::size_t>> targets;  // of each name
  };

  void import_all() {
    std::map<std::pair<std::string, std::string>, ImportGroup> groups;  // Python and module
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const auto& target = targets_[i];
      if (target.object.empty()) continue;
      auto& group = groups[{target.python, target.object.substr(0, target.object.find(':'))}];
      group.task.spy = true;
      auto& names = group.task.names;
      const auto at = std::size_t(std::ranges::find(names, target.object) - names.begin());
      if (at == names.size()) {
        names.push_back(target.object);
        group.targets.emplace_back();
      }
      group.targets[at].push_back(i);
    }
    for (auto begin = groups.begin(); begin != groups.end();) {
      const auto& python = begin->first.first;
      std::vector<ImportTask> tasks;
      std::vector<const ImportGroup*> of;
      for (; begin != groups.end() && begin->first.first == python; ++begin) {
        tasks.push_back(begin->second.task);
        of.push_back(&begin->second);
      }
      import_in_sessions(
          sessions_, image(), python, tasks, options_.imports,
          [&](std::size_t task, std::vector<ImportOutcome>&& outcomes) { take_imports(*of[task], outcomes); });
    }
  }

  void take_imports(const ImportGroup& group, const std::vector<ImportOutcome>& outcomes) {
    Seen loads, tries;
    for (std::size_t name = 0; name < outcomes.size(); ++name) {
      const auto& outcome = outcomes[name];
      for (const auto& module : outcome.loaded) see_module(module, loads);
      for (const auto& file : outcome.files) see_file(file, loads);
      for (const auto& module : outcome.tried) see_module(module, tries);
      for (const auto i : group.targets[name]) {
        auto& found = found_[i];
        found.items.push_back(item_of(targets_[i], outcome.outcome, outcome.detail));
        if (targets_[i].kind == ProbedKind::kImport && name == 0) found.items.back().missed = known_of(outcome.missed);
        found.edges[ProbeEdge::Kind::kLoads] = without(loads, {}, targets_[i].distribution);
        found.edges[ProbeEdge::Kind::kTries] = without(tries, loads, targets_[i].distribution);
        work_.add(1);
      }
    }
  }

  // Names that are drawn at random are no distribution's.
  std::vector<std::string> known_of(const std::vector<std::string>& modules) const {
    std::set<std::string> known;
    for (const auto& module : modules)
      if (is_of_distribution(inventory_, module)) known.insert(module);
    return {known.begin(), known.end()};
  }

  // ---- programs

  void start_all() {
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < targets_.size(); ++i)
      if (targets_[i].object.empty()) waiting.push_back(i);
    for (std::size_t at = 0; at < waiting.size(); at += kAtOnce) {
      const auto count = std::min(kAtOnce, waiting.size() - at);
      start_some({waiting.begin() + std::ptrdiff_t(at), waiting.begin() + std::ptrdiff_t(at + count)});
    }
  }

  void start_some(const std::vector<std::size_t>& these) {
    std::vector<ProgramOrder> orders;
    std::vector<std::size_t> of;
    for (const auto i : these) {
      const auto& target = targets_[i];
      const bool listed = is_list(target.kind);
      orders.push_back({.words = target.words,
                        .kernel_spec = target.kernel_spec,
                        .spy = !listed,
                        .until_output = target.kind == ProbedKind::kCommand});
      of.push_back(i);
      if (target.kind == ProbedKind::kPython) {  // once more, as it is without a spy: what it says is compared
        orders.push_back({.words = target.words, .kernel_spec = {}, .spy = false, .until_output = false});
        of.push_back(i);
      }
    }
    const auto answers = start_in_session(sessions_, image(), python_, orders, options_.programs);
    for (std::size_t i = 0; i < answers.size(); ++i) take_answer(of[i], orders[i], answers[i]);
    work_.add(these.size());
  }

  static bool is_list(ProbedKind kind) {
    return kind == ProbedKind::kServerExtension || kind == ProbedKind::kLabExtension;
  }

  void take_answer(std::size_t i, const ProgramOrder& order, const ProgramAnswer& answer) {
    const auto& target = targets_[i];
    auto& found = found_[i];
    if (is_list(target.kind)) return take_list(target, answer, found);
    if (order.spy) {
      Seen runs;
      for (const auto& file : answer.files) see_file(file, runs);
      found.edges[ProbeEdge::Kind::kRuns] = without(runs, {}, target.distribution);
    }
    if (target.kind == ProbedKind::kKernel) {
      const auto reply = read_kernel_reply(answer);
      found.items.push_back(item_of(target, reply.outcome, reply.detail));
    } else if (target.kind == ProbedKind::kPython) {
      if (!order.spy) found.items.push_back(item_of(target, answer.outcome, answer.err));
    } else {
      found.items.push_back(
          item_of(target, answer.outcome, std::string(last_line(answer.err.empty() ? answer.out : answer.err))));
    }
  }

  void take_list(const ProbeTarget& target, const ProgramAnswer& answer, Found& found) const {
    const auto is_there = [&](const std::string& name) {
      if (target.kind == ProbedKind::kServerExtension) return !inventory_.modules.owners(name).empty();
      return lab_extensions_.contains(name);
    };
    for (const auto& name : enabled_extensions(answer.out + "\n" + answer.err, is_there))
      found.items.push_back({.kind = target.kind, .name = name, .distribution = {}, .outcome = "ok", .detail = {}});
  }

  // ---- names

  static ProbedItem item_of(const ProbeTarget& target, std::string_view outcome, std::string_view detail) {
    return {.kind = target.kind,
            .name = target.name,
            .distribution = target.distribution,
            .outcome = single_line(outcome, 100),
            .detail = single_line(trimmed(detail), usage::kMaxProbeDetail)};
  }

  void see(const std::vector<std::uint32_t>& owners, const std::string& module, Seen& seen) const {
    for (const auto owner : owners) {
      const auto& one = inventory_.distributions.at(owner);
      if (one.source == packages::Source::kDpkg) continue;
      auto& first = seen.try_emplace(one.vendored_by.empty() ? one.normalized : one.vendored_by, module).first->second;
      if (first.empty()) first = module;
    }
  }
  void see_module(const std::string& module, Seen& seen) const { see(inventory_.modules.owners(module), module, seen); }
  void see_file(const std::string& file, Seen& seen) const {
    const auto path = without_leading_slashes(file);
    if (paths_.contains(path)) see(inventory_.owners_of_path(path), "", seen);
  }

  static Seen without(const Seen& seen, const Seen& others, const std::string& self) {
    Seen rest;
    for (const auto& [distribution, module] : seen)
      if (distribution != self && !others.contains(distribution)) rest.emplace(distribution, module);
    return rest;
  }

  SessionRunner& sessions_;
  const packages::Inventory& inventory_;
  const index::FlatTree::Entries& paths_;
  const std::vector<ProbeTarget>& targets_;
  const ProbeOptions& options_;
  const Work& work_;
  std::string python_;
  std::set<std::string> lab_extensions_;  // that some folder has
  std::vector<Found> found_;              // by target
};

// Without the colours that terminals are told.
std::string plain(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      text += line[i];
    } else {
      while (i + 1 < line.size() && line[i] != 'm') ++i;
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> enabled_extensions(std::string_view listing,
                                            const std::function<bool(const std::string& name)>& is_there) {
  // "    jupyter_lsp enabled" of the server, "  @scope/name v1.0 enabled OK (python, dist)" of the lab.
  std::set<std::string> names;
  for (const auto line : split(listing, "\n")) {
    const auto text = plain(line);
    const auto words = split_words(text, " \t\r");
    const bool enabled = words.size() >= 2 && (words[1] == "enabled" || (words.size() >= 3 && words[2] == "enabled"));
    if (!enabled || words[0].size() > 200 || names.size() >= kMaxListed) continue;
    if (std::string name(words[0]); !names.contains(name) && is_there(name)) names.insert(std::move(name));
  }
  return {names.begin(), names.end()};
}

usage::Probe probe_image(SessionRunner& sessions, const packages::Inventory& inventory,
                         const index::FlatTree::Entries& paths, const std::vector<ProbeTarget>& targets,
                         const ProbeOptions& options, const Work& work) {
  return Prober(sessions, inventory, paths, targets, options, work).make();
}

}  // namespace varve::prune
