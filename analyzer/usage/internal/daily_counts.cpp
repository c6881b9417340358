// Every count is one statement for many sessions: what each of them did, at most once per session (GROUP BY session, or
// DISTINCT), then how many did it (GROUP BY the key of the daily table), added to what is there (ON CONFLICT).
#include "analyzer/usage/internal/daily_counts.h"

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "analyzer/usage/internal/user_sketch.h"

namespace varve::usage {
namespace {

// The statements begin with one of these; the numbers of the sessions come behind it. CROSS JOIN: SQLite keeps the
// order.
constexpr const char* kSessions = "WITH sessions AS (SELECT id, day, image_id, heard FROM session WHERE session.id";
constexpr const char* kGpuSessions =
    "WITH sessions AS (SELECT day, image_id, surplus, (1 - surplus) * (launched | heard) AS launched, "
    "(1 - surplus) * heard AS heard, (1 - surplus) * heard * gpu_present AS gpu, "
    "gpu_used, lifetime_seconds, idle_seconds, CASE WHEN (1 - surplus) * heard * gpu_present = 1 "
    "AND EXISTS (SELECT 1 FROM image WHERE image.id = session.image_id AND has_inventory = 1) "
    "AND NOT EXISTS (SELECT 1 FROM session_module CROSS JOIN module_owner owner CROSS JOIN package "
    "WHERE session_id = session.id AND owner.image_id = session.image_id "
    "AND owner.module_id = session_module.module_id AND package.image_id = session.image_id AND gpu = 1 AND "
    "package.distribution_id = CASE WHEN named_id <> 0 THEN named_id ELSE owner.distribution_id END) "
    "THEN 1 ELSE 0 END AS incapable FROM session WHERE session.id";
// Whose a module is, its record itself says, or the image; 0 = nobody knows.
constexpr const char* kUses =
    "WITH uses AS (SELECT session_id, day, session.image_id AS image_id, "
    "CASE WHEN named_id <> 0 THEN named_id ELSE distribution_id END AS distribution_id, short_id, by_id, flags "
    "FROM session CROSS JOIN session_module CROSS JOIN module_owner WHERE session_id = session.id "
    "AND module_owner.image_id = session.image_id AND module_owner.module_id = session_module.module_id "
    "AND session.id";

// In how many ways each session used each distribution: as `flags` of session_module, 32 opened and 64 executed files.
constexpr const char* kWaysOfUse =
    "(SELECT session_id, day, image_id, distribution_id, MAX(flags & 1) AS direct, MAX(flags & 2) / 2 AS transitive, "
    "MAX(flags & 4) / 4 AS static, MAX(flags & 8) / 8 AS image_copy, MAX(flags & 16) / 16 AS session_copy, "
    "MAX(loaded) AS loaded, 1 - MIN(loaded) AS file, MAX(flags & 64) / 64 AS executed FROM "
    "(SELECT session_id, day, sessions.image_id AS image_id, "
    "CASE WHEN named_id <> 0 THEN named_id ELSE distribution_id END AS distribution_id, flags, 1 AS loaded "
    "FROM sessions CROSS JOIN session_module CROSS JOIN module_owner WHERE session_id = sessions.id "
    "AND module_owner.image_id = sessions.image_id AND module_owner.module_id = session_module.module_id "
    "UNION ALL SELECT session_id, day, image_id, distribution_id, flags * 32, 0 "
    "FROM sessions CROSS JOIN session_file WHERE session_id = sessions.id) AS way "
    "WHERE distribution_id <> 0 GROUP BY session_id, day, image_id, distribution_id) AS of_session";

struct DailyCount {
  const char* of;  // kSessions ...
  const char* table;
  const char* keys;
  std::vector<std::pair<const char*, const char*>> counts;  // column, sum
  const char* from;
};

const std::vector<DailyCount>& daily_counts() {
  static const std::vector<DailyCount> kCounts{
      {kGpuSessions,
       "daily_session",
       "day, image_id",
       {{"surplus", "SUM(surplus)"},
        {"launched", "SUM(launched)"},
        {"heard", "SUM(heard)"},
        {"gpu", "SUM(gpu)"},
        {"gpu_used", "SUM(gpu * gpu_used)"},
        {"gpu_unused_seconds", "SUM(gpu * (1 - gpu_used) * lifetime_seconds)"},
        {"gpu_idle_seconds", "SUM(gpu * idle_seconds)"},
        {"gpu_incapable", "SUM(incapable)"},
        {"gpu_incapable_seconds", "SUM(incapable * lifetime_seconds)"}},
       "sessions"},
      {kSessions,
       "daily_use",
       "day, image_id, distribution_id",
       {{"sessions", "SUM(loaded)"},
        {"direct", "SUM(direct)"},
        {"transitive_only", "SUM(transitive * (1 - direct) * (1 - static))"},
        {"static", "SUM(static)"},
        {"image_copy", "SUM(image_copy)"},
        {"session_copy", "SUM(session_copy)"},
        {"file_sessions", "SUM(file)"},
        {"exec_sessions", "SUM(executed)"},
        {"files_only", "SUM(1 - loaded)"}},
       kWaysOfUse},
      {kUses,
       "daily_module",
       "day, image_id, distribution_id, module_id",
       {{"sessions", "COUNT(*)"}},
       "(SELECT DISTINCT session_id, day, image_id, distribution_id, short_id AS module_id FROM uses) AS of_session"},
      {kUses,
       "daily_edge",
       "day, image_id, importer_id, distribution_id",
       {{"sessions", "COUNT(*)"}},
       "(SELECT DISTINCT session_id, day, uses.image_id AS image_id, importer.distribution_id AS importer_id, "
       "uses.distribution_id AS distribution_id FROM uses CROSS JOIN module_owner importer "
       "WHERE importer.image_id = uses.image_id AND importer.module_id = by_id AND importer.distribution_id <> 0 "
       "AND uses.distribution_id <> 0 AND importer.distribution_id <> uses.distribution_id) AS of_session"},
      {kSessions,
       "daily_failed",
       "day, image_id, failed_id",
       {{"sessions", "COUNT(*)"}},
       "sessions JOIN session_failed ON session_id = sessions.id"},
      {kSessions,
       "daily_reinstall",
       "day, image_id, reinstall_id",
       {{"sessions", "COUNT(DISTINCT session_id)"}},  // with several tools
       "sessions JOIN session_reinstall ON session_id = sessions.id"},
      {kSessions,
       "daily_gpu_model",
       "day, image_id, model_id",
       {{"sessions", "COUNT(*)"}},
       "sessions JOIN session_gpu_model ON session_id = sessions.id"}};
  return kCounts;
}

struct UserSubject {
  SketchKind kind;
  const char* of;
  const char* subject;
  const char* from;  // joined with `users`
};

constexpr std::array<UserSubject, 5> kUserSubjects{{
    {SketchKind::kImage, kSessions, "0", "sessions JOIN session_users users ON users.session_id = id AND heard = 1"},
    {SketchKind::kDistribution, kUses, "distribution_id",
     "(SELECT DISTINCT session_id, image_id, distribution_id FROM uses WHERE distribution_id <> 0) AS of_session "
     "JOIN session_users users ON users.session_id = of_session.session_id"},
    {SketchKind::kDistribution, kSessions, "distribution_id",
     "sessions JOIN session_users users ON users.session_id = id JOIN session_file used ON used.session_id = id"},
    {SketchKind::kFailed, kSessions, "failed_id",
     "sessions JOIN session_users users ON users.session_id = id JOIN session_failed used ON used.session_id = id"},
    {SketchKind::kReinstall, kSessions, "reinstall_id",
     "sessions JOIN session_users users ON users.session_id = id JOIN session_reinstall used ON used.session_id = id"},
}};

void store_sketches(SqlConnection& sql, std::span<const SqlValue> rows) {
  run_rows(sql, "INSERT INTO user_sketch (month, image_id, kind, subject_id, sketch, users) VALUES", 6,
           "ON CONFLICT (month, image_id, kind, subject_id) DO UPDATE SET sketch = excluded.sketch, "
           "users = excluded.users",
           rows);
}

std::uint64_t sketch_hash(const Bytes& user) { return user.size() >= 8 ? load_le<std::uint64_t>(user.data()) : 0; }

}  // namespace

void count_sessions(SqlConnection& sql, std::span<const SqlValue> session_ids, int sign) {
  for (const auto& count : daily_counts()) {
    std::string columns, sums, additions;
    for (const auto& [column, sum] : count.counts) {
      columns += fmt::format(", {}", column);
      sums += fmt::format(", {} * {}", sign, sum);
      additions += fmt::format("{0}{1} = {2}.{1} + excluded.{1}", additions.empty() ? "" : ", ", column, count.table);
    }
    query_in(sql, count.of, session_ids,
             fmt::format(") INSERT INTO {0} ({1}{2}) SELECT {1}{3} FROM {4} GROUP BY {1} "
                         "ON CONFLICT ({1}) DO UPDATE SET {5}",
                         count.table, count.keys, columns, sums, count.from, additions),
             {});
  }
}

void add_to_files_only(SqlConnection& sql, std::span<const SqlValue> session_ids, std::string_view sum) {
  query_in(sql, kSessions, session_ids,
           fmt::format(") UPDATE daily_use SET files_only = files_only + kept.files FROM (SELECT day, image_id, "
                       "distribution_id, SUM({}) AS files FROM {} GROUP BY day, image_id, distribution_id) AS kept "
                       "WHERE daily_use.day = kept.day AND daily_use.image_id = kept.image_id "
                       "AND daily_use.distribution_id = kept.distribution_id",
                       sum, kWaysOfUse),
           {});
}

void begin_files_only(SqlConnection& sql) { sql.run("UPDATE daily_use SET files_only = file_sessions - sessions"); }
void take_kept_from_files_only(SqlConnection& sql, std::span<const SqlValue> session_ids) {
  add_to_files_only(sql, session_ids, "loaded - file");
}
void end_gone_of_files_only(SqlConnection& sql) { sql.run("UPDATE daily_use SET files_only = 0 WHERE files_only < 0"); }
void add_kept_to_files_only(SqlConnection& sql, std::span<const SqlValue> session_ids) {
  add_to_files_only(sql, session_ids, "1 - loaded");
}

void remove_zeros(SqlConnection& sql, std::int64_t day) {
  for (const std::string_view table : kDailyTables)
    sql.run(fmt::format("DELETE FROM {} WHERE day = $1 AND {} = 0", table,
                        table == "daily_session" ? "launched + surplus"
                        : table == "daily_use"   ? "sessions + file_sessions"
                                                 : "sessions"),
            {day});
}

void count_users(SqlConnection& sql, std::span<const SqlValue> session_ids) {
  using Place = std::tuple<std::int64_t, std::int64_t, SketchKind>;  // month, image
  std::map<Place, std::map<std::int64_t, std::vector<std::uint64_t>>> users;
  for (const auto& subject : kUserSubjects)
    query_in(sql, subject.of, session_ids,
             fmt::format(") SELECT DISTINCT month, image_id, {}, hash FROM {}", subject.subject, subject.from),
             [&](const SqlRow& row) {
               users[{row.number(0), row.number(1), subject.kind}][row.number(2)].push_back(sketch_hash(row.blob(3)));
             });
  // And those of all images together, under the number of none.
  auto everywhere = users;
  for (const auto& [place, of_subjects] : users) {
    const auto& [month, image_id, kind] = place;
    if (kind == SketchKind::kImage) continue;
    auto& all = everywhere[{month, 0, kind}];
    for (const auto& [subject, hashes] : of_subjects)
      all[subject].insert(all[subject].end(), hashes.begin(), hashes.end());
  }
  for (const auto& [place, of_subjects] : everywhere) {
    const auto& [month, image_id, kind] = place;
    std::vector<SqlValue> subjects, rows;
    std::map<std::int64_t, UserSketch> sketches;
    for (const auto& [subject, hashes] : of_subjects) subjects.emplace_back(subject);
    query_in(sql,
             fmt::format("SELECT subject_id, sketch FROM user_sketch WHERE month = {} AND image_id = {} AND kind = {} "
                         "AND subject_id",
                         month, image_id, int(kind)),
             subjects, "", [&](const SqlRow& row) { sketches[row.number(0)] = UserSketch::parse(row.blob(1)); });
    for (const auto& [subject, hashes] : of_subjects) {
      auto& sketch = sketches[subject];
      bool changed = false;
      for (const auto hash : hashes) changed |= sketch.add(hash);
      if (changed)
        rows.insert(rows.end(),
                    {month, image_id, std::int64_t(kind), subject, sketch.bytes(), std::int64_t(sketch.count())});
    }
    store_sketches(sql, rows);
  }
}

void count_sketched_users(SqlConnection& sql) {
  struct Row {
    std::int64_t month = 0, image_id = 0, kind = 0, subject = 0;
  };
  std::vector<Row> rows;
  sql.query("SELECT month, image_id, kind, subject_id FROM user_sketch WHERE image_id <> 0 ORDER BY 1, 3, 4, 2", {},
            [&](const SqlRow& row) {
              rows.push_back({row.number(0), row.number(1), row.number(2), row.number(3)});
            });
  UserSketch all;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& at = rows[i];
    UserSketch sketch;
    sql.query("SELECT sketch FROM user_sketch WHERE month = $1 AND image_id = $2 AND kind = $3 AND subject_id = $4",
              {at.month, at.image_id, at.kind, at.subject},
              [&](const SqlRow& row) { sketch = UserSketch::parse(row.blob(0)); });
    std::vector<SqlValue> values{at.month,   at.image_id,    at.kind,
                                 at.subject, sketch.bytes(), std::int64_t(sketch.count())};
    if (at.kind != std::int64_t(SketchKind::kImage)) {
      all.merge(sketch);
      const bool last = i + 1 == rows.size() || rows[i + 1].month != at.month || rows[i + 1].kind != at.kind ||
                        rows[i + 1].subject != at.subject;
      if (last) {
        values.insert(values.end(),
                      {at.month, std::int64_t(0), at.kind, at.subject, all.bytes(), std::int64_t(all.count())});
        all = {};
      }
    }
    store_sketches(sql, values);
  }
}

}  // namespace varve::usage
