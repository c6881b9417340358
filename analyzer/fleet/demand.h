#pragma once
// How many sessions are asked for, hour by hour.
#include <cstdint>
#include <string_view>
#include <vector>

namespace varve::fleet {

inline constexpr std::size_t kMaxHours = 10 * 366 * 24;
inline constexpr double kMaxArrivalsPerHour = 1e6;

struct Demand {
  std::vector<double>
      arrivals_per_hour;  // from hour 0 of a day on; never empty. What is simulated beyond it begins anew
  double mean() const;
};

// "3,5,12.5": 24 numbers are a day, 168 a week. Throws UsageError naming the number that is none.
Demand parse_arrivals(std::string_view list);

// A CSV file with a heading: the column "arrivals" holds one hour a line, oldest first; other columns are not read.
// Throws CorruptData naming `what` and the line.
Demand parse_trace(std::string_view csv, std::string_view what);

}  // namespace varve::fleet
