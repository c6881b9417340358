#include "analyzer/usage/internal/retention.h"

#include <algorithm>
#include <charconv>

#include "analyzer/usage/internal/daily_counts.h"
#include "analyzer/usage/internal/schema.h"
#include "analyzer/usage/internal/session_rows.h"
#include "core/base/calendar.h"

namespace varve::usage {
namespace {

std::uint64_t remove_sessions(SqlConnection& sql, std::int32_t first_kept) {
  for (const auto& table : kSessionTables)
    sql.run(fmt::format("DELETE FROM {} WHERE session_id IN (SELECT id FROM session WHERE day < $1)", table.name),
            {first_kept});
  const auto removed = sql.run("DELETE FROM session WHERE day < $1", {first_kept});
  sql.run("DELETE FROM pending_path WHERE NOT EXISTS (SELECT 1 FROM session_path WHERE path_id = pending_path.id)");
  return removed;
}

// Daily counts go, when they were first and last seen stays.
std::uint64_t remove_days(SqlConnection& sql, std::int32_t first_kept) {
  sql.run(
      "INSERT INTO earlier_use (image_id, distribution_id, first_day, last_day) "
      "SELECT image_id, distribution_id, MIN(day), MAX(day) FROM daily_use WHERE day < $1 "
      "GROUP BY image_id, distribution_id ON CONFLICT (image_id, distribution_id) DO UPDATE SET "
      "first_day = CASE WHEN excluded.first_day < earlier_use.first_day THEN excluded.first_day ELSE "
      "earlier_use.first_day END, last_day = CASE WHEN excluded.last_day > earlier_use.last_day THEN "
      "excluded.last_day ELSE earlier_use.last_day END",
      {first_kept});
  std::uint64_t removed = 0;
  for (const auto* table : kDailyTables)
    removed += sql.run(fmt::format("DELETE FROM {} WHERE day < $1", table), {first_kept});
  sql.run("DELETE FROM user_sketch WHERE month < $1", {month_of(first_kept)});
  sql.run("DELETE FROM quarantine WHERE day < $1", {first_kept});
  return removed;
}

// Names that nothing refers to any more. Those of distributions stay: there are few.
void remove_names(SqlConnection& sql) {
  sql.run(
      "DELETE FROM module_owner WHERE module_id NOT IN (SELECT module_id FROM session_module UNION SELECT by_id "
      "FROM session_module)");
  sql.run(
      "DELETE FROM module WHERE id NOT IN (SELECT module_id FROM module_owner UNION SELECT short_id FROM module_owner "
      "UNION SELECT module_id FROM daily_module)");
  sql.run(
      "DELETE FROM failed_name WHERE id NOT IN (SELECT failed_id FROM session_failed UNION SELECT failed_id "
      "FROM daily_failed)");
}

}  // namespace

std::int32_t refused_through(SqlConnection& sql) {
  const auto text = read_setting(sql, "refused_through");
  std::int32_t day = -1;
  std::from_chars(text.data(), text.data() + text.size(), day);
  return day;
}

void age_out(Writer& writer, const Retention& retention, std::int32_t today) {
  WriteTransaction transaction(writer);
  auto& sql = writer.sql();
  const auto raw_days = std::max(retention.raw_days, 0);
  // Single sessions never outlive the days that they are counted in.
  const auto aggregate_days = std::max(retention.aggregate_days, raw_days);
  const auto removed = remove_sessions(sql, today - raw_days) + remove_days(sql, today - aggregate_days);
  const auto last_forgotten = std::max(today - std::max(raw_days, 1) * kRememberedTimes - 1, refused_through(sql));
  if (sql.run("DELETE FROM spool_file WHERE day <= $1", {last_forgotten}) != 0)
    write_setting(sql, "refused_through", std::to_string(last_forgotten));
  if (removed != 0) remove_names(sql);  // it looks at all rows that are left, and most runs remove none
  transaction.commit();
  writer.names_were_removed();
}

}  // namespace varve::usage
