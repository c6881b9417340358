// Many nodes and one PostgreSQL: what a node may do, what a hostile one can, and fifty that send at once.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "analyzer/usage/internal/schema.h"
#include "analyzer/usage/roles.h"
#include "analyzer/usage/spool_sender.h"
#include "core/base/errors.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

using testing::HasSubstr;

constexpr unsigned kNodes = 50;

std::string node_name(unsigned number) { return fmt::format("node{}", number); }

class Fleet : public DatabaseFixture {
 protected:
  void SetUp() override {
    DatabaseFixture::SetUp();
    if (IsSkipped()) return;
    const RoleNames names{.nodes = {node_name(1), node_name(2)}, .readers = {"reader"}};
    EXPECT_TRUE(make_roles(where_, names));
    EXPECT_TRUE(make_roles(where_, names)) << "again";
    database_->put_inventory(inventory_of(1, {{.name = "numpy", .modules = {"numpy"}}}), "v1");
  }
  void TearDown() override {
    // Roles are the server's, rights on this schema are these tests' own.
    if (!IsSkipped()) open_sql(where_, usage_kind())->run_script("DROP OWNED BY varve_usage_node, varve_usage_reader");
  }

  // As this user.
  std::string where_of(const std::string& user) const {
    auto where = where_;
    return where.replace(where.find("postgres@"), 9, user + "@");
  }
  std::unique_ptr<SqlConnection> connect(const std::string& user) const {
    return open_sql(where_of(user), usage_kind());
  }
  std::filesystem::path spool_of(unsigned node) const { return folder_.path() / node_name(node); }
  CollectResult send(unsigned node, const CollectOptions& options = {}) const {
    const auto sender = open_sender(where_of(node_name(node)));
    if (sender == nullptr) throw std::runtime_error("this role may do more than send");
    return sender->send({spool_of(node)}, options, {});
  }
  CollectResult take_in() { return database_->collect({}, {}, cancel_); }
  SpoolWriterForTests session(unsigned node, unsigned number) const {
    auto start = start_record(number, 1, "2026-11-20");
    start.user = user_hash(number);
    return {spool_of(node), start};
  }
  std::uint64_t numpy_sessions() {
    const auto facts = database_->snapshot({.window = all_days(), .image = std::nullopt});
    return find_use(facts, "numpy")->sessions;
  }
  std::uint64_t count(const std::string& select) const {
    std::uint64_t number = 0;
    connect("postgres")->query(select, {}, [&](const SqlRow& row) { number = std::uint64_t(row.number(0)); });
    return number;
  }
  // A part as a node might make it up.
  static void insert(SqlConnection& sql, unsigned session, const std::string& start, std::uint64_t first_byte,
                     const std::string& content, const Bytes& before = Bytes(64), const Bytes& after = Bytes(64)) {
    Bytes session_key(16), process_key(8);
    session_key.back() = std::byte(session);
    process_key.back() = std::byte(1);
    sql.run(
        "INSERT INTO intake (session_key, process_key, start, first_byte, content, before, after) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7)",
        {session_key, process_key, to_bytes(as_bytes(start)), std::int64_t(first_byte), to_bytes(as_bytes(content)),
         before, after});
  }
  static std::string start_line(unsigned session) {
    return spool_line({.at_seconds = 0, .what = start_record(session, 1, "2026-11-20")});
  }
};
INSTANTIATE_TEST_SUITE_P(Databases, Fleet, testing::Values(Kind::kPostgres),
                         [](const auto&) { return std::string("Postgres"); });

TEST_P(Fleet, NodesMayOnlyAdd) {
  session(1, 1).add(import_record("numpy"));
  session(2, 2).add(import_record("numpy"));
  EXPECT_EQ(send(1).sessions, 1U);
  EXPECT_EQ(send(2).sessions, 1U);
  const auto node = connect("node1");
  for (
      const auto* statement :
      {"SELECT * FROM intake",
       "SELECT content FROM intake WHERE node = 'node1'",
       "SELECT * FROM spool_file",
       "SELECT * FROM session",
       "SELECT * FROM setting",
       "SELECT * FROM module",
       "SELECT * FROM distribution",
       "SELECT * FROM daily_use",
       "SELECT * FROM daily_use_before",
       "SELECT * FROM user_sketch",
       "SELECT * FROM node",
       "SELECT * FROM session_users",
       "UPDATE intake SET content = ''",
       "UPDATE intake SET node = 'node2'",
       "DELETE FROM intake",
       "TRUNCATE intake",
       "DROP TABLE intake",
       "DROP VIEW own_spool",
       "ALTER TABLE intake DISABLE ROW LEVEL SECURITY",
       "ALTER TABLE intake DISABLE TRIGGER bound",
       "INSERT INTO session (session_key) VALUES ('x')",
       "INSERT INTO setting VALUES ('a', 'b')",
       "INSERT INTO node VALUES ('x')",
       "INSERT INTO daily_session VALUES (1,1,1,1,1,1,1,1,1,1)",
       "INSERT INTO own_spool VALUES ('a', 'b', 1)",
       "INSERT INTO intake (node, session_key, process_key, start, first_byte, content, before, after) SELECT 'node2', "
       "repeat('a', 16)::bytea, repeat('a', 8)::bytea, 'xx', 0, 'x', repeat('a', 64)::bytea, repeat('a', 64)::bytea",
       "CREATE TABLE mine (a INT)",
       "CREATE TEMP TABLE mine (a INT)",
       "CREATE SCHEMA mine",
       "CREATE ROLE other",
       "DO $$ BEGIN LOCK TABLE setting; END $$",
       "DO $$ BEGIN LOCK TABLE intake IN ACCESS EXCLUSIVE MODE; END $$",
       "SELECT * FROM own_spool FOR UPDATE",
       "SELECT 1 FROM setting WHERE name = 'schema' FOR UPDATE",
       "SELECT lo_create(0)",
       "SELECT lo_from_bytea(0, 'x')",
       "COPY intake TO '/tmp/x'",
       "COPY (SELECT 1) TO PROGRAM 'true'",
       "SELECT pg_read_file('/etc/passwd')",
       "SET ROLE postgres",
       "SET SESSION AUTHORIZATION node2",
       "SET ROLE node2",
       "GRANT varve_usage_reader TO node1",
       "ALTER ROLE node1 CONNECTION LIMIT -1",
       "SET temp_file_limit = -1"}) {
    try {
      node->run_script(statement);
      ADD_FAILURE() << statement;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr("permission denied"), HasSubstr("must be"),
                                               HasSubstr("must have"), HasSubstr("cannot insert into view")))
          << statement;
    }
  }
  std::vector<std::int64_t> ends;
  node->query("SELECT end_byte FROM own_spool", {}, [&](const SqlRow& row) { ends.push_back(row.number(0)); });
  EXPECT_EQ(ends.size(), 1U) << "its own, nobody else's";
  // By another role's name rows are not added, whatever it becomes within its rights.
  node->run_script("SET ROLE varve_usage_node");
  insert(*node, 9, start_line(9), 0, start_line(9));
  EXPECT_EQ(count("SELECT COUNT(*) FROM intake WHERE node = 'node1'"), 2U);
  EXPECT_EQ(take_in().sessions, 3U);
  EXPECT_EQ(numpy_sessions(), 2U);
  EXPECT_EQ(count("SELECT COUNT(*) FROM intake"), 0U);
  node->run_script("RESET ROLE");
  ends.clear();
  node->query("SELECT end_byte FROM own_spool", {}, [&](const SqlRow& row) { ends.push_back(row.number(0)); });
  EXPECT_EQ(ends.size(), 2U) << "how far it was taken in";
}

TEST_P(Fleet, ReadersReadWithoutUsersAndSpools) {
  session(1, 1).add(import_record("numpy"));
  send(1);
  take_in();
  EXPECT_EQ(open_sender(where_of("reader")), nullptr);
  const auto reader = open_database(where_of("reader"));
  EXPECT_EQ(find_use(reader->snapshot({.window = all_days(), .image = std::nullopt}), "numpy")->sessions, 1U);
  EXPECT_EQ(reader->sessions({.window = all_days(), .image = std::nullopt}, 10, [](SessionUse&&) {}).given, 1U);
  EXPECT_THROW(reader->collect({}, {}, cancel_), Error);
  const auto sql = connect("reader");
  for (const auto* statement : {"SELECT * FROM session_users", "SELECT * FROM intake", "SELECT * FROM spool_file",
                                "DELETE FROM session", "UPDATE setting SET value = ''"})
    EXPECT_THROW(sql->run_script(statement), Error) << statement;
  EXPECT_EQ(read_setting(*sql, "failed_name_key"), "");
}

TEST_P(Fleet, OneUserOfANodeCannotOutvoteTheOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs the right to give files away";
  const auto add = [&](unsigned node, unsigned number) {
    auto writer = session(node, number).add(import_record("numpy"));
    EXPECT_EQ(::chown(writer.path().c_str(), 1000, 1000), 0);
  };
  const auto take_in_of = [&] { return database_->collect({}, {.today = day("2026-11-21")}, cancel_); };
  for (unsigned number = 1; number <= 20; ++number) add(1, number);
  session(1, 21).add(import_record("numpy"));
  for (unsigned number = 31; number <= 40; ++number) add(2, number);
  for (const unsigned node : {1U, 2U}) send(node);
  const auto result = take_in_of();
  EXPECT_EQ(result.sessions, 31U);
  EXPECT_EQ(result.surplus, 17U + 7U);
  EXPECT_EQ(numpy_sessions(), 31U);
  EXPECT_EQ(count("SELECT SUM(heard) FROM daily_session"), 3U + 1U + 3U);

  // As for a program of before schema 7: what the node sends is its own.
  connect("postgres")->run_script("REVOKE INSERT (owner) ON intake FROM varve_usage_node");
  for (unsigned number = 41; number <= 50; ++number) add(2, number);
  EXPECT_EQ(send(2).sessions, 10U);
  EXPECT_EQ(take_in_of().surplus, 0U);
}

TEST_P(Fleet, RolesThatAreThereMaySayTheUserAfterAMigration) {
  const auto sql = connect("postgres");
  sql->run_script(
      "DROP INDEX spool_file_owner; ALTER TABLE spool_file DROP COLUMN owner; "
      "ALTER TABLE session DROP COLUMN surplus; ALTER TABLE daily_session DROP COLUMN surplus; "
      "ALTER TABLE intake DROP COLUMN owner; UPDATE setting SET value = '6' WHERE name = 'schema'");
  session(1, 1).add(import_record("numpy"));
  EXPECT_EQ(send(1).sessions, 1U) << "to a database that nobody has brought to this schema yet";
  database_ = open();
  EXPECT_EQ(take_in().sessions, 1U);
  std::uint64_t may = 0;
  connect("node1")->query("SELECT has_column_privilege('intake', 'owner', 'INSERT')::INT", {},
                          [&](const SqlRow& row) { may = std::uint64_t(row.number(0)); });
  EXPECT_EQ(may, 1U);
}

TEST_P(Fleet, FiftyNodesSendAtOnceWhileTheOwnerTakesInAndAges) {
  constexpr unsigned kSessionsOfOne = 4, kModules = 20;
  RoleNames names;
  for (unsigned node = 1; node <= kNodes; ++node) names.nodes.push_back(node_name(node));
  make_roles(where_, names);
  for (unsigned node = 1; node <= kNodes; ++node)
    for (unsigned i = 0; i < kSessionsOfOne; ++i) {
      auto writer = session(node, node * 10 + i);
      for (unsigned module = 0; module < kModules; ++module)
        writer.add(import_record(fmt::format("numpy.part{}", module)));
    }
  std::vector<std::string> errors(kNodes + 2);
  std::atomic<std::uint64_t> sent = 0, taken = 0;
  {
    std::atomic<bool> done = false;
    std::jthread owner([&] {
      try {
        const auto own = open();
        while (!done) taken += own->collect({}, {}, cancel_).sessions;
      } catch (const std::exception& error) {
        errors[0] = error.what();
      }
    });
    std::jthread ager([&] {
      try {
        const auto own = open();
        while (!done) own->age_out({.raw_days = 1, .aggregate_days = 800}, day("2026-11-22"));
      } catch (const std::exception& error) {
        errors[kNodes + 1] = error.what();
      }
    });
    {
      std::vector<std::jthread> nodes;
      for (unsigned node = 1; node <= kNodes; ++node)
        nodes.emplace_back([&, node] {
          try {
            for (unsigned round = 0; round < 3; ++round) sent += send(node).sessions;
          } catch (const std::exception& error) {
            errors[node] = error.what();
          }
        });
    }
    done = true;
  }
  for (const auto& error : errors) EXPECT_EQ(error, "");
  taken += take_in().sessions;
  EXPECT_EQ(sent, kNodes * kSessionsOfOne);
  EXPECT_EQ(taken, kNodes * kSessionsOfOne);
  EXPECT_EQ(numpy_sessions(), kNodes * kSessionsOfOne);
  EXPECT_EQ(count("SELECT SUM(records) FROM spool_file"), kNodes * kSessionsOfOne * (kModules + 1));
  EXPECT_EQ(count("SELECT COUNT(*) FROM quarantine"), 0U);
  const auto again = send(7, {.remove_collected = true});
  EXPECT_EQ(again.sessions + again.events, 0U);
  EXPECT_EQ(again.duplicates, kSessionsOfOne * (kModules + 1));
}

TEST_P(Fleet, ANodeThatIsKilledSendsAgainWithoutHarm) {
  constexpr unsigned kSessions = 12;
  for (unsigned i = 1; i <= kSessions; ++i) session(1, i).add(import_record("numpy")).add(import_record("numpy.core"));
  unsigned killed = 0;
  for (unsigned calls = 60; calls < 100'000; calls += calls / 3) {
    if (run_and_kill(calls, [&] { send(1); })) break;
    if (++killed % 2 == 0) take_in();
  }
  EXPECT_GT(killed, 4U);
  send(1);
  take_in();
  EXPECT_EQ(numpy_sessions(), kSessions);
  EXPECT_EQ(count("SELECT SUM(records) FROM spool_file"), kSessions * 3);
  EXPECT_EQ(count("SELECT COUNT(*) FROM quarantine"), 0U);
}

TEST_P(Fleet, SessionsGoOnAndEndedSpoolsMayGo) {
  auto running = session(1, 1).add(import_record("numpy")).raw("{\"t\":\"imp");
  auto ended = session(1, 2).add(import_record("numpy")).add({.at_seconds = 60, .what = EndRecord{.ok = true}});
  const auto first = send(1, {.remove_collected = true});
  EXPECT_EQ(first.removed_files, 1U);
  EXPECT_EQ(first.pending_bytes, 9U);
  EXPECT_FALSE(std::filesystem::exists(ended.path()));
  running.raw("ort\",\"m\":\"numpy.core\",\"how\":\"direct\"}\n");
  EXPECT_EQ(send(1).events, 1U) << "before the first part was taken in";
  EXPECT_EQ(take_in().events, 6U);
  running.add(import_record("numpy.fft"));
  EXPECT_EQ(send(1).events, 1U);
  EXPECT_EQ(take_in().events, 1U);
  EXPECT_EQ(count("SELECT SUM(records) FROM spool_file"), 7U);
  // What was taken in is not written anew.
  std::filesystem::resize_file(running.path(), std::filesystem::file_size(running.path()) - 5);
  EXPECT_THAT(send(1).notes.at(0).reason, HasSubstr("shorter than what was sent of it before"));
}

TEST_P(Fleet, AHostileNodeHurtsNobodyElse) {
  session(1, 1).add(import_record("numpy"));
  send(1);
  take_in();
  const auto node = connect("node2");
  const auto line = spool_line(import_record("numpy.evil"));
  insert(*node, 1, start_line(1), 0, start_line(1) + line);              // the session of another
  insert(*node, 2, "no record", 0, "no record\n");                       // not a spool
  insert(*node, 3, start_line(4), 0, start_line(4));                     // says two names
  insert(*node, 5, start_line(5), 4000, line);                           // its beginning is nowhere
  insert(*node, 6, start_line(6), 0, start_line(6) + line + "{\"t\":");  // half a line
  insert(*node, 7, start_line(7), 0, line);                              // no start
  std::string broken = start_line(8);
  for (unsigned i = 0; i < 100'000; ++i) broken += "x\n";
  insert(*node, 8, start_line(8), 0, broken);
  const auto result = take_in();
  EXPECT_EQ(count("SELECT COUNT(*) FROM intake"), 0U);
  EXPECT_THAT(result.notes.at(0).reason, HasSubstr("its session was told by another node"));
  EXPECT_EQ(result.notes.at(0).file, "what node2 sent");
  EXPECT_LT(count("SELECT COUNT(*) FROM quarantine"), 120U);
  EXPECT_EQ(numpy_sessions(), 1U);
  // What was taken in of it cannot become something else.
  const Bytes prints(64);
  insert(*node, 8, start_line(8), broken.size(), line, Bytes(64, std::byte(1)));
  EXPECT_THAT(take_in().notes.at(0).reason, HasSubstr("not what was read before"));
  // It can wait for nobody else's rows, and nobody waits for what it may hold.
  node->run_script("SELECT pg_advisory_lock(7562872601)");
  node->begin_read();
  node->query("SELECT COUNT(*) FROM own_spool", {}, [](const SqlRow&) {});
  session(1, 20).add(import_record("numpy"));
  EXPECT_EQ(send(1).sessions, 1U);
  EXPECT_EQ(take_in().sessions, 1U);
  node->rollback();
  // Its share of the intake is bounded, within one statement, too.
  connect("postgres")
      ->run("INSERT INTO setting (name, value) VALUES ('intake_parts', '20'), ('intake_bytes', '2000000')");
  try {
    node->run_script(
        "INSERT INTO intake (session_key, process_key, start, first_byte, content, before, after) SELECT "
        "decode(md5(i::TEXT), 'hex'), repeat('a', 8)::bytea, 'xx', 0, 'x', repeat('a', 64)::bytea, "
        "repeat('a', 64)::bytea FROM generate_series(1, 1000) i");
    ADD_FAILURE() << "no bound";
  } catch (const TemporaryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("as much of node2 as one node may have waiting"));
  }
  EXPECT_THROW(insert(*node, 30, start_line(30), 0, std::string(1'048'577, 'x')), Error);
  insert(*node, 31, start_line(31), 0, std::string(1'048'576, 'x'));
  EXPECT_THROW(insert(*node, 32, start_line(32), 0, std::string(1'048'576, 'x')), TemporaryError);
  session(1, 21).add(import_record("numpy"));
  EXPECT_EQ(send(1).sessions, 1U) << "others still have theirs";
}

TEST_P(Fleet, RolesAreNamesOfRoles) {
  EXPECT_THROW(role_statements({.nodes = {"a'; DROP TABLE x; --"}, .readers = {}}), UsageError);
  EXPECT_THROW(role_statements({.nodes = {""}, .readers = {}}), UsageError);
  EXPECT_THROW(make_roles((folder_.path() / "file.db").string(), {}), UsageError);
  EXPECT_THROW(make_roles(where_, {.nodes = {"postgres"}, .readers = {}}), Error);
}

}  // namespace
}  // namespace varve::usage
