#include "analyzer/usage/internal/retention.h"

#include <algorithm>
#include <charconv>

#include "analyzer/usage/internal/daily_counts.h"
#include "analyzer/usage/internal/months.h"
#include "analyzer/usage/internal/partitions.h"
#include "analyzer/usage/internal/schema.h"
#include "analyzer/usage/internal/session_rows.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

// Rows of these go with their partition: a row of a session that is no more tells of nobody, and to remove it alone
// would cost more than all else together.
bool goes_with_partition(const SqlConnection& sql, std::string_view table) {
  return sql.is_server() && (table == "session_module" || table == "session_file");
}

// The sessions of one day, the oldest; false if there is none that is old.
bool remove_oldest_sessions(SqlConnection& sql, std::int32_t first_kept, std::uint64_t& removed) {
  std::int64_t day = first_kept;
  sql.query("SELECT COALESCE(MIN(day), $1) FROM session", {first_kept},
            [&](const SqlRow& row) { day = row.number(0); });
  if (day >= first_kept) return false;
  for (const auto& table : kSessionTables)
    if (!goes_with_partition(sql, table.name))
      sql.run(fmt::format("DELETE FROM {} WHERE session_id IN (SELECT id FROM session WHERE day = $1)", table.name),
              {day});
  removed += sql.run("DELETE FROM session WHERE day = $1", {day});
  return true;
}

std::uint64_t remove_sessions(Writer& writer, std::int32_t first_kept, const CancelFlag& cancel) {
  std::uint64_t removed = 0;
  for (bool more = true; more;) {
    cancel.throw_if_cancelled();
    WriteTransaction transaction(writer);
    more = remove_oldest_sessions(writer.sql(), first_kept, removed);
    if (!more && removed != 0)
      writer.sql().run(
          "DELETE FROM pending_path WHERE NOT EXISTS (SELECT 1 FROM session_path WHERE path_id = pending_path.id)");
    transaction.commit();
  }
  return removed;
}

// Names that nothing refers to any more. Those of distributions stay: there are few.
void remove_names(SqlConnection& sql) {
  sql.run(
      "DELETE FROM module_owner WHERE module_id NOT IN (SELECT module_id FROM session_module UNION SELECT by_id "
      "FROM session_module)");
  sql.run(
      "DELETE FROM module WHERE id NOT IN (SELECT module_id FROM module_owner UNION SELECT short_id FROM module_owner "
      "UNION SELECT module_id FROM daily_module UNION SELECT module_id FROM monthly_module)");
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

void refuse_through(SqlConnection& sql, std::int32_t day) {
  if (day > refused_through(sql)) write_setting(sql, "refused_through", std::to_string(day));
}

AgeResult age_out(Writer& writer, const Retention& retention, std::int32_t today, const CancelFlag& cancel) {
  const auto raw_days = std::max(retention.raw_days, 0);
  // Single sessions never outlive the days that they are counted in.
  const auto aggregate_days = std::max(retention.aggregate_days, raw_days);
  AgeResult result;
  result.sessions = remove_sessions(writer, today - raw_days, cancel);
  {
    WriteTransaction transaction(writer);
    const auto last_forgotten = today - std::max(raw_days, 1) * kRememberedTimes - 1;
    if (writer.sql().run("DELETE FROM spool_file WHERE day <= $1", {last_forgotten}) != 0)
      refuse_through(writer.sql(), last_forgotten);
    transaction.commit();
  }
  cancel.throw_if_cancelled();
  result.months_summed = sum_months(writer, today);
  cancel.throw_if_cancelled();
  result.months_without_days = remove_days(writer, today - aggregate_days);
  const bool server = writer.sql().is_server();
  if (server) result.partitions = drop_partitions(writer.sql());
  // It looks at all rows that are left, and most runs remove none.
  if (server ? result.partitions != 0 : result.sessions + result.months_without_days != 0) {
    WriteTransaction transaction(writer);
    remove_names(writer.sql());
    transaction.commit();
  }
  writer.names_were_removed();
  return result;
}

}  // namespace varve::usage
