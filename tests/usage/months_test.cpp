// Sums of months must be what the days sum up to, before and after these go.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include "analyzer/report/report.h"
#include "analyzer/usage/internal/schema.h"
#include "core/base/text/calendar.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

const std::vector<TestPackage> kPackages{{.name = "numpy", .modules = {"numpy"}, .paths = {"lib/numpy/"}},
                                         {.name = "pandas", .modules = {"pandas"}, .paths = {"lib/pandas/"}},
                                         {.name = "rare", .modules = {"rare"}},
                                         {.name = "never", .modules = {"never"}}};

class Months : public DatabaseFixture {
 protected:
  // Sessions from June to November, the rare package in June only.
  void SetUp() override {
    DatabaseFixture::SetUp();
    if (IsSkipped()) return;
    for (const unsigned image : {1U, 2U}) database_->put_inventory(inventory_of(image, kPackages), "");
    std::mt19937 random(5);
    for (unsigned number = 1; number <= 120; ++number) {
      const auto date = day_text(day("2026-06-10") + std::int32_t(number * 160 / 120));
      auto start = start_record(number, 1, date, 1 + random() % 2);
      start.user = user_hash(random() % 9);
      SpoolWriterForTests writer(folder_.path() / "spool", start);
      if (random() % 2 == 0) writer.add(import_record("numpy.core"));
      if (random() % 3 == 0)
        writer.add(import_record("pandas.io")).add(import_record("numpy", Directness::kTransitive, "pandas.core"));
      if (random() % 4 == 0)
        writer.add({.at_seconds = 0, .what = FileRecord{.path = "lib/pandas/x", .executed = false}});
      if (number == 3) writer.add(import_record("rare"));
    }
    EXPECT_EQ(database_->collect({folder_.path() / "spool"}, {}, cancel_).sessions, 120U);
  }

  std::string told(DayRange window, unsigned image, bool modules = true) const {
    SnapshotQuery query{.window = window, .image = std::nullopt};
    if (image != 0) query.image = image_digest(image);
    const auto facts = database_->snapshot(query);
    std::string text;
    for (const auto& one : facts.images)
      text += fmt::format("{} {} {}-{}\n", one.launched, one.heard, one.users.at_least, one.users.at_most);
    for (const auto& use : facts.distributions)
      text += fmt::format("{} {} {} {} {} {} {} {} {}-{} {} {} {}\n", use.name, use.sessions, use.direct,
                          use.transitive_only, use.image_copy, use.file_sessions, use.files_only, use.importers,
                          use.users.at_least, use.users.at_most, use.first_used, use.last_used,
                          modules ? fmt::format("{}", use.modules) : std::string());
    return text;
  }
  std::string set_use(DayRange window) const {
    const auto use = database_->set_use({.window = window, .image = std::nullopt}, {"numpy", "pandas"});
    return fmt::format("{} {}", use.users.at_least, use.users.at_most);
  }
  std::uint64_t count(const std::string& select) const {
    std::uint64_t number = 0;
    open_sql(where_, usage_kind())->query(select, {}, [&](const SqlRow& row) {
      number = std::uint64_t(row.number(0));
    });
    return number;
  }
};
VARVE_FOR_BOTH_DATABASES(Months);

TEST_P(Months, SumUpWhatTheirDaysAre) {
  std::vector<DayRange> windows;
  for (const auto* first : {"2026-06-01", "2026-06-11", "2026-07-01", "2026-08-31"})
    for (const auto* last : {"2026-08-31", "2026-09-30", "2026-10-15", "2026-12-31"})
      windows.push_back({.first = day(first), .last = day(last)});
  std::vector<std::string> by_day;
  for (const auto& window : windows)
    for (const unsigned image : {0U, 1U, 2U}) by_day.push_back(told(window, image));
  const auto aged = database_->age_out({.raw_days = 400, .aggregate_days = 800}, day("2026-11-23"));
  EXPECT_EQ(aged.months_summed, 5U);
  EXPECT_EQ(aged.sessions + aged.months_without_days, 0U);
  std::size_t at = 0;
  for (const auto& window : windows)
    for (const unsigned image : {0U, 1U, 2U}) EXPECT_EQ(told(window, image), by_day[at++]) << window.first;
  EXPECT_GT(count("SELECT COUNT(*) FROM monthly_use"), 0U);
  EXPECT_EQ(database_->age_out({.raw_days = 400, .aggregate_days = 800}, day("2026-11-23")).months_summed, 0U);
  // A session that comes late is counted at once; the sums of its month are made again.
  const DayRange july{.first = day("2026-07-01"), .last = day("2026-07-31")};
  const auto heard = [&] {
    return find_use(database_->snapshot({.window = july, .image = std::nullopt}), "rare")->sessions;
  };
  EXPECT_EQ(heard(), 0U);
  SpoolWriterForTests(folder_.path() / "late", start_record(900, 1, "2026-07-05")).add(import_record("rare"));
  database_->collect({folder_.path() / "late"}, {}, cancel_);
  EXPECT_EQ(heard(), 1U);
  EXPECT_EQ(database_->age_out({.raw_days = 400, .aggregate_days = 800}, day("2026-11-23")).months_summed, 1U);
  EXPECT_EQ(heard(), 1U);
}

TEST_P(Months, StayWhenTheirDaysGo) {
  const DayRange june_to_august{.first = day("2026-06-01"), .last = day("2026-08-31")};
  const DayRange all{.first = day("2026-06-01"), .last = day("2026-12-31")};
  const auto before = told(june_to_august, 0, false), before_all = told(all, 1, false), set_before = set_use(all);
  const auto aged = database_->age_out({.raw_days = 20, .aggregate_days = 80}, day("2026-11-23"));
  EXPECT_EQ(aged.months_without_days, 3U);
  EXPECT_GT(aged.sessions, 90U);
  EXPECT_EQ(count("SELECT COUNT(*) FROM daily_use WHERE day <= " + std::to_string(june_to_august.last)), 0U);
  EXPECT_EQ(count("SELECT COUNT(*) FROM monthly_module WHERE month <= 679"), 0U);
  EXPECT_EQ(told(june_to_august, 0, false), before);
  EXPECT_EQ(told(all, 1, false), before_all);
  // A window that cuts such a month becomes the whole month, and says so: nothing that was used looks unused.
  const auto cut =
      database_->snapshot({.window = {.first = day("2026-06-20"), .last = day("2026-11-30")}, .image = std::nullopt});
  EXPECT_EQ(cut.window.first, day("2026-06-01"));
  EXPECT_EQ(cut.by_day_from, day("2026-09-01"));
  EXPECT_EQ(find_use(cut, "rare")->sessions, 1U);
  EXPECT_EQ(find_use(cut, "rare")->days.front().day, day("2026-06-01"));
  std::uint64_t heard = 0;
  for (const auto& one : cut.heard_days) heard += one.sessions;
  EXPECT_EQ(heard, 120U);
  const auto made = report::make_report(cut, day("2026-11-30"));
  for (const auto& row : made.rows) {
    EXPECT_EQ(row.unused, row.use->name == "never") << row.use->name;
    EXPECT_TRUE(row.last_30.has_value());
    EXPECT_EQ(row.last_90.has_value(), true);
  }
  // Neither the users of single distributions together, nor who they were, is known any more.
  EXPECT_EQ(count("SELECT COUNT(*) FROM user_sketch WHERE month <= 679 AND length(sketch) <> 0"), 0U);
  EXPECT_NE(set_use(all), "");
  // Nothing of these months is taken in again.
  EXPECT_EQ(database_->collect({folder_.path() / "spool"}, {}, cancel_).sessions, 0U);
  SpoolWriterForTests(folder_.path() / "late", start_record(900, 1, "2026-08-31"));
  EXPECT_EQ(database_->collect({folder_.path() / "late"}, {}, cancel_).quarantined, 1U);
  EXPECT_EQ(told(june_to_august, 0, false), before);
  const auto explained = database_->explain("rare", {.window = all, .image = std::nullopt});
  ASSERT_FALSE(explained.evidence.empty());
  EXPECT_THAT(explained.evidence.back().kind + explained.evidence[0].detail, testing::HasSubstr("2026-06"));
  const auto again = database_->age_out({.raw_days = 20, .aggregate_days = 80}, day("2026-11-23"));
  EXPECT_EQ(again.sessions + again.months_summed + again.months_without_days + again.partitions, 0U);
}

TEST_P(Months, AreMadeByWhoeverIsNotKilled) {
  const DayRange old{.first = day("2026-06-01"), .last = day("2026-08-31")};
  const auto before = told(old, 0, false);
  const Retention retention{.raw_days = 20, .aggregate_days = 80};
  const auto today = day("2026-11-23");
  unsigned killed = 0;
  for (std::uint64_t calls = 50; calls < 1'000'000; calls += calls / 4) {
    if (run_and_kill(calls, [&] { open()->age_out(retention, today); })) break;
    ++killed;
    ASSERT_EQ(told(old, 0, false), before) << calls;
  }
  EXPECT_GT(killed, 4U);
  database_->age_out(retention, today);
  EXPECT_EQ(told(old, 0, false), before);
  EXPECT_EQ(count("SELECT COUNT(*) FROM counted_month WHERE days_gone = 1"), 3U);
  EXPECT_EQ(count("SELECT COUNT(*) FROM session WHERE day < " + std::to_string(today - 20)), 0U);
}

TEST_P(Months, GoAsPartitionsWhereThereAreSome) {
  // The next month's first session has partitions made, for days and for the numbers of those that follow; its own is
  // of the month before, whose rows stay as long as it.
  const auto next = first_day_of_month(month_of(today_utc()) + 1);
  SpoolWriterForTests(folder_.path() / "next", start_record(900, 1, day_text(next))).add(import_record("rare"));
  EXPECT_EQ(database_->collect({folder_.path() / "next"}, {.today = next}, cancel_).sessions, 1U);
  const auto aged = database_->age_out({.raw_days = 2, .aggregate_days = 800}, next);
  if (GetParam() == Kind::kSqlite) {
    EXPECT_EQ(aged.partitions, 0U);
    return;
  }
  EXPECT_GE(aged.partitions, 2U);
  EXPECT_EQ(count("SELECT COUNT(*) FROM pg_class WHERE relname IN ('session_module_before', 'session_file_before') "
                  "AND pg_table_is_visible(oid)"),
            0U);
  EXPECT_GT(count("SELECT COUNT(*) FROM session_module"), 0U);
  EXPECT_EQ(count("SELECT COUNT(*) FROM session_module WHERE session_id >> 32 NOT IN (SELECT id >> 32 FROM session)"),
            0U);
  EXPECT_GT(count("SELECT COUNT(*) FROM daily_use_before"), 0U);
  // When the days go, so do their partitions; the next sessions find theirs.
  EXPECT_GE(database_->age_out({.raw_days = 2, .aggregate_days = 3}, next + 70).partitions, 3U);
  EXPECT_EQ(count("SELECT COUNT(*) FROM daily_use"), 0U);
  SpoolWriterForTests(folder_.path() / "next", start_record(901, 1, day_text(next + 70))).add(import_record("rare"));
  EXPECT_EQ(database_->collect({folder_.path() / "next"}, {.today = next + 70}, cancel_).sessions, 1U);
  EXPECT_EQ(find_use(database_->snapshot({.window = all_days(), .image = std::nullopt}), "rare")->sessions, 3U);
}

}  // namespace
}  // namespace varve::usage
