#pragma once
// What is to be said of each metric after a run: good, learning, or slower, and then with all that speaks for it.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/history.h"

namespace varve::gpu {

struct Alarm {
  std::int64_t since_hour = 0;   // the first slow hour
  std::uint32_t slow_hours = 0;  // suspicious ones since then, the last included
  double slow_median = 0;        // of their medians
  double slowdown = 0;           // 0.12: 12 % slower than the baseline
  std::int64_t baseline_first_hour = 0, baseline_last_hour = 0;
  std::vector<double> samples;  // of the last hour
  std::vector<Change> changes;  // between the clean hours and the slow ones
};

// A new driver begins a new history. Whether it made the metric slower is told by the history that ended.
struct DriverChange {
  std::string driver_before;
  double baseline_before = 0;
  double ratio = 0;  // median of all hours so far / baseline_before
  double z = 0;
  bool slower = false;  // by more than is tolerated, and the rank test agrees
};

struct Assessment {
  Series series;
  Judgement judgement;
  std::optional<Alarm> alarm;                 // of state kAlarm
  std::optional<DriverChange> driver_change;  // while learning, if the same GPU and family had another driver before
};

std::string_view state_name(Judgement::State state);  // "learning" "good" "suspicious" "alarm"

// Every series that the filter leaves and that was measured in that hour, alarms first, then as series() has them.
std::vector<Assessment> assess(const History& history, const SeriesFilter& filter, std::int64_t hour);

Alarm make_alarm(const Series& series, const Judgement& judgement, std::vector<Change> changes);

// One line without the metric's name: "good: 7.12 ms, baseline 7.10 ms", "learning: 12 of 48 hours, ...".
std::string remark(const Assessment& assessment);

// An alarm as lines for people: which metric, how much, since when, against what, what changed meanwhile, what can be
// done. Empty without an alarm. Names and values that an image chose are in them as they are: not for a terminal before
// they were made printable.
std::vector<std::string> evidence(const Assessment& assessment);

}  // namespace varve::gpu
