#include "analyzer/fleet/demand.h"

#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "core/base/errors.h"
#include "core/base/text/strings.h"

namespace varve::fleet {
namespace {

constexpr std::string_view kAroundCells = " \t\r\"";

std::optional<double> arrivals(std::string_view text) {
  text = trimmed(text, kAroundCells);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= kMaxArrivalsPerHour))
    return std::nullopt;
  return value;
}

}  // namespace

double Demand::mean() const {
  return std::accumulate(arrivals_per_hour.begin(), arrivals_per_hour.end(), 0.0) / double(arrivals_per_hour.size());
}

Demand parse_arrivals(std::string_view list) {
  Demand demand;
  for (const auto part : split(list, ",")) {
    const auto value = arrivals(part);
    if (!value) fail<UsageError>("'{:.100}' is no number of arrivals in an hour (0 to {})", part, kMaxArrivalsPerHour);
    demand.arrivals_per_hour.push_back(*value);
    if (demand.arrivals_per_hour.size() > kMaxHours) fail<UsageError>("more than {} hours of arrivals", kMaxHours);
  }
  return demand;
}

Demand parse_trace(std::string_view csv, std::string_view what) {
  Demand demand;
  std::size_t column = 0, number = 0;
  for (const auto line : split(csv, "\n")) {
    ++number;
    if (trimmed(line, kAroundCells).empty()) continue;
    const auto cells = split(line, ",");
    if (number == 1) {
      while (column < cells.size() && trimmed(cells[column], kAroundCells) != "arrivals") ++column;
      if (column == cells.size()) fail<CorruptData>("{}:1: there is no column \"arrivals\"", what);
      continue;
    }
    const auto value = column < cells.size() ? arrivals(cells[column]) : std::nullopt;
    if (!value) fail<CorruptData>("{}:{}: no number of arrivals (0 to {})", what, number, kMaxArrivalsPerHour);
    demand.arrivals_per_hour.push_back(*value);
    if (demand.arrivals_per_hour.size() > kMaxHours)
      fail<CorruptData>("{}:{}: more than {} hours", what, number, kMaxHours);
  }
  if (demand.arrivals_per_hour.empty()) fail<CorruptData>("{}: holds no hour", what);
  return demand;
}

}  // namespace varve::fleet
