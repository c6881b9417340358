#pragma once
// One run of the GPU check with what its history makes of it, as people and programs read it.
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gpu/alarm.h"
#include "gpu/check_result.h"
#include "gpu/suite.h"

namespace varve::gpu {

// One metric over the repetitions of this run.
struct MetricReport {
  std::string step, name;
  MetricKind kind = MetricKind::kSteady;
  std::vector<double> samples;           // seconds, of successful processes that were not throttled; never empty
  double median = 0;                     // of `samples`
  std::optional<Assessment> assessment;  // what its history makes of it; absent where none is kept
};

struct Report {
  RunIdentity identity;
  SuiteRun run;
  std::vector<MetricReport> metrics;  // in the order of the steps

  std::vector<const MetricReport*> alarms()
      const;  // metrics that somebody should look at: they have become slower for good
  bool good() const { return run.all_good() && alarms().empty(); }
};

std::vector<MetricReport> metrics_of(const SuiteRun& run);

// Each to its metric.
void attach(Report& report, std::vector<Assessment> assessments);

// CLI.md: checks[] with name, result, seconds, detail; bytes are null where a step did not run on a lazy mount.
nlohmann::json to_json(const Report& report);
// JUnit XML: a test case for each check and each alarm. Valid whatever the texts hold.
std::string to_junit(const Report& report);

}  // namespace varve::gpu
