#pragma once
// One run of the GPU check with what its history makes of it, as people and programs read it.
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gpu/check_result.h"
#include "gpu/judge.h"
#include "gpu/suite.h"

namespace varve::gpu {

// One metric over the repetitions of this run.
struct MetricReport {
  std::string step, name;
  MetricKind kind = MetricKind::kSteady;
  std::vector<double> samples;  // seconds, of successful processes that were not throttled; never empty
  double median = 0;            // of `samples`
  Judgement judgement;          // kLearning where there is no history
  std::vector<double> history;  // hourly medians, oldest first, this hour's last
};

// What somebody should look at: a metric that has become slower for good. A failed check is none of these, it speaks for itself.
struct RaisedAlarm {
  std::string metric;
  MetricKind kind = MetricKind::kSteady;
  std::string evidence;  // one line with the numbers
};

struct Report {
  RunIdentity identity;
  SuiteRun run;
  std::vector<MetricReport> metrics;  // in the order of the steps
  std::vector<RaisedAlarm> alarms;

  bool good() const { return run.all_good() && alarms.empty(); }
};

std::vector<MetricReport> metrics_of(const SuiteRun& run);

// CLI.md: checks[] with name, result, seconds, detail; bytes are null where a step did not run on a lazy mount.
nlohmann::json to_json(const Report& report);
// JUnit XML: a test case for each check and each alarm. Valid whatever the texts hold.
std::string to_junit(const Report& report);

// "learning", "good", "suspicious", "alarm".
std::string_view to_string(Judgement::State state);

}  // namespace varve::gpu
