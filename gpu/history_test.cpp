#include "gpu/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/errors.h"
#include "core/sql/connection.h"
#include "gpu/internal/history_schema.h"
#include "testing/private_postgres.h"
#include "testing/temp_dir.h"

namespace varve::gpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using State = Judgement::State;

enum class Kind : std::uint8_t { kSqlite, kPostgres };
constexpr std::int64_t kHistoryFirstHour = 490'000;

RunIdentity run_at(std::int64_t hour, std::int64_t second = 0) {
  return {.unix_seconds = hour * 3600 + second,
          .machine = {.gpu = "NVIDIA Test", .driver = "580.1", .name = "vm-1"},
          .family = "registry/notebook",
          .image = "sha256:old"};
}

StepResult gemm(double seconds, MetricKind kind = MetricKind::kSteady) {
  StepResult result;
  result.step = "gemm";
  result.outcome = Outcome::kOk;
  result.metrics = {{.name = "sgemm", .kind = kind, .seconds = seconds}};
  result.facts = {{"cuda_driver", "13.0"}, {"clock.sm_mhz", std::to_string(seconds)}};
  return result;
}

std::vector<StepResult> gemms(double seconds, std::int64_t hour = 0) {
  std::vector<StepResult> results;
  for (int i = 0; i < 7; ++i) results.push_back(gemm(seconds * (1 + 0.002 * double((i * 3 + hour) % 7))));
  return results;
}

class HistoryTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kSqlite)
      where_ = (folder_.path() / "gpu.db").string();
    else {
      static const auto kServer = test::PrivatePostgres::start();
      if (kServer == nullptr) GTEST_SKIP() << "PostgreSQL 15 is not installed";
      where_ = kServer->new_database();
    }
    history_.emplace(History::open(where_));
  }

  // Hours of runs from `next_` on.
  void runs(std::uint32_t hours, double seconds, const std::string& image = "sha256:old") {
    for (std::uint32_t i = 0; i < hours; ++i, ++next_) {
      auto run = run_at(next_);
      run.image = image;
      history_->add(run, gemms(seconds, next_));
    }
  }
  Series sgemm(std::int64_t until = std::numeric_limits<std::int64_t>::max()) const {
    const auto all = history_->series(SeriesFilter::of(run_at(0)), until);
    EXPECT_THAT(all, SizeIs(1));
    return all.empty() ? Series{} : all.front();
  }
  Judgement judged() const { return judge(sgemm().hours, MetricKind::kSteady); }

  test::TempDir folder_;
  std::string where_;
  std::optional<History> history_;
  std::int64_t next_ = kHistoryFirstHour;
};
INSTANTIATE_TEST_SUITE_P(Databases, HistoryTest, testing::Values(Kind::kSqlite, Kind::kPostgres), [](const auto& info) {
  return std::string(info.param == Kind::kSqlite ? "Sqlite" : "Postgres");
});

TEST_P(HistoryTest, GivesBackTheSamplesOfEachHourInOrder) {
  history_->add(run_at(kHistoryFirstHour + 2), {gemm(0.3), gemm(1.0 / 3)});
  history_->add(run_at(kHistoryFirstHour), {gemm(0.1)});
  const auto series = sgemm(kHistoryFirstHour + 2);
  EXPECT_TRUE(series.current);
  EXPECT_EQ(series.key.metric, "sgemm");
  EXPECT_EQ(series.key.driver, "580.1");
  ASSERT_THAT(series.hours, SizeIs(2));
  EXPECT_EQ(series.hours[0].hour, kHistoryFirstHour);
  EXPECT_THAT(series.hours[1].samples, ElementsAre(0.3, 1.0 / 3));
  EXPECT_FALSE(sgemm(kHistoryFirstHour + 3).current);
  EXPECT_THAT(sgemm(kHistoryFirstHour + 1).hours, SizeIs(1));
}

TEST_P(HistoryTest, RunsOfOneHourJoinTheirSamplesAndTheSameRunCountsOnce) {
  EXPECT_TRUE(history_->add(run_at(kHistoryFirstHour, 60), {gemm(1)}));
  EXPECT_TRUE(history_->add(run_at(kHistoryFirstHour, 3599), {gemm(2)}));
  EXPECT_FALSE(history_->add(run_at(kHistoryFirstHour, 60), {gemm(1)}));
  ASSERT_THAT(sgemm().hours, SizeIs(1));
  EXPECT_THAT(sgemm().hours[0].samples, ElementsAre(1, 2));
}

TEST_P(HistoryTest, KeepsSeriesApartByAllPartsOfTheKey) {
  auto other_driver = run_at(kHistoryFirstHour), other_gpu = other_driver, other_lineage = other_driver;
  other_driver.machine.driver = "590.1";
  other_gpu.machine.gpu = "NVIDIA Other";
  other_lineage.family = "registry/other";
  for (const auto& run : {run_at(kHistoryFirstHour), other_driver, other_gpu, other_lineage})
    history_->add(run, {gemm(1), gemm(3, MetricKind::kCold)});
  EXPECT_THAT(history_->series({}), SizeIs(8));
  EXPECT_THAT(history_->series(SeriesFilter::of(other_gpu)), SizeIs(2));
  EXPECT_THAT(history_->series({.metric = {}, .gpu = {}, .driver = "590.1", .family = {}}), SizeIs(2));
  EXPECT_THAT(history_->series({.metric = "nothing", .gpu = {}, .driver = {}, .family = {}}), IsEmpty());
}

TEST_P(HistoryTest, JudgesARunWithoutLineageByItsOwnKind) {
  auto bare = run_at(kHistoryFirstHour);
  bare.family = "";
  bare.machine.driver = "580\xff";  // as no driver says, but text of a machine all the same
  history_->add(run_at(kHistoryFirstHour), {gemm(1)});
  history_->add(bare, {gemm(2)});
  const auto own = history_->series(SeriesFilter::of(bare), kHistoryFirstHour);
  ASSERT_THAT(own, SizeIs(1));
  EXPECT_EQ(own[0].key.family, "");
  EXPECT_THAT(own[0].hours[0].samples, ElementsAre(2));
  EXPECT_THAT(history_->changes(own[0], kHistoryFirstHour), SizeIs(testing::Gt(0U)));
  EXPECT_THAT(history_->series({}), SizeIs(2));
  open_sql(where_, history_kind())->query("SELECT count(*) FROM gpu_hour", {}, [](const SqlRow& row) {
    EXPECT_EQ(row.number(0), 2) << "both hours are judged";
  });
}

TEST_P(HistoryTest, ThrottledRepetitionsAreKeptButNotGivenBack) {
  auto throttled = gemm(9);
  throttled.throttled = true;
  history_->add(run_at(kHistoryFirstHour), {gemm(1), throttled});
  EXPECT_THAT(sgemm().hours[0].samples, ElementsAre(1));
  history_->add(run_at(kHistoryFirstHour + 1), {throttled});
  EXPECT_THAT(sgemm().hours, SizeIs(1));
  EXPECT_FALSE(sgemm(kHistoryFirstHour + 1).current);
  const auto sql = open_sql(where_, history_kind());
  sql->query("SELECT count(*) FROM gpu_sample WHERE state = 1", {},
             [](const SqlRow& row) { EXPECT_EQ(row.number(0), 2); });
}

TEST_P(HistoryTest, RemembersWhichHoursWereSlow) {
  runs(60, 1);
  runs(3, 1.2);
  EXPECT_EQ(judged().state, State::kAlarm);
  EXPECT_EQ(judged().clean_hours, 60U);
  EXPECT_EQ(slow_since(sgemm().hours, judged()), kHistoryFirstHour + 60);
  // Longer than what is read of clean hours: still known, still an alarm.
  runs(200, 1.2);
  EXPECT_EQ(judged().state, State::kAlarm);
  EXPECT_EQ(judged().clean_hours, 60U);
  EXPECT_EQ(slow_since(sgemm().hours, judged()), kHistoryFirstHour + 60);
}

TEST_P(HistoryTest, ALaterRunInTheHourCanClearIt) {
  runs(60, 1);
  history_->add(run_at(next_), {gemm(1.3)});
  EXPECT_EQ(judged().state, State::kSuspicious);
  history_->add(run_at(next_, 600), gemms(1));
  EXPECT_EQ(judged().state, State::kGood);
  ++next_;
  runs(1, 1);
  EXPECT_EQ(judged().suspicious_hours, 0U);
}

TEST_P(HistoryTest, AcceptingBeginsTheBaselineAnew) {
  runs(60, 1);
  runs(10, 1.2);
  ASSERT_EQ(judged().state, State::kAlarm);
  const auto accepted = history_->accept({.metric = "sgemm", .gpu = {}, .driver = {}, .family = {}},
                                         {.from_hour = 0, .unix_seconds = 123, .user = "ann", .reason = "new cooling"});
  ASSERT_THAT(accepted, SizeIs(1));
  ASSERT_TRUE(accepted[0].accepted);
  EXPECT_EQ(accepted[0].accepted->from_hour, kHistoryFirstHour + 60);
  EXPECT_EQ(judged().state, State::kLearning);
  EXPECT_EQ(judged().clean_hours, 9U);
  runs(60, 1.2);
  EXPECT_EQ(judged().state, State::kGood);
  EXPECT_NEAR(judged().baseline, 1.2, 0.02);
  EXPECT_EQ(sgemm().accepted->user, "ann");
  EXPECT_EQ(sgemm().accepted->reason, "new cooling");
  EXPECT_EQ(sgemm().accepted->unix_seconds, 123);
  runs(2, 1.4);
  EXPECT_EQ(judged().state, State::kAlarm);
  // As it was judged then.
  EXPECT_EQ(judge(sgemm(kHistoryFirstHour + 59).hours, MetricKind::kSteady).state, State::kGood);
  EXPECT_FALSE(sgemm(kHistoryFirstHour + 59).accepted);
}

TEST_P(HistoryTest, AcceptingFromAnHourJudgesTheFollowingOnesAnew) {
  runs(60, 1);
  runs(100, 1.2);
  runs(5, 1.4);
  history_->accept({},
                   {.from_hour = kHistoryFirstHour + 60, .unix_seconds = 1, .user = "ann", .reason = "driver setting"});
  EXPECT_EQ(judged().state, State::kAlarm);
  EXPECT_NEAR(judged().baseline, 1.2, 0.02);
  EXPECT_EQ(judged().clean_hours, 100U);
}

TEST_P(HistoryTest, AcceptingAnUnknownMetricNamesThoseThereAre) {
  runs(1, 1);
  try {
    history_->accept({.metric = "dgemm", .gpu = {}, .driver = {}, .family = {}}, {});
    FAIL() << "it was accepted";
  } catch (const NotFound& error) {
    EXPECT_THAT(error.what(), HasSubstr("it knows sgemm"));
  }
}

TEST_P(HistoryTest, ARunWithAClockInTheFutureJudgesNobodyElse) {
  runs(60, 1);
  history_->add(run_at(kHistoryFirstHour + 500'000), gemms(5));
  runs(2, 1.2);
  EXPECT_EQ(judge(sgemm(next_ - 1).hours, MetricKind::kSteady).state, State::kAlarm);
  // A clock that stepped back: judged by what lies before it.
  history_->add(run_at(kHistoryFirstHour + 55, 1800), gemms(1));
  const auto then = sgemm(kHistoryFirstHour + 55);
  EXPECT_THAT(then.hours.back().samples, SizeIs(14));
  EXPECT_TRUE(history_->add(run_at(-5), gemms(1)));
  EXPECT_EQ(sgemm(-5).hours.front().hour, -5);
}

TEST_P(HistoryTest, WhatIsNoTimeBecomesAWarning) {
  auto strange = gemm(1);
  strange.metrics.push_back({.name = "nan", .kind = MetricKind::kSteady, .seconds = std::nan("")});
  strange.metrics.push_back({.name = "zero", .kind = MetricKind::kSteady, .seconds = 0});
  strange.metrics.push_back({.name = "endless", .kind = MetricKind::kSteady, .seconds = INFINITY});
  strange.metrics.push_back({.name = "no name\n", .kind = MetricKind::kSteady, .seconds = 1});
  strange.detail = std::string("zero \0 and \xff", 12);
  strange.outcome = Outcome::kFailed;
  history_->add(run_at(kHistoryFirstHour), {strange});
  EXPECT_THAT(history_->series({}), SizeIs(1));
  std::vector<std::string> warnings;
  open_sql(where_, history_kind())->query("SELECT text FROM gpu_warning ORDER BY number", {}, [&](const SqlRow& row) {
    warnings.push_back(row.text(0));
  });
  ASSERT_THAT(warnings, SizeIs(4));
  EXPECT_EQ(warnings[1], "metric zero was left out: 0 is no time");
  EXPECT_EQ(history_->failures({}, 1).at(0).detail, "zero ? and ?");
}

TEST_P(HistoryTest, AnHourOfAFleetIsNotReadWithoutEnd) {
  const auto most = std::size_t(kMaxHourSamples);
  const std::vector<StepResult> many(most - 1, gemm(1));
  history_->add(run_at(kHistoryFirstHour, 1), many);
  history_->add(run_at(kHistoryFirstHour, 2), {gemm(1), gemm(7), gemm(7)});
  EXPECT_THAT(sgemm().hours[0].samples, SizeIs(most));
  history_->add(run_at(kHistoryFirstHour, 3), gemms(7));
  EXPECT_THAT(sgemm().hours[0].samples, SizeIs(most));
}

TEST_P(HistoryTest, ListsFailuresOfTheNewestRuns) {
  StepResult failed;
  failed.step = "fft";
  failed.detail = "cuFFT: wrong result";
  failed.outcome = Outcome::kFailed;
  history_->add(run_at(kHistoryFirstHour), {failed});
  history_->add(run_at(kHistoryFirstHour + 1), {gemm(1)});
  history_->add(run_at(kHistoryFirstHour + 2), {gemm(1), failed});
  const auto filter = SeriesFilter::of(run_at(0));
  ASSERT_THAT(history_->failures(filter, 2), SizeIs(1));
  EXPECT_EQ(history_->failures(filter, 2)[0].unix_seconds, (kHistoryFirstHour + 2) * 3600);
  ASSERT_THAT(history_->failures(filter, 10), SizeIs(2));
  EXPECT_EQ(history_->failures(filter, 10)[1].detail, "cuFFT: wrong result");
}

TEST_P(HistoryTest, TellsWhatChangedMeanwhile) {
  runs(60, 1);
  runs(3, 1.2, "sha256:new");
  const auto changes = history_->changes(sgemm(), kHistoryFirstHour + 60);
  ASSERT_THAT(changes, SizeIs(1)) << "cuda_driver is the same; clock.sm_mhz is another every time";
  EXPECT_EQ(changes[0].name, "image");
  EXPECT_EQ(changes[0].before, "sha256:old");
  EXPECT_EQ(changes[0].now, "sha256:new");
}

TEST_P(HistoryTest, ForgetsWhatIsOldButNotWhatASeriesIsJudgedBy) {
  history_->add(
      [] {
        auto run = run_at(kHistoryFirstHour - 24 * 400);
        run.machine.gpu = "NVIDIA Gone";
        return run;
      }(),
      gemms(1));
  runs(300, 1);
  runs(24 * 8, 1.2);
  const auto before = judged();
  ASSERT_EQ(before.state, State::kAlarm);
  const auto now = next_ * 3600;
  EXPECT_EQ(history_->forget(1000, now), 0U);
  EXPECT_EQ(history_->forget(7, now), 325U);
  EXPECT_EQ(history_->forget(7, now), 0U);
  EXPECT_THAT(history_->series({}), SizeIs(1));
  EXPECT_EQ(judged().state, State::kAlarm);
  EXPECT_EQ(judged().baseline, before.baseline);
  EXPECT_EQ(judged().z, before.z);
  const auto sql = open_sql(where_, history_kind());
  sql->query("SELECT count(*) FROM gpu_run", {},
             [&](const SqlRow& row) { EXPECT_EQ(row.number(0), std::int64_t(24 * 8 + kBaselineHours + 9)); });
  sql->query("SELECT count(DISTINCT run_id) FROM gpu_result", {},
             [](const SqlRow& row) { EXPECT_EQ(row.number(0), 24 * 7); });
  // When the machine is gone, so is all that was known of it.
  EXPECT_GT(history_->forget(7, now + 30 * 86'400), 0U);
  for (const auto* table :
       {"gpu_run", "gpu_result", "gpu_fact", "gpu_run_fact", "gpu_series", "gpu_sample", "gpu_hour"})
    sql->query(fmt::format("SELECT count(*) FROM {}", table), {},
               [&](const SqlRow& row) { EXPECT_EQ(row.number(0), 0) << table; });
}

TEST_P(HistoryTest, TwoWritersLoseNothing) {
  constexpr std::int64_t kRuns = 25;
  const auto write = [&](std::int64_t second) {
    auto history = History::open(where_);
    for (std::int64_t i = 0; i < kRuns; ++i) history.add(run_at(kHistoryFirstHour + i, second), gemms(1, i));
  };
  { std::jthread one(write, 1), two(write, 2); }
  const auto series = sgemm();
  ASSERT_THAT(series.hours, SizeIs(kRuns));
  for (const auto& hour : series.hours) EXPECT_THAT(hour.samples, SizeIs(14));
}

TEST_P(HistoryTest, RefusesANewerSchemaAndFilesOfOthers) {
  {
    const auto sql = open_sql(where_, history_kind());
    write_setting(*sql, "schema", "99");
  }
  EXPECT_THAT([&] { History::open(where_); },
              testing::ThrowsMessage<Unsupported>(HasSubstr("GPU history: its schema is version 99")));
  if (GetParam() != Kind::kSqlite) return;
  const auto other = (folder_.path() / "other.db").string();
  open_sqlite(other, history_kind())->run_script("CREATE TABLE theirs (id INTEGER)");
  EXPECT_THROW(History::open(other), CorruptData);
  const auto text = (folder_.path() / "text.db").string();
  std::ofstream(text) << std::string(5000, 'x');
  EXPECT_THROW(History::open(text), CorruptData);
}

std::string page() {
  std::ifstream file(std::string(VARVE_SOURCE_DIR) + "/docs/formats/gpu-history.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The page that describes the database must describe this one.
TEST_P(HistoryTest, IsAsItsPageSays) {
  runs(60, 1);
  runs(2, 1.2);
  auto failed = gemm(1);
  failed.outcome = Outcome::kFailed;
  history_->add(run_at(next_), {failed});
  history_->accept({}, {.from_hour = 0, .unix_seconds = 1, .user = "ann", .reason = "new cooling"});
  const auto text = page();
  const auto sql = open_sql(where_, history_kind());
  unsigned statements = 0;
  const std::string begin = "```sql\n";
  for (auto at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1), ++statements) {
    const auto from = at + begin.size();
    const auto statement = text.substr(from, text.find(";\n```", from) - from);
    SCOPED_TRACE(statement);
    unsigned rows = 0;
    sql->query(statement, {}, [&](const SqlRow&) { ++rows; });
    EXPECT_GT(rows, 0U);
  }
  EXPECT_EQ(statements, 2U);
  const auto* columns =
      GetParam() == Kind::kSqlite
          ? "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND "
            "m.name LIKE 'gpu_%'"
          : "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()";
  unsigned named = 0;
  sql->query(columns, {}, [&](const SqlRow& row) {
    ++named;
    const auto line = text.find("| `" + row.text(0) + "` |");
    ASSERT_NE(line, std::string::npos) << row.text(0);
    EXPECT_THAT(text.substr(line, text.find('\n', line) - line), HasSubstr("`" + row.text(1) + "`")) << row.text(0);
  });
  EXPECT_GT(named, 45U);
}

}  // namespace
}  // namespace varve::gpu
