#pragma once
// Numbers that a monitoring system asks for, and their text. Names follow Prometheus: `varve_`, then what is counted,
// its base unit (seconds, bytes), and `_total` where it only grows. Text: docs/guide/metrics.md, and
// prometheus.io/docs/instrumenting/exposition_formats (text format 0.0.4).
#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace varve {

// All of these may be changed and read from any thread, without a lock.
class Counter {
 public:
  void add(std::uint64_t amount = 1) noexcept { value_.fetch_add(amount, std::memory_order_relaxed); }
  // To what somebody else has counted; never down.
  void raise_to(std::uint64_t value) noexcept;
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

class Gauge {
 public:
  void set(double value) noexcept { value_.store(value, std::memory_order_relaxed); }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_ = 0;
};

// How many values were at most each bound, and their sum.
class Histogram {
 public:
  // Ascending, without infinity, which is always the last.
  explicit Histogram(const std::vector<double>& bounds);
  void observe(double value) noexcept;

  const std::vector<double>& bounds() const { return bounds_; }
  // Per bound, and one for what is beyond; not cumulative.
  std::vector<std::uint64_t> counts() const;
  double sum() const noexcept { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::vector<double>& bounds_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> counts_;
  std::atomic<double> sum_ = 0;
};

struct MetricFamily {
  std::string name;                      // "varve_fetched_bytes_total"
  std::string help;                      // a sentence
  std::vector<std::string> labels = {};  // names
  std::size_t max_series = 50;           // whatever comes as a label's value, there are never more
  std::vector<double> bounds = {};       // of histograms
};

// The value of all labels for what comes when a family has its max_series.
inline constexpr std::string_view kOtherSeries = "other";
inline constexpr std::size_t kMaxLabelBytes = 200;  // longer values are cut

// One number for each combination of values of its labels. Safe to use from any thread.
template <typename Metric>
class MetricSeries {
 public:
  explicit MetricSeries(MetricFamily family) : family_(std::move(family)) {}
  const MetricFamily& family() const { return family_; }

  // The number of these values, in the order of the names; any text may come. It begins at 0 and lives as long as the
  // registry: who needs it often keeps it. Throws Error for another number of values.
  Metric& of(std::initializer_list<std::string_view> values);
  Metric& operator*() { return of({}); }
  Metric* operator->() { return &of({}); }

  // In order of the values.
  using Visit = std::function<void(const std::vector<std::string>& values, const Metric& metric)>;
  void for_each(const Visit& visit) const;

 private:
  const MetricFamily family_;
  mutable std::mutex mutex_;
  std::map<std::vector<std::string>, std::unique_ptr<Metric>> series_;
};

// The numbers of one program. Safe to use from any thread.
class MetricRegistry {
 public:
  // Each name once. Throws Error for a name or label that Prometheus does not know, a counter whose name does not end
  // in _total, and a name that is there already.
  MetricSeries<Counter>& counter(MetricFamily family);
  MetricSeries<Gauge>& gauge(MetricFamily family);
  MetricSeries<Histogram>& histogram(MetricFamily family);

  // Called before each text(), in its thread, to set gauges of what knows its own state.
  void before_text(std::function<void()> refresh);

  // All families in the order of their names, those without a number yet too.
  std::string text();
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct Families {
    std::map<std::string, std::unique_ptr<MetricSeries<Counter>>> counters;
    std::map<std::string, std::unique_ptr<MetricSeries<Gauge>>> gauges;
    std::map<std::string, std::unique_ptr<MetricSeries<Histogram>>> histograms;
    std::vector<std::function<void()>> refresh;
  };
  template <typename Metric>
  using Kind = std::map<std::string, std::unique_ptr<MetricSeries<Metric>>> Families::*;
  template <typename Metric>
  MetricSeries<Metric>& add(MetricFamily family, Kind<Metric> kind);

  std::mutex mutex_;  // of families_; never held while refresh functions run
  Families families_;
};

// Bounds in seconds for what takes milliseconds to a minute: requests, starts.
const std::vector<double>& duration_bounds();

}  // namespace varve
