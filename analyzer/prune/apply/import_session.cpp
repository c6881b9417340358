#include "analyzer/prune/apply/import_session.h"

#include <algorithm>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analyzer/prune/apply/internal/carried_files.h"
#include "core/base/json_document.h"
#include "core/base/strings.h"

namespace varve::prune {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxWords = 4096;  // of an exception
constexpr std::uint64_t kMaxAnswerBytes = 16 << 20;

json orders_of(const std::vector<ImportTask>& tasks, unsigned jobs, std::chrono::seconds limit) {
  auto list = json::array();
  for (const auto& task : tasks) {
    json one{{"names", task.names}};
    if (task.archived) one["archived"] = true;
    if (task.spy) one["spy"] = true;
    list.push_back(std::move(one));
  }
  return {{"tasks", std::move(list)}, {"jobs", jobs}, {"seconds", limit.count()}};
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
  bool done = false;
  for (std::size_t number = 1; !lines.empty(); ++number) {
    const auto end = std::min(lines.find('\n'), lines.size());
    const auto what = fmt::format("the import program's line {}", number);
    const auto line = JsonValue::parse(lines.substr(0, end), what, {.bytes = kMaxAnswerBytes});
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (done) fail<CorruptData>("{} is none of its answers", what);
    if (line.has("done")) {
      done = true;
      continue;
    }
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
  }
  if (!done) throw CorruptData("the import program did not come to its end");
  for (std::size_t i = 0; i < tasks.size(); ++i)
    if (outcomes[i].size() != tasks[i].names.size())
      fail<CorruptData>("the import program says nothing of {}", tasks[i].names[outcomes[i].size()]);
  return outcomes;
}

std::vector<std::vector<ImportOutcome>> import_in_session(SessionRunner& sessions, const Digest& image,
                                                          const std::string& python,
                                                          const std::vector<ImportTask>& tasks,
                                                          const ImportOptions& options) {
  if (tasks.empty()) return {};
  const auto jobs = options.jobs != 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency() / 2);
  std::size_t names = 0;
  for (const auto& task : tasks) names += task.names.size();
  // Every name may take its time; that all do is no use of anybody's time, but an end all the same.
  const auto limit = options.limit * std::int64_t(names / jobs + 2) + std::chrono::seconds(120);
  const auto program = std::string(embedded_file(internal::python_files(), "import_names.py"));
  const auto orders = orders_of(tasks, jobs, options.limit).dump(-1, ' ', true, json::error_handler_t::replace);
  const auto result = sessions.run(image, {"/" + python, "-c", program}, orders, limit);
  if (result.timed_out)
    fail<CouldNotRun>("the imports with /{} in {} did not end within {} s", python, image.to_string(), limit.count());
  if (result.exit_status != 0)
    fail<CouldNotRun>("/{} in {} ended with status {}: {}", python, image.to_string(), result.exit_status,
                      last_line(result.err).substr(0, kMaxWords));
  return parse_import_outcomes(result.out, tasks);
}

}  // namespace varve::prune
