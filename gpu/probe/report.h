#pragma once
// What a step found out, and its last words (gpu/probe_output.h).
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/errors.h"
#include "gpu/check_result.h"

namespace varve::gpu::probe {

// Ends a step as skipped: the image or the machine lacks what it needs. Every other exception ends it as failed.
class Skip : public Error {
 public:
  using Error::Error;
};

// Collects and prints. Lines are written whole and at once, to a descriptor that libraries do not know of.
class Report {
 public:
  explicit Report(int descriptor) : descriptor_(descriptor) {}

  // Said before each call that may never come back.
  void step(std::string_view what);
  void metric(std::string name, MetricKind kind, double seconds);
  void fact(std::string name, std::string value);
  void warn(std::string text);
  // Something wrong with the device itself: whatever the step's results are, it ends as failed, with this in its
  // detail.
  void fault(std::string text);
  void set_throttled() { throttled_ = true; }
  // The last line. Returns the exit status that goes with it: 0, 1 or 77.
  int end(Outcome outcome, std::string_view detail);

 private:
  void print(const std::string& object) const;
  int descriptor_;
  std::vector<Metric> metrics_;
  std::map<std::string, std::string> facts_;
  std::vector<std::string> warnings_, faults_;
  bool throttled_ = false;
};

}  // namespace varve::gpu::probe
