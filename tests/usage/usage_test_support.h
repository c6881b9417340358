#pragma once
// What the tests of the usage database share: databases of both kinds, spools written by hand, images with made-up
// packages.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/usage/database.h"
#include "analyzer/usage/spool.h"
#include "testing/private_postgres.h"
#include "testing/temp_dir.h"

namespace varve::usage {

enum class Kind : std::uint8_t { kSqlite, kPostgres };

// One empty database per test.
class DatabaseFixture : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override;
  // A further connection to the same database.
  std::unique_ptr<Database> open() const { return open_database(where_); }

  // A further empty one of the server.
  static std::string new_database();

  test::TempDir folder_;
  int databases_ = 0;
  std::string where_;
  std::unique_ptr<Database> database_;
  CancelFlag cancel_;
};

#define VARVE_FOR_BOTH_DATABASES(suite)                                                                              \
  INSTANTIATE_TEST_SUITE_P(Databases, suite, testing::Values(Kind::kSqlite, Kind::kPostgres), [](const auto& info) { \
    return std::string(info.param == Kind::kSqlite ? "Sqlite" : "Postgres");                                         \
  })

// "2026-11-21".
std::int32_t day(const std::string& text);

// Ids of sessions, processes and users by number.
std::string session_id(unsigned number);
std::string process_id(unsigned number);
std::string user_hash(unsigned number);
Digest image_digest(unsigned number);

StartRecord start_record(unsigned session, unsigned process, const std::string& day, unsigned image = 1);
SpoolRecord import_record(const std::string& module, Directness how = Directness::kDirect, const std::string& by = {},
                          Copy copy = Copy::kImage);

// Appends to the spool file of the process that the start record names; writes that record first into a new file.
class SpoolWriterForTests {
 public:
  SpoolWriterForTests(std::filesystem::path folder, StartRecord start);
  SpoolWriterForTests& add(const SpoolRecord& record);
  SpoolWriterForTests& raw(const std::string& text);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct TestPackage {
  std::string name;
  std::vector<std::string> modules;
  std::vector<std::string> paths = {};
  bool gpu = false;
  std::string version = "1.0";
};
packages::Inventory inventory_of(unsigned image, const std::vector<TestPackage>& packages);

// nullptr if it is not there.
const DistributionUse* find_use(const Snapshot& snapshot, const std::string& name);

// Runs SQL on an SQLite file, past the database's own code.
void set_by_hand(const std::string& path, const std::string& sql);

// Does the work in a process of its own and kills that before its system call of this number, in or out. How it ended
// (as waitpid(2) has it) if it had ended before; absent if it was killed. An error of the work is status 1.
std::optional<int> run_and_kill(std::uint64_t calls, const std::function<void()>& work);

inline DayRange all_days() { return {.first = 0, .last = 40'000}; }

}  // namespace varve::usage
