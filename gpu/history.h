#pragma once
// Every run of the GPU check that was ever made, in an SQL database (SQLite in a file, or PostgreSQL for a fleet).
#include <memory>
#include <string>
#include <vector>

#include "gpu/check_result.h"
#include "gpu/judge.h"

namespace varve::gpu {

// Histories with different keys are never mixed.
struct SeriesKey {
  std::string metric, gpu, driver, lineage;
  MetricKind kind = MetricKind::kSteady;
  auto operator<=>(const SeriesKey&) const = default;
};

struct Series {
  SeriesKey key;
  std::vector<Hour> hours;  // ascending
};

struct PastFailure {
  std::int64_t unix_seconds = 0;
  std::string step, detail;
};

// Not shared between threads; several processes may use one database. Throws as core/sql does: TemporaryError where trying again may help.
class History {
 public:
  static History open(const std::string& path_or_url);  // made if it is not there
  History(History&&) noexcept;
  History& operator=(History&&) noexcept;
  ~History();

  // One transaction: all of a run or nothing. Metrics of throttled results are kept and marked, and never returned by series().
  void add(const RunIdentity& run, const std::vector<StepResult>& results);
  // Every series that the run with these key parts belongs to; hours older than `keep_hours` before the newest are left out.
  std::vector<Series> series(const Machine& machine, const std::string& lineage, std::uint32_t keep_hours = 168 + 48) const;
  std::vector<PastFailure> failures(const Machine& machine, const std::string& lineage, std::uint32_t last_runs) const;
  // Removes runs older than so many days; returns how many.
  std::uint64_t forget(std::uint32_t days);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  explicit History(std::unique_ptr<Impl> impl);
};

}  // namespace varve::gpu
