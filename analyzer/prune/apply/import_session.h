#pragma once
// Imports names in an image's own Python, each task in a process of its own: python/import_names.py, run by a session.
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analyzer/prune/apply/gates.h"

namespace varve::prune {

struct ImportTask {
  // Imported in this order by one process: modules, or objects in them ("module:attribute.of.it").
  std::vector<std::string> names;
  bool archived = false;  // these must seem absent to a probe, and the import say how to get them
  bool spy = false;       // what each loads, looks for and opens is told, too
};

struct ImportOutcome {
  std::string name;
  // "ok", the class of the exception ("ImportError", "numpy.exceptions.X"), "signal 11", "exit 3", "time limit", "not
  // reached"; of archived ones "archived" if it is as it should be, "found" or "no word".
  std::string outcome;
  std::string detail;               // the exception's words, one line
  std::vector<std::string> missed;  // modules that were looked for on the way and that nobody had
  // Where it was spied on, beyond what the process had done before: modules that are there now; those that were looked
  // for and are not; files that were opened or mapped (absolute; of the standard library and of records none).
  std::vector<std::string> loaded, tried, files;
};

inline constexpr std::size_t kMaxMissedNames = 20'000;  // of one import; the same of each list that a spy gives

// A Python of the image, and the distributions that it imports.
struct PythonWithDistributions {
  std::string python;                        // its executable
  std::vector<std::uint32_t> distributions;  // of the inventory, ascending
};
// Those that a Python looks for, by the first that does: of Pythons that share a folder the one that people use. In the
// order of the inventory's interpreters; one that nothing is left for is not named.
std::vector<PythonWithDistributions> distributions_by_python(const packages::Inventory& inventory);
// Installed for some Python, and no part of another one.
bool is_python_distribution(const packages::Distribution& distribution);

// By Python and the names that one process imports in this order.
using AnswersOfImage = std::map<std::pair<std::string, std::vector<std::string>>, std::vector<ImportOutcome>>;
struct ImportAnswers {
  AnswersOfImage before, after;
  // By name, what the import missed in the old image when it was probed: the old image need not say again what is
  // there. Of names that one Python alone imports.
  std::map<std::string, std::vector<std::string>> missed_in_probe;
};
// Of `inventory`, or of something below its name.
bool is_of_distribution(const packages::Inventory& inventory, const std::string& module);
// Keeps what the gates compare, which is little of what was said: how each import ended, and the modules that it missed
// and that the old image might have had. `old_image`: its inventory.
void keep_answer(AnswersOfImage& answers, const std::string& python, const std::vector<std::string>& names,
                 std::vector<ImportOutcome> outcomes, const packages::Inventory& old_image);

// Of one session, one after the other; what it says is held till it ends. As many sessions as jobs go on at the same
// time, so that nobody waits for the slowest of forty.
inline constexpr std::size_t kImportsOfSession = 10;

// `take` gets the outcomes of each task, one for each of its names, in the order of the tasks, on the caller's thread.
// Throws CouldNotRun if a session or its Python did not do its work, and what the runner and `take` throw.
using TakeOutcomes = std::function<void(std::size_t task, std::vector<ImportOutcome>&& outcomes)>;
void import_in_sessions(SessionRunner& sessions, const Digest& image, const std::string& python,
                        const std::vector<ImportTask>& tasks, const ImportOptions& options, const TakeOutcomes& take);

// What the program printed, for these tasks. The image has a hand in it, so nothing is believed. Throws CorruptData
// naming the line.
std::vector<std::vector<ImportOutcome>> parse_import_outcomes(std::string_view lines,
                                                              const std::vector<ImportTask>& tasks);

}  // namespace varve::prune
