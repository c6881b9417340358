#include "analyzer/usage/internal/session_rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "analyzer/usage/snapshot.h"

namespace varve::usage {

SessionRow load_session(SqlConnection& sql, const Bytes& key) {
  SessionRow session;
  session.key = key;
  sql.query(
      "SELECT id, day, image_id, image_rank, launched, heard, gpu_present, gpu_used FROM session "
      "WHERE session_key = $1",
      {key}, [&](const SqlRow& row) {
        session.id = row.number(0);
        session.day = row.number(1);
        session.image_id = row.number(2);
        session.image_rank = row.text(3);
        session.launched = row.number(4) != 0;
        session.heard = row.number(5) != 0;
        session.gpu_present = row.number(6) != 0;
        session.gpu_used = row.number(7) != 0;
      });
  return session;
}

void store_session(SqlConnection& sql, SessionRow& session) {
  static const auto kStatement = fmt::format(
      "INSERT INTO session (session_key, day, image_id, image_rank, launched, heard, gpu_present, gpu_used, "
      "surplus, lifetime_seconds, idle_seconds) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, "
      "(SELECT COALESCE(MAX(lifetime_seconds), 0) FROM spool_file WHERE session_key = $1), "
      "(SELECT COALESCE(MIN(idle_seconds + CASE WHEN idle_now >= {} THEN idle_now ELSE 0 END), 0) FROM spool_file "
      "WHERE session_key = $1 AND kernel = 1)) "
      "ON CONFLICT (session_key) DO UPDATE SET day = excluded.day, image_id = excluded.image_id, "
      "image_rank = excluded.image_rank, launched = excluded.launched, heard = excluded.heard, "
      "gpu_present = excluded.gpu_present, gpu_used = excluded.gpu_used, "
      "lifetime_seconds = excluded.lifetime_seconds, idle_seconds = excluded.idle_seconds RETURNING id",
      kGpuIdleThresholdSeconds);
  sql.query(kStatement,
            {session.key, session.day, session.image_id, session.image_rank, std::int64_t(session.launched),
             std::int64_t(session.heard), std::int64_t(session.gpu_present), std::int64_t(session.gpu_used),
             std::int64_t(session.surplus)},
            [&](const SqlRow& row) { session.id = row.number(0); });
}

std::uint64_t SessionRows::store(SqlConnection& sql, std::int64_t session_id,
                                 const std::function<void(std::int64_t failed_id)>& newly_failed) {
  std::uint64_t left_out = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const auto& table = kSessionTables[i];
    left_out += leave_out(sql, session_id, table, rows_[i]);
    std::vector<SqlValue> values;
    for (const auto& [key, flags] : rows_[i]) {
      values.emplace_back(session_id);
      values.insert(values.end(), key.begin(), key.end());
      if (table.has_flags) values.emplace_back(flags);
    }
    if (values.empty()) continue;
    run_rows(sql,
             fmt::format("INSERT INTO {} (session_id, {}{}) VALUES", table.name, table.keys,
                         table.has_flags ? ", flags" : ""),
             values.size() / rows_[i].size(),
             table.has_flags
                 ? fmt::format("ON CONFLICT (session_id, {}) DO UPDATE SET flags = {}.flags | excluded.flags",
                               table.keys, table.name)
                 : fmt::format("ON CONFLICT DO NOTHING RETURNING {}", table.keys),
             values, [&](const SqlRow& row) {
               if (SessionTable(i) == SessionTable::kFailed) newly_failed(row.number(0));
             });
  }
  return left_out;
}

std::uint64_t SessionRows::leave_out(SqlConnection& sql, std::int64_t session_id, const SessionTableShape& table,
                                     Rows& rows) {
  if (rows.empty()) return 0;
  std::size_t kept = 0;
  sql.query(fmt::format("SELECT COUNT(*) FROM {} WHERE session_id = $1", table.name), {session_id},
            [&](const SqlRow& row) { kept = std::size_t(row.number(0)); });
  if (kept + rows.size() <= table.most) return 0;
  std::string places = "$2";
  for (std::size_t i = 1; i < rows.begin()->first.size(); ++i) places += fmt::format(", ${}", i + 2);
  const auto statement =
      fmt::format("SELECT 1 FROM {} WHERE session_id = $1 AND ({}) = ({})", table.name, table.keys, places);
  return std::erase_if(rows, [&](const auto& entry) {
    bool is_there = false;
    std::vector<SqlValue> values{session_id};
    values.insert(values.end(), entry.first.begin(), entry.first.end());
    sql.run(statement, values, [&](const SqlRow&) { is_there = true; });
    return !is_there && ++kept > table.most;
  });
}

}  // namespace varve::usage
