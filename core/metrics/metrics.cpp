#include "core/metrics/metrics.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/base/errors.h"
#include "core/base/text/safe_text.h"

namespace varve {
namespace {

bool is_name(std::string_view name) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return !name.empty() && is_letter(name[0]) && std::ranges::all_of(name, [&](char c) {
    return is_letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

// Two underscores begin names that Prometheus keeps for itself; `le` is the label of a histogram's bounds.
bool is_label(std::string_view name) { return is_name(name) && !name.starts_with("__") && name != "le"; }

void check(const MetricFamily& family) {
  if (!is_name(family.name)) fail<Error>("metric '{}': that is no name of a metric", family.name);
  if (family.help.empty()) fail<Error>("metric '{}': it does not say what it is", family.name);
  for (const auto& label : family.labels)
    if (!is_label(label)) fail<Error>("metric '{}': '{}' is no name of a label", family.name, label);
  if (family.max_series == 0) fail<Error>("metric '{}': it may have no series", family.name);
}

std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '"' && quotes)
      out += "\\\"";
    else
      out += c;
  }
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
  return fmt::format("{}", value);
}

// {a="x",b="y"}; "" where there are none. `last` is one more, ready to be written.
std::string labels_text(const MetricFamily& family, const std::vector<std::string>& values,
                        const std::string& last = {}) {
  std::string text;
  for (std::size_t i = 0; i < family.labels.size(); ++i)
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", family.labels[i], escaped(values[i], true));
  if (!last.empty()) text += (text.empty() ? "" : ",") + last;
  return text.empty() ? text : "{" + text + "}";
}

void write_head(const MetricFamily& family, std::string_view type, std::string& out) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", family.name, escaped(family.help, false), family.name, type);
}

void write(const MetricSeries<Counter>& series, std::string& out) {
  write_head(series.family(), "counter", out);
  series.for_each([&](const auto& values, const Counter& counter) {
    out += fmt::format("{}{} {}\n", series.family().name, labels_text(series.family(), values), counter.value());
  });
}

void write(const MetricSeries<Gauge>& series, std::string& out) {
  write_head(series.family(), "gauge", out);
  series.for_each([&](const auto& values, const Gauge& gauge) {
    out += fmt::format("{}{} {}\n", series.family().name, labels_text(series.family(), values),
                       number_text(gauge.value()));
  });
}

void write(const MetricSeries<Histogram>& series, std::string& out) {
  const auto& family = series.family();
  write_head(family, "histogram", out);
  series.for_each([&](const auto& values, const Histogram& histogram) {
    const auto counts = histogram.counts();
    std::uint64_t at_most = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      at_most += counts[i];
      const auto bound = i < family.bounds.size() ? number_text(family.bounds[i]) : "+Inf";
      out += fmt::format("{}_bucket{} {}\n", family.name, labels_text(family, values, fmt::format("le=\"{}\"", bound)),
                         at_most);
    }
    const auto labels = labels_text(family, values);
    out +=
        fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", family.name, labels, number_text(histogram.sum()), at_most);
  });
}

}  // namespace

void Counter::raise_to(std::uint64_t value) noexcept {
  auto before = value_.load(std::memory_order_relaxed);
  while (before < value && !value_.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

Histogram::Histogram(const std::vector<double>& bounds)
    : bounds_(bounds), counts_(std::make_unique<std::atomic<std::uint64_t>[]>(bounds.size() + 1)) {}

void Histogram::observe(double value) noexcept {
  const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  counts_[std::size_t(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<std::uint64_t> Histogram::counts() const {
  std::vector<std::uint64_t> counts;
  for (std::size_t i = 0; i <= bounds_.size(); ++i) counts.push_back(counts_[i].load(std::memory_order_relaxed));
  return counts;
}

template <typename Metric>
Metric& MetricSeries<Metric>::of(std::initializer_list<std::string_view> values) {
  if (values.size() != family_.labels.size())
    fail<Error>("metric {}: {} values for {} labels", family_.name, values.size(), family_.labels.size());
  std::vector<std::string> key;
  for (const auto value : values) key.push_back(single_line(value, kMaxLabelBytes));
  const std::lock_guard lock(mutex_);
  auto found = series_.find(key);
  if (found != series_.end()) return *found->second;
  // The last place is that of the others.
  if (!key.empty() && series_.size() + 1 >= family_.max_series) key.assign(key.size(), std::string(kOtherSeries));
  auto& metric = series_[key];
  if (!metric) {
    if constexpr (std::is_same_v<Metric, Histogram>)
      metric = std::make_unique<Metric>(family_.bounds);
    else
      metric = std::make_unique<Metric>();
  }
  return *metric;
}

template <typename Metric>
void MetricSeries<Metric>::for_each(const Visit& visit) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [values, metric] : series_) visit(values, *metric);
}

template class MetricSeries<Counter>;
template class MetricSeries<Gauge>;
template class MetricSeries<Histogram>;

template <typename Metric>
MetricSeries<Metric>& MetricRegistry::add(MetricFamily family, Kind<Metric> kind) {
  check(family);
  const std::lock_guard lock(mutex_);
  const auto& name = family.name;
  if (families_.counters.contains(name) || families_.gauges.contains(name) || families_.histograms.contains(name))
    fail<Error>("metric '{}' is there already", name);
  auto& added = (families_.*kind)[name];
  added = std::make_unique<MetricSeries<Metric>>(family);
  if (added->family().labels.empty()) added->of({});  // 0 is told before it happens the first time
  return *added;
}

MetricSeries<Counter>& MetricRegistry::counter(MetricFamily family) {
  if (!family.name.ends_with("_total")) fail<Error>("metric '{}': a counter ends in _total", family.name);
  return add<Counter>(std::move(family), &Families::counters);
}

MetricSeries<Gauge>& MetricRegistry::gauge(MetricFamily family) {
  return add<Gauge>(std::move(family), &Families::gauges);
}

MetricSeries<Histogram>& MetricRegistry::histogram(MetricFamily family) {
  if (!std::ranges::is_sorted(family.bounds, std::ranges::less_equal()) || family.bounds.empty() ||
      std::isinf(family.bounds.back()))
    fail<Error>("metric '{}': its bounds do not ascend", family.name);
  return add<Histogram>(std::move(family), &Families::histograms);
}

void MetricRegistry::before_text(std::function<void()> refresh) {
  const std::lock_guard lock(mutex_);
  families_.refresh.push_back(std::move(refresh));
}

std::string MetricRegistry::text() {
  std::vector<std::function<void()>> refresh;
  {
    const std::lock_guard lock(mutex_);
    refresh = families_.refresh;
  }
  for (const auto& one : refresh) one();
  const std::lock_guard lock(mutex_);
  std::map<std::string_view, std::string> texts;
  for (const auto& [name, series] : families_.counters) write(*series, texts[name]);
  for (const auto& [name, series] : families_.gauges) write(*series, texts[name]);
  for (const auto& [name, series] : families_.histograms) write(*series, texts[name]);
  std::string text;
  for (const auto& [name, part] : texts) text += part;
  return text;
}

const std::vector<double>& duration_bounds() {
  static const std::vector<double> bounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                          0.5,   1,      2.5,   5,    10,    30,   60};
  return bounds;
}

}  // namespace varve
