#pragma once
// The steps of the GPU check, in order, each in fresh processes: which there are, how long each may take, how often it
// is repeated, and what is done when one fails.
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/threads/cancel.h"
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

// Where steps run: in sessions on a lazy mount, in an unpacked tree, or on this machine as it is. Each call is a fresh
// process. May throw what keeps it from being started at all (Cancelled too): that is no result of the step, and ends
// the run.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // The probe, with these words. Killed at the limit with all its children.
  virtual ProgramOutput probe(const std::vector<std::string>& words, Store store, std::chrono::seconds limit) = 0;
  // The image's Python, on a script given with -c; `words` are its arguments. exit_status 127: it has none.
  virtual ProgramOutput python(std::string_view script, const std::vector<std::string>& words, Store store,
                               std::chrono::seconds limit) = 0;
  // Compares what the image holds of CUDA with what it should hold. Skipped where nothing says what that is.
  virtual StepResult manifest() = 0;
};

struct SuiteOptions {
  std::vector<std::string> only;      // steps; empty = all. The driver step runs in any case: it says which GPU this is
  std::uint32_t repetitions = 7;      // fresh processes for steps with metrics
  bool cold = false;                  // also once each with an empty store
  std::vector<std::string> required;  // steps for which "skipped" is a failure
  std::chrono::seconds limit{0};      // 0: each step's own
  std::map<std::string, std::uint64_t> sizes;  // by step: how large the probe's problem is, in the step's own measure;
                                               // its times are those of another metric then
};

struct SuiteRun {
  bool no_gpu = false;  // nothing was run behind the driver step
  std::string no_gpu_reason;
  Machine machine;                  // gpu and driver as the steps say; the name is the caller's to fill in
  std::vector<StepResult> results;  // every process, in order: repetitions, retries
  struct Check {                    // one line for people: a step over all its processes
    std::string step;
    Outcome outcome = Outcome::kFailed;
    std::string detail;
    double seconds = 0;  // of all its processes
    bool cold = false;
    bool retried = false;
    std::vector<std::string> warnings;  // each once
    std::uint64_t fetched_bytes = 0;    // of all its processes
    bool lazy = false;
    std::size_t first_result = 0;  // its processes are results[first_result, first_result + processes)
    std::size_t processes = 0;
  };
  std::vector<Check> checks;

  bool all_good() const;  // no check failed
};

struct StepInfo {
  std::string name, what;  // "gemm", "cuBLAS sgemm 4096: first call, steady, residual"
  std::chrono::seconds limit;
  bool python = false;
  bool repeated = false;
  bool cold = false;  // --cold runs it with an empty store too
};
// In the order in which they run: "manifest" and "driver" first.
const std::vector<StepInfo>& steps();

// Throws UsageError for a step that does not exist.
void check_steps(const SuiteOptions& options);

// A functional failure is tried once more in a fresh process; only two failures in a row fail the check, and end its
// repetitions. When the driver step says that there is no GPU, nothing else runs; when it fails, the other steps are
// skipped. Throws UsageError for a step that does not exist, and what the runner throws.
SuiteRun run_suite(StepRunner& runner, const SuiteOptions& options, const CancelFlag& cancel,
                   const std::function<void(const SuiteRun::Check&)>& each);

// Two images, or an image under two drivers, side by side on one machine: each repeated step in pairs of fresh
// processes, one with A and one with B, taking turns at who is first.
struct PairedMetric {
  std::string name;
  MetricKind kind = MetricKind::kSteady;
  std::vector<std::pair<double, double>> seconds;  // A, B; pairs in which either was throttled are left out
};
struct PairedRun {
  SuiteRun a, b;                      // checks and results of each side
  std::vector<PairedMetric> metrics;  // those that both sides have
};
PairedRun run_pairs(StepRunner& a, StepRunner& b, std::uint32_t pairs, const SuiteOptions& options,
                    const CancelFlag& cancel, const std::function<void(const std::string& step)>& each);

}  // namespace varve::gpu
