#include "webhook/work_queue.h"

#include <array>

#include "core/base/errors.h"
#include "core/sql/schema.h"

namespace varve::webhook {
namespace {

const SqlDatabaseKind kKind{.name = "webhook queue", .setting_table = "webhook_settings", .writer_lock = 0x76776562};

// Released scripts are never changed.
constexpr std::array<std::string_view, 1> kScripts{
    "CREATE TABLE webhook_jobs (id {key}, repository TEXT NOT NULL, digest TEXT NOT NULL, tag TEXT NOT NULL,"
    " state {number} NOT NULL, attempts {number} NOT NULL, indexed {number} NOT NULL, due {number} NOT NULL,"
    " told {number} NOT NULL, worker TEXT NOT NULL, reason TEXT NOT NULL, UNIQUE (repository, digest)) {table_end};"
    "CREATE INDEX webhook_jobs_due ON webhook_jobs (state, due);"
    "CREATE TABLE webhook_sweeps (id {key}, began {number} NOT NULL) {table_end};"
    "INSERT INTO webhook_sweeps (id, began) VALUES (1, 0);"};

constexpr std::string_view kColumns = "id, repository, digest, tag, state, attempts, indexed, reason, {now} - told";
constexpr std::size_t kMaxReasonBytes = 2000;

Job job_of(const SqlRow& row) {
  return {.number = row.number(0),
          .image = {.repository = row.text(1), .tag = row.text(3), .digest = Digest::parse(row.text(2))},
          .state = JobState(row.number(4)),
          .attempts = unsigned(row.number(5)),
          .indexed = row.number(6) != 0,
          .reason = row.text(7),
          .age_seconds = row.number(8)};
}

std::int64_t number_of(JobState state) { return std::int64_t(state); }
std::string cut(const std::string& reason) { return reason.substr(0, kMaxReasonBytes); }

}  // namespace

std::string_view to_string(JobState state) {
  constexpr std::string_view kNames[] = {"queued", "taken", "done", "failed"};
  return kNames[std::size_t(state)];
}

WorkQueue::WorkQueue(const std::string& where) : sql_(open_sql(where, kKind)) { migrate_schema(*sql_, kScripts); }

std::string WorkQueue::words(std::string_view sql) const { return sql_->schema_words(sql); }

std::uint64_t WorkQueue::change(std::string_view sql, std::initializer_list<SqlValue> values) {
  return sql_->run(words(sql), values);
}

WorkQueue::Added WorkQueue::add(const Pushed& image, std::uint64_t max_queued) {
  std::uint64_t waiting = 0;
  sql_->query("SELECT count(*) FROM webhook_jobs WHERE state IN (0, 1)", {},
              [&](const SqlRow& row) { waiting = std::uint64_t(row.number(0)); });
  std::optional<JobState> known;
  sql_->query("SELECT state FROM webhook_jobs WHERE repository = $1 AND digest = $2",
              {image.repository, image.digest.to_string()},
              [&](const SqlRow& row) { known = JobState(row.number(0)); });
  if (known && *known != JobState::kFailed) return Added::kKnown;
  if (waiting >= max_queued) return Added::kFull;
  const auto changed = change(
      "INSERT INTO webhook_jobs (repository, digest, tag, state, attempts, indexed, due, told, worker, reason)"
      " VALUES ($1, $2, $3, 0, 0, 0, {now}, {now}, '', '') ON CONFLICT (repository, digest) DO UPDATE"
      " SET tag = excluded.tag, state = 0, attempts = 0, due = {now}, told = {now}, reason = ''"
      " WHERE webhook_jobs.state = 3",
      {image.repository, image.digest.to_string(), image.tag});
  return changed > 0 ? Added::kNew : Added::kKnown;
}

// `due` of one that is taken is the end of its lease.
std::optional<Job> WorkQueue::take(const std::string& worker, std::chrono::seconds lease) {
  std::optional<Job> job;
  sql_->query(words(fmt::format("UPDATE webhook_jobs SET state = 1, attempts = attempts + 1, worker = $1,"
                                " due = {{now}} + $2 WHERE id = (SELECT id FROM webhook_jobs WHERE state IN (0, 1)"
                                " AND due <= {{now}} ORDER BY due, id LIMIT 1 {{skip_locked}}) RETURNING {}",
                                kColumns)),
              {worker, std::int64_t(lease.count())}, [&](const SqlRow& row) { job = job_of(row); });
  return job;
}

bool WorkQueue::renew(const Job& job, const std::string& worker, std::chrono::seconds lease) {
  return change("UPDATE webhook_jobs SET due = {now} + $3 WHERE id = $1 AND state = 1 AND worker = $2",
                {job.number, worker, std::int64_t(lease.count())}) > 0;
}

void WorkQueue::note_indexed(const Job& job, const std::string& worker) {
  change("UPDATE webhook_jobs SET indexed = 1 WHERE id = $1 AND state = 1 AND worker = $2", {job.number, worker});
}

void WorkQueue::finish(const Job& job, const std::string& worker, JobState state, const std::string& reason) {
  change(
      "UPDATE webhook_jobs SET state = $3, reason = $4, due = {now}, worker = '' WHERE id = $1 AND state = 1 AND"
      " worker = $2",
      {job.number, worker, number_of(state), cut(reason)});
}

void WorkQueue::put_back(const Job& job, const std::string& worker, std::chrono::seconds wait,
                         const std::string& reason) {
  change(
      "UPDATE webhook_jobs SET state = 0, due = {now} + $3, reason = $4, worker = '' WHERE id = $1 AND state = 1 AND"
      " worker = $2",
      {job.number, worker, std::int64_t(wait.count()), cut(reason)});
}

// `due` of one that is done is when it was.
std::optional<Digest> WorkQueue::last_done(const Pushed& image) {
  std::optional<Digest> last;
  sql_->query(
      "SELECT digest FROM webhook_jobs WHERE repository = $1 AND digest <> $2 AND state = 2 ORDER BY due DESC, id DESC"
      " LIMIT 1",
      {image.repository, image.digest.to_string()}, [&](const SqlRow& row) { last = Digest::parse(row.text(0)); });
  return last;
}

void WorkQueue::give_up(const Job& job, const std::string& worker) {
  change(
      "UPDATE webhook_jobs SET state = 0, due = {now}, attempts = attempts - 1, worker = '' WHERE id = $1 AND state = 1"
      " AND worker = $2",
      {job.number, worker});
}

void WorkQueue::forget(const Job& job, const std::string& worker) {
  change("DELETE FROM webhook_jobs WHERE id = $1 AND state = 1 AND worker = $2", {job.number, worker});
}

void WorkQueue::release_all() { change("UPDATE webhook_jobs SET state = 0, due = {now} WHERE state = 1", {}); }

QueueCounts WorkQueue::counts() {
  QueueCounts counts;
  sql_->query(words("SELECT state, count(*), {now} - min(told) FROM webhook_jobs GROUP BY state"), {},
              [&](const SqlRow& row) {
                const auto count = std::uint64_t(row.number(1));
                const auto state = JobState(row.number(0));
                (state == JobState::kQueued  ? counts.queued
                 : state == JobState::kTaken ? counts.taken
                 : state == JobState::kDone  ? counts.done
                                             : counts.failed) = count;
                if (state == JobState::kQueued || state == JobState::kTaken)
                  counts.oldest_seconds = std::max(counts.oldest_seconds, row.number(2));
              });
  return counts;
}

std::vector<Job> WorkQueue::list(std::size_t limit) {
  std::vector<Job> jobs;
  for (const auto* states : {"3", "0, 1"})
    sql_->query(words(fmt::format("SELECT {} FROM webhook_jobs WHERE state IN ({}) ORDER BY due, id LIMIT {}", kColumns,
                                  states, limit)),
                {}, [&](const SqlRow& row) { jobs.push_back(job_of(row)); });
  return jobs;
}

std::uint64_t WorkQueue::retry(const std::string& repository, const std::string& selector) {
  return change(
      "UPDATE webhook_jobs SET state = 0, attempts = 0, due = {now} WHERE state = 3 AND ($1 = '' OR repository = $1)"
      " AND ($2 = '' OR tag = $2 OR digest = $2)",
      {repository, selector});
}

void WorkQueue::forget_done(std::chrono::seconds age) {
  change("DELETE FROM webhook_jobs WHERE state = 2 AND due < {now} - $1", {std::int64_t(age.count())});
}

bool WorkQueue::begin_sweep(std::chrono::seconds interval) {
  return change("UPDATE webhook_sweeps SET began = {now} WHERE id = 1 AND began <= {now} - $1",
                {std::int64_t(interval.count())}) > 0;
}

}  // namespace varve::webhook
