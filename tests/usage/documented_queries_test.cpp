// The page that describes the database must describe this one: its statements run, its tables are the tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "analyzer/usage/internal/schema.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

std::string page() {
  std::ifstream file(std::string(VARVE_SOURCE_DIR) + "/docs/formats/usage-database.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> statements(const std::string& text) {
  const std::string begin = "```sql\n", end = "```";
  std::vector<std::string> found;
  for (auto at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    const auto from = at + begin.size();
    auto statement = text.substr(from, text.find(end, from) - from);
    found.push_back(statement.substr(0, statement.rfind(';')));
  }
  return found;
}

class DocumentedQueries : public DatabaseFixture {
 protected:
  std::unique_ptr<SqlConnection> connect() const { return open_sql(where_, usage_kind()); }
};
VARVE_FOR_BOTH_DATABASES(DocumentedQueries);

TEST_P(DocumentedQueries, RunAndFindWhatTheySay) {
  database_->put_inventory(inventory_of(1, {{.name = "numpy", .modules = {"numpy"}},
                                            {.name = "pandas", .modules = {"pandas"}},
                                            {.name = "scikit-learn", .modules = {"sklearn"}},
                                            {.name = "unused", .modules = {"unused"}}}),
                           "v143");
  SpoolWriterForTests(folder_.path(), start_record(1, 1, "2026-11-20"))
      .add(import_record("pandas"))
      .add(import_record("numpy", Directness::kTransitive, "pandas.core"))
      .add(import_record("sklearn.svm"))
      .raw("broken\n");
  database_->collect({folder_.path()}, {}, cancel_);
  const auto sql = connect();
  std::vector<std::string> first_cells;
  for (const auto& statement : statements(page())) {
    SCOPED_TRACE(statement);
    unsigned rows = 0;
    sql->query(statement, {}, [&](const SqlRow& row) {
      if (rows++ == 0) first_cells.push_back(row.text(0));
    });
    EXPECT_GT(rows, 0U);
  }
  ASSERT_EQ(first_cells.size(), 2U);
  EXPECT_EQ(first_cells[1], "unused");
}

TEST_P(DocumentedQueries, NameEveryTable) {
  const auto text = page();
  const auto sql = connect();
  const auto* list = GetParam() == Kind::kSqlite
                         ? "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
                         : "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema() "
                           "AND tablename NOT IN (SELECT relname FROM pg_catalog.pg_class WHERE relispartition)";
  unsigned tables = 0;
  sql->query(list, {}, [&](const SqlRow& row) {
    ++tables;
    EXPECT_NE(text.find("`" + row.text(0) + "`"), std::string::npos) << row.text(0);
  });
  EXPECT_GT(tables, 30U);
}

TEST_P(DocumentedQueries, FindNoAbsentValueInAnyColumn) {
  if (GetParam() != Kind::kSqlite) GTEST_SKIP() << "the columns are made by the same script";
  const auto sql = connect();
  sql->query(
      "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' "
      "AND c.\"notnull\" = 0 AND c.pk = 0",
      {}, [&](const SqlRow& row) { ADD_FAILURE() << row.text(0) << "." << row.text(1); });
}

}  // namespace
}  // namespace varve::usage
