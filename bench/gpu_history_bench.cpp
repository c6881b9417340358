// The GPU history after years of hourly runs: how long a run takes to be added and judged, everything to be assessed,
// and the old to be removed.
//   gpu_history_bench --years 5 --metrics 10 --db history.db
#include <ctime>
#include <filesystem>
#include <iostream>
#include <random>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "core/sql/connection.h"
#include "gpu/alarm.h"
#include "gpu/internal/history_schema.h"

namespace {

using namespace varve;
using namespace varve::gpu;

constexpr std::int64_t kFirstHour = 446'000;
constexpr int kRepetitions = 7;

struct Options {
  std::string db;
  int years = 5, metrics = 10;
  std::int64_t hours() const { return std::int64_t(years) * 8766; }
};

// Of this process, in milliseconds: the machine may be busy with something else.
double cpu_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) * 1e3 + double(now.tv_nsec) / 1e6;
}

template <typename Work>
void timed(const char* what, Work&& work) {
  const double before = cpu_ms();
  work();
  std::cout << fmt::format("{:<44} {:>10.1f} ms of CPU\n", what, cpu_ms() - before);
}

RunIdentity run_at(std::int64_t hour) {
  return {.unix_seconds = hour * 3600,
          .machine = {.gpu = "NVIDIA Test", .driver = "580.1", .name = "vm-1"},
          .family = "registry/notebook",
          .image = "sha256:0"};
}

std::vector<StepResult> results(const Options& options, double seconds, std::mt19937_64& random) {
  std::normal_distribution<double> noise(1, 0.01);
  std::vector<StepResult> results(kRepetitions);
  for (auto& result : results) {
    result.step = "gemm";
    result.outcome = Outcome::kOk;
    for (int metric = 0; metric < options.metrics; ++metric)
      result.metrics.push_back(
          {.name = fmt::format("metric.{}", metric), .kind = MetricKind::kSteady, .seconds = seconds * noise(random)});
  }
  return results;
}

// The rows that so many runs would have made, past the code that judges each: that is measured on the runs after them.
void fill(const Options& options, std::mt19937_64& random) {
  { History::open(options.db).add(run_at(kFirstHour - 1), results(options, 1, random)); }  // makes the series
  const auto sql = open_sql(options.db, history_kind());
  std::normal_distribution<double> noise(1, 0.01);
  Transaction transaction(*sql, Transaction::Kind::kWrite);
  std::vector<SqlValue> runs, hours, samples;
  const auto flush = [&] {
    run_rows(
        *sql,
        "INSERT INTO gpu_run (id, content_key, unix_seconds, gpu, driver, lineage, machine, image, forgotten) VALUES",
        9, "", runs);
    run_rows(*sql, "INSERT INTO gpu_hour (series_id, hour, samples, median, suspicious) VALUES", 5, "", hours);
    run_rows(*sql, "INSERT INTO gpu_sample (series_id, state, hour, run_id, number, seconds) VALUES", 6, "", samples);
    for (auto* values : {&runs, &hours, &samples}) values->clear();
  };
  for (std::int64_t i = 0; i < options.hours(); ++i) {
    const auto run = i + 2, hour = kFirstHour + i;
    const auto key = digest_of(std::to_string(i));
    runs.insert(runs.end(),
                {run, blob_of(key.raw()), hour * 3600, std::string("NVIDIA Test"), std::string("580.1"),
                 std::string("registry/notebook"), std::string("vm-1"), std::string("sha256:0"), std::int64_t(0)});
    for (std::int64_t series = 1; series <= options.metrics; ++series) {
      hours.insert(hours.end(), {series, hour, std::int64_t(kRepetitions), 1.0, std::int64_t(i % 50 == 0)});
      for (std::int64_t n = 0; n < kRepetitions; ++n)
        samples.insert(samples.end(), {series, std::int64_t(0), hour, run, n, noise(random)});
    }
    if (samples.size() > 200'000) flush();
  }
  flush();
  transaction.commit();
}

void measure(const Options& options) {
  std::mt19937_64 random(1);
  if (!std::filesystem::exists(options.db)) timed("filled", [&] { fill(options, random); });
  auto history = History::open(options.db);
  auto next = kFirstHour + options.hours();
  const auto filter = SeriesFilter::of(run_at(next));
  timed("open", [&] { History::open(options.db); });
  timed("add and judge a good run", [&] { history.add(run_at(next), results(options, 1, random)); });
  timed("assess all metrics", [&] { assess(history, filter, next); });
  for (int i = 0; i < 3; ++i) history.add(run_at(++next), results(options, 1.2, random));
  timed("assess all metrics, all of them alarms", [&] {
    std::size_t lines = 0;
    for (const auto& assessment : assess(history, filter, next)) lines += evidence(assessment).size();
    if (lines == 0) throw std::runtime_error("no alarm where all metrics are 20 % slower");
  });
  timed("accept all",
        [&] { history.accept({}, {.from_hour = 0, .unix_seconds = next * 3600, .user = "bench", .reason = "bench"}); });
  timed("forget a month", [&] { history.forget(std::uint32_t(options.hours() / 24 - 30), next * 3600); });
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("The GPU history after years");
  Options options;
  app.add_option("--db", options.db, "An SQLite file; made and filled if it is not there")->required();
  app.add_option("--years", options.years)->check(CLI::Range(1, 20))->capture_default_str();
  app.add_option("--metrics", options.metrics)->check(CLI::Range(1, 100))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  measure(options);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
