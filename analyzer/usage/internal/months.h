#pragma once
// Sums of whole months beside the counts per day: reports over long windows read them instead of the days, and they
// stay when the days go.
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/usage/internal/writer.h"
#include "analyzer/usage/snapshot.h"
#include "core/sql/connection.h"

namespace varve::usage {

// From where a window's counts are read: from the sums of the months that it holds whole, from the days otherwise.
class CountedMonths {
 public:
  // Within a read transaction.
  CountedMonths(SqlConnection& sql, DayRange asked);

  // The days asked for; where they begin or end in a month whose days are gone, the whole month.
  DayRange window() const { return window_; }
  // The first day of the window that is known by itself; the days before it only as months.
  std::int32_t by_day_from() const { return by_day_from_; }
  // As what a day stands in from_days(): itself, or the first one of its month if the days of that are gone.
  std::int32_t stands_as(std::int32_t day) const;

  // A table expression: `columns` of monthly_`what` and daily_`what` ("use", "module", "edge") over the window.
  std::string from(std::string_view what, std::string_view columns, std::string_view where) const;
  // The same with a column `day` before the others: the day, or the first one of a month whose days are gone.
  std::string from_days(std::string_view what, std::string_view columns, std::string_view where) const;

 private:
  DayRange window_;
  std::int32_t by_day_from_ = 0;
  std::vector<std::int32_t> whole_, gone_;  // months of the window that are read as such; those without days
};

// The days of all months that have no sums, as a condition on `day`.
std::string days_without_sums(SqlConnection& sql);

// What is true of these days changes: the sums of their months no longer count, until sum_months() makes them again.
void forget_month_sums(SqlConnection& sql, const std::set<std::int64_t>& days);

// Makes the sums of months that ended a week before `today` and have none; each in a transaction of its own.
// Returns how many.
std::uint64_t sum_months(Writer& writer, std::int32_t today);

// Removes the days of months that ended before `first_kept`, each in a transaction of its own. What they sum up to
// stays, without modules, failed imports, reinstalls and who the users were. No session of them is taken in any more.
// Returns how many.
std::uint64_t remove_days(Writer& writer, std::int32_t first_kept);

}  // namespace varve::usage
