// What both databases must do alike, and how one kind of database is told from another. The usage database's tests
// cover the rest.
#include "core/sql/connection.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "core/base/errors.h"
#include "core/base/files/unique_fd.h"
#include "core/sql/schema.h"
#include "testing/private_postgres.h"
#include "testing/temp_dir.h"

namespace varve {
namespace {

const SqlDatabaseKind kFruit{.name = "fruit database", .setting_table = "fruit_setting", .writer_lock = 1};
const SqlDatabaseKind kNuts{.name = "nut database", .setting_table = "nut_setting", .writer_lock = 2};
constexpr std::array<std::string_view, 1> kFruitScripts{
    "CREATE TABLE apple (id {key}, weight {real} NOT NULL, skin {blob} NOT NULL, name TEXT NOT NULL) {table_end};"};
constexpr std::array<std::string_view, 1> kNutScripts{"CREATE TABLE hazel (id {key}) {table_end};"};
constexpr std::array<std::string_view, 2> kNutScriptsLater{kNutScripts[0],
                                                           "CREATE TABLE walnut (id {key}) {table_end};"};

enum class Kind : std::uint8_t { kSqlite, kPostgres };

class SqlConnectionTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kSqlite) {
      where_ = "sqlite:" + (folder_.path() / "test.db").string();
      return;
    }
    static const auto kServer = test::PrivatePostgres::start();
    if (kServer == nullptr) GTEST_SKIP() << "PostgreSQL 15 is not installed";
    where_ = kServer->new_database();
  }

  test::TempDir folder_;
  std::string where_;
};
INSTANTIATE_TEST_SUITE_P(Databases, SqlConnectionTest, testing::Values(Kind::kSqlite, Kind::kPostgres),
                         [](const auto& info) {
                           return std::string(info.param == Kind::kSqlite ? "Sqlite" : "Postgres");
                         });

TEST_P(SqlConnectionTest, GivesBackTheVeryValuesThatWereStored) {
  const auto sql = open_sql(where_, kFruit);
  migrate_schema(*sql, kFruitScripts);
  const std::vector<double> weights{
      0.1, 0, -3.5e-13, 1.0 / 3, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max(), 7};
  const Bytes skin{std::byte{0}, std::byte{0xff}, std::byte{'\''}};
  std::vector<SqlValue> values;
  for (const auto weight : weights) values.insert(values.end(), {weight, skin, std::string("Cox's\n\xC3\xA4")});
  run_rows(*sql, "INSERT INTO apple (weight, skin, name) VALUES", 3, "", values);
  std::vector<double> stored;
  sql->query("SELECT weight, skin, name FROM apple ORDER BY id", {}, [&](const SqlRow& row) {
    stored.push_back(row.real(0));
    EXPECT_EQ(row.blob(1), skin);
    EXPECT_EQ(row.text(2), "Cox's\n\xC3\xA4");
  });
  EXPECT_EQ(stored, weights);
}

TEST_P(SqlConnectionTest, RollsBackWhatWasNotCommitted) {
  const auto sql = open_sql(where_, kFruit);
  migrate_schema(*sql, kFruitScripts);
  {
    Transaction transaction(*sql, Transaction::Kind::kWrite);
    write_setting(*sql, "season", "autumn");
  }
  EXPECT_EQ(read_setting(*sql, "season"), "");
  write_setting(*sql, "season", "autumn");
  write_setting(*sql, "season", "winter");
  EXPECT_EQ(read_setting(*sql, "season"), "winter");
  sql->flush();
}

TEST_P(SqlConnectionTest, DoesNotTakeAFileOfAnotherKindForItsOwn) {
  migrate_schema(*open_sql(where_, kFruit), kFruitScripts);
  const auto nuts = open_sql(where_, kNuts);
  if (GetParam() == Kind::kSqlite) {
    EXPECT_THROW(migrate_schema(*nuts, kNutScripts), CorruptData);
    EXPECT_FALSE(nuts->has_table("hazel"));
    return;
  }
  // A PostgreSQL schema may hold both: their tables differ.
  migrate_schema(*nuts, kNutScripts);
  EXPECT_TRUE(nuts->has_table("hazel"));
  EXPECT_TRUE(nuts->has_table("apple"));
  migrate_schema(*open_sql(where_, kFruit), kFruitScripts);
}

TEST_P(SqlConnectionTest, BringsAnOlderSchemaUpToDateAndRefusesANewerOne) {
  const auto sql = open_sql(where_, kNuts);
  migrate_schema(*sql, kNutScripts);
  EXPECT_FALSE(sql->has_table("walnut"));
  migrate_schema(*sql, kNutScriptsLater);
  EXPECT_TRUE(sql->has_table("walnut"));
  EXPECT_EQ(read_setting(*sql, "schema"), "2");
  EXPECT_THROW(migrate_schema(*sql, kNutScripts), Unsupported);
  write_setting(*sql, "schema", "many");
  EXPECT_THROW(migrate_schema(*sql, kNutScriptsLater), CorruptData);
}

TEST_P(SqlConnectionTest, NamesItsKindInErrors) {
  const auto sql = open_sql(where_, kFruit);
  try {
    sql->run("SELECT nothing FROM nowhere");
    FAIL() << "the statement ran";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 14), "fruit database");
  }
}

// Any file of a process that is closed ends its locks on it: the other would take itself for the last, and remove the
// log that is still written.
TEST(SqliteConnectionTest, KeepsWhatIsWrittenThoughAnotherProcessOpensItWhileItIsMade) {
  constexpr int kRounds = 200;
  const test::TempDir folder;
  const auto file = [&](int round) { return (folder.path() / fmt::format("{}.db", round)).string(); };
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const auto other = ::fork();
  ASSERT_GE(other, 0);
  // A word from each side in turn; false where the other has ended.
  const auto meet = [](const UniqueFd& end, char& word) {
    return ::send(end.get(), &word, 1, MSG_NOSIGNAL) == 1 && ::recv(end.get(), &word, 1, 0) == 1;
  };
  if (other == 0) try {
      ::alarm(120);  // whatever becomes of the test
      char word = 1;
      for (int round = 0; round < kRounds && word == 1; ++round) {
        while (!std::filesystem::exists(file(round))) {
        }
        auto sql = open_sqlite(file(round), kFruit);
        sql->has_table("apple");         // else it has no log that it would remove
        if (!meet(theirs, word)) break;  // both have it open
        sql.reset();
        if (!meet(theirs, word)) break;  // only the one that made it
        if (!meet(theirs, word)) break;  // the row is there
        sql = open_sqlite(file(round), kFruit);
        word = 0;
        if (sql->has_table("apple"))
          sql->query("SELECT count(*) FROM apple", {}, [&](const SqlRow& row) { word = row.number(0) == 1 ? 1 : 0; });
        ::send(theirs.get(), &word, 1, MSG_NOSIGNAL);
      }
      ::_exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
  theirs.reset();
  for (int round = 0; round < kRounds; ++round) {
    const auto sql = open_sqlite(file(round), kFruit);
    char word = 1;
    ASSERT_TRUE(meet(ours, word) && meet(ours, word)) << "the other ended in round " << round;
    migrate_schema(*sql, kFruitScripts);
    sql->run("INSERT INTO apple VALUES (1, 1.0, x'00', 'one')");
    ASSERT_TRUE(meet(ours, word));
    ASSERT_EQ(::recv(ours.get(), &word, 1, 0), 1);
    ASSERT_EQ(word, 1) << "it was lost in round " << round;
  }
  ::waitpid(other, nullptr, 0);
}

TEST(SqliteConnectionTest, SyncsEachCommitOnlyWhereThatWasAskedFor) {
  const test::TempDir folder;
  for (const bool synced : {false, true}) {
    const auto sql = open_sqlite(folder / "test.db", kFruit, {.synced = synced});
    sql->query("PRAGMA synchronous", {}, [&](const SqlRow& row) { EXPECT_EQ(row.number(0), synced ? 2 : 1); });
  }
}

}  // namespace
}  // namespace varve
