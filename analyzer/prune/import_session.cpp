#include "analyzer/prune/import_session.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analyzer/prune/internal/carried_files.h"

namespace varve::prune {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxWords = 4096;  // of an exception

json orders_of(const std::vector<ImportTask>& tasks, unsigned jobs, std::chrono::seconds limit) {
  auto list = json::array();
  for (const auto& task : tasks) {
    json one{{"names", task.names}};
    if (task.archived) one["archived"] = true;
    list.push_back(std::move(one));
  }
  return {{"tasks", std::move(list)}, {"jobs", jobs}, {"seconds", limit.count()}};
}

// The last words of a program that failed.
std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  const auto start = text.rfind('\n');
  return std::string(text.substr(start == text.npos ? 0 : start + 1).substr(0, kMaxWords));
}

std::string text_of(const json& line, const char* name, std::size_t number) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_string())
    fail<CorruptData>("the import program's line {} has no text \"{}\"", number, name);
  auto text = found->get<std::string>();
  if (text.size() > kMaxWords) text.resize(kMaxWords);
  return text;
}

std::vector<std::string> missed_of(const json& line) {
  std::vector<std::string> names;
  const auto found = line.find("missed");
  if (found == line.end() || !found->is_array()) return names;
  for (const auto& name : *found)
    if (name.is_string() && names.size() < kMaxMissedNames) names.push_back(name.get<std::string>());
  return names;
}

}  // namespace

std::vector<std::vector<ImportOutcome>> parse_import_outcomes(std::string_view lines,
                                                              const std::vector<ImportTask>& tasks) {
  std::vector<std::vector<ImportOutcome>> outcomes(tasks.size());
  bool done = false;
  for (std::size_t number = 1; !lines.empty(); ++number) {
    const auto end = std::min(lines.find('\n'), lines.size());
    const auto line = json::parse(lines.substr(0, end), nullptr, false);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (!line.is_object() || done) fail<CorruptData>("the import program's line {} is none of its answers", number);
    if (line.contains("done")) {
      done = true;
      continue;
    }
    const auto task = line.find("task");
    if (task == line.end() || !task->is_number_unsigned() || task->get<std::uint64_t>() >= tasks.size())
      fail<CorruptData>("the import program's line {} is about no task that it was given", number);
    const auto index = task->get<std::size_t>();
    auto& of_task = outcomes[index];
    ImportOutcome outcome{.name = text_of(line, "name", number),
                          .outcome = text_of(line, "outcome", number),
                          .detail = text_of(line, "detail", number),
                          .missed = missed_of(line)};
    if (of_task.size() >= tasks[index].names.size() || tasks[index].names[of_task.size()] != outcome.name)
      fail<CorruptData>("the import program's line {} is about {}, which is not next", number, outcome.name);
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
                      last_line(result.err));
  return parse_import_outcomes(result.out, tasks);
}

}  // namespace varve::prune
