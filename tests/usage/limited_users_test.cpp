// How many sessions of one user of a machine count (docs/formats/usage-database.md, "Whose sessions count").
#include <gtest/gtest.h>
#include <unistd.h>

#include "analyzer/usage/internal/schema.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

const std::vector<TestPackage> kOfSessions{{.name = "numpy", .modules = {"numpy"}},
                                           {.name = "pandas", .modules = {"pandas"}}};

class LimitedUsers : public DatabaseFixture {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs the right to give files away";
    DatabaseFixture::SetUp();
  }
  std::filesystem::path spool() const { return folder_.path() / "spool"; }
  SpoolWriterForTests add(unsigned session, unsigned owner, const std::string& on) const {
    SpoolWriterForTests file(spool(), start_record(session, 1, on));
    file.add(import_record(session % 2 == 0 ? "numpy" : "pandas"));
    EXPECT_EQ(::chown(file.path().c_str(), owner, owner), 0);
    return file;
  }
  CollectResult collect(CollectOptions options = {}) {
    options.today = day("2026-11-21");
    return database_->collect({spool()}, options, cancel_);
  }
  Snapshot snapshot() { return database_->snapshot({.window = all_days(), .image = std::nullopt}); }
};
VARVE_FOR_BOTH_DATABASES(LimitedUsers);

// Who may write to a spool may write a thousand sessions that used nothing.
TEST_P(LimitedUsers, OneUserCannotOutvoteTheOthers) {
  database_->put_inventory(inventory_of(1, kOfSessions), "v1");
  for (unsigned session = 1; session <= 40; ++session) add(session, 1000, "2026-11-20");
  for (unsigned session = 41; session <= 50; ++session) add(session, 0, "2026-11-20");
  add(51, 1001, "2026-11-20");
  add(52, 1000, "2026-11-21");
  add(53, 1000, "2026-10-20");
  add(54, 1000, "2026-10-21");
  const auto result = collect();
  EXPECT_EQ(result.sessions, 54U);
  EXPECT_EQ(result.surplus, 38U);
  const auto expect_limited = [&](const char* when) {
    const auto facts = snapshot();
    ASSERT_EQ(facts.images.size(), 1U);
    EXPECT_EQ(facts.images[0].heard, 10 + 3 + 1 + 1 + 1U) << when;
    EXPECT_EQ(facts.images[0].launched, facts.images[0].heard) << when;
    EXPECT_EQ(facts.images[0].surplus, 38U) << when;
    EXPECT_EQ(find_use(facts, "numpy")->sessions, 27U) << when << ": what was used was used";
    EXPECT_EQ(database_->set_use({.window = all_days(), .image = std::nullopt}, {"numpy", "pandas"}).sessions_at_most,
              54U)
        << when;
  };
  expect_limited("collected");
  const auto sample = database_->sessions({.window = all_days(), .image = std::nullopt}, 100, [](SessionUse&&) {});
  EXPECT_EQ(sample.kept, 16U);
  EXPECT_EQ(sample.given, 16U);
  EXPECT_EQ(collect().surplus, 0U);
  expect_limited("collected again");
  SpoolWriterForTests(spool(), start_record(40, 1, "2026-11-20")).add(import_record("numpy.core"));
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20")).add(import_record("pandas.io"));
  collect();
  expect_limited("they went on");
  database_->put_inventory(inventory_of(1, kOfSessions), "v2");
  expect_limited("they were counted anew");
  database_->age_out({.raw_days = 1, .aggregate_days = 800}, day("2026-12-21"));
  expect_limited("they are only counted");
}

TEST_P(LimitedUsers, IdsOfUsersAreNotKeptAndNobodyIsFollowed) {
  for (unsigned session = 1; session <= 4; ++session) add(session, 1000, session < 3 ? "2026-11-20" : "2026-11-21");
  collect();
  std::vector<std::string> owners;
  open_sql(where_, usage_kind())
      ->query("SELECT owner FROM spool_file ORDER BY session_key", {},
              [&](const SqlRow& row) { owners.push_back(row.text(0)); });
  ASSERT_EQ(owners.size(), 4U);
  EXPECT_EQ(owners[0].size(), 32U);
  EXPECT_EQ(owners[0], owners[1]);
  EXPECT_EQ(owners[2], owners[3]);
  EXPECT_NE(owners[0], owners[2]) << "the same user on another day";
}

TEST_P(LimitedUsers, HowManySessionsOfAUserCountIsTheCollectorsToSay) {
  for (unsigned session = 1; session <= 10; ++session) add(session, 1000, "2026-11-20");
  EXPECT_EQ(collect({.user_day_sessions = 0}).surplus, 0U);
  add(11, 1000, "2026-11-20");
  EXPECT_EQ(collect({.user_day_sessions = 11}).surplus, 0U);
  add(12, 1000, "2026-11-20");
  EXPECT_EQ(collect({.user_day_sessions = 11}).surplus, 1U);
}

}  // namespace
}  // namespace varve::usage
