#include "analyzer/usage/internal/months.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "analyzer/usage/internal/retention.h"
#include "analyzer/usage/internal/user_sketch.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

// Sessions that began in a month go on for some days, and each time the sums would be made again.
constexpr std::int32_t kSettledDays = 7;

constexpr const char* kUseCounts =
    "sessions, direct, transitive_only, static, image_copy, session_copy, file_sessions, exec_sessions, files_only";
constexpr const char* kSumsOfUse =
    "SUM(sessions), SUM(direct), SUM(transitive_only), SUM(static), SUM(image_copy), SUM(session_copy), "
    "SUM(file_sessions), SUM(exec_sessions), SUM(files_only)";

// The days of the window that are in none of these months (ascending), as ranges: a server tells partitions by them.
std::string days_outside(DayRange window, const std::vector<std::int32_t>& months) {
  std::vector<std::string> days;
  auto next = window.first;
  const auto add_days_before = [&](std::int32_t end) {
    if (next < end) days.push_back(fmt::format("day BETWEEN {} AND {}", next, end - 1));
  };
  for (const auto month : months) {
    add_days_before(first_day_of_month(month));
    next = last_day_of_month(month) + 1;
  }
  add_days_before(window.last + 1);
  return days.empty() ? "1 = 0" : fmt::format("{}", fmt::join(days, " OR "));
}

bool has_sums(SqlConnection& sql, std::int64_t month) {
  bool found = false;
  sql.query("SELECT 1 FROM counted_month WHERE month = $1", {month}, [&](const SqlRow&) { found = true; });
  return found;
}

void sum_month(SqlConnection& sql, std::int32_t month) {
  for (const auto* table : {"monthly_use", "monthly_module", "monthly_edge"})
    sql.run(fmt::format("DELETE FROM {} WHERE month = $1", table), {month});
  const auto add = [&](const char* what, std::string_view keys, std::string_view counts, std::string_view sums) {
    // The month is no parameter: a server could not tell its type.
    sql.run(fmt::format("INSERT INTO monthly_{0} (month, {1}, {2}) SELECT {4}, {1}, {3} FROM daily_{0} "
                        "WHERE day BETWEEN $1 AND $2 GROUP BY {1}",
                        what, keys, counts, sums, month),
            {first_day_of_month(month), last_day_of_month(month)});
  };
  add("use", "image_id, distribution_id", fmt::format("{}, first_day, last_day", kUseCounts),
      fmt::format("{}, MIN(day), MAX(day)", kSumsOfUse));
  add("module", "image_id, distribution_id, module_id", "sessions", "SUM(sessions)");
  add("edge", "image_id, importer_id, distribution_id", "sessions", "SUM(sessions)");
  sql.run("INSERT INTO counted_month (month, days_gone) VALUES ($1, 0)", {month});
}

void remove_days_of_month(SqlConnection& sql, std::int32_t month) {
  const auto first = first_day_of_month(month), last = last_day_of_month(month);
  for (const auto* table : {"daily_use", "daily_module", "daily_edge", "daily_failed", "daily_reinstall"})
    sql.run(fmt::format("DELETE FROM {} WHERE day BETWEEN $1 AND $2", table), {first, last});
  // Names of modules may be somebody's own.
  sql.run("DELETE FROM monthly_module WHERE month = $1", {month});
  sql.run(fmt::format("DELETE FROM user_sketch WHERE month = $1 AND kind IN ({}, {})", int(SketchKind::kFailed),
                      int(SketchKind::kReinstall)),
          {month});
  sql.run("UPDATE user_sketch SET sketch = $2 WHERE month = $1", {month, Bytes()});
  sql.run("DELETE FROM quarantine WHERE day <= $1", {last});
  sql.run("UPDATE counted_month SET days_gone = 1 WHERE month = $1", {month});
  refuse_through(sql, last);
}

}  // namespace

CountedMonths::CountedMonths(SqlConnection& sql, DayRange asked) : window_(asked), by_day_from_(asked.first) {
  std::vector<std::pair<std::int32_t, bool>> months;  // and whether their days are gone
  sql.query("SELECT month, days_gone FROM counted_month ORDER BY month", {},
            [&](const SqlRow& row) { months.emplace_back(std::int32_t(row.number(0)), row.number(1) != 0); });
  for (const auto& [month, gone] : months) {
    if (!gone) continue;
    const auto first = first_day_of_month(month), last = last_day_of_month(month);
    if (asked.first > last || asked.last < first) continue;
    window_.first = std::min(window_.first, first);
    window_.last = std::max(window_.last, last);
    by_day_from_ = last + 1;
  }
  if (by_day_from_ == asked.first) by_day_from_ = window_.first;
  for (const auto& [month, gone] : months) {
    if (first_day_of_month(month) < window_.first || last_day_of_month(month) > window_.last) continue;
    whole_.push_back(month);
    if (gone) gone_.push_back(month);
  }
}

std::int32_t CountedMonths::stands_as(std::int32_t day) const {
  const auto month = month_of(day);
  return std::binary_search(gone_.begin(), gone_.end(), month) ? first_day_of_month(month) : day;
}

std::string CountedMonths::from(std::string_view what, std::string_view columns, std::string_view where) const {
  std::vector<std::string> parts{
      fmt::format("SELECT {} FROM daily_{} WHERE ({}){}", columns, what, days_outside(window_, whole_), where)};
  if (!whole_.empty())
    parts.push_back(
        fmt::format("SELECT {} FROM monthly_{} WHERE month IN ({}){}", columns, what, fmt::join(whole_, ", "), where));
  return fmt::format("({}) AS counted", fmt::join(parts, " UNION ALL "));
}

std::string CountedMonths::from_days(std::string_view what, std::string_view columns, std::string_view where) const {
  auto text =
      fmt::format("(SELECT day, {} FROM daily_{} WHERE ({}){}", columns, what, days_outside(window_, gone_), where);
  for (const auto month : gone_)
    text += fmt::format(" UNION ALL SELECT {}, {} FROM monthly_{} WHERE month = {}{}", first_day_of_month(month),
                        columns, what, month, where);
  return text + ") AS counted";
}

std::string days_without_sums(SqlConnection& sql) {
  std::vector<std::int32_t> months;
  sql.query("SELECT month FROM counted_month ORDER BY month", {},
            [&](const SqlRow& row) { months.push_back(std::int32_t(row.number(0))); });
  return days_outside({.first = 0, .last = INT32_MAX - 1}, months);
}

void forget_month_sums(SqlConnection& sql, const std::set<std::int64_t>& days) {
  std::set<std::int64_t> months;
  for (const auto day : days) months.insert(month_of(std::int32_t(day)));
  for (const auto month : months) sql.run("DELETE FROM counted_month WHERE month = $1 AND days_gone = 0", {month});
}

std::uint64_t sum_months(Writer& writer, std::int32_t today) {
  std::uint64_t done = 0;
  std::set<std::int32_t> months;
  writer.sql().query("SELECT DISTINCT day FROM daily_session WHERE day < $1", {today},
                     [&](const SqlRow& row) { months.insert(month_of(std::int32_t(row.number(0)))); });
  for (const auto month : months) {
    if (last_day_of_month(month) >= today - kSettledDays || has_sums(writer.sql(), month)) continue;
    WriteTransaction transaction(writer);
    if (has_sums(writer.sql(), month)) continue;  // another program was faster
    sum_month(writer.sql(), month);
    transaction.commit();
    ++done;
  }
  return done;
}

std::uint64_t remove_days(Writer& writer, std::int32_t first_kept) {
  std::uint64_t done = 0;
  std::vector<std::int32_t> months;
  writer.sql().query("SELECT month FROM counted_month WHERE days_gone = 0 ORDER BY month", {},
                     [&](const SqlRow& row) { months.push_back(std::int32_t(row.number(0))); });
  for (const auto month : months) {
    if (last_day_of_month(month) >= first_kept) break;
    WriteTransaction transaction(writer);
    // A collector may have taken in a session of it meanwhile; then it waits for the next time.
    bool changed = !has_sums(writer.sql(), month);
    writer.sql().query("SELECT 1 FROM session WHERE day BETWEEN $1 AND $2 LIMIT 1",
                       {first_day_of_month(month), last_day_of_month(month)}, [&](const SqlRow&) { changed = true; });
    if (changed) break;
    remove_days_of_month(writer.sql(), month);
    transaction.commit();
    ++done;
  }
  return done;
}

}  // namespace varve::usage
