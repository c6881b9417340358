#include "gpu/judge.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <tuple>

namespace varve::gpu {
namespace {

constexpr double kSpreads = 4;
constexpr double kMadToDeviation = 1.4826;
// Hours that may be tested at most, where they hold few samples.
constexpr std::uint32_t kMostRecentHours = 7;
constexpr std::size_t kResamples = 10'000;

void append(std::vector<double>& to, const std::vector<double>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

// Medians of the newest clean hours, the last `most` of them.
std::vector<double> clean_medians(std::span<const Hour> hours, std::uint32_t most) {
  std::vector<double> medians;
  for (auto hour = hours.rbegin(); hour != hours.rend() && medians.size() < most; ++hour)
    if (!hour->suspicious && !hour->samples.empty()) medians.push_back(median(hour->samples));
  return medians;
}

double z_of_last_hours(std::span<const Hour> hours) {
  std::vector<double> now, before;
  std::size_t recent = 0;
  while (recent < hours.size() && (recent < kRecentHours || (now.size() < kTestedSamples && recent < kMostRecentHours)))
    append(now, hours[hours.size() - ++recent].samples);
  std::size_t clean = 0;
  const auto older = hours.first(hours.size() - recent);
  for (auto hour = older.rbegin(); hour != older.rend() && clean < recent * kCleanPerRecentHour; ++hour) {
    if (hour->suspicious) continue;
    append(before, hour->samples);
    ++clean;
  }
  return mann_whitney_z(now, before);
}

}  // namespace

double tolerated(MetricKind kind) {
  switch (kind) {
    case MetricKind::kSteady:
      return 0.05;
    case MetricKind::kFirstCall:
      return 0.10;
    case MetricKind::kCold:
      break;
  }
  return 0.25;
}

Judgement judge(std::span<const Hour> hours, MetricKind kind) {
  Judgement judgement;
  if (hours.empty() || hours.back().samples.empty()) return judgement;
  const auto earlier = hours.first(hours.size() - 1);
  const auto medians = clean_medians(earlier, kBaselineHours);
  judgement.median = median(hours.back().samples);
  judgement.clean_hours = std::uint32_t(medians.size());
  judgement.baseline = median(medians);
  judgement.spread = spread(medians);
  if (medians.size() < kLearningHours) return judgement;

  judgement.threshold =
      judgement.baseline + std::max(tolerated(kind) * judgement.baseline, kSpreads * judgement.spread);
  const bool suspicious = judgement.median > judgement.threshold;
  const auto last = earlier.last(std::min<std::size_t>(earlier.size(), kRecentHours - 1));
  judgement.suspicious_hours = std::uint32_t(std::ranges::count_if(last, &Hour::suspicious)) + (suspicious ? 1 : 0);
  judgement.z = z_of_last_hours(hours);
  if (judgement.suspicious_hours >= kSuspiciousForAlarm && judgement.z > kAlarmZ)
    judgement.state = Judgement::State::kAlarm;
  else
    judgement.state = suspicious ? Judgement::State::kSuspicious : Judgement::State::kGood;
  return judgement;
}

std::int64_t slow_since(std::span<const Hour> hours, const Judgement& judgement) {
  std::int64_t since = 0;
  unsigned good_in_a_row = 0;
  for (std::size_t i = hours.size(); i-- > 0 && good_in_a_row < 2;) {
    const bool suspicious = i + 1 == hours.size() ? judgement.suspicious() : hours[i].suspicious;
    good_in_a_row = suspicious ? 0 : good_in_a_row + 1;
    if (suspicious) since = hours[i].hour;
  }
  return since;
}

double median(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + std::ptrdiff_t(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  if (sorted.size() % 2 == 1) return *middle;
  return std::midpoint(*std::max_element(sorted.begin(), middle), *middle);
}

double spread(std::span<const double> values) {
  const double middle = median(values);
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const auto value : values) distances.push_back(std::abs(value - middle));
  return kMadToDeviation * median(distances);
}

double mann_whitney_z(std::span<const double> now, std::span<const double> before) {
  if (now.empty() || before.empty()) return 0;
  std::vector<std::pair<double, bool>> all;  // value, is of `now`
  all.reserve(now.size() + before.size());
  for (const auto value : now) all.emplace_back(value, true);
  for (const auto value : before) all.emplace_back(value, false);
  std::ranges::sort(all);
  double rank_sum = 0, ties = 0;
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    std::size_t of_now = 0;
    for (end = begin; end < all.size() && all[end].first == all[begin].first; ++end) of_now += all[end].second ? 1 : 0;
    const auto alike = double(end - begin);
    rank_sum +=
        double(of_now) * (double(begin + 1) + double(end)) / 2;  // ranks begin at 1; those of equal values are shared
    ties += alike * (alike * alike - 1);
  }
  const auto m = double(now.size()), n = double(before.size()), total = m + n;
  const double u = rank_sum - m * (m + 1) / 2;
  const double variance = m * n / 12 * (total + 1 - ties / (total * (total - 1)));
  return variance > 0 ? (u - m * n / 2) / std::sqrt(variance) : 0;
}

Comparison compare(std::span<const std::pair<double, double>> pairs, MetricKind kind, std::uint64_t seed) {
  Comparison comparison;
  if (pairs.empty()) return comparison;
  std::vector<double> a(pairs.size()), b(pairs.size());
  const auto ratio_of = [&](auto&& pick) {
    for (std::size_t i = 0; i < pairs.size(); ++i) std::tie(a[i], b[i]) = pick(i);
    return median(b) / median(a);
  };
  comparison.ratio = ratio_of([&](std::size_t i) { return pairs[i]; });
  // Pairs stay together, so that what changed slowly meanwhile (heat, neighbours) cancels as it did when they were
  // measured.
  std::mt19937_64 random(seed);
  std::vector<double> ratios(kResamples);
  for (auto& ratio : ratios) ratio = ratio_of([&](std::size_t) { return pairs[random() % pairs.size()]; });
  std::ranges::sort(ratios);
  comparison.low = ratios[kResamples * 25 / 1000];
  comparison.high = ratios[kResamples * 975 / 1000 - 1];
  const double limit = 1 + tolerated(kind);
  if (pairs.size() < kMinimumPairs) return comparison;
  if (comparison.low > limit)
    comparison.verdict = Comparison::Verdict::kSlower;
  else if (comparison.high <= limit)
    comparison.verdict = Comparison::Verdict::kNotSlower;
  return comparison;
}

}  // namespace varve::gpu
