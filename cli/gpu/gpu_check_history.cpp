#include "cli/gpu/gpu_check_history.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <ostream>
#include <span>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"
#include "gpu/alarm.h"
#include "gpu/history.h"
#include "gpu/probe_output.h"
#include "gpu/text.h"

namespace varve::cli {
namespace {

using nlohmann::json;

constexpr std::uint32_t kFailuresOfRuns = 168;  // a week of hours
constexpr std::size_t kHoursShown = 60;
constexpr std::int64_t kSecondsPerHour = 3600;

std::string user_name() {
  const auto* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? std::to_string(::geteuid()) : entry->pw_name;
}

json series_json(const gpu::Series& series) {
  auto hours = json::array();
  for (const auto& hour : series.hours)
    hours.push_back({{"time", rfc3339(hour.hour * kSecondsPerHour)},
                     {"median", gpu::median(hour.samples)},
                     {"samples", hour.samples},
                     {"suspicious", hour.suspicious}});
  const auto judgement = gpu::judge(series.hours, series.key.kind);
  json one{{"metric", series.key.metric},
           {"kind", to_string(series.key.kind)},
           {"gpu", series.key.gpu},
           {"driver", series.key.driver},
           {"lineage", series.key.family},
           {"state", gpu::state_name(judgement.state)},
           {"hours", hours}};
  one["accepted"] = series.accepted ? json{{"reason", series.accepted->reason},
                                           {"user", series.accepted->user},
                                           {"from", rfc3339(series.accepted->from_hour * kSecondsPerHour)}}
                                    : json(nullptr);
  return one;
}

void print_series(const Context& context, const gpu::Series& series) {
  const auto judgement = gpu::judge(series.hours, series.key.kind);
  context.out << fmt::format("{} ({}), {} on {}, driver {}: {}\n", printable(series.key.metric),
                             to_string(series.key.kind), printable(series.key.family), printable(series.key.gpu),
                             printable(series.key.driver), gpu::state_name(judgement.state));
  const auto shown = std::span(series.hours).last(std::min(series.hours.size(), kHoursShown));
  if (!shown.empty())
    context.out << fmt::format(
        "  {}\n  {} to {}{}\n", gpu::sparkline(shown, judgement, {.width = kHoursShown, .utf8 = gpu::locale_is_utf8()}),
        gpu::hour_text(shown.front().hour), gpu::hour_text(shown.back().hour),
        judgement.threshold > 0 ? fmt::format(": {}, baseline {}, threshold {}", gpu::time_text(judgement.median),
                                              gpu::time_text(judgement.baseline), gpu::time_text(judgement.threshold))
                                : "");
  if (series.accepted)
    context.out << fmt::format("  accepted from {} on by {}: {}\n", gpu::hour_text(series.accepted->from_hour),
                               printable(series.accepted->user), printable(series.accepted->reason));
  context.out << '\n';
}

}  // namespace

std::string history_database(const Context& context, const std::string& wanted) {
  return wanted.empty() ? (context.global.root / "gpu" / "history.db").string() : wanted;
}

void keep_and_assess(const std::string& database, gpu::Report& report) {
  auto history = gpu::History::open(database);
  history.add(report.identity, report.run.results);
  gpu::attach(report, gpu::assess(history, gpu::SeriesFilter::of(report.identity),
                                  report.identity.unix_seconds / kSecondsPerHour));
}

void show_history(const Context& context, const std::string& database, const std::string& family) {
  const auto history = gpu::History::open(database);
  const gpu::SeriesFilter filter{.metric = {}, .gpu = {}, .driver = {}, .family = family};
  const auto all = history.series(filter);
  const auto failures = history.failures(filter, kFailuresOfRuns);
  if (context.global.json) {
    auto series = json::array(), failed = json::array();
    for (const auto& one : all) series.push_back(series_json(one));
    for (const auto& failure : failures)
      failed.push_back({{"time", rfc3339(failure.unix_seconds)}, {"step", failure.step}, {"detail", failure.detail}});
    return context.print_json({{"series", series}, {"failures", failed}});
  }
  if (all.empty() && failures.empty())
    context.out << "no run is kept in " << printable(database) << (family.empty() ? "" : " of " + printable(family))
                << '\n';
  for (const auto& one : all) print_series(context, one);
  for (const auto& failure : failures)
    context.out << fmt::format("{} {} failed: {}\n", rfc3339(failure.unix_seconds), printable(failure.step),
                               printable(failure.detail));
}

void accept_metric(const Context& context, const std::string& database, const AcceptedMetric& accepted) {
  auto history = gpu::History::open(database);
  const auto changed = history.accept(
      {.metric = accepted.metric, .gpu = {}, .driver = {}, .family = accepted.family},
      {.from_hour = 0, .unix_seconds = std::time(nullptr), .user = user_name(), .reason = accepted.reason});
  if (context.global.json) {
    auto list = json::array();
    for (const auto& one : changed) list.push_back(series_json(one));
    return context.print_json({{"accepted", list}});
  }
  for (const auto& one : changed)
    context.out << fmt::format("{} ({}) of {} on {}, driver {}: judged by the hours from {} on\n",
                               printable(one.key.metric), to_string(one.key.kind), printable(one.key.family),
                               printable(one.key.gpu), printable(one.key.driver),
                               one.accepted ? gpu::hour_text(one.accepted->from_hour) : "now");
}

}  // namespace varve::cli
