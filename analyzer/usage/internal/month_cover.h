#pragma once
// What a window of days knows of users, who are counted by month.
#include <algorithm>
#include <cstdint>

#include "analyzer/usage/snapshot.h"
#include "core/base/text/calendar.h"
#include "core/sql/connection.h"

namespace varve::usage {

// Whether the window has all that was counted in a month; then the month's users all are users of the window.
class MonthCover {
 public:
  explicit MonthCover(SqlConnection& sql) {
    sql.query("SELECT MIN(day), MAX(day) FROM daily_session", {}, [&](const SqlRow& row) {
      first_data_ = std::int32_t(row.number(0));
      last_data_ = std::int32_t(row.number(1));
    });
  }
  bool covers(const DayRange& window, std::int32_t month) const {
    return window.first <= std::max(first_day_of_month(month), first_data_) &&
           window.last >= std::min(last_day_of_month(month), last_data_);
  }

 private:
  std::int32_t first_data_ = 0, last_data_ = 0;
};

inline UserCount within(UserCount users, std::uint64_t sessions) {
  users.at_most = std::min(users.at_most, sessions);
  // Somebody had these sessions, even where it is not known in which part of a month.
  if (users.at_most > 0) users.at_least = std::max<std::uint64_t>(users.at_least, 1);
  users.at_least = std::min(users.at_least, users.at_most);
  return users;
}

}  // namespace varve::usage
