#include "analyzer/usage/internal/session_state.h"

#include <algorithm>

namespace varve::usage {
namespace {

constexpr const char* kSelectSession =
    "SELECT id, session_key, day, image_id, image_rank, launched, heard, gpu_present, gpu_used, lifetime_seconds, idle_seconds FROM session ";

void take_session(SessionState& session, const SqlRow& row) {
  session.id = row.number(0);
  session.key = row.blob(1);
  session.day = row.number(2);
  session.image_id = row.number(3);
  session.image_rank = row.text(4);
  session.launched = row.number(5) != 0;
  session.heard = row.number(6) != 0;
  session.gpu_present = row.number(7) != 0;
  session.gpu_used = row.number(8) != 0;
  session.lifetime_seconds = row.number(9);
  session.idle_seconds = row.number(10);
}

void load_rows(SqlConnection& sql, SessionState& session) {
  if (session.id == 0) return;
  const SqlValue id = session.id;
  sql.query("SELECT month, hash FROM session_users WHERE session_id = $1", {id},
            [&](const SqlRow& row) { session.users.emplace(row.number(0), row.blob(1)); });
  sql.query(
      "SELECT module_id, by_id, named_id, flags FROM session_module WHERE session_id = $1 ORDER BY module_id, by_id, named_id",
      {id}, [&](const SqlRow& row) {
        session.modules.emplace_hint(
            session.modules.end(),
            SessionState::Module{.module_id = row.number(0), .by_id = row.number(1), .named_id = row.number(2)},
            row.number(3));
      });
  sql.query("SELECT distribution_id, version FROM session_copy WHERE session_id = $1", {id},
            [&](const SqlRow& row) { session.copies.emplace(row.number(0), row.text(1)); });
  sql.query("SELECT failed_id FROM session_failed WHERE session_id = $1", {id},
            [&](const SqlRow& row) { session.failed.insert(row.number(0)); });
  sql.query("SELECT reinstall_id, tool FROM session_reinstall WHERE session_id = $1", {id},
            [&](const SqlRow& row) { session.reinstalls.emplace(row.number(0), row.text(1)); });
  sql.query("SELECT distribution_id, flags FROM session_file WHERE session_id = $1", {id},
            [&](const SqlRow& row) { session.files[row.number(0)] = row.number(1); });
  sql.query("SELECT path_id, flags FROM session_path WHERE session_id = $1", {id},
            [&](const SqlRow& row) { session.paths[row.number(0)] = row.number(1); });
  sql.query("SELECT model_id FROM session_gpu_model WHERE session_id = $1", {id},
            [&](const SqlRow& row) { session.gpu_models.insert(row.number(0)); });
}

void store_session_row(SqlConnection& sql, SessionState& session) {
  const auto flag = [](bool value) { return SqlValue(std::int64_t(value)); };
  if (session.id == 0) {
    sql.query(
        "INSERT INTO session (session_key, day, image_id, image_rank, launched, heard, gpu_present, gpu_used, lifetime_seconds, idle_seconds) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id",
        {session.key, session.day, session.image_id, session.image_rank, flag(session.launched), flag(session.heard),
         flag(session.gpu_present), flag(session.gpu_used), session.lifetime_seconds, session.idle_seconds},
        [&](const SqlRow& row) { session.id = row.number(0); });
    return;
  }
  sql.run(
      "UPDATE session SET day = $2, image_id = $3, image_rank = $4, launched = $5, heard = $6, gpu_present = $7, gpu_used = $8, "
      "lifetime_seconds = $9, idle_seconds = $10 WHERE id = $1",
      {session.id, session.day, session.image_id, session.image_rank, flag(session.launched), flag(session.heard),
       flag(session.gpu_present), flag(session.gpu_used), session.lifetime_seconds, session.idle_seconds});
}

// Rows of a map that the other has not, or has with another value.
template <typename Map, typename Append>
void each_new(const Map& before, const Map& after, Append&& append) {
  for (const auto& entry : after) {
    if constexpr (requires { typename Map::mapped_type; }) {
      const auto old = before.find(entry.first);
      if (old == before.end() || old->second != entry.second) append(entry);
    } else {
      if (!before.contains(entry)) append(entry);
    }
  }
}

struct Uses {
  std::map<std::int64_t, std::int64_t> flags;               // distribution -> flags
  std::set<std::pair<std::int64_t, std::int64_t>> modules;  // distribution (0 = unresolved), short module
  std::set<std::pair<std::int64_t, std::int64_t>> edges;    // importer, imported
};

Uses uses_of(const SessionState& session, const ImageResolver& image, NameTable& modules) {
  Uses uses;
  std::vector<std::int64_t> ids;
  for (const auto& [use, flags] : session.modules) {
    ids.push_back(use.module_id);
    if (use.by_id != 0) ids.push_back(use.by_id);
  }
  modules.load_names(ids);
  for (const auto& [use, flags] : session.modules) {
    const auto& name = modules.name_of(use.module_id);
    const auto short_id = modules.id_of(std::string(short_module(name)));
    const Owners named{use.named_id};
    const auto& owners = use.named_id != 0 ? named : image.of_module(name);
    if (owners.empty()) uses.modules.emplace(0, short_id);
    for (const auto owner : owners) {
      uses.flags[owner] |= flags;
      uses.modules.emplace(owner, short_id);
      if (use.by_id == 0) continue;
      for (const auto importer : image.of_module(modules.name_of(use.by_id)))
        if (importer != owner) uses.edges.emplace(importer, owner);
    }
  }
  return uses;
}

DailyCounts session_counts(const SessionState& session, const ImageResolver& image, const Uses& uses) {
  DailyCounts counts{};
  counts[SessionCounts::kLaunched] = session.launched || session.heard;
  counts[SessionCounts::kHeard] = session.heard;
  if (!session.heard || !session.gpu_present) return counts;
  counts[SessionCounts::kGpu] = 1;
  counts[SessionCounts::kGpuUsed] = session.gpu_used;
  counts[SessionCounts::kGpuUnusedSeconds] = session.gpu_used ? 0 : session.lifetime_seconds;
  counts[SessionCounts::kGpuIdleSeconds] = session.idle_seconds;
  const bool capable =
      std::any_of(uses.flags.begin(), uses.flags.end(), [&](const auto& use) { return image.can_use_gpu(use.first); });
  if (image.has_inventory() && !capable) {
    counts[SessionCounts::kGpuIncapable] = 1;
    counts[SessionCounts::kGpuIncapableSeconds] = session.lifetime_seconds;
  }
  return counts;
}

void count_use(DailyCounts& counts, std::int64_t flags) {
  const bool direct = (flags & kUsedDirect) != 0, named = (flags & kUsedStatic) != 0;
  counts[UseCounts::kSessions] = 1;
  counts[UseCounts::kDirect] = direct;
  counts[UseCounts::kTransitiveOnly] = (flags & kUsedTransitive) != 0 && !direct && !named;
  counts[UseCounts::kStatic] = named;
  counts[UseCounts::kImageCopy] = (flags & kUsedImageCopy) != 0;
  counts[UseCounts::kSessionCopy] = (flags & kUsedSessionCopy) != 0;
}

}  // namespace

SessionState load_session(SqlConnection& sql, const Bytes& session_key) {
  SessionState session;
  sql.query(std::string(kSelectSession) + "WHERE session_key = $1", {session_key},
            [&](const SqlRow& row) { take_session(session, row); });
  load_rows(sql, session);
  return session;
}

SessionState load_session(SqlConnection& sql, std::int64_t session_id) {
  SessionState session;
  sql.query(std::string(kSelectSession) + "WHERE id = $1", {session_id},
            [&](const SqlRow& row) { take_session(session, row); });
  load_rows(sql, session);
  return session;
}

void store_session(SqlConnection& sql, const SessionState& before, SessionState& after) {
  store_session_row(sql, after);
  const SqlValue id = after.id;
  std::vector<SqlValue> rows;
  const auto insert = [&](std::string_view head, std::size_t columns, std::string_view tail) {
    run_rows(sql, head, columns, tail, rows);
    rows.clear();
  };
  each_new(before.users, after.users, [&](const auto& user) {
    rows.insert(rows.end(), {id, user.first, user.second});
  });
  insert("INSERT INTO session_users (session_id, month, hash) VALUES", 3, "");
  each_new(before.modules, after.modules, [&](const auto& use) {
    rows.insert(rows.end(), {id, use.first.module_id, use.first.by_id, use.first.named_id, use.second});
  });
  insert("INSERT INTO session_module (session_id, module_id, by_id, named_id, flags) VALUES", 5,
         "ON CONFLICT (session_id, module_id, by_id, named_id) DO UPDATE SET flags = excluded.flags");
  each_new(before.copies, after.copies, [&](const auto& copy) {
    rows.insert(rows.end(), {id, copy.first, copy.second});
  });
  insert("INSERT INTO session_copy (session_id, distribution_id, version) VALUES", 3, "");
  each_new(before.failed, after.failed, [&](const auto& failed) { rows.insert(rows.end(), {id, failed}); });
  insert("INSERT INTO session_failed (session_id, failed_id) VALUES", 2, "");
  each_new(before.reinstalls, after.reinstalls, [&](const auto& entry) {
    rows.insert(rows.end(), {id, entry.first, entry.second});
  });
  insert("INSERT INTO session_reinstall (session_id, reinstall_id, tool) VALUES", 3, "");
  each_new(before.files, after.files, [&](const auto& file) {
    rows.insert(rows.end(), {id, file.first, file.second});
  });
  insert("INSERT INTO session_file (session_id, distribution_id, flags) VALUES", 3,
         "ON CONFLICT (session_id, distribution_id) DO UPDATE SET flags = excluded.flags");
  each_new(before.paths, after.paths, [&](const auto& path) {
    rows.insert(rows.end(), {id, path.first, path.second});
  });
  insert("INSERT INTO session_path (session_id, path_id, flags) VALUES", 3,
         "ON CONFLICT (session_id, path_id) DO UPDATE SET flags = excluded.flags");
  if (after.paths.empty() && !before.paths.empty()) sql.run("DELETE FROM session_path WHERE session_id = $1", {id});
  each_new(before.gpu_models, after.gpu_models, [&](const auto& model) { rows.insert(rows.end(), {id, model}); });
  insert("INSERT INTO session_gpu_model (session_id, model_id) VALUES", 2, "");
}

Contribution contribution_of(const SessionState& session, const ImageResolver& image, NameTable& modules) {
  Contribution contribution;
  if (session.id == 0 && session.key.empty()) return contribution;
  const auto at = [&](DailyTable table, std::int64_t a, std::int64_t b) -> DailyCounts& {
    return contribution[DailyKey{.table = table, .day = session.day, .image_id = session.image_id, .a = a, .b = b}];
  };
  const auto uses = uses_of(session, image, modules);
  at(DailyTable::kSession, 0, 0) = session_counts(session, image, uses);
  for (const auto& [distribution, flags] : uses.flags) count_use(at(DailyTable::kUse, distribution, 0), flags);
  for (const auto& [distribution, flags] : session.files) {
    at(DailyTable::kUse, distribution, 0)[UseCounts::kFileSessions] = 1;
    at(DailyTable::kUse, distribution, 0)[UseCounts::kExecSessions] = (flags & kFileExecuted) != 0;
  }
  for (const auto& [distribution, module] : uses.modules) at(DailyTable::kModule, distribution, module)[0] = 1;
  for (const auto& [importer, imported] : uses.edges) at(DailyTable::kEdge, importer, imported)[0] = 1;
  for (const auto failed : session.failed) at(DailyTable::kFailed, failed, 0)[0] = 1;
  for (const auto& [reinstall, tool] : session.reinstalls) at(DailyTable::kReinstall, reinstall, 0)[0] = 1;
  for (const auto model : session.gpu_models) at(DailyTable::kGpuModel, model, 0)[0] = 1;
  return contribution;
}

}  // namespace varve::usage
