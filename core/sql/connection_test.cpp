// What both databases must do alike, and how one kind of database is told from another. The usage database's tests
// cover the rest.
#include "core/sql/connection.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "core/base/errors.h"
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

TEST(SqliteConnectionTest, SyncsEachCommitOnlyWhereThatWasAskedFor) {
  const test::TempDir folder;
  for (const bool synced : {false, true}) {
    const auto sql = open_sqlite(folder / "test.db", kFruit, {.synced = synced});
    sql->query("PRAGMA synchronous", {}, [&](const SqlRow& row) { EXPECT_EQ(row.number(0), synced ? 2 : 1); });
  }
}

}  // namespace
}  // namespace varve
