#include "gpu/chart.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "core/base/rfc3339.h"

namespace varve::gpu {
namespace {

constexpr std::array<std::string_view, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::string_view kAsciiBlocks = "_.,-=*%#";
// Nobody's terminal is larger, and nothing is reserved for more.
constexpr std::size_t kMaxWidth = 500, kMaxHeight = 50;

struct Signs {
  std::string_view median, span, baseline, threshold, axis, slow;
};
constexpr Signs kUnicode{.median = "●", .span = "│", .baseline = "─", .threshold = "┄", .axis = "┤", .slow = "▲"};
constexpr Signs kAscii{.median = "o", .span = "|", .baseline = "-", .threshold = "=", .axis = "|", .slow = "^"};

struct Scale {
  double low = 0, high = 0;
  // 0 at the bottom to steps - 1.
  std::size_t step(double value, std::size_t steps) const {
    if (high <= low) return 0;
    const double share = std::clamp((value - low) / (high - low), 0.0, 1.0);
    return std::min(steps - 1, std::size_t(share * double(steps)));
  }
};

std::span<const Hour> shown(std::span<const Hour> hours, const ChartStyle& style) {
  return hours.last(std::min({hours.size(), std::max<std::size_t>(style.width, 1), kMaxWidth}));
}

Scale scale_of(std::span<const double> medians, const Judgement& judgement) {
  const auto [low, high] = std::ranges::minmax(medians);
  if (judgement.baseline == 0) return {.low = low, .high = high};
  return {.low = std::min(low, judgement.baseline), .high = std::max({high, judgement.baseline, judgement.threshold})};
}

std::vector<double> medians_of(std::span<const Hour> hours) {
  std::vector<double> medians;
  for (const auto& hour : hours) medians.push_back(median(hour.samples));
  return medians;
}

bool is_slow(std::span<const Hour> hours, std::size_t at, const Judgement& judgement) {
  return at + 1 == hours.size() ? judgement.suspicious() : hours[at].suspicious;
}

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[std::size_t(std::lround(share * double(values.size() - 1)))];
}

// [line from the top][column].
using Canvas = std::vector<std::vector<std::string_view>>;

Canvas draw(std::span<const Hour> hours, std::span<const double> medians, const Judgement& judgement,
            const Scale& scale, const Signs& signs, std::size_t height) {
  Canvas canvas(height, std::vector<std::string_view>(hours.size(), " "));
  const auto line = [&](double value) { return height - 1 - scale.step(value, height); };
  if (judgement.baseline > 0) std::ranges::fill(canvas[line(judgement.baseline)], signs.baseline);
  if (judgement.threshold > 0) std::ranges::fill(canvas[line(judgement.threshold)], signs.threshold);
  for (std::size_t column = 0; column < hours.size(); ++column) {
    const auto& samples = hours[column].samples;
    if (samples.empty()) continue;
    for (auto at = line(quantile(samples, 0.75)); at <= line(quantile(samples, 0.25)); ++at)
      canvas[at][column] = signs.span;
    canvas[line(medians[column])][column] = signs.median;
  }
  return canvas;
}

}  // namespace

bool locale_is_utf8() {
  for (const auto* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string text(value);
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return char(std::toupper(c)); });
    return text.find("UTF-8") != std::string::npos || text.find("UTF8") != std::string::npos;
  }
  return false;
}

std::string sparkline(std::span<const Hour> hours, const Judgement& judgement, const ChartStyle& style) {
  const auto last = shown(hours, style);
  const auto medians = medians_of(last);
  std::string line;
  if (medians.empty()) return line;
  const auto scale = scale_of(medians, judgement);
  for (const auto value : medians) {
    const auto step = scale.step(value, kBlocks.size());
    if (style.utf8)
      line += kBlocks[step];
    else
      line += kAsciiBlocks[step];
  }
  return line;
}

std::vector<std::string> chart(std::span<const Hour> hours, const Judgement& judgement, const ChartStyle& style) {
  const auto last = shown(hours, style);
  if (last.empty()) return {};
  const auto medians = medians_of(last);
  const auto scale = scale_of(medians, judgement);
  const auto& signs = style.utf8 ? kUnicode : kAscii;
  const auto height = std::clamp<std::size_t>(style.height, 2, kMaxHeight);
  const auto canvas = draw(last, medians, judgement, scale, signs, height);

  std::vector<std::string> lines;
  for (std::size_t i = 0; i < height; ++i) {
    const auto label = i == 0 ? time_text(scale.high) : i + 1 == height ? time_text(scale.low) : std::string();
    auto text = fmt::format("{:>9} {}", label, signs.axis);
    for (const auto cell : canvas[i]) text += cell;
    const bool at_baseline = judgement.baseline > 0 && height - 1 - scale.step(judgement.baseline, height) == i;
    const bool at_threshold = judgement.threshold > 0 && height - 1 - scale.step(judgement.threshold, height) == i;
    if (at_threshold) text += " threshold " + time_text(judgement.threshold);
    if (at_baseline) text += fmt::format("{}baseline {}", at_threshold ? ", " : " ", time_text(judgement.baseline));
    lines.push_back(std::move(text));
  }
  std::string marks(11, ' ');
  bool any = false;
  for (std::size_t i = 0; i < last.size(); ++i) {
    const bool slow = is_slow(last, i, judgement);
    any = any || slow;
    marks += slow ? signs.slow : " ";
  }
  if (any) lines.push_back(marks.substr(0, marks.find_last_not_of(' ') + 1) + " slow");
  lines.push_back(fmt::format("{:11}{} to {}", "", hour_text(last.front().hour), hour_text(last.back().hour)));
  return lines;
}

std::string time_text(double seconds) {
  struct Unit {
    double seconds;
    std::string_view name;
  };
  constexpr std::array<Unit, 5> kUnits{{{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}, {1e-12, "ps"}}};
  for (const auto& unit : kUnits)
    if (seconds >= unit.seconds * 0.9995 || unit.seconds == kUnits.back().seconds) {
      const double value = seconds / unit.seconds;
      const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
      return fmt::format("{:.{}f} {}", value, decimals, unit.name);
    }
  return {};
}

std::string hour_text(std::int64_t hour) {
  auto text = rfc3339(hour * 3600);
  std::ranges::replace(text, 'T', ' ');
  return text.substr(0, text.rfind(':')) + " UTC";
}

}  // namespace varve::gpu
