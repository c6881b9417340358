// A database that an earlier program made goes on as if this one had made it.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include <fmt/ranges.h>

#include "analyzer/usage/internal/schema.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

const std::vector<TestPackage> kPackagesOfOne{
    {.name = "numpy", .modules = {"numpy"}, .paths = {"lib/numpy/"}},
    {.name = "pandas", .modules = {"pandas"}, .paths = {"lib/pandas/"}},
    {.name = "google-cloud-storage", .modules = {"google.cloud.storage"}},
    {.name = "opencv-python", .modules = {"cv2"}},
    {.name = "opencv-python-headless", .modules = {"cv2"}},
    {.name = "torch", .modules = {"torch"}, .paths = {"lib/torch/"}, .gpu = true}};

// Lines as recorders wrote them, so that a file is what was read before.
void write(const std::filesystem::path& spool, unsigned session, unsigned process, const std::string& lines) {
  std::filesystem::create_directories(spool);
  std::ofstream(spool / fmt::format("{}-{}.jsonl", session_id(session), process_id(process)),
                std::ios::app | std::ios::binary)
      << lines;
}

std::string start(unsigned session, unsigned process, const std::string& day, unsigned image, unsigned user,
                  const std::string& more = R"("writer":"recorder 1","main":"kernel")") {
  return fmt::format(R"({{"t":"start","v":1,"session":"{}","process":"{}","day":"{}",{}{}{}}})"
                     "\n",
                     session_id(session), process_id(process), day,
                     image == 0 ? "" : fmt::format(R"("image":"{}",)", image_digest(image).to_string()),
                     user == 0 ? "" : fmt::format(R"("user":"{}",)", user_hash(user)), more);
}

class OlderSchema : public DatabaseFixture {
 protected:
  std::filesystem::path spool(const std::string& name) const { return folder_.path() / name; }
  void collect(Database& database, const std::string& name) {
    const auto result = database.collect({spool(name)}, {.known_name_sessions = 2}, cancel_);
    EXPECT_EQ(result.quarantined, 0U);
  }

  // All that version 1 kept: sessions that are counted and gone, sessions that came late to such a day, and sessions
  // that will go on. Without a database it only writes the spools. data/schema_1.sql is what version 1 made of it, so
  // it stays as it is.
  void first_part(Database* database) {
    if (database != nullptr) database->put_inventory(inventory_of(1, kPackagesOfOne), "v1");
    write(spool("gone"), 1, 1,
          start(1, 1, "2026-09-01", 1, 1) + R"({"t":"import","m":"numpy","how":"direct","site":"image"})"
                                            "\n");
    if (database != nullptr) {
      collect(*database, "gone");
      database->age_out({.raw_days = 30, .aggregate_days = 800}, day("2026-11-21"));
    }
    write(spool("kept"), 2, 1,
          start(2, 1, "2026-09-01", 1, 1) + R"({"t":"import","m":"numpy.linalg","how":"direct","site":"image"}
{"t":"failed","m":"secret","how":"direct"}
)");
    write(spool("kept"), 3, 1,
          start(3, 1, "2026-11-20", 1, 2) +
              R"({"t":"gpu","at":0,"present":true,"used":false,"models":["NVIDIA T4"],"driver":"550"}
{"t":"import","at":10,"m":"pandas.io.json","how":"direct","site":"image"}
{"t":"import","at":10,"m":"numpy","how":"transitive","by":"pandas.core.frame","site":"image"}
{"t":"import","at":10,"m":"google.cloud","how":"static","site":"image"}
{"t":"import","at":10,"m":"cv2","how":"direct","site":"session","d":"Opencv-Python","ver":"5.0"}
{"t":"import","at":10,"m":"unheard.of.thing","how":"direct"}
{"t":"failed","at":20,"m":"torch_nothing","how":"direct"}
{"t":"failed","at":20,"m":"secret","how":"direct"}
{"t":"install","at":30,"d":"numpy","from":"1.0","to":"2.0","why":"upgrade","tool":"pip"}
{"t":"install","at":30,"d":"numpy","from":"1.0","to":"2.0","why":"upgrade","tool":"uv"}
{"t":"file","at":40,"p":"/lib/torch/lib.so","op":"open"}
{"t":"beat","at":900,"cells":1,"busy":5,"idle":700,"gpu_used":false}
)");
    write(spool("kept"), 3, 2,
          start(3, 2, "2026-11-21", 1, 3, R"("parent":"0000000000000001","writer":"recorder 1","main":"script")") +
              R"({"t":"import","m":"numpy","how":"direct","site":"image"})"
              "\n");
    write(spool("kept"), 4, 1, start(4, 1, "2026-11-20", 2, 2) + R"({"t":"import","m":"numpy","how":"direct"}
{"t":"file","p":"/lib/numpy/a.txt","op":"exec"}
)");
    write(spool("kept"), 5, 1, start(5, 1, "2026-11-20", 1, 0, R"("writer":"run 0.1.0")") + "{\"t\":\"launch\"}\n");
    write(spool("kept"), 6, 2,
          start(6, 2, "2026-11-21", 0, 4, R"("parent":"0000000000000001","writer":"recorder 1","main":"kernel")") +
              R"({"t":"import","m":"pandas","how":"direct"})"
              "\n");
    if (database != nullptr) collect(*database, "kept");
  }

  void second_part(Database& database) {
    write(spool("kept"), 2, 1,
          R"({"t":"import","m":"pandas","how":"transitive","by":"torch.utils","site":"image"})"
          "\n");
    write(spool("kept"), 3, 1, R"({"t":"import","at":1000,"m":"torch.nn","how":"direct","site":"image"}
{"t":"import","at":1000,"m":"numpy","how":"transitive","by":"pandas.core.frame","site":"session"}
{"t":"failed","at":1000,"m":"secret","how":"direct"}
{"t":"beat","at":2000,"cells":2,"busy":9,"idle":10,"gpu_used":true}
)");
    write(spool("kept"), 4, 1,
          R"({"t":"file","p":"/lib/other/x","op":"open"})"
          "\n");
    // The first process tells the day and the image.
    write(spool("kept"), 6, 1,
          start(6, 1, "2026-11-19", 1, 4) + R"({"t":"import","m":"cv2.data","how":"static"})"
                                            "\n");
    collect(database, "kept");
  }

  // What the program of that version made of first_part().
  std::string where_of_version(unsigned version) {
    const auto where =
        GetParam() == Kind::kSqlite ? (folder_.path() / fmt::format("version{}.db", version)).string() : new_database();
    const auto sql = open_sql(where, usage_kind());
    migrate_schema(*sql, schema_scripts().first(version));
    sql->run("DELETE FROM setting WHERE name IN ('owners_missing', 'files_only_missing')");
    std::ifstream file(fmt::format(VARVE_SOURCE_DIR "/tests/usage/data/schema_{}.sql", version));
    std::ostringstream rows;
    rows << file.rdbuf();
    if (GetParam() == Kind::kSqlite) {
      sql->run_script(rows.str());
      return where;
    }
    sql->run_script(std::regex_replace(rows.str(), std::regex("X'"), "'\\x"));
    for (const auto* table :
         {"image", "distribution", "module", "gpu_model", "failed_name", "reinstall", "pending_path", "session"})
      sql->query(fmt::format("SELECT setval(pg_get_serial_sequence('{0}', 'id'), MAX(id)) FROM {0}", table), {},
                 [](const SqlRow&) {});
    return where;
  }

  // As if no program of version 7, or of 6 either, had been here.
  static void remove_version_7(SqlConnection& sql) {
    sql.run("DROP INDEX spool_file_owner");
    sql.run("ALTER TABLE spool_file DROP COLUMN owner");
    for (const auto* table : {"session", "daily_session"})
      sql.run(fmt::format("ALTER TABLE {} DROP COLUMN surplus", table));
    if (sql.is_server()) sql.run("ALTER TABLE intake DROP COLUMN owner");
  }
  static void remove_version_6(SqlConnection& sql) {
    remove_version_7(sql);
    for (const auto* table : {"counted_month", "monthly_use", "monthly_module", "monthly_edge"})
      sql.run(fmt::format("DROP TABLE {}", table));
    if (sql.is_server()) {
      for (const auto* table : {"intake", "node", "node_day"})
        sql.run_script(fmt::format("DROP TABLE {} CASCADE", table));
      sql.run_script("DROP FUNCTION intake_bound()");
      for (const auto* table : {"daily_use", "daily_module", "daily_edge", "session_module", "session_file"})
        sql.run_script(
            fmt::format("ALTER TABLE {0} RENAME TO parts; CREATE TABLE {0} (LIKE parts INCLUDING ALL); "
                        "INSERT INTO {0} SELECT * FROM parts; DROP TABLE parts",
                        table));
    }
    sql.run("DELETE FROM user_sketch WHERE image_id = 0");
    sql.run("ALTER TABLE user_sketch DROP COLUMN users");
    sql.run("ALTER TABLE spool_file DROP COLUMN node");
    sql.run("DELETE FROM setting WHERE name IN ('users_missing', 'partitioned_through')");
  }

  // Everything that reports are made of.
  std::string told(Database& database) {
    const SnapshotQuery query{.window = all_days(), .image = std::nullopt};
    const auto facts = database.snapshot(query);
    std::string text;
    const auto add = [&]<typename... Values>(const Values&... values) {
      ((text += fmt::format("{} ", values)), ...);
      text += '\n';
    };
    for (const auto& image : facts.images)
      add(image.digest.to_string(), image.label, image.launched, image.heard, image.gpu_sessions,
          image.gpu_used_sessions, image.gpu_unused_seconds, image.gpu_idle_seconds, image.gpu_incapable_sessions,
          image.gpu_incapable_seconds, image.users.at_least, image.users.at_most);
    for (const auto& use : facts.distributions) {
      add(use.name, use.sessions, use.direct, use.transitive_only, use.image_copy, use.session_copy, use.file_sessions,
          use.files_only, use.exec_sessions, use.static_sessions, use.users.at_least, use.users.at_most, use.first_used,
          use.last_used, use.importers, use.modules);
      for (const auto& on : use.days) add(on.day, on.sessions);
    }
    for (const auto& failed : facts.failed) add(failed.module, failed.sessions, failed.users.at_most, failed.last_day);
    for (const auto& again : facts.reinstalls) add(again.distribution, again.from, again.to, again.why, again.sessions);
    add(facts.gpu_models, facts.unresolved, facts.hidden_failed_names);
    database.sessions(query, 100, [&](SessionUse&& use) { add(use.key, use.day, use.distributions); });
    const auto use = database.set_use(query, {"numpy", "torch"});
    add(use.sessions_at_least, use.sessions_at_most, use.users.at_least, use.users.at_most);
    for (const auto& evidence : database.explain("numpy", query).evidence)
      add(evidence.kind, evidence.day, evidence.count, evidence.detail);
    return text;
  }
};
VARVE_FOR_BOTH_DATABASES(OlderSchema);

TEST_P(OlderSchema, OfVersion5GoesOnAndBecomesPartsByMonth) {
  first_part(database_.get());
  const auto where = where_of_version(5);
  auto older = open_database(where);
  EXPECT_NE(told(*older).find("numpy 3 3 0 3 0 0 0 0 0"), std::string::npos) << told(*older);
  EXPECT_EQ(told(*older), told(*database_));
  collect(*older, "kept");
  EXPECT_EQ(told(*older), told(*database_)) << "what was read before is not read again";
  second_part(*database_);
  collect(*older, "kept");
  EXPECT_EQ(told(*older), told(*database_));
  for (const auto* today : {"2026-11-22", "2026-12-20", "2027-03-01"}) {
    for (auto* database : {older.get(), database_.get()})
      database->age_out({.raw_days = 1, .aggregate_days = 60}, day(today));
    EXPECT_EQ(told(*older), told(*database_)) << today;
  }
}

TEST_P(OlderSchema, OfVersion1GoesOn) {
  first_part(database_.get());
  const auto where = where_of_version(1);
  auto older = open_database(where);
  EXPECT_NE(told(*older).find("numpy 3 3 0 3 0 0 0 0 0"), std::string::npos) << told(*older);
  EXPECT_NE(told(*older).find("torch 0 0 0 0 0 1 1 0 0"), std::string::npos) << told(*older);
  EXPECT_EQ(told(*older), told(*database_));
  collect(*older, "kept");
  EXPECT_EQ(told(*older), told(*database_)) << "what was read before is not read again";

  // The older program may write on, beside this one.
  open_sql(where, usage_kind())->run("DELETE FROM module_owner");
  second_part(*database_);
  collect(*older, "kept");
  EXPECT_EQ(told(*older), told(*database_));
  older = open_database(where);
  for (auto* database : {older.get(), database_.get()})
    database->put_inventory(inventory_of(2, {{.name = "other", .modules = {"numpy"}, .paths = {"lib/numpy/"}}}), "v2");
  EXPECT_NE(told(*older).find("other 1 1 0"), std::string::npos) << told(*older);
  EXPECT_EQ(told(*older), told(*database_));
  for (auto* database : {older.get(), database_.get()})
    database->age_out({.raw_days = 1, .aggregate_days = 70}, day("2026-11-21"));
  EXPECT_EQ(told(*older), told(*database_));
  write(spool("gone"), 1, 1,
        R"({"t":"import","m":"pandas","how":"direct"})"
        "\n");
  EXPECT_EQ(older->collect({spool("gone")}, {}, cancel_).events, 0U) << "its session is counted and gone";
}

// Of sessions that are gone version 3 tells only sums of a day.
TEST_P(OlderSchema, OfVersion3SaysOfGoneSessionsWhatCanBeSaid) {
  database_->put_inventory(inventory_of(1, kPackagesOfOne), "v1");
  for (unsigned session = 1; session <= 5; ++session) {
    const std::string import = R"({"t":"import","m":"numpy","how":"direct","site":"image"})"
                               "\n",
                      file = R"({"t":"file","p":"/lib/numpy/a","op":"open"})"
                             "\n";
    write(spool("all"), session, 1,
          start(session, 1, session < 4 ? "2026-09-01" : "2026-11-20", 1, 0) + (session % 2 == 0 ? import : "") + file);
  }
  collect(*database_, "all");
  const auto files_only = [&](std::int32_t from) {
    return find_use(database_->snapshot({.window = {.first = from, .last = 40'000}, .image = std::nullopt}), "numpy")
        ->files_only;
  };
  EXPECT_EQ(files_only(0), 3U);
  database_->age_out({.raw_days = 30, .aggregate_days = 800}, day("2026-11-21"));
  const auto sql = open_sql(where_, usage_kind());
  sql->run("ALTER TABLE daily_use DROP COLUMN files_only");
  sql->run("ALTER TABLE probe_item DROP COLUMN missed");
  remove_version_6(*sql);
  sql->run("UPDATE setting SET value = '3' WHERE name = 'schema'");
  // As if two more had loaded it whose files nobody watched.
  sql->run("UPDATE daily_use SET sessions = sessions + 2 WHERE day < " + std::to_string(day("2026-11-01")));
  database_ = open();
  EXPECT_EQ(files_only(0), 1U) << "of the day whose sessions are gone none is certain";
  EXPECT_EQ(files_only(day("2026-11-01")), 1U);
}

}  // namespace
}  // namespace varve::usage
