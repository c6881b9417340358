#pragma once
// The steps of the GPU check, in order, each in fresh processes: which there are, how long each may take, how often it is repeated, and what is done when one fails.
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/base/progress.h"
#include "gpu/check_result.h"

namespace varve::gpu {

enum class Store : std::uint8_t { kWarm, kCold };  // cold: nothing of the image is on the machine

struct ProgramOutput {
  int exit_status = 0;  // 128 + signal
  bool timed_out = false;
  std::string out, err;
  double seconds = 0;
  bool lazy = false;
  std::uint64_t fetched_bytes = 0, requests = 0;
};

// Where steps run: in sessions on a lazy mount, in an unpacked tree, or on this machine as it is. Each call is a fresh process.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // The probe, with these words. Killed at the limit with all its children.
  virtual ProgramOutput probe(const std::vector<std::string>& words, Store store, std::chrono::seconds limit) = 0;
  // The image's Python, on a script given on standard input. exit_status 127: it has none.
  virtual ProgramOutput python(std::string_view script, const std::vector<std::string>& words, Store store, std::chrono::seconds limit) = 0;
};

struct SuiteOptions {
  std::vector<std::string> only;          // steps; empty = all
  std::uint32_t repetitions = 7;          // fresh processes for steps with metrics
  bool cold = false;                      // also once each with an empty store
  std::vector<std::string> required;      // steps for which "skipped" is a failure
  std::chrono::seconds limit{0};          // 0: each step's own
};

struct SuiteRun {
  bool no_gpu = false;                    // nothing was run behind the driver step
  std::string no_gpu_reason;
  Machine machine;
  std::vector<StepResult> results;        // every process, in order: repetitions, retries
  struct Check {                          // one line for people: a step over all its processes
    std::string step;
    Outcome outcome;
    std::string detail;
    double seconds = 0;
    bool retried = false;
    std::vector<std::string> warnings;
    std::uint64_t fetched_bytes = 0;      // of all its processes
    bool lazy = false;
  };
  std::vector<Check> checks;
};

struct StepInfo {
  std::string name, what;                 // "gemm", "cuBLAS sgemm 4096: first call, steady, residual"
  std::chrono::seconds limit;
  bool python = false;
  bool repeated = false;
};
const std::vector<StepInfo>& steps();

// A functional failure is tried once more in a fresh process; only two failures in a row fail the check.
SuiteRun run_suite(StepRunner& runner, const SuiteOptions& options, const CancelFlag& cancel, const std::function<void(const SuiteRun::Check&)>& each);

}  // namespace varve::gpu
