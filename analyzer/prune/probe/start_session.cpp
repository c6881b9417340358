#include "analyzer/prune/probe/start_session.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analyzer/prune/apply/session_program.h"
#include "analyzer/prune/probe/internal/carried_files.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/threads/parallel.h"

namespace varve::prune {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxSaid = 1 << 18;  // of one output; the program gives a quarter of it at most
constexpr std::size_t kMaxOutcome = 100;
constexpr std::size_t kMaxFiles = 20'000;

std::string carried(std::string_view name) { return std::string(embedded_file(internal::probe_files(), name)); }

json orders_of(const std::vector<ProgramOrder>& programs, unsigned jobs, std::chrono::seconds limit) {
  auto list = json::array();
  for (const auto& program : programs) {
    json one{{"words", program.words}, {"until", program.until_output ? "output" : "exit"}};
    if (!program.kernel_spec.empty()) one["kernel"] = program.kernel_spec;
    if (program.spy) one["spy"] = true;
    list.push_back(std::move(one));
  }
  return {{"programs", std::move(list)},
          {"jobs", jobs},
          {"seconds", limit.count()},
          {"spy", carried("spy_on_start.py")},
          {"kernel", carried("start_kernel.py")}};
}

std::string cut(std::string text, std::size_t limit) {
  if (text.size() > limit) text.resize(limit);
  return text;
}

}  // namespace

std::vector<ProgramAnswer> parse_program_answers(std::string_view lines, std::size_t programs) {
  std::vector<std::optional<ProgramAnswer>> answers(programs);
  each_answer(lines, "starting", [&](const JsonValue& line) {
    const auto index = line["program"].number<std::size_t>();
    if (index >= programs || answers[index]) line["program"].refuse("is no program that is still to be answered for");
    auto files = line["files"].texts(kMaxFiles);
    answers[index] = ProgramAnswer{.outcome = cut(line["outcome"].text(), kMaxOutcome),
                                   .out = cut(line["out"].text(), kMaxSaid),
                                   .err = cut(line["err"].text(), kMaxSaid),
                                   .files = std::move(files)};
  });
  std::vector<ProgramAnswer> whole;
  for (auto& answer : answers) {
    if (!answer) fail<CorruptData>("the starting program says nothing of program {}", whole.size() + 1);
    whole.push_back(std::move(*answer));
  }
  return whole;
}

std::vector<std::string> kernel_start_words(const std::string& python, const std::string& kernel_spec,
                                            std::chrono::seconds limit) {
  return {"/" + python, "-c", carried("start_kernel.py"), kernel_spec, std::to_string(limit.count())};
}

KernelReply read_kernel_reply(const ProgramAnswer& answer) {
  const KernelReply none{.outcome = "no reply", .detail = fmt::format("{}: {}", answer.outcome, last_line(answer.err))};
  try {
    const auto said = JsonValue::parse(last_line(answer.out), "the kernel's starter", {.bytes = kMaxSaid});
    return {.outcome = cut(said["outcome"].text(), kMaxOutcome), .detail = said["detail"].text()};
  } catch (const CorruptData&) {
    return none;
  } catch (const Unsupported&) {
    return none;
  }
}

std::vector<ProgramAnswer> start_in_session(SessionRunner& sessions, const Digest& image, const std::string& python,
                                            const std::vector<ProgramOrder>& programs, const StartOptions& options) {
  if (programs.empty()) return {};
  const auto jobs = jobs_or_cores(options.jobs);
  // Every program may take its time, and a kernel's starter somewhat more.
  const auto limit =
      (options.limit + std::chrono::seconds(30)) * std::int64_t(programs.size() / jobs + 2) + std::chrono::seconds(60);
  return parse_program_answers(
      run_in_python(sessions, image, python, carried("start_programs.py"), orders_of(programs, jobs, options.limit),
                    limit, fmt::format("what /{} starts", python)),
      programs.size());
}

}  // namespace varve::prune
