#include "gpu/history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "core/base/errors.h"
#include "core/sql/connection.h"
#include "gpu/internal/history_schema.h"

namespace varve::gpu {
namespace {

constexpr std::int64_t kSecondsPerHour = 3600;
// Clean hours that series() reads: the baseline's, and before hours that hold one sample each, those of the rank test.
constexpr std::int64_t kCleanHoursRead = kBaselineHours + 8;
// What a run may bring: it ran inside of an image that nobody here wrote.
constexpr std::size_t kMaxName = 200, kMaxText = 2000, kMaxFacts = 2000, kMaxMetrics = 200, kMaxWarnings = 100;
// A fact with more values than this on one side is a measurement and explains nothing.
constexpr std::size_t kMaxValues = 4;

std::int64_t hour_of(std::int64_t unix_seconds) {
  return unix_seconds / kSecondsPerHour - (unix_seconds % kSecondsPerHour < 0 ? 1 : 0);
}

bool is_metric_name(const std::string& name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kMaxName && std::ranges::all_of(name, good);
}

// What is wrong with it, "" if nothing.
std::string objection(const Metric& metric) {
  if (!is_metric_name(metric.name))
    return fmt::format("a metric was left out: {:?} is no name for one", stored_text(metric.name, 60));
  if (!std::isfinite(metric.seconds) || metric.seconds <= 0)
    return fmt::format("metric {} was left out: {} is no time", metric.name, metric.seconds);
  return {};
}

// GPUs, drivers, lineages as they are stored and looked for.
std::string key_text(const std::string& text) { return stored_text(text, kMaxName * 5); }

// "WHERE a = $1 AND b = $2" of the fields that the filter names, with their values.
struct Where {
  std::string text;
  std::vector<SqlValue> values;
  void add(std::string_view column, const std::string& value, bool also_empty) {
    if (value.empty() && !also_empty) return;
    values.emplace_back(key_text(value));
    text += fmt::format("{} {} = ${}", text.empty() ? " WHERE" : " AND", column, values.size());
  }
  explicit Where(const SeriesFilter& filter, bool with_metric) {
    add("lineage", filter.family, filter.of_run);
    add("gpu", filter.gpu, filter.of_run);
    add("driver", filter.driver, filter.of_run);
    if (with_metric) add("metric", filter.metric, false);
  }
};

using Warnings = std::map<std::size_t, std::vector<std::string>>;  // by the number of the result

struct SeriesRow {
  std::int64_t id = 0;
  SeriesKey key;
};

}  // namespace

class History::Impl {
 public:
  explicit Impl(const std::string& where) : sql_(open_sql(where, history_kind())) { migrate_history(*sql_); }

  bool add(const RunIdentity& run, const std::vector<StepResult>& results);
  std::vector<Series> series(const SeriesFilter& filter, std::int64_t until_hour) const;
  std::vector<PastFailure> failures(const SeriesFilter& filter, std::uint32_t last_runs) const;
  std::vector<Change> changes(const Series& series, std::int64_t since_hour) const;
  std::vector<Series> accept(const SeriesFilter& filter, const Acceptance& acceptance);
  std::uint64_t forget(std::uint32_t days, std::int64_t now_unix_seconds);

 private:
  std::int64_t add_run(const RunIdentity& run, const Digest& key);
  void add_results(std::int64_t run, const std::vector<StepResult>& results);
  void add_facts(std::int64_t run, const RunIdentity& identity, const std::vector<StepResult>& results);
  // The series that have new samples to be judged by.
  std::set<std::int64_t> add_samples(std::int64_t run, const RunIdentity& identity,
                                     const std::vector<StepResult>& results, Warnings& warnings);
  void add_warnings(std::int64_t run, const std::vector<StepResult>& results, const Warnings& more);
  std::int64_t series_id(const RunIdentity& run, const Metric& metric);
  std::vector<SeriesRow> series_rows(const SeriesFilter& filter) const;
  std::optional<Acceptance> acceptance_of(std::int64_t series, std::int64_t until_hour) const;
  Series read(const SeriesRow& row, std::int64_t until_hour) const;
  // All hours from one on, with flags and samples.
  std::vector<Hour> hours_between(std::int64_t series, std::int64_t first, std::int64_t last) const;
  // Where the clean hours begin that judging the newest hour up to `until` needs; `begin` if there are fewer.
  std::int64_t oldest_needed(std::int64_t series, std::int64_t begin, std::int64_t until) const;
  void judge_hour(const SeriesRow& row, std::int64_t hour);
  void judge_from(const Series& series, std::int64_t id, std::int64_t from_hour);
  void forget_series(const SeriesRow& row, std::int64_t cutoff_hour);
  std::int64_t number(const std::string& sql, std::initializer_list<SqlValue> values, std::int64_t otherwise = 0) const;

  std::unique_ptr<SqlConnection> sql_;
};

std::int64_t History::Impl::number(const std::string& sql, std::initializer_list<SqlValue> values,
                                   std::int64_t otherwise) const {
  sql_->query(sql, values, [&](const SqlRow& row) { otherwise = row.number(0); });
  return otherwise;
}

bool History::Impl::add(const RunIdentity& run, const std::vector<StepResult>& results) {
  Transaction transaction(*sql_, Transaction::Kind::kWrite);
  const auto id = add_run(run, content_key(run, results));
  if (id == 0) return false;
  add_results(id, results);
  add_facts(id, run, results);
  Warnings warnings;
  const auto touched = add_samples(id, run, results, warnings);
  add_warnings(id, results, warnings);
  for (const auto& row : series_rows(SeriesFilter::of(run)))
    if (touched.contains(row.id)) judge_hour(row, hour_of(run.unix_seconds));
  transaction.commit();
  return true;
}

std::int64_t History::Impl::add_run(const RunIdentity& run, const Digest& key) {
  return number(
      "INSERT INTO gpu_run (content_key, unix_seconds, gpu, driver, lineage, machine, image, forgotten) VALUES "
      "($1, $2, $3, $4, $5, $6, $7, 0) "
      "ON CONFLICT (content_key) DO NOTHING RETURNING id",
      {blob_of(key.raw()), run.unix_seconds, key_text(run.machine.gpu), key_text(run.machine.driver),
       key_text(run.family), key_text(run.machine.name), key_text(run.image)});
}

void History::Impl::add_results(std::int64_t run, const std::vector<StepResult>& results) {
  std::vector<SqlValue> values;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& result = results[i];
    // What a good result says in words is the same every hour.
    const auto detail = result.outcome == Outcome::kOk ? std::string() : stored_text(result.detail, kMaxText);
    values.insert(values.end(), {run, std::int64_t(i), stored_text(result.step, kMaxName), std::int64_t(result.outcome),
                                 detail, std::int64_t(result.throttled), std::int64_t(result.timed_out),
                                 std::int64_t(result.exit_status), result.seconds, std::int64_t(result.lazy),
                                 std::int64_t(result.fetched_bytes), std::int64_t(result.requests)});
  }
  run_rows(*sql_,
           "INSERT INTO gpu_result (run_id, number, step, outcome, detail, throttled, timed_out, exit_status, "
           "seconds, lazy, fetched_bytes, requests) VALUES",
           12, "", values);
}

void History::Impl::add_warnings(std::int64_t run, const std::vector<StepResult>& results, const Warnings& more) {
  std::vector<SqlValue> values;
  for (std::size_t i = 0; i < results.size(); ++i) {
    auto warnings = results[i].warnings;
    if (const auto found = more.find(i); found != more.end())
      warnings.insert(warnings.end(), found->second.begin(), found->second.end());
    if (warnings.size() > kMaxWarnings) warnings.resize(kMaxWarnings);
    for (std::size_t n = 0; n < warnings.size(); ++n)
      values.insert(values.end(), {run, std::int64_t(i), std::int64_t(n), stored_text(warnings[n], kMaxText)});
  }
  run_rows(*sql_, "INSERT INTO gpu_warning (run_id, result, number, text) VALUES", 4, "", values);
}

void History::Impl::add_facts(std::int64_t run, const RunIdentity& identity, const std::vector<StepResult>& results) {
  std::set<std::pair<std::string, std::string>> facts{{"image", stored_text(identity.image, kMaxText)},
                                                      {"machine", stored_text(identity.machine.name, kMaxText)}};
  for (const auto& result : results)
    for (const auto& [name, value] : result.facts)
      if (facts.size() < kMaxFacts) facts.emplace(stored_text(name, kMaxName), stored_text(value, kMaxText));
  std::vector<SqlValue> names, numbers;
  for (const auto& [name, value] : facts)
    if (!value.empty()) names.insert(names.end(), {name, value});
  // The update changes nothing, but makes RETURNING give the number of a row that is there already.
  run_rows(*sql_, "INSERT INTO gpu_fact (name, value) VALUES", 2,
           "ON CONFLICT (name, value) DO UPDATE SET value = excluded.value RETURNING id", names,
           [&](const SqlRow& row) {
             numbers.insert(numbers.end(), {run, row.number(0)});
           });
  run_rows(*sql_, "INSERT INTO gpu_run_fact (run_id, fact_id) VALUES", 2, "", numbers);
}

std::int64_t History::Impl::series_id(const RunIdentity& run, const Metric& metric) {
  return number(
      "INSERT INTO gpu_series (lineage, gpu, driver, metric, kind) VALUES ($1, $2, $3, $4, $5) "
      "ON CONFLICT (lineage, gpu, driver, metric, kind) DO UPDATE SET kind = excluded.kind RETURNING id",
      {key_text(run.family), key_text(run.machine.gpu), key_text(run.machine.driver), metric.name,
       std::int64_t(metric.kind)});
}

std::set<std::int64_t> History::Impl::add_samples(std::int64_t run, const RunIdentity& identity,
                                                  const std::vector<StepResult>& results, Warnings& warnings) {
  struct Known {
    std::int64_t id = 0, samples = 0, next = 0;
  };
  std::map<std::pair<std::string, MetricKind>, Known> known;
  std::vector<SqlValue> values;
  const auto hour = hour_of(identity.unix_seconds);
  std::set<std::int64_t> touched;
  for (std::size_t i = 0; i < results.size(); ++i)
    for (const auto& metric : results[i].metrics) {
      auto wrong = objection(metric);
      if (wrong.empty() && known.size() >= kMaxMetrics && !known.contains({metric.name, metric.kind}))
        wrong = fmt::format("metric {} was left out: too many", metric.name);
      if (!wrong.empty()) {
        warnings[i].push_back(std::move(wrong));
        continue;
      }
      auto& series = known[{metric.name, metric.kind}];
      if (series.id == 0) {
        series.id = series_id(identity, metric);
        series.samples = number("SELECT samples FROM gpu_hour WHERE series_id = $1 AND hour = $2", {series.id, hour});
      }
      auto state = results[i].throttled ? SampleState::kThrottled : SampleState::kUsed;
      if (state == SampleState::kUsed && ++series.samples > kMaxHourSamples) state = SampleState::kSpare;
      if (state == SampleState::kUsed) touched.insert(series.id);
      values.insert(values.end(), {series.id, std::int64_t(state), hour, run, series.next++, metric.seconds});
    }
  run_rows(*sql_, "INSERT INTO gpu_sample (series_id, state, hour, run_id, number, seconds) VALUES", 6, "", values);
  return touched;
}

std::vector<SeriesRow> History::Impl::series_rows(const SeriesFilter& filter) const {
  const Where where(filter, true);
  std::vector<SeriesRow> rows;
  sql_->run("SELECT id, metric, gpu, driver, lineage, kind FROM gpu_series" + where.text, where.values,
            [&](const SqlRow& row) {
              const auto kind = MetricKind(std::clamp<std::int64_t>(row.number(5), 0, 2));
              rows.push_back({.id = row.number(0),
                              .key = {.metric = row.text(1),
                                      .gpu = row.text(2),
                                      .driver = row.text(3),
                                      .family = row.text(4),
                                      .kind = kind}});
            });
  // Not by the database: each has an order of its own.
  std::ranges::sort(rows, {}, &SeriesRow::key);
  return rows;
}

std::optional<Acceptance> History::Impl::acceptance_of(std::int64_t series, std::int64_t until_hour) const {
  std::optional<Acceptance> accepted;
  sql_->query(
      "SELECT from_hour, unix_seconds, user_name, reason FROM gpu_accepted WHERE series_id = $1 AND from_hour <= "
      "$2 ORDER BY from_hour DESC, number DESC LIMIT 1",
      {series, until_hour}, [&](const SqlRow& row) {
        accepted = Acceptance{
            .from_hour = row.number(0), .unix_seconds = row.number(1), .user = row.text(2), .reason = row.text(3)};
      });
  return accepted;
}

std::int64_t History::Impl::oldest_needed(std::int64_t series, std::int64_t begin, std::int64_t until) const {
  return number(
      "SELECT hour FROM gpu_hour WHERE series_id = $1 AND suspicious = 0 AND hour BETWEEN $2 AND $3 ORDER BY "
      "hour DESC LIMIT 1 OFFSET $4",
      {series, begin, until, kCleanHoursRead}, begin);
}

std::vector<Hour> History::Impl::hours_between(std::int64_t series, std::int64_t first, std::int64_t last) const {
  std::vector<Hour> hours;
  sql_->query(
      "SELECT hour, seconds FROM gpu_sample WHERE series_id = $1 AND state = 0 AND hour BETWEEN $2 AND $3 ORDER "
      "BY hour, run_id, number",
      {series, first, last}, [&](const SqlRow& row) {
        if (hours.empty() || hours.back().hour != row.number(0))
          hours.push_back({.hour = row.number(0), .samples = {}, .suspicious = false});
        hours.back().samples.push_back(row.real(1));
      });
  sql_->query("SELECT hour FROM gpu_hour WHERE series_id = $1 AND suspicious = 1 AND hour BETWEEN $2 AND $3",
              {series, first, last}, [&](const SqlRow& row) {
                const auto hour = std::ranges::lower_bound(hours, row.number(0), {}, &Hour::hour);
                if (hour != hours.end() && hour->hour == row.number(0)) hour->suspicious = true;
              });
  return hours;
}

Series History::Impl::read(const SeriesRow& row, std::int64_t until_hour) const {
  Series series{.key = row.key, .hours = {}, .current = false, .accepted = acceptance_of(row.id, until_hour)};
  const auto begin = series.accepted ? series.accepted->from_hour : std::numeric_limits<std::int64_t>::min();
  series.hours = hours_between(row.id, oldest_needed(row.id, begin, until_hour), until_hour);
  series.current = !series.hours.empty() && series.hours.back().hour == until_hour;
  return series;
}

void History::Impl::judge_hour(const SeriesRow& row, std::int64_t hour) {
  const auto series = read(row, hour);
  if (!series.current) return;
  const auto judgement = judge(series.hours, row.key.kind);
  sql_->run(
      "INSERT INTO gpu_hour (series_id, hour, samples, median, suspicious) VALUES ($1, $2, $3, $4, $5) ON "
      "CONFLICT (series_id, hour) DO UPDATE SET "
      "samples = excluded.samples, median = excluded.median, suspicious = excluded.suspicious",
      {row.id, hour, std::int64_t(series.hours.back().samples.size()), judgement.median,
       std::int64_t(judgement.suspicious())});
}

std::vector<Series> History::Impl::series(const SeriesFilter& filter, std::int64_t until_hour) const {
  Transaction transaction(*sql_, Transaction::Kind::kRead);
  std::vector<Series> all;
  for (const auto& row : series_rows(filter)) {
    all.push_back(read(row, until_hour));
    if (all.back().hours.empty()) all.pop_back();
  }
  transaction.commit();
  return all;
}

std::vector<PastFailure> History::Impl::failures(const SeriesFilter& filter, std::uint32_t last_runs) const {
  Where where(filter, false);
  where.values.emplace_back(std::int64_t(last_runs));
  const auto runs = fmt::format("SELECT id, unix_seconds FROM gpu_run{} ORDER BY unix_seconds DESC, id DESC LIMIT ${}",
                                where.text, where.values.size());
  std::vector<PastFailure> failures;
  sql_->run(
      fmt::format("SELECT r.unix_seconds, f.step, f.detail FROM ({}) r JOIN gpu_result f ON f.run_id = r.id WHERE "
                  "f.outcome = {} "
                  "ORDER BY r.unix_seconds DESC, r.id DESC, f.number",
                  runs, std::int64_t(Outcome::kFailed)),
      where.values, [&](const SqlRow& row) {
        failures.push_back({.unix_seconds = row.number(0), .step = row.text(1), .detail = row.text(2)});
      });
  return failures;
}

std::vector<Change> History::Impl::changes(const Series& series, std::int64_t since_hour) const {
  if (series.hours.empty()) return {};
  Transaction transaction(*sql_, Transaction::Kind::kRead);
  std::map<std::string, std::array<std::set<std::string>, 2>> values;  // by name: of clean hours, of those since
  for (const auto& row : series_rows({.metric = series.key.metric,
                         .gpu = series.key.gpu,
                         .driver = series.key.driver,
                         .family = series.key.family,
                         .of_run = true})) {
    if (row.key.kind != series.key.kind) continue;
    std::set<std::int64_t> slow;
    for (const auto& hour : series.hours)
      if (hour.suspicious && hour.hour < since_hour) slow.insert(hour.hour);
    std::array<std::vector<SqlValue>, 2> runs;
    sql_->query(
        "SELECT DISTINCT run_id, hour FROM gpu_sample WHERE series_id = $1 AND state = 0 AND hour BETWEEN $2 AND $3",
        {row.id, series.hours.front().hour, series.hours.back().hour}, [&](const SqlRow& found) {
          if (!slow.contains(found.number(1)))
            runs[found.number(1) >= since_hour ? 1 : 0].emplace_back(found.number(0));
        });
    for (const std::size_t side : {0, 1})
      query_in(*sql_,
               "SELECT DISTINCT name, value FROM gpu_run_fact JOIN gpu_fact ON gpu_fact.id = fact_id WHERE run_id",
               runs[side], "", [&](const SqlRow& fact) { values[fact.text(0)][side].insert(fact.text(1)); });
  }
  transaction.commit();
  std::vector<Change> changes;
  for (const auto& [name, sides] : values) {
    const bool common = std::ranges::any_of(sides[0], [&](const auto& value) { return sides[1].contains(value); });
    if (common || sides[0].size() > kMaxValues || sides[1].size() > kMaxValues) continue;
    changes.push_back({.name = name,
                       .before = fmt::format("{}", fmt::join(sides[0], ", ")),
                       .now = fmt::format("{}", fmt::join(sides[1], ", "))});
  }
  return changes;
}

// Judges by the new baseline what the old one called slow.
void History::Impl::judge_from(const Series& series, std::int64_t id, std::int64_t from_hour) {
  auto hours = hours_between(id, from_hour, std::numeric_limits<std::int64_t>::max());
  for (std::size_t i = 0; i < hours.size(); ++i) {
    const bool suspicious = judge(std::span(hours).first(i + 1), series.key.kind).suspicious();
    if (suspicious != hours[i].suspicious)
      sql_->run("UPDATE gpu_hour SET suspicious = $1 WHERE series_id = $2 AND hour = $3",
                {std::int64_t(suspicious), id, hours[i].hour});
    hours[i].suspicious = suspicious;
  }
}

std::vector<Series> History::Impl::accept(const SeriesFilter& filter, const Acceptance& acceptance) {
  Transaction transaction(*sql_, Transaction::Kind::kWrite);
  std::vector<Series> accepted;
  for (const auto& row : series_rows(filter)) {
    auto series = read(row, std::numeric_limits<std::int64_t>::max());
    if (series.hours.empty()) continue;
    auto from = acceptance.from_hour;
    if (from == 0) from = slow_since(series.hours, judge(series.hours, row.key.kind));
    if (from == 0) from = series.hours.back().hour;
    const auto before = number("SELECT count(*) FROM gpu_accepted WHERE series_id = $1", {row.id});
    sql_->run(
        "INSERT INTO gpu_accepted (series_id, number, from_hour, unix_seconds, user_name, reason) VALUES ($1, "
        "$2, $3, $4, $5, $6)",
        {row.id, before + 1, from, acceptance.unix_seconds, stored_text(acceptance.user, kMaxName),
         stored_text(acceptance.reason, kMaxText)});
    judge_from(series, row.id, from);
    accepted.push_back(read(row, std::numeric_limits<std::int64_t>::max()));
  }
  if (accepted.empty()) {
    std::set<std::string> metrics;
    auto any_metric = filter;
    any_metric.metric.clear();
    for (const auto& row : series_rows(any_metric)) metrics.insert(row.key.metric);
    fail<NotFound>("GPU history: nothing is known of metric {:?} on this GPU, driver and image; it knows {}",
                   filter.metric, metrics.empty() ? "no metric" : fmt::format("{}", fmt::join(metrics, ", ")));
  }
  transaction.commit();
  sql_->flush();
  return accepted;
}

// What a living series is judged by stays, however old: else a slowdown that outlasts the retention would become the
// baseline.
void History::Impl::forget_series(const SeriesRow& row, std::int64_t cutoff_hour) {
  const auto newest = number("SELECT hour FROM gpu_hour WHERE series_id = $1 ORDER BY hour DESC LIMIT 1", {row.id},
                             std::numeric_limits<std::int64_t>::min());
  auto first_kept = cutoff_hour;
  if (newest >= cutoff_hour) {
    const auto accepted = acceptance_of(row.id, newest);
    const auto begin = accepted ? accepted->from_hour : std::numeric_limits<std::int64_t>::min();
    first_kept = std::min(cutoff_hour, oldest_needed(row.id, begin, newest));
  }
  for (const auto state : {SampleState::kUsed, SampleState::kThrottled, SampleState::kSpare})
    sql_->run("DELETE FROM gpu_sample WHERE series_id = $1 AND state = $2 AND hour < $3",
              {row.id, std::int64_t(state), state == SampleState::kUsed ? first_kept : cutoff_hour});
  sql_->run("DELETE FROM gpu_hour WHERE series_id = $1 AND hour < $2", {row.id, first_kept});
  if (number("SELECT count(*) FROM (SELECT 1 FROM gpu_sample WHERE series_id = $1 LIMIT 1) s", {row.id}) != 0) return;
  sql_->run("DELETE FROM gpu_accepted WHERE series_id = $1", {row.id});
  sql_->run("DELETE FROM gpu_series WHERE id = $1", {row.id});
}

std::uint64_t History::Impl::forget(std::uint32_t days, std::int64_t now_unix_seconds) {
  const auto cutoff_hour = hour_of(now_unix_seconds - std::int64_t(days) * 86'400);
  const auto cutoff = cutoff_hour * kSecondsPerHour;
  Transaction transaction(*sql_, Transaction::Kind::kWrite);
  for (const auto& row : series_rows({})) forget_series(row, cutoff_hour);
  for (const auto* table : {"gpu_result", "gpu_warning"})
    sql_->run(
        fmt::format("DELETE FROM {} WHERE run_id IN (SELECT id FROM gpu_run WHERE unix_seconds < $1 AND forgotten = 0)",
                    table),
        {cutoff});
  const auto forgotten =
      sql_->run("UPDATE gpu_run SET forgotten = 1 WHERE unix_seconds < $1 AND forgotten = 0", {cutoff});
  // Runs whose samples are still needed keep their row and facts.
  sql_->run("DELETE FROM gpu_run WHERE forgotten = 1 AND id NOT IN (SELECT DISTINCT run_id FROM gpu_sample)");
  sql_->run("DELETE FROM gpu_run_fact WHERE run_id NOT IN (SELECT id FROM gpu_run)");
  sql_->run("DELETE FROM gpu_fact WHERE id NOT IN (SELECT fact_id FROM gpu_run_fact)");
  transaction.commit();
  return forgotten;
}

History::History(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
History::History(History&&) noexcept = default;
History& History::operator=(History&&) noexcept = default;
History::~History() = default;

History History::open(const std::string& path_or_url) { return History(std::make_unique<Impl>(path_or_url)); }
bool History::add(const RunIdentity& run, const std::vector<StepResult>& results) { return impl_->add(run, results); }
std::vector<Series> History::series(const SeriesFilter& filter, std::int64_t until_hour) const {
  return impl_->series(filter, until_hour);
}
std::vector<PastFailure> History::failures(const SeriesFilter& filter, std::uint32_t last_runs) const {
  return impl_->failures(filter, last_runs);
}
std::vector<Change> History::changes(const Series& series, std::int64_t since_hour) const {
  return impl_->changes(series, since_hour);
}
std::vector<Series> History::accept(const SeriesFilter& filter, const Acceptance& acceptance) {
  return impl_->accept(filter, acceptance);
}
std::uint64_t History::forget(std::uint32_t days, std::int64_t now_unix_seconds) {
  return impl_->forget(days, now_unix_seconds);
}

}  // namespace varve::gpu
