#include "gpu/alarm.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "gpu/text.h"

namespace varve::gpu {
namespace {

using State = Judgement::State;

std::vector<double> all_samples(std::span<const Hour> hours) {
  std::vector<double> samples;
  for (const auto& hour : hours) samples.insert(samples.end(), hour.samples.begin(), hour.samples.end());
  return samples;
}

std::vector<Hour> newest_clean(const Series& series, std::size_t most) {
  std::vector<Hour> clean;
  for (auto hour = series.hours.rbegin(); hour != series.hours.rend() && clean.size() < most; ++hour)
    if (!hour->suspicious) clean.push_back(*hour);
  return clean;
}

std::optional<DriverChange> driver_change(const History& history, const Series& series) {
  const auto& key = series.key;
  const auto begin = series.hours.front().hour;
  std::optional<Series> before;
  for (auto& other :
       history.series({.metric = key.metric, .gpu = key.gpu, .driver = {}, .family = key.family}, begin - 1))
    if (other.key.kind == key.kind && other.key.gpu == key.gpu && other.key.family == key.family &&
        other.key.driver != key.driver && (!before || before->hours.back().hour < other.hours.back().hour))
      before = std::move(other);
  if (!before) return std::nullopt;
  const auto clean = newest_clean(*before, kRecentHours * kCleanPerRecentHour);
  if (clean.size() < kRecentHours) return std::nullopt;
  std::vector<double> medians_before, medians;
  for (const auto& hour : clean) medians_before.push_back(median(hour.samples));
  for (const auto& hour : series.hours) medians.push_back(median(hour.samples));
  DriverChange change{.driver_before = before->key.driver, .baseline_before = median(medians_before)};
  change.ratio = median(medians) / change.baseline_before;
  change.z = mann_whitney_z(all_samples(series.hours), all_samples(clean));
  change.slower = medians.size() >= kSuspiciousForAlarm && change.ratio > 1 + tolerated(key.kind) && change.z > kAlarmZ;
  return change;
}

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

}  // namespace

std::string_view state_name(State state) {
  switch (state) {
    case State::kLearning:
      return "learning";
    case State::kGood:
      return "good";
    case State::kSuspicious:
      return "suspicious";
    case State::kAlarm:
      break;
  }
  return "alarm";
}

Alarm make_alarm(const Series& series, const Judgement& judgement, std::vector<Change> changes) {
  Alarm alarm{.since_hour = slow_since(series.hours, judgement), .samples = {}, .changes = std::move(changes)};
  std::vector<double> medians;
  std::uint32_t clean = 0;
  for (std::size_t i = series.hours.size(); i-- > 0;) {
    const auto& hour = series.hours[i];
    const bool last = i + 1 == series.hours.size();
    if (last ? judgement.suspicious() : hour.suspicious) {
      if (hour.hour >= alarm.since_hour) medians.push_back(median(hour.samples));
    } else if (!last && clean < judgement.clean_hours) {
      if (clean++ == 0) alarm.baseline_last_hour = hour.hour;
      alarm.baseline_first_hour = hour.hour;
    }
  }
  alarm.slow_hours = std::uint32_t(medians.size());
  alarm.slow_median = median(medians);
  alarm.slowdown = judgement.baseline > 0 ? alarm.slow_median / judgement.baseline - 1 : 0;
  if (!series.hours.empty()) alarm.samples = series.hours.back().samples;
  return alarm;
}

std::vector<Assessment> assess(const History& history, const SeriesFilter& filter, std::int64_t hour) {
  std::vector<Assessment> assessments;
  for (auto& series : history.series(filter, hour)) {
    if (!series.current) continue;
    Assessment assessment{.series = std::move(series), .judgement = {}, .alarm = {}, .driver_change = {}};
    assessment.judgement = judge(assessment.series.hours, assessment.series.key.kind);
    if (assessment.judgement.state == State::kAlarm)
      assessment.alarm =
          make_alarm(assessment.series, assessment.judgement,
                     history.changes(assessment.series, slow_since(assessment.series.hours, assessment.judgement)));
    if (assessment.judgement.state == State::kLearning && !assessment.series.accepted)
      assessment.driver_change = driver_change(history, assessment.series);
    assessments.push_back(std::move(assessment));
  }
  std::ranges::stable_partition(assessments, [](const Assessment& assessment) { return assessment.alarm.has_value(); });
  return assessments;
}

std::string remark(const Assessment& assessment) {
  const auto& judgement = assessment.judgement;
  const auto now = time_text(judgement.median);
  switch (judgement.state) {
    case State::kLearning: {
      auto text = fmt::format("learning: {}, {} of {} clean hours", now, judgement.clean_hours, kLearningHours);
      if (const auto& accepted = assessment.series.accepted)
        text += fmt::format(" since {}, as {} accepted: {}", hour_text(accepted->from_hour), accepted->user,
                            accepted->reason);
      if (const auto& change = assessment.driver_change; change && change->slower)
        text += fmt::format("; {} slower than with driver {} (z {:.1f})", percent(change->ratio - 1),
                            change->driver_before, change->z);
      return text;
    }
    case State::kGood:
      return fmt::format("good: {}, baseline {}", now, time_text(judgement.baseline));
    case State::kSuspicious:
      return fmt::format("suspicious: {} is above {}, baseline {}; {} of the last {} hours", now,
                         time_text(judgement.threshold), time_text(judgement.baseline), judgement.suspicious_hours,
                         kRecentHours);
    case State::kAlarm:
      break;
  }
  return fmt::format("alarm: {} slower since {}", percent(assessment.alarm ? assessment.alarm->slowdown : 0),
                     hour_text(assessment.alarm ? assessment.alarm->since_hour : 0));
}

std::vector<std::string> evidence(const Assessment& assessment) {
  if (!assessment.alarm) return {};
  const auto& alarm = *assessment.alarm;
  const auto& judgement = assessment.judgement;
  const auto& key = assessment.series.key;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} ({}) is {} slower than it was: {} instead of {}", key.metric, to_string(key.kind),
                              percent(alarm.slowdown), time_text(alarm.slow_median), time_text(judgement.baseline)));
  lines.push_back(fmt::format("on {}, driver {}, image {}", key.gpu, key.driver, key.family));
  lines.push_back(fmt::format("since {}: {} slow hours, {} of the last {}", hour_text(alarm.since_hour),
                              alarm.slow_hours, judgement.suspicious_hours, kRecentHours));
  lines.push_back(fmt::format("baseline of {} clean hours from {} to {}, spread {}; slow is above {}",
                              judgement.clean_hours, hour_text(alarm.baseline_first_hour),
                              hour_text(alarm.baseline_last_hour), time_text(judgement.spread),
                              time_text(judgement.threshold)));
  lines.push_back(
      fmt::format("rank test of the last hours against clean ones: z = {:.1f}, alarm above {}", judgement.z, kAlarmZ));
  std::vector<std::string> samples;
  for (const auto seconds : alarm.samples) samples.push_back(time_text(seconds));
  constexpr std::size_t kShown = 14;
  const auto more = samples.size() > kShown ? fmt::format(" and {} more", samples.size() - kShown) : std::string();
  if (!more.empty()) samples.resize(kShown);
  lines.push_back(fmt::format("last samples: {}{}", fmt::join(samples, ", "), more));
  for (const auto& change : alarm.changes)
    lines.push_back(fmt::format("changed meanwhile: {} was {}, is {}", change.name,
                                change.before.empty() ? "absent" : change.before,
                                change.now.empty() ? "absent" : change.now));
  if (alarm.changes.empty())
    lines.emplace_back("nothing that the runs tell of the machine or the image changed meanwhile");
  if (const auto& accepted = assessment.series.accepted)
    lines.push_back(fmt::format("the baseline begins at {}, as {} accepted: {}", hour_text(accepted->from_hour),
                                accepted->user, accepted->reason));
  return lines;
}

}  // namespace varve::gpu
