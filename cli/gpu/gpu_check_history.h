#pragma once
// What `varve gpu-check` keeps of its runs, and what is read back from it.
#include <cstdint>
#include <string>

#include "cli/command.h"
#include "gpu/report.h"

namespace varve::cli {

// ROOT/gpu/history.db, unless `wanted` names another: a file, or postgresql://...
std::string history_database(const Context& context, const std::string& wanted);

// Keeps the run, and says of each of its metrics what those before it make of it. Throws as gpu::History does: then the
// report is as it was.
void keep_and_assess(const std::string& database, gpu::Report& report);

// Of one family, or of all where it is "": a line of each series' hours, and the failures of late.
void show_history(const Context& context, const std::string& database, const std::string& family);

// From now on (or since it became slow) the metric's present speed is what later hours are judged by.
struct AcceptedMetric {
  std::string metric, family, reason;
};
void accept_metric(const Context& context, const std::string& database, const AcceptedMetric& accepted);

}  // namespace varve::cli
