#include "analyzer/usage/internal/partitions.h"

#include <charconv>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "analyzer/usage/internal/retention.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/calendar.h"
#include "core/sql/schema.h"

namespace varve::usage {
namespace {

constexpr std::array kByDay{"daily_use", "daily_module", "daily_edge"};
constexpr std::array kBySession{"session_module", "session_file"};
constexpr unsigned kSessionBits = 32;
// A clock that jumped makes no thousand tables.
constexpr std::int32_t kMostAtOnce = 24;

std::int64_t first_session(std::int32_t month) { return std::int64_t(month) << kSessionBits; }

std::int32_t partitioned_through(SqlConnection& sql) {
  const auto text = read_setting(sql, "partitioned_through");
  std::int32_t month = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), month).ec != std::errc())
    fail<CorruptData>("{}: it does not say which months have partitions", sql.kind().name);
  return month;
}

void make_partition(SqlConnection& sql, std::string_view table, const std::string& suffix, std::int64_t from,
                    std::int64_t to) {
  // Attaching, unlike making it as a partition, leaves readers alone.
  sql.run_script(
      fmt::format("CREATE TABLE {0}_{1} (LIKE {0} INCLUDING ALL); "
                  "ALTER TABLE {0} ATTACH PARTITION {0}_{1} FOR VALUES FROM ({2}) TO ({3})",
                  table, suffix, from, to));
}

struct Partition {
  std::string table, name;
  std::int64_t from = 0, to = 0;  // `from` is 0 for the first
  bool half_detached = false;
};

std::int64_t number_behind(std::string_view text, std::string_view word) {
  std::int64_t number = 0;
  if (const auto at = text.find(word); at != std::string_view::npos)
    std::from_chars(text.data() + at + word.size(), text.data() + text.size(), number);
  return number;
}

std::vector<Partition> partitions_of(SqlConnection& sql, const std::string& table) {
  std::vector<Partition> partitions;
  sql.query(
      "SELECT part.relname, pg_get_expr(part.relpartbound, part.oid), inhdetachpending::INT FROM pg_inherits "
      "JOIN pg_class part ON part.oid = inhrelid WHERE inhparent = to_regclass($1)",
      {table}, [&](const SqlRow& row) {
        const auto bounds = row.text(1);
        partitions.push_back({.table = table,
                              .name = row.text(0),
                              .from = number_behind(bounds, "FROM ('"),
                              .to = number_behind(bounds, "TO ('"),
                              .half_detached = row.number(2) != 0});
      });
  return partitions;
}

bool is_empty(SqlConnection& sql, const std::string& select) {
  bool empty = true;
  sql.query(select + " LIMIT 1", {}, [&](const SqlRow&) { empty = false; });
  return empty;
}

bool drop(SqlConnection& sql, const Partition& partition) try {
  sql.run_script(fmt::format("ALTER TABLE {} DETACH PARTITION {} {}", partition.table, partition.name,
                             partition.half_detached ? "FINALIZE" : "CONCURRENTLY"));
  sql.run_script(fmt::format("DROP TABLE {}", partition.name));
  return true;
} catch (const TemporaryError&) {
  throw;
} catch (const Error& error) {
  // Another program may be at it. What is left is found again.
  log::info("{}", error.what());
  return false;
}

// Detached and not dropped: whoever was at it was killed.
void drop_detached(SqlConnection& sql, const std::string& table) {
  std::vector<std::string> names;
  sql.query(
      "SELECT relname FROM pg_class WHERE relkind = 'r' AND NOT relispartition AND pg_table_is_visible(oid) "
      "AND relname ~ ('^' || $1 || '_(before|[0-9]{4}_[0-9]{2})$')",
      {table}, [&](const SqlRow& row) { names.push_back(row.text(0)); });
  for (const auto& name : names) sql.run_script(fmt::format("DROP TABLE IF EXISTS {}", name));
}

}  // namespace

std::int32_t month_of_session(std::int64_t id) { return std::int32_t(id >> kSessionBits); }

void make_partitions(SqlConnection& sql, std::int32_t month) {
  auto through = partitioned_through(sql);
  if (through >= month) return;
  while (through < month) {
    const auto first = through + 1;
    through = month - through > kMostAtOnce ? month - 1 : first;
    auto suffix = day_text(first_day_of_month(first)).substr(0, 7);
    suffix[4] = '_';
    for (const auto* table : kByDay)
      make_partition(sql, table, suffix, first_day_of_month(first), first_day_of_month(through + 1));
    for (const auto* table : kBySession)
      make_partition(sql, table, suffix, first_session(first), first_session(through + 1));
  }
  // Numbers are given for good, also by transactions that were rolled back: never go back.
  sql.query(
      "SELECT setval(pg_get_serial_sequence('session', 'id'), "
      "GREATEST($1, nextval(pg_get_serial_sequence('session', 'id'))))",
      {first_session(through)}, [](const SqlRow&) {});
  write_setting(sql, "partitioned_through", std::to_string(through));
}

std::uint64_t drop_partitions(SqlConnection& sql) {
  const auto through = partitioned_through(sql), refused = refused_through(sql);
  std::uint64_t dropped = 0;
  for (const std::string table : kBySession) {
    drop_detached(sql, table);
    for (const auto& partition : partitions_of(sql, table))
      if (partition.half_detached || (partition.to <= first_session(through) &&
                                      is_empty(sql, fmt::format("SELECT 1 FROM session WHERE id >= {} AND id < {}",
                                                                partition.from, partition.to))))
        dropped += drop(sql, partition) ? 1 : 0;
  }
  for (const std::string table : kByDay) {
    drop_detached(sql, table);
    // No session of these days is taken in any more, so no row of them can come.
    for (const auto& partition : partitions_of(sql, table))
      if (partition.half_detached || (partition.to <= refused + 1 && partition.to <= first_day_of_month(through) &&
                                      is_empty(sql, fmt::format("SELECT 1 FROM {}", partition.name))))
        dropped += drop(sql, partition) ? 1 : 0;
  }
  return dropped;
}

}  // namespace varve::usage
