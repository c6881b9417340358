#include "cli/gpu/gpu_check_report.h"

#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/text.h"
#include "core/base/progress.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"
#include "gpu/text.h"

namespace varve::cli {
namespace {

constexpr std::size_t kSparkWidth = 48;

void print_check(const Context& context, const gpu::SuiteRun::Check& check) {
  const auto name = check.step + (check.cold ? " (cold)" : "");
  const auto* result = check.outcome == gpu::Outcome::kOk       ? "ok"
                       : check.outcome == gpu::Outcome::kFailed ? "FAILED"
                                                                : "skipped";
  context.out << fmt::format("{:<18} {:<8} {:>8.2f} {:>10}  {}\n", name, result, check.seconds,
                             check.lazy ? human_bytes(check.fetched_bytes) : "", printable(check.detail));
  for (const auto& warning : check.warnings) context.out << fmt::format("{:49}{}\n", "", printable(warning));
  context.out.flush();
}

// The metric's history as one line, where one is kept.
std::vector<std::string> metric_row(const gpu::MetricReport& metric) {
  std::vector<std::string> row = {metric.name, std::string(to_string(metric.kind)), gpu::time_text(metric.median),
                                  std::to_string(metric.samples.size())};
  if (!metric.assessment) return row;
  const auto& [series, judgement, alarm, driver_change] = *metric.assessment;
  row.insert(
      row.end(),
      {judgement.baseline > 0 ? gpu::time_text(judgement.baseline) : "-", std::string(gpu::state_name(judgement.state)),
       gpu::sparkline(series.hours, judgement, {.width = kSparkWidth, .utf8 = gpu::locale_is_utf8()})});
  return row;
}

void print_metrics(const Context& context, const gpu::Report& report) {
  const bool kept = std::ranges::any_of(report.metrics,
                                        [](const gpu::MetricReport& metric) { return metric.assessment.has_value(); });
  std::vector<std::vector<std::string>> rows = {{"metric", "kind", "median", "runs"}};
  if (kept) rows.front().insert(rows.front().end(), {"baseline", "state", "last hours"});
  for (const auto& metric : report.metrics) {
    rows.push_back(metric_row(metric));
    rows.back().resize(rows.front().size());
  }
  context.out << '\n';
  print_table(context.out, rows);
}

}  // namespace

void list_steps(const Context& context) {
  if (context.global.json) {
    auto list = nlohmann::json::array();
    for (const auto& step : gpu::steps())
      list.push_back({{"name", step.name},
                      {"what", step.what},
                      {"limit_seconds", step.limit.count()},
                      {"repeated", step.repeated},
                      {"cold", step.cold}});
    return context.print_json({{"steps", list}});
  }
  std::vector<std::vector<std::string>> rows = {{"step", "limit, s", "repeated", "cold", "what"}};
  for (const auto& step : gpu::steps())
    rows.push_back(
        {step.name, std::to_string(step.limit.count()), step.repeated ? "yes" : "", step.cold ? "yes" : "", step.what});
  print_table(context.out, rows);
}

void CheckPrinter::operator()(const gpu::SuiteRun::Check& check) {
  waiting_.push_back(check);
  if (check.step == "driver") open_ = true;
  if (open_) flush();
}

void CheckPrinter::flush() {
  if (!head_printed_ && !context_.global.quiet)
    context_.out << fmt::format("{:<18} {:<8} {:>8} {:>10}  {}\n", "step", "result", "seconds", "fetched", "detail");
  head_printed_ = true;
  for (const auto& one : waiting_) print_check(context_, one);
  waiting_.clear();
}

void print_report(const Context& context, const gpu::Report& report) {
  if (!report.metrics.empty()) print_metrics(context, report);
  const auto alarms = report.alarms();
  for (const auto* slow : alarms) {
    context.out << '\n';
    for (const auto& line : gpu::evidence(*slow->assessment)) context.out << printable(line) << '\n';
  }
  const auto failed = std::ranges::count(report.run.checks, gpu::Outcome::kFailed, &gpu::SuiteRun::Check::outcome);
  context.out << fmt::format(
      "\n{} on {} (driver {}): {}\n", printable(report.identity.family), printable(report.identity.machine.gpu),
      printable(report.identity.machine.driver),
      report.good() ? "all good" : fmt::format("{} checks failed, {} alarms", failed, alarms.size()));
}

}  // namespace varve::cli
