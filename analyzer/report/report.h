#pragma once
// The usage report: built from a snapshot, then written as text, JSON, CSV or one HTML page.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "analyzer/usage/snapshot.h"

namespace varve::report {

// How often at most, at 95 % confidence, given that `uses` of `sessions` were seen: rule of three for none, Clopper-Pearson otherwise. Absent when
// sessions is 0: no data is not zero.
std::optional<double> upper_bound(std::uint64_t uses, std::uint64_t sessions);

struct Row {
  const usage::DistributionUse* use = nullptr;  // in the snapshot
  std::uint64_t bytes = 0;             // in the newest image that has it
  std::uint64_t compressed_bytes = 0;
  std::uint64_t exposed_sessions = 0;  // heard sessions on images that have it: what its count is out of
  std::optional<double> share;         // sessions / exposed_sessions
  std::optional<double> bound;         // upper, 95 %
  std::optional<double> trend;         // sessions per day, second half of the window against the first: 1 = unchanged; absent if either has no data
  std::uint64_t last_30 = 0, last_90 = 0, last_365 = 0;  // sessions; 0 for a window longer than what was asked
  bool no_data = false;                // nobody was heard on any image that has it
  std::vector<std::string> disagreements;  // static against run time, in words
};

struct Report {
  usage::Snapshot snapshot;
  std::vector<Row> rows;               // by sessions, most first, then by name
  std::int32_t made_on = 0;            // day
};

Report make_report(usage::Snapshot snapshot, std::int32_t today);

nlohmann::json report_json(const Report& report);       // CLI.md: packages[], coverage
void write_table(const Report& report, std::ostream& out);
void write_csv(const Report& report, std::ostream& out);
void write_html(const Report& report, std::ostream& out);  // self-contained: no network

nlohmann::json explanation_json(const usage::Explanation& explanation);
void write_explanation(const usage::Explanation& explanation, std::ostream& out);

}  // namespace varve::report
