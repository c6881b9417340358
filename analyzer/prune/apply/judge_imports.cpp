// The gates "imports" and "replay": what Python itself says, in sessions on both images.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analyzer/prune/apply/gates.h"
#include "analyzer/prune/apply/import_session.h"

namespace varve::prune {
namespace {

constexpr std::size_t kMaxFindings = 1000;

struct ImportPlace {
  std::string python;                // its executable
  std::vector<ImportTask> tasks;     // of both images
  std::vector<ImportTask> archived;  // of the new one
};

// The Pythons of both images, and what they have said in this run.
class Pythons {
 public:
  Pythons(SessionRunner& sessions, const ImagePair& images, ImportAnswers& answers)
      : sessions_(sessions), images_(images), answers_(answers) {}

  // For what they have not answered yet.
  void ask_old(const std::string& python, const std::vector<ImportTask>& tasks, const ImportOptions& options) {
    ask(images_.before, python, tasks, options, answers_.before);
  }
  void ask_new(const std::string& python, const std::vector<ImportTask>& tasks, const ImportOptions& options) {
    ask(images_.after, python, tasks, options, answers_.after);
  }

 private:
  void ask(const packages::Inventory& image, const std::string& python, const std::vector<ImportTask>& tasks,
           const ImportOptions& options, AnswersOfImage& answers) {
    std::vector<ImportTask> open;
    for (const auto& task : tasks)
      if (!answers.contains({python, task.names})) open.push_back(task);
    import_in_sessions(sessions_, image.image.value(), python, open, options,
                       [&](std::size_t task, std::vector<ImportOutcome>&& outcomes) {
                         keep_answer(answers, python, open[task].names, std::move(outcomes), images_.before);
                       });
  }

  SessionRunner& sessions_;
  const ImagePair& images_;
  ImportAnswers& answers_;
};

bool was_limited(const std::vector<ImportOutcome>& outcomes) {
  return std::ranges::any_of(outcomes, [](const ImportOutcome& one) { return one.outcome == "time limit"; });
}

// True if the new image does worse.
bool is_worse(const ImportOutcome& before, const ImportOutcome& after) {
  return before.outcome != "ok" ? after.outcome != "ok" && after.outcome != before.outcome : after.outcome != "ok";
}

// Modules that the import looked for, that nobody has now and somebody had before.
std::vector<std::string> newly_missed(const ImportOutcome& before, const ImportOutcome& after) {
  std::vector<std::string> names;
  for (const auto& name : after.missed)
    if (!std::ranges::binary_search(before.missed, name)) names.push_back(name);
  return names;
}

// Whatever the old image does now, the new one does no worse: it misses nothing but what the old one missed when it was
// probed.
bool does_all(const ImportTask& task, const ImportAnswers& answers, const std::vector<ImportOutcome>& after) {
  static const std::vector<std::string> kNothing;
  const auto probed =
      task.names.size() == 1 ? answers.missed_in_probe.find(task.names.front()) : answers.missed_in_probe.end();
  const auto& missed = probed == answers.missed_in_probe.end() ? kNothing : probed->second;
  return std::ranges::all_of(after, [&](const ImportOutcome& one) {
    return one.outcome == "ok" && std::ranges::includes(missed, one.missed);
  });
}

std::string describe(const ImportOutcome& outcome) {
  return outcome.detail.empty() ? outcome.outcome : fmt::format("{}: {}", outcome.outcome, outcome.detail);
}

// What one image's outcomes say against the other's. A first difference may be the machine's (a limit on a busy day),
// so where they differ the new image is asked once more by the caller.
std::vector<std::string> differences(const ImportOutcome& before, const ImportOutcome& after) {
  std::vector<std::string> found;
  if (is_worse(before, after))
    found.push_back(fmt::format("import {}: {}; before: {}", after.name, describe(after), describe(before)));
  if (const auto missed = newly_missed(before, after); !missed.empty())
    found.push_back(fmt::format("import {}: it looks for {}, which the new image does not have", after.name,
                                fmt::join(missed, ", ")));
  return found;
}

struct Tally {
  std::size_t names = 0, asked_before = 0, failed_before = 0, limited = 0;
};

std::vector<std::string> differences(const std::vector<ImportOutcome>& before,
                                     const std::vector<ImportOutcome>& after) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < before.size(); ++i) {
    auto more = differences(before[i], after[i]);
    found.insert(found.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return found;
}

// Asks the new image once more, alone and with patience; the old one only for what it was not given the time for.
void ask_again(Pythons& pythons, const std::string& python, const std::vector<ImportTask>& tasks,
               const ImportOptions& options, ImportAnswers& answers) {
  auto patient = options;
  patient.jobs = 1;
  patient.limit *= 2;
  std::vector<ImportTask> limited;
  for (const auto& task : tasks) {
    answers.after.erase({python, task.names});
    if (was_limited(answers.before.at({python, task.names}))) limited.push_back(task);
  }
  for (const auto& task : limited) answers.before.erase({python, task.names});
  pythons.ask_new(python, tasks, patient);
  pythons.ask_old(python, limited, patient);
}

// Findings of all tasks; those that differ are asked a second time before they count.
void compare_tasks(Pythons& pythons, const ImportPlace& place, const std::vector<std::string>& what,
                   const ImportOptions& options, ImportAnswers& answers, GateResult& result, Tally& tally) {
  const auto before_of = [&](const ImportTask& task) -> const auto& {
    return answers.before.at({place.python, task.names});
  };
  const auto after_of = [&](const ImportTask& task) -> const auto& {
    return answers.after.at({place.python, task.names});
  };
  auto after_tasks = place.tasks;
  after_tasks.insert(after_tasks.end(), place.archived.begin(), place.archived.end());
  pythons.ask_new(place.python, after_tasks, options);
  std::vector<std::size_t> in_question;
  std::vector<ImportTask> before_tasks;
  for (std::size_t i = 0; i < place.tasks.size(); ++i) {
    tally.names += place.tasks[i].names.size();
    if (does_all(place.tasks[i], answers, after_of(place.tasks[i]))) continue;
    in_question.push_back(i);
    before_tasks.push_back(place.tasks[i]);
  }
  pythons.ask_old(place.python, before_tasks, options);
  std::vector<ImportTask> again;
  std::vector<std::string> what_again;
  for (const auto i : in_question) {
    const auto& before = before_of(place.tasks[i]);
    for (const auto& outcome : before) {
      ++tally.asked_before;
      if (outcome.outcome != "ok") ++tally.failed_before;
      if (outcome.outcome == "time limit") ++tally.limited;
    }
    if (differences(before, after_of(place.tasks[i])).empty()) continue;
    again.push_back(place.tasks[i]);
    what_again.push_back(what[i]);
  }
  for (const auto& task : place.archived) {
    for (const auto& outcome : after_of(task))
      if (outcome.outcome != "archived")
        result.findings.push_back(fmt::format("archived {}: {}, where an ImportError should say how to get it",
                                              outcome.name, describe(outcome)));
  }
  if (!again.empty()) ask_again(pythons, place.python, again, options, answers);
  for (std::size_t i = 0; i < again.size(); ++i) {
    for (const auto& difference : differences(before_of(again[i]), after_of(again[i])))
      if (result.findings.size() < kMaxFindings)
        result.findings.push_back(what_again[i].empty() ? difference
                                                        : fmt::format("{}: {}", what_again[i], difference));
  }
}

std::string tally_text(const Tally& tally) {
  auto text = fmt::format("{} names imported in the new image, {} of them in the old one too, where {} failed as well",
                          tally.names, tally.asked_before, tally.failed_before);
  if (tally.limited != 0) text += fmt::format(" ({} at the time limit)", tally.limited);
  return text;
}

}  // namespace

void judge_imports(SessionRunner& sessions, const ImagePair& images, const ImportOptions& options,
                   ImportAnswers& answers, GateResult& result) {
  const auto gone = archived_distributions(images.plan, images.before);
  Pythons asked(sessions, images, answers);
  Tally tally;
  std::size_t archived = 0;
  std::set<std::uint32_t> placed;
  std::vector<std::string> pythons;
  for (const auto& of_python : distributions_by_python(images.before)) {
    ImportPlace place{.python = of_python.python, .tasks = {}, .archived = {}};
    std::set<std::string> names, absent;
    for (const auto i : of_python.distributions) {
      const auto& distribution = images.before.distributions[i];
      placed.insert(i);
      (std::ranges::binary_search(gone, i) ? absent : names)
          .insert(distribution.imports.begin(), distribution.imports.end());
    }
    for (const auto& name : names) place.tasks.push_back({.names = {name}});
    for (const auto& name : absent)
      if (!images.after.modules.contains(name) && !names.contains(name))
        place.archived.push_back({.names = {name}, .archived = true});
    if (place.tasks.empty() && place.archived.empty()) continue;
    archived += place.archived.size();
    pythons.push_back("/" + place.python);
    compare_tasks(asked, place, std::vector<std::string>(place.tasks.size()), options, answers, result, tally);
  }
  std::size_t unseen = 0;
  for (std::uint32_t i = 0; i < images.before.distributions.size(); ++i)
    unseen += is_python_distribution(images.before.distributions[i]) &&
              !images.before.distributions[i].imports.empty() && !placed.contains(i);
  if (pythons.empty()) {
    if (unseen != 0)
      fail<CouldNotRun>("{} distributions of the old image lie in folders that none of its Pythons looks into", unseen);
    result.detail = "the old image has no Python distributions";
    return;
  }
  result.detail = fmt::format("{}, by {}", tally_text(tally), fmt::join(pythons, " and "));
  if (unseen != 0) result.detail += fmt::format("; {} distributions lie where no Python looks", unseen);
  if (archived != 0) result.detail += fmt::format("; {} archived names say how to get them", archived);
}

void judge_replay(SessionRunner& sessions, const ImagePair& images, const ImportSets& sets,
                  const ImportOptions& options, ImportAnswers& answers, GateResult& result) {
  const auto gone = archived_distributions(images.plan, images.before);
  const auto is_archived = [&](const std::string& name) {
    const auto& owners = images.before.modules.owners(name);
    return !owners.empty() &&
           std::ranges::all_of(owners, [&](std::uint32_t owner) { return std::ranges::binary_search(gone, owner); });
  };
  // Sets are resolved by the inventory that the database has; without one it would be all the same what the images
  // hold.
  if (sets.notebooks != 0 && sets.sets.empty())
    fail<CouldNotRun>(
        "of {} notebooks the usage database has none that imports something of {}: does it know the image (`varve "
        "usage collect --image`)?",
        sets.notebooks, images.before.image.value().to_string());
  std::map<std::vector<std::string>, const ImportSet*> distinct;
  std::set<std::string> lost, left_out;
  for (const auto& set : sets.sets) {
    std::vector<std::string> names;
    for (const auto& name : set.modules) {
      if (is_archived(name)) {
        left_out.insert(name);
      } else if (const auto& owners = images.before.modules.owners(name);
                 !owners.empty()) {  // others are the standard library's, the user's own, or not there before
        names.push_back(name);
        if (images.after.modules.owners(name).empty() && lost.insert(name).second)
          result.findings.push_back(
              fmt::format("{}: {} is imported, and the new image has it no more", set.example, name));
      }
    }
    if (!names.empty()) distinct.emplace(std::move(names), &set);
  }
  if (images.before.interpreters.empty()) throw CouldNotRun("the old image has no Python");
  // The largest first: they cover most.
  std::vector<std::pair<std::vector<std::string>, const ImportSet*>> chosen(distinct.begin(), distinct.end());
  std::ranges::stable_sort(chosen, [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  if (chosen.size() > kMaxReplayedSets) chosen.resize(kMaxReplayedSets);
  ImportPlace place{.python = images.before.interpreters.front().executable, .tasks = {}, .archived = {}};
  std::vector<std::string> what;
  for (const auto& [names, set] : chosen) {
    place.tasks.push_back({.names = names});
    what.push_back(set->example);
  }
  Tally tally;
  Pythons asked(sessions, images, answers);
  if (!place.tasks.empty()) compare_tasks(asked, place, what, options, answers, result, tally);
  result.detail = fmt::format("{} notebooks with {} different sets of imports, the {} largest run: {}", sets.covered,
                              distinct.size(), chosen.size(), tally_text(tally));
  if (sets.covered < sets.notebooks)
    result.detail += fmt::format("; {} notebooks with rarer sets not looked at", sets.notebooks - sets.covered);
  if (!left_out.empty()) result.detail += fmt::format("; {} archived names left out", left_out.size());
}

}  // namespace varve::prune
