#include "gpu/report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/text/calendar.h"
#include "core/base/text/utf8.h"
#include "gpu/probe_output.h"

namespace varve::gpu {
namespace {

using nlohmann::json;

// XML 1.0 knows most characters below the space not at all, escaped or not.
std::string xml(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto length = utf8_length(text);
    const auto character = text.substr(0, std::max<std::size_t>(length, 1));
    text.remove_prefix(character.size());
    const bool no_character = length == 0 || character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF";
    if (no_character ||
        (static_cast<unsigned char>(character[0]) < 0x20 && character[0] != '\n' && character[0] != '\t')) {
      out += '?';
    } else if (character == "&") {
      out += "&amp;";
    } else if (character == "<") {
      out += "&lt;";
    } else if (character == ">") {
      out += "&gt;";
    } else if (character == "\"") {
      out += "&quot;";
    } else if (character == "\n" || character == "\t") {
      out += character == "\n" ? "&#10;" : "&#9;";
    } else {
      out += character;
    }
  }
  return out;
}

json metric_json(const MetricReport& metric) {
  json one{
      {"name", metric.name}, {"kind", to_string(metric.kind)}, {"median", metric.median}, {"samples", metric.samples}};
  if (!metric.assessment) return one;
  const auto& judgement = metric.assessment->judgement;
  const auto or_null = [](double value) { return value > 0 ? json(value) : json(nullptr); };
  one["state"] = state_name(judgement.state);
  one["baseline"] = or_null(judgement.baseline);
  one["spread"] = or_null(judgement.spread);
  one["threshold"] = or_null(judgement.threshold);
  one["z"] = judgement.z;
  one["suspicious_hours"] = judgement.suspicious_hours;
  one["clean_hours"] = judgement.clean_hours;
  one["remark"] = remark(*metric.assessment);
  return one;
}

json alarm_json(const MetricReport& metric) {
  const auto& alarm = *metric.assessment->alarm;
  json one{{"metric", metric.name},
           {"kind", to_string(metric.kind)},
           {"slowdown", alarm.slowdown},
           {"slow_hours", alarm.slow_hours},
           {"evidence", evidence(*metric.assessment)}};
  one["since"] = rfc3339(alarm.since_hour * 3600);
  auto changes = json::array();
  for (const auto& change : alarm.changes)
    changes.push_back({{"name", change.name}, {"before", change.before}, {"now", change.now}});
  one["changes"] = std::move(changes);
  return one;
}

json check_json(const Report& report, const SuiteRun::Check& check) {
  json one{{"name", check.step},           {"result", to_string(check.outcome)},
           {"seconds", check.seconds},     {"detail", check.detail},
           {"cold", check.cold},           {"retried", check.retried},
           {"processes", check.processes}, {"warnings", check.warnings}};
  one["fetched_bytes"] = check.lazy ? json(check.fetched_bytes) : json(nullptr);
  auto facts = json::object();
  for (std::size_t i = 0; i < check.processes; ++i)
    for (const auto& [name, value] : report.run.results[check.first_result + i].facts) facts[name] = value;
  one["facts"] = std::move(facts);
  auto metrics = json::array();
  for (const auto& metric : report.metrics)
    if (metric.step == check.step && (metric.kind == MetricKind::kCold) == check.cold)
      metrics.push_back(metric_json(metric));
  one["metrics"] = std::move(metrics);
  return one;
}

std::string check_name(const SuiteRun::Check& check) { return check.step + (check.cold ? " (cold)" : ""); }

std::string test_case(const Report& report, const SuiteRun::Check& check) {
  auto text = fmt::format("  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\">\n", xml(report.identity.family),
                          xml(check_name(check)), check.seconds);
  if (check.outcome == Outcome::kFailed) text += fmt::format("    <failure message=\"{}\"/>\n", xml(check.detail));
  if (check.outcome == Outcome::kSkipped) text += fmt::format("    <skipped message=\"{}\"/>\n", xml(check.detail));
  std::string output;
  if (check.outcome == Outcome::kOk) output += check.detail + "\n";
  for (const auto& warning : check.warnings) output += "warning: " + warning + "\n";
  if (!output.empty()) text += fmt::format("    <system-out>{}</system-out>\n", xml(output));
  return text + "  </testcase>\n";
}

std::string test_case(const Report& report, const MetricReport& slow) {
  std::string lines;
  for (const auto& line : evidence(*slow.assessment)) lines += (lines.empty() ? "" : "\n") + line;
  return fmt::format(
      "  <testcase classname=\"{}\" name=\"{}\" time=\"0\">\n    <failure message=\"{}\"/>\n  </testcase>\n",
      xml(report.identity.family),
      xml(fmt::format("{} ({}) is no slower than it was", slow.name, to_string(slow.kind))), xml(lines));
}

}  // namespace

std::vector<const MetricReport*> Report::alarms() const {
  std::vector<const MetricReport*> slow;
  for (const auto& metric : metrics)
    if (metric.assessment && metric.assessment->alarm) slow.push_back(&metric);
  return slow;
}

void attach(Report& report, std::vector<Assessment> assessments) {
  for (auto& assessment : assessments) {
    const auto found = std::ranges::find_if(report.metrics, [&](const MetricReport& metric) {
      return metric.name == assessment.series.key.metric && metric.kind == assessment.series.key.kind;
    });
    if (found != report.metrics.end()) found->assessment = std::move(assessment);
  }
}

std::vector<MetricReport> metrics_of(const SuiteRun& run) {
  std::vector<MetricReport> metrics;
  for (const auto& result : run.results) {
    if (result.outcome != Outcome::kOk || result.throttled) continue;
    for (const auto& metric : result.metrics) {
      auto found = std::ranges::find_if(
          metrics, [&](const MetricReport& known) { return known.name == metric.name && known.kind == metric.kind; });
      if (found == metrics.end()) {
        MetricReport fresh;
        fresh.step = result.step, fresh.name = metric.name, fresh.kind = metric.kind;
        found = metrics.insert(found, std::move(fresh));
      }
      found->samples.push_back(metric.seconds);
    }
  }
  for (auto& metric : metrics) metric.median = median(metric.samples);
  return metrics;
}

json to_json(const Report& report) {
  const auto& identity = report.identity;
  json document{
      {"time", rfc3339(identity.unix_seconds)}, {"gpu", identity.machine.gpu}, {"driver", identity.machine.driver},
      {"machine", identity.machine.name},       {"lineage", identity.family},  {"ok", report.good()}};
  document["image"] = identity.image.empty() ? json(nullptr) : json(identity.image);
  document["no_gpu"] = report.run.no_gpu ? json(report.run.no_gpu_reason) : json(nullptr);
  auto checks = json::array(), alarms = json::array();
  for (const auto& check : report.run.checks) checks.push_back(check_json(report, check));
  for (const auto* slow : report.alarms()) alarms.push_back(alarm_json(*slow));
  document["checks"] = std::move(checks);
  document["alarms"] = std::move(alarms);
  return document;
}

std::string to_junit(const Report& report) {
  std::size_t failures = report.alarms().size(), skipped = 0;
  double seconds = 0;
  std::string cases;
  for (const auto& check : report.run.checks) {
    failures += check.outcome == Outcome::kFailed ? 1 : 0;
    skipped += check.outcome == Outcome::kSkipped ? 1 : 0;
    seconds += check.seconds;
    cases += test_case(report, check);
  }
  for (const auto* slow : report.alarms()) cases += test_case(report, *slow);
  const auto& identity = report.identity;
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"varve gpu-check\" tests=\"{}\" "
      "failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.3f}\" timestamp=\"{}\" "
      "hostname=\"{}\">\n"
      "  <properties>\n    <property name=\"gpu\" value=\"{}\"/>\n    <property name=\"driver\" value=\"{}\"/>\n "
      "   <property name=\"image\" value=\"{}\"/>\n  "
      "</properties>\n{}</testsuite>\n",
      report.run.checks.size() + report.alarms().size(), failures, skipped, seconds, rfc3339(identity.unix_seconds),
      xml(identity.machine.name), xml(identity.machine.gpu), xml(identity.machine.driver), xml(identity.image), cases);
}

}  // namespace varve::gpu
