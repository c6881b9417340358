#include "analyzer/usage/internal/aggregates.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace varve::usage {
namespace {

struct TableShape {
  const char* name;
  std::vector<std::string> keys;
  std::vector<std::string> counts;
};

const TableShape& shape_of(DailyTable table) {
  static const std::array<TableShape, kDailyTables> kShapes{{
      {"daily_session",
       {"day", "image_id"},
       {"launched", "heard", "gpu", "gpu_used", "gpu_unused_seconds", "gpu_idle_seconds", "gpu_incapable",
        "gpu_incapable_seconds"}},
      {"daily_use",
       {"day", "image_id", "distribution_id"},
       {"sessions", "direct", "transitive_only", "static", "image_copy", "session_copy", "file_sessions",
        "exec_sessions"}},
      {"daily_module", {"day", "image_id", "distribution_id", "module_id"}, {"sessions"}},
      {"daily_edge", {"day", "image_id", "importer_id", "distribution_id"}, {"sessions"}},
      {"daily_failed", {"day", "image_id", "failed_id"}, {"sessions"}},
      {"daily_reinstall", {"day", "image_id", "reinstall_id"}, {"sessions"}},
      {"daily_gpu_model", {"day", "image_id", "model_id"}, {"sessions"}},
  }};
  return kShapes[std::size_t(table)];
}

std::array<std::int64_t, 4> key_values(const DailyKey& key) { return {key.day, key.image_id, key.a, key.b}; }

void add_rows(SqlConnection& sql, const TableShape& shape, const std::vector<SqlValue>& values) {
  std::vector<std::string> sums;
  for (const auto& count : shape.counts) sums.push_back(fmt::format("{0} = {1}.{0} + excluded.{0}", count, shape.name));
  const auto head = fmt::format("INSERT INTO {} ({}, {}) VALUES", shape.name, fmt::join(shape.keys, ", "),
                                fmt::join(shape.counts, ", "));
  const auto tail =
      fmt::format("ON CONFLICT ({}) DO UPDATE SET {}", fmt::join(shape.keys, ", "), fmt::join(sums, ", "));
  run_rows(sql, head, shape.keys.size() + shape.counts.size(), tail, values);
}

void remove_if_zero(SqlConnection& sql, const TableShape& shape, const DailyKey& key) {
  std::string text = fmt::format("DELETE FROM {} WHERE ", shape.name);
  std::vector<SqlValue> values;
  for (std::size_t i = 0; i < shape.keys.size(); ++i) {
    text += fmt::format("{} = ${} AND ", shape.keys[i], i + 1);
    values.emplace_back(key_values(key)[i]);
  }
  text += fmt::format("{} = 0", fmt::join(shape.counts, " = 0 AND "));
  sql.run(text, values, {});
}

bool is_zero(const DailyCounts& counts) {
  return std::all_of(counts.begin(), counts.end(), [](std::int64_t count) { return count == 0; });
}

}  // namespace

void add_contribution(Contribution& into, const Contribution& what, std::int64_t sign) {
  for (const auto& [key, counts] : what) {
    auto& sum = into[key];
    for (std::size_t i = 0; i < kMaxDailyCounts; ++i) sum[i] += sign * counts[i];
  }
}

void write_contribution(SqlConnection& sql, const Contribution& difference) {
  // The map is in the order of the tables' keys, so that rows are written side by side.
  for (std::size_t table = 0; table < kDailyTables; ++table) {
    const auto& shape = shape_of(DailyTable(table));
    const auto first =
        difference.lower_bound(DailyKey{.table = DailyTable(table), .day = INT64_MIN, .image_id = 0, .a = 0, .b = 0});
    std::vector<SqlValue> values;
    std::vector<DailyKey> lessened;
    for (auto at = first; at != difference.end() && at->first.table == DailyTable(table); ++at) {
      const auto& [key, counts] = *at;
      if (is_zero(counts)) continue;
      for (std::size_t i = 0; i < shape.keys.size(); ++i) values.emplace_back(key_values(key)[i]);
      for (std::size_t i = 0; i < shape.counts.size(); ++i) values.emplace_back(counts[i]);
      if (std::any_of(counts.begin(), counts.end(), [](std::int64_t count) { return count < 0; }))
        lessened.push_back(key);
    }
    add_rows(sql, shape, values);
    for (const auto& key : lessened) remove_if_zero(sql, shape, key);
  }
}

}  // namespace varve::usage
