#include "gpu/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include <fmt/format.h>

#include "core/base/text/calendar.h"

namespace varve::gpu {
namespace {

constexpr std::array<std::string_view, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::string_view kAsciiBlocks = "_.,-=*%#";
constexpr std::size_t kMaxWidth = 500;  // nobody's terminal is larger, and nothing is reserved for more

struct Scale {
  double low = 0, high = 0;
  // 0 at the bottom to steps - 1.
  std::size_t step(double value, std::size_t steps) const {
    if (high <= low) return 0;
    const double share = std::clamp((value - low) / (high - low), 0.0, 1.0);
    return std::min(steps - 1, std::size_t(share * double(steps)));
  }
};

std::span<const Hour> shown(std::span<const Hour> hours, const SparklineStyle& style) {
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

std::string sparkline(std::span<const Hour> hours, const Judgement& judgement, const SparklineStyle& style) {
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
