#include "analyzer/prune/apply/import_session.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analyzer/prune/apply/internal/carried_files.h"
#include "analyzer/prune/apply/session_program.h"
#include "core/base/threads/ordered_pool.h"
#include "core/base/threads/parallel.h"

namespace varve::prune {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxWords = 4096;  // of an exception

// One task after the other: as many sessions go on at the same time as there are jobs.
json orders_of(const std::vector<ImportTask>& tasks, std::chrono::seconds limit) {
  auto list = json::array();
  for (const auto& task : tasks) {
    json one{{"names", task.names}};
    if (task.archived) one["archived"] = true;
    if (task.spy) one["spy"] = true;
    list.push_back(std::move(one));
  }
  return {{"tasks", std::move(list)}, {"jobs", 1}, {"seconds", limit.count()}};
}

std::string words_of(const JsonValue& value) {
  auto text = value.text();
  if (text.size() > kMaxWords) text.resize(kMaxWords);
  return text;
}

std::vector<std::string> names_of(const JsonValue& value) {
  auto names = value.texts();
  if (names.size() > kMaxMissedNames) names.resize(kMaxMissedNames);
  return names;
}

}  // namespace

bool is_python_distribution(const packages::Distribution& distribution) {
  return distribution.source != packages::Source::kDpkg && distribution.vendored_by.empty() &&
         !distribution.site.empty();
}

std::vector<PythonWithDistributions> distributions_by_python(const packages::Inventory& inventory) {
  std::vector<PythonWithDistributions> pythons;
  std::set<std::uint32_t> placed;
  for (const auto& interpreter : inventory.interpreters) {
    PythonWithDistributions one{.python = interpreter.executable, .distributions = {}};
    for (std::uint32_t i = 0; i < inventory.distributions.size(); ++i) {
      const auto& distribution = inventory.distributions[i];
      if (is_python_distribution(distribution) &&
          std::ranges::find(interpreter.sites, distribution.site) != interpreter.sites.end() && placed.insert(i).second)
        one.distributions.push_back(i);
    }
    if (!one.distributions.empty()) pythons.push_back(std::move(one));
  }
  return pythons;
}

std::vector<std::vector<ImportOutcome>> parse_import_outcomes(std::string_view lines,
                                                              const std::vector<ImportTask>& tasks) {
  std::vector<std::vector<ImportOutcome>> outcomes(tasks.size());
  each_answer(lines, "import", [&](const JsonValue& line) {
    const auto index = line["task"].number<std::size_t>();
    if (index >= tasks.size()) line["task"].refuse("is no task that it was given");
    auto& of_task = outcomes[index];
    ImportOutcome outcome{.name = words_of(line["name"]),
                          .outcome = words_of(line["outcome"]),
                          .detail = words_of(line["detail"]),
                          .missed = names_of(line.maybe("missed")),
                          .loaded = names_of(line.maybe("loaded")),
                          .tried = names_of(line.maybe("tried")),
                          .files = names_of(line.maybe("files"))};
    if (of_task.size() >= tasks[index].names.size() || tasks[index].names[of_task.size()] != outcome.name)
      line["name"].refuse(fmt::format("is {}, which is not next", outcome.name));
    of_task.push_back(std::move(outcome));
  });
  for (std::size_t i = 0; i < tasks.size(); ++i)
    if (outcomes[i].size() != tasks[i].names.size())
      fail<CorruptData>("the import program says nothing of {}", tasks[i].names[outcomes[i].size()]);
  return outcomes;
}

bool is_of_distribution(const packages::Inventory& inventory, const std::string& module) {
  return !inventory.modules.owners(module).empty();
}

void keep_answer(AnswersOfImage& answers, const std::string& python, const std::vector<std::string>& names,
                 std::vector<ImportOutcome> outcomes, const packages::Inventory& old_image) {
  for (auto& outcome : outcomes) {
    outcome.loaded = outcome.tried = outcome.files = {};
    // Names that are drawn at random have no owner.
    std::erase_if(outcome.missed, [&](const std::string& name) { return !is_of_distribution(old_image, name); });
    outcome.missed.shrink_to_fit();
    std::ranges::sort(outcome.missed);
  }
  answers[{python, names}] = std::move(outcomes);
}

namespace {

std::vector<std::vector<ImportOutcome>> import_in_session(SessionRunner& sessions, const Digest& image,
                                                          const std::string& python,
                                                          const std::vector<ImportTask>& tasks,
                                                          const ImportOptions& options) {
  std::size_t names = 0;
  for (const auto& task : tasks) names += task.names.size();
  // Every name may take its time; that all do is no use of anybody's time, but an end all the same.
  const auto limit = options.limit * std::int64_t(names + 2) + std::chrono::seconds(120);
  return parse_import_outcomes(
      run_in_python(sessions, image, python, embedded_file(internal::python_files(), "import_names.py"),
                    orders_of(tasks, options.limit), limit, fmt::format("the imports with /{}", python)),
      tasks);
}

}  // namespace

void import_in_sessions(SessionRunner& sessions, const Digest& image, const std::string& python,
                        const std::vector<ImportTask>& tasks, const ImportOptions& options, const TakeOutcomes& take) {
  using Outcomes = std::vector<std::vector<ImportOutcome>>;
  const auto jobs = jobs_or_cores(options.jobs);
  std::size_t taken = 0;
  const auto deliver = [&](Outcomes&& outcomes) {
    for (auto& one : outcomes) take(taken++, std::move(one));
  };
  OrderedPool<std::vector<ImportTask>, Outcomes> pool(jobs, 2 * jobs, [&] {
    return [&](std::vector<ImportTask>&& some) { return import_in_session(sessions, image, python, some, options); };
  });
  for (std::size_t begin = 0; begin < tasks.size(); begin += kImportsOfSession) {
    const auto end = std::min(begin + kImportsOfSession, tasks.size());
    pool.add({tasks.begin() + std::ptrdiff_t(begin), tasks.begin() + std::ptrdiff_t(end)}, deliver);
  }
  pool.drain(deliver);
}

}  // namespace varve::prune
