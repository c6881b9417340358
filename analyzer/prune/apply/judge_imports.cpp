// The gates "imports" and "replay": what Python itself says, in sessions on both images.
#include <algorithm>
#include <future>
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

// Asks one image for what it has not answered yet. A time limit is no answer.
void ask(SessionRunner& sessions, const Digest& image, const std::string& python, const std::vector<ImportTask>& tasks,
         const ImportOptions& options, AnswersOfImage& answers) {
  std::vector<ImportTask> open;
  for (const auto& task : tasks)
    if (!answers.contains({python, task.names})) open.push_back(task);
  auto outcomes = import_in_session(sessions, image, python, open, options);
  for (std::size_t i = 0; i < open.size(); ++i) answers[{python, open[i].names}] = std::move(outcomes[i]);
}

// Both images at once: they wait for different bytes. What one throws is thrown when both have ended.
void ask_both(SessionRunner& sessions, const ImagePair& images, const std::string& python,
              const std::vector<ImportTask>& before, const std::vector<ImportTask>& after, const ImportOptions& options,
              ImportAnswers& answers) {
  auto old_side = std::async(
      std::launch::async, [&] { ask(sessions, images.before.image.value(), python, before, options, answers.before); });
  auto new_side = std::async(std::launch::async,
                             [&] { ask(sessions, images.after.image.value(), python, after, options, answers.after); });
  old_side.wait(), new_side.wait();
  old_side.get(), new_side.get();
}

bool was_limited(const std::vector<ImportOutcome>& outcomes) {
  return std::ranges::any_of(outcomes, [](const ImportOutcome& one) { return one.outcome == "time limit"; });
}

// True if the new image does worse.
bool is_worse(const ImportOutcome& before, const ImportOutcome& after) {
  return before.outcome != "ok" ? after.outcome != "ok" && after.outcome != before.outcome : after.outcome != "ok";
}

// Modules that the import looked for, that nobody has now and somebody had before.
std::vector<std::string> newly_missed(const packages::Inventory& inventory, const ImportOutcome& before,
                                      const ImportOutcome& after) {
  std::vector<std::string> names;
  for (const auto& name : after.missed) {
    if (std::ranges::binary_search(before.missed, name)) continue;
    if (!inventory.modules.owners(name).empty()) names.push_back(name);  // names that are drawn at random have no owner
  }
  return names;
}

std::string describe(const ImportOutcome& outcome) {
  return outcome.detail.empty() ? outcome.outcome : fmt::format("{}: {}", outcome.outcome, outcome.detail);
}

// What one image's outcomes say against the other's. A first difference may be the machine's (a limit on a busy day),
// so where they differ the new image is asked once more by the caller.
std::vector<std::string> differences(const ImagePair& images, const ImportOutcome& before, const ImportOutcome& after) {
  std::vector<std::string> found;
  if (is_worse(before, after))
    found.push_back(fmt::format("import {}: {}; before: {}", after.name, describe(after), describe(before)));
  if (const auto missed = newly_missed(images.before, before, after); !missed.empty())
    found.push_back(fmt::format("import {}: it looks for {}, which the new image does not have", after.name,
                                fmt::join(missed, ", ")));
  return found;
}

struct Tally {
  std::size_t names = 0, failed_before = 0, limited = 0;
};

std::vector<std::string> differences(const ImagePair& images, const std::vector<ImportOutcome>& before,
                                     const std::vector<ImportOutcome>& after) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < before.size(); ++i) {
    auto more = differences(images, before[i], after[i]);
    found.insert(found.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return found;
}

// Asks the new image once more, alone and with patience; the old one only for what it was not given the time for.
void ask_again(SessionRunner& sessions, const ImagePair& images, const std::string& python,
               const std::vector<ImportTask>& tasks, const ImportOptions& options, ImportAnswers& answers) {
  auto patient = options;
  patient.jobs = 1;
  patient.limit *= 2;
  std::vector<ImportTask> limited;
  for (const auto& task : tasks) {
    answers.after.erase({python, task.names});
    if (was_limited(answers.before.at({python, task.names}))) limited.push_back(task);
  }
  for (const auto& task : limited) answers.before.erase({python, task.names});
  ask_both(sessions, images, python, limited, tasks, patient, answers);
}

// What was missed has been compared, and is most of what the answers hold.
void forget_missed(AnswersOfImage& answers) {
  for (auto& [key, outcomes] : answers)
    for (auto& outcome : outcomes) outcome.missed = {};
}

// Findings of all tasks; those that differ are asked a second time before they count.
void compare_tasks(SessionRunner& sessions, const ImagePair& images, const ImportPlace& place,
                   const std::vector<std::string>& what, const ImportOptions& options, ImportAnswers& answers,
                   GateResult& result, Tally& tally) {
  auto after_tasks = place.tasks;
  after_tasks.insert(after_tasks.end(), place.archived.begin(), place.archived.end());
  ask_both(sessions, images, place.python, place.tasks, after_tasks, options, answers);
  const auto before_of = [&](const ImportTask& task) -> const auto& {
    return answers.before.at({place.python, task.names});
  };
  const auto after_of = [&](const ImportTask& task) -> const auto& {
    return answers.after.at({place.python, task.names});
  };
  std::vector<ImportTask> again;
  std::vector<std::string> what_again;
  for (std::size_t i = 0; i < place.tasks.size(); ++i) {
    const auto& before = before_of(place.tasks[i]);
    for (const auto& outcome : before) {
      ++tally.names;
      if (outcome.outcome != "ok") ++tally.failed_before;
      if (outcome.outcome == "time limit") ++tally.limited;
    }
    if (differences(images, before, after_of(place.tasks[i])).empty()) continue;
    again.push_back(place.tasks[i]);
    what_again.push_back(what[i]);
  }
  for (const auto& task : place.archived) {
    for (const auto& outcome : after_of(task))
      if (outcome.outcome != "archived")
        result.findings.push_back(fmt::format("archived {}: {}, where an ImportError should say how to get it",
                                              outcome.name, describe(outcome)));
  }
  if (!again.empty()) ask_again(sessions, images, place.python, again, options, answers);
  for (std::size_t i = 0; i < again.size(); ++i) {
    for (const auto& difference : differences(images, before_of(again[i]), after_of(again[i])))
      if (result.findings.size() < kMaxFindings)
        result.findings.push_back(what_again[i].empty() ? difference
                                                        : fmt::format("{}: {}", what_again[i], difference));
  }
  forget_missed(answers.before), forget_missed(answers.after);
}

std::string tally_text(const Tally& tally) {
  auto text = fmt::format("{} names imported in both images, {} of them failed before as well", tally.names,
                          tally.failed_before);
  if (tally.limited != 0) text += fmt::format(" ({} at the time limit)", tally.limited);
  return text;
}

}  // namespace

void judge_imports(SessionRunner& sessions, const ImagePair& images, const ImportOptions& options,
                   ImportAnswers& answers, GateResult& result) {
  const auto gone = archived_distributions(images.plan, images.before);
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
    compare_tasks(sessions, images, place, std::vector<std::string>(place.tasks.size()), options, answers, result,
                  tally);
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
  if (!place.tasks.empty()) compare_tasks(sessions, images, place, what, options, answers, result, tally);
  result.detail = fmt::format("{} notebooks with {} different sets of imports, the {} largest run: {}", sets.covered,
                              distinct.size(), chosen.size(), tally_text(tally));
  if (sets.covered < sets.notebooks)
    result.detail += fmt::format("; {} notebooks with rarer sets not looked at", sets.notebooks - sets.covered);
  if (!left_out.empty()) result.detail += fmt::format("; {} archived names left out", left_out.size());
}

}  // namespace varve::prune
