#pragma once
// What `varve gpu-check` shows people.
#include <vector>

#include "cli/command.h"
#include "gpu/report.h"

namespace varve::cli {

// Table or JSON of the steps that there are.
void list_steps(const Context& context);

// Prints checks as they come, but for a machine without a GPU nothing: what comes before the driver's step waits for
// it, or for flush().
class CheckPrinter {
 public:
  explicit CheckPrinter(const Context& context) : context_(context) {}
  void operator()(const gpu::SuiteRun::Check& check);
  void flush();

 private:
  const Context& context_;
  std::vector<gpu::SuiteRun::Check> waiting_;
  bool open_ = false, head_printed_ = false;
};

// What follows the checks: metrics, evidence of alarms, the verdict.
void print_report(const Context& context, const gpu::Report& report);

}  // namespace varve::cli
