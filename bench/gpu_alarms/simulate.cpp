#include "bench/gpu_alarms/simulate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>
#include <random>

namespace varve::gpu {
namespace {

constexpr std::uint32_t kWeek = 168;
constexpr double kBusyHours = 0.005, kBusyFactor = 1.5;
constexpr double kDriftPerWeek = 0.2, kDailyWave = 0.3;  // of what is tolerated
// Rules look back no further than this: 168 clean hours, and room for those that are not.
constexpr std::size_t kWindow = 400;

// Of one repetition; what hours differ by is half of it. Assumed, not measured: a fifth to a half of what is tolerated.
double noise_of(MetricKind kind) {
  switch (kind) {
    case MetricKind::kSteady:
      return 0.01;
    case MetricKind::kFirstCall:
      return 0.03;
    case MetricKind::kCold:
      break;
  }
  return 0.12;
}

// Made by hand: the standard leaves open which numbers its distributions give.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return double(engine_() >> 11) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * std::numbers::pi * uniform()); }

 private:
  std::mt19937_64 engine_;
};

class SeriesMaker {
 public:
  SeriesMaker(const SimulatedRow& row, const SimulationOptions& options, std::uint64_t seed)
      : row_(row), outliers_(options.outliers), dice_(seed) {}

  Hour next(double slowdown) {
    Hour hour{.hour = ++at_, .samples = {}, .suspicious = false};
    const double level = 0.01 * slowdown * shape() * std::exp(dice_.normal() * row_.noise / 2);
    for (std::uint32_t i = 0; i < row_.repetitions; ++i) {
      const double outlier = dice_.uniform() < outliers_ ? 1.3 + 2.7 * dice_.uniform() : 1;
      hour.samples.push_back(level * std::exp(dice_.normal() * row_.noise) * outlier);
    }
    return hour;
  }

 private:
  double shape() {
    const double delta = tolerated(row_.kind);
    switch (row_.shape) {
      case SeriesShape::kDrift:
        return 1 + delta * kDriftPerWeek * double(at_) / kWeek;
      case SeriesShape::kDaily:
        return 1 + delta * kDailyWave * std::sin(2 * std::numbers::pi * double(at_) / 24);
      case SeriesShape::kBusy:
        return dice_.uniform() < kBusyHours ? kBusyFactor : 1;
      case SeriesShape::kNoise:
        break;
    }
    return 1;
  }

  const SimulatedRow& row_;
  double outliers_;
  Dice dice_;
  std::int64_t at_ = 0;
};

// A series as the history keeps it: judged hour by hour.
class JudgedSeries {
 public:
  explicit JudgedSeries(MetricKind kind) : kind_(kind) {}
  const Judgement& add(Hour hour) {
    hours_.push_back(std::move(hour));
    judgement_ = judge(recent(kWindow), kind_);
    hours_.back().suspicious = judgement_.suspicious();
    return judgement_;
  }
  std::span<const Hour> recent(std::size_t most) const { return std::span(hours_).last(std::min(hours_.size(), most)); }

 private:
  MetricKind kind_;
  std::vector<Hour> hours_;
  Judgement judgement_;
};

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

bool mean_rule_alarms(std::span<const Hour> hours) {
  std::vector<double> means;
  for (const auto& hour : hours.first(hours.size() - 1)) means.push_back(mean(hour.samples));
  const double middle = mean(means);
  double squares = 0;
  for (const auto value : means) squares += (value - middle) * (value - middle);
  return mean(hours.back().samples) > middle + 3 * std::sqrt(squares / double(means.size() - 1));
}

bool rank_rule_alarms(std::span<const Hour> hours) {
  std::vector<double> now, before;
  for (const auto& hour : hours.last(kRecentHours)) now.insert(now.end(), hour.samples.begin(), hour.samples.end());
  const auto older = hours.first(hours.size() - kRecentHours);
  for (const auto& hour : older.last(std::min<std::size_t>(older.size(), kRecentHours * kCleanPerRecentHour)))
    before.insert(before.end(), hour.samples.begin(), hour.samples.end());
  return mann_whitney_z(now, before) > kAlarmZ;
}

void count_false_alarms(SimulatedRow& row, const SimulationOptions& options, std::uint64_t seed) {
  SeriesMaker maker(row, options, seed);
  JudgedSeries series(row.kind);
  for (std::uint32_t hour = 0; hour < kLearningHours; ++hour) series.add(maker.next(1));
  for (std::uint32_t hour = 0; hour < options.hours; ++hour) {
    const auto& judgement = series.add(maker.next(1));
    row.alarms += judgement.state == Judgement::State::kAlarm ? 1 : 0;
    row.suspicious += judgement.suspicious() ? 1 : 0;
    row.mean_alarms += mean_rule_alarms(series.recent(kBaselineHours + 1)) ? 1 : 0;
    row.rank_alarms += rank_rule_alarms(series.recent(kBaselineHours)) ? 1 : 0;
  }
  row.hours += options.hours;
}

// Absent where a week did not show it.
std::optional<std::uint32_t> delay_of_shift(const SimulatedRow& row, const SimulationOptions& options,
                                            std::uint64_t seed) {
  SeriesMaker maker(row, options, seed);
  JudgedSeries series(row.kind);
  for (std::uint32_t hour = 0; hour < kWeek; ++hour) series.add(maker.next(1));
  const double slowdown = 1 + options.shift * tolerated(row.kind);
  for (std::uint32_t delay = 0; delay < kWeek; ++delay)
    if (series.add(maker.next(slowdown)).state == Judgement::State::kAlarm) return delay;
  return std::nullopt;
}

std::vector<SimulatedRow> rows_of(const SimulationOptions& options) {
  std::vector<SimulatedRow> rows;
  for (const auto kind : {MetricKind::kSteady, MetricKind::kFirstCall, MetricKind::kCold})
    for (const auto shape : {SeriesShape::kNoise, SeriesShape::kDrift, SeriesShape::kDaily, SeriesShape::kBusy})
      rows.push_back(
          {.kind = kind, .shape = shape, .repetitions = options.repetitions, .noise = noise_of(kind), .delays = {}});
  if (options.repetitions > 1)
    rows.push_back({.kind = MetricKind::kCold,
                    .shape = SeriesShape::kNoise,
                    .repetitions = 1,
                    .noise = noise_of(MetricKind::kCold),
                    .delays = {}});
  return rows;
}

}  // namespace

std::string_view shape_name(SeriesShape shape) {
  switch (shape) {
    case SeriesShape::kNoise:
      return "noise";
    case SeriesShape::kDrift:
      return "drift";
    case SeriesShape::kDaily:
      return "daily wave";
    case SeriesShape::kBusy:
      break;
  }
  return "busy hours";
}

bool Simulation::holds() const {
  return std::ranges::all_of(rows, [](const SimulatedRow& row) {
    if (row.repetitions == 1) return true;
    if (row.alarms != 0 && row.shape != SeriesShape::kBusy) return false;
    if (row.shifts == 0) return true;
    return row.delays.size() == row.shifts && row.delays.back() <= (row.kind == MetricKind::kCold ? 7U : 2U);
  });
}

Simulation simulate(const SimulationOptions& options) {
  Simulation simulation{.options = options, .rows = rows_of(options)};
  std::uint64_t seed = options.seed << 32;  // every series its own
  for (auto& row : simulation.rows) {
    for (std::uint32_t i = 0; i < options.series; ++i) count_false_alarms(row, options, ++seed);
    for (row.shifts = 0; row.shifts < options.shifts; ++row.shifts) {
      if (const auto delay = delay_of_shift(row, options, ++seed)) row.delays.push_back(*delay);
    }
    std::ranges::sort(row.delays);
  }
  return simulation;
}

}  // namespace varve::gpu
