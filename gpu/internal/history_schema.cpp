#include "gpu/internal/history_schema.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/text/utf8.h"

namespace varve::gpu {
namespace {

// As analyzer/usage has it: one script per version, {key} numbers rows from 1 on.
constexpr std::array<std::string_view, kHistorySchemaVersion> kScripts{R"(
CREATE TABLE gpu_run (id {key}, content_key {blob} NOT NULL UNIQUE, unix_seconds {number} NOT NULL,
  gpu TEXT NOT NULL, driver TEXT NOT NULL,
  lineage TEXT NOT NULL, machine TEXT NOT NULL, image TEXT NOT NULL, forgotten {number} NOT NULL) {table_end};
CREATE INDEX gpu_run_time ON gpu_run (lineage, gpu, driver, unix_seconds);
CREATE TABLE gpu_result (run_id {number} NOT NULL, number {number} NOT NULL, step TEXT NOT NULL,
  outcome {number} NOT NULL, detail TEXT NOT NULL,
  throttled {number} NOT NULL, timed_out {number} NOT NULL, exit_status {number} NOT NULL, seconds {real} NOT NULL,
  lazy {number} NOT NULL,
  fetched_bytes {number} NOT NULL, requests {number} NOT NULL, PRIMARY KEY (run_id, number)) {keyed_table_end};
CREATE TABLE gpu_warning (run_id {number} NOT NULL, result {number} NOT NULL, number {number} NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (run_id, result, number)) {keyed_table_end};
CREATE TABLE gpu_fact (id {key}, name TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (name, value)) {table_end};
CREATE TABLE gpu_run_fact (run_id {number} NOT NULL, fact_id {number} NOT NULL, PRIMARY KEY (run_id,
  fact_id)) {keyed_table_end};

CREATE TABLE gpu_series (id {key}, lineage TEXT NOT NULL, gpu TEXT NOT NULL, driver TEXT NOT NULL,
  metric TEXT NOT NULL, kind {number} NOT NULL,
  UNIQUE (lineage, gpu, driver, metric, kind)) {table_end};
CREATE TABLE gpu_sample (series_id {number} NOT NULL, state {number} NOT NULL, hour {number} NOT NULL,
  run_id {number} NOT NULL, number {number} NOT NULL,
  seconds {real} NOT NULL, PRIMARY KEY (series_id, state, hour, run_id, number)) {keyed_table_end};
CREATE TABLE gpu_hour (series_id {number} NOT NULL, hour {number} NOT NULL, samples {number} NOT NULL,
  median {real} NOT NULL, suspicious {number} NOT NULL,
  PRIMARY KEY (series_id, hour)) {keyed_table_end};
CREATE INDEX gpu_hour_clean ON gpu_hour (series_id, suspicious, hour);
CREATE TABLE gpu_accepted (series_id {number} NOT NULL, number {number} NOT NULL, from_hour {number} NOT NULL,
  unix_seconds {number} NOT NULL,
  user_name TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (series_id, number)) {keyed_table_end};
)"};

// Fields end in a zero byte, so that no two lists of fields are the same bytes.
class KeyMaker {
 public:
  void add(std::string_view text) {
    bytes_ += text;
    bytes_ += '\0';
  }
  void add(double number) { add(std::string_view(fmt::format("{}", number))); }
  Digest finish() const { return digest_of(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace

const SqlDatabaseKind& history_kind() {
  static const SqlDatabaseKind kKind{.name = "GPU history", .setting_table = "gpu_setting", .writer_lock = 7562872602};
  return kKind;
}

void migrate_history(SqlConnection& sql) { migrate_schema(sql, kScripts); }

std::string stored_text(std::string_view text, std::size_t most) {
  std::string stored;
  while (!text.empty()) {
    const auto length = text.front() == '\0' ? 0 : utf8_length(text);
    if (stored.size() + std::max<std::size_t>(length, 1) > most) break;
    if (length == 0)
      stored += '?';
    else
      stored += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return stored;
}

Digest content_key(const RunIdentity& run, const std::vector<StepResult>& results) {
  KeyMaker key;
  for (const auto& text : {run.machine.gpu, run.machine.driver, run.machine.name, run.family, run.image}) key.add(text);
  key.add(std::to_string(run.unix_seconds));
  for (const auto& result : results) {
    key.add(result.step);
    key.add(result.detail);
    key.add(result.seconds);
    for (const auto& metric : result.metrics) {
      key.add(metric.name);
      key.add(metric.seconds);
    }
  }
  return key.finish();
}

}  // namespace varve::gpu
