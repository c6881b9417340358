#include "gpu/probe_output.h"

#include <csignal>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "core/base/errors.h"
#include "core/base/text/json_document.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"

namespace varve::gpu {
namespace {

constexpr int kMaxDepth = 4;
constexpr std::size_t kMaxValues = 10'000;
constexpr std::size_t kMaxLine = 1u << 20;
constexpr int kSkippedStatus = 77;

bool is_metric_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxProbeName) return false;
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+") == name.npos;
}

template <typename Value>
Value one_of(const JsonValue& value, std::initializer_list<Value> known) {
  const auto text = value.text();
  for (const auto one : known)
    if (text == to_string(one)) return one;
  std::string names;
  for (const auto one : known) names += (names.empty() ? "" : ", ") + std::string(to_string(one));
  value.refuse("is none of " + names);
}

void take_metrics(const JsonValue& list, StepResult& result) {
  for (const auto& one : list.items(kMaxProbeMetrics)) {
    Metric metric{.name = one["name"].text(),
                  .kind = one_of(one["kind"], {MetricKind::kSteady, MetricKind::kFirstCall, MetricKind::kCold}),
                  .seconds = one["seconds"].real(0, kMaxProbeSeconds)};
    if (!is_metric_name(metric.name)) one["name"].refuse("is no proper name");
    for (const auto& other : result.metrics)
      if (other.name == metric.name && other.kind == metric.kind) one["name"].refuse("is there twice");
    result.metrics.push_back(std::move(metric));
  }
}

void take_facts(const JsonValue& object, StepResult& result) {
  const auto facts = object.members();
  if (facts.size() > kMaxProbeFacts) fail<CorruptData>("more than {} facts", kMaxProbeFacts);
  for (const auto& [name, value] : facts) {
    if (name.empty() || name.size() > kMaxProbeName) value.refuse(fmt::format("has a name of {} bytes", name.size()));
    result.facts[single_line(name, kMaxProbeText)] = single_line(value.text(), kMaxProbeText);
  }
}

StepResult read_result(const JsonValue& object) {
  StepResult result;
  result.outcome = one_of(object["result"], {Outcome::kOk, Outcome::kFailed, Outcome::kSkipped});
  result.detail = single_line(object["detail"].text(), kMaxProbeText);
  take_metrics(object.maybe("metrics"), result);
  take_facts(object.maybe("facts"), result);
  for (const auto& warning : object.maybe("warnings").texts(kMaxProbeWarnings))
    result.warnings.push_back(single_line(warning, kMaxProbeText));
  result.throttled = object.maybe("throttled").flag();
  return result;
}

// What the marked lines say, in the order in which they stand.
struct ParsedOutput {
  std::optional<StepResult> result;
  std::string step;   // the last one, unless a result came later
  std::string wrong;  // of the first marked line that makes no sense
};

void take_line(std::string_view line, std::size_t number, ParsedOutput& said) {
  try {
    const auto object = JsonValue::parse(line, fmt::format("line {} of its output makes no sense", number),
                                         {.bytes = kMaxLine, .depth = kMaxDepth, .values = kMaxValues});
    if (object.has("result")) {
      said.result = read_result(object);
      said.step.clear();
    } else if (const auto step = object.maybe("doing")) {
      said.step = single_line(step.text(), kMaxProbeText);
    }
  } catch (const Error& error) {
    if (said.wrong.empty()) said.wrong = error.what();
  }
}

ParsedOutput read_lines(std::string_view output) {
  ParsedOutput said;
  for (std::size_t number = 1; !output.empty(); ++number) {
    const auto end = std::min(output.find('\n'), output.size());
    auto line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    if (!line.starts_with(kProbeMark) || line.size() <= kProbeMark.size() || line[kProbeMark.size()] != ' ') continue;
    line.remove_prefix(kProbeMark.size() + 1);
    take_line(line, number, said);
  }
  return said;
}

std::string last_words(std::string_view text) { return single_line(last_line(text), kMaxProbeText); }

// "exit status 3", "killed by signal 11 (Segmentation fault)"
std::string end_of(int exit_status) {
  if (exit_status <= 128 || exit_status > 128 + 64) return fmt::format("exit status {}", exit_status);
  const auto* name = ::sigabbrev_np(exit_status - 128);
  return name == nullptr ? fmt::format("killed by signal {}", exit_status - 128) : fmt::format("killed by SIG{}", name);
}

int status_of(Outcome outcome) {
  return outcome == Outcome::kOk ? 0 : outcome == Outcome::kFailed ? 1 : kSkippedStatus;
}

std::string while_doing(const ParsedOutput& said) { return said.step.empty() ? "" : ", while doing: " + said.step; }

// What the failure is if the process did not end as it should have; absent when all is well.
std::optional<std::string> what_is_wrong(const ParsedOutput& said, std::string_view error_output, int exit_status,
                                         bool timed_out) {
  if (timed_out)
    return "no end before its limit" +
           (said.step.empty() ? std::string(", and it did not say what it was doing") : while_doing(said));
  if (!said.wrong.empty()) return said.wrong;
  const auto words = last_words(error_output);
  const auto last = words.empty() ? "" : ": " + words;
  if (!said.result) return fmt::format("no result, {}{}{}", end_of(exit_status), while_doing(said), last);
  if (!said.step.empty()) return fmt::format("{} after its result{}{}", end_of(exit_status), while_doing(said), last);
  const bool crashed_after_failure =
      said.result->outcome == Outcome::kFailed && exit_status != 0 && exit_status != kSkippedStatus;
  if (exit_status != status_of(said.result->outcome) && !crashed_after_failure)
    return fmt::format("it said \"{}\" ({}), then {}{}", to_string(said.result->outcome), said.result->detail,
                       end_of(exit_status), last);
  return std::nullopt;
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  return outcome == Outcome::kOk ? "ok" : outcome == Outcome::kFailed ? "failed" : "skipped";
}

StepResult parse_probe_output(std::string_view step, std::string_view output, std::string_view error_output,
                              int exit_status, bool timed_out) {
  auto said = read_lines(output.substr(0, kMaxProbeOutput));
  auto wrong = what_is_wrong(said, error_output, exit_status, timed_out);
  auto result = said.result ? std::move(*said.result) : StepResult{};
  result.step = step;
  result.exit_status = exit_status;
  result.timed_out = timed_out;
  if (wrong) {
    result.outcome = Outcome::kFailed;
    result.detail = single_line(*wrong, kMaxProbeText);
    result.metrics.clear();
  }
  return result;
}

}  // namespace varve::gpu
