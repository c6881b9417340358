#pragma once
// What the parts of the GPU check hand to each other: a step's result as its process told it, and what became of a
// whole run. Values only.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace varve::gpu {

// Decides how large a slowdown is suspicious (judge.h).
enum class MetricKind : std::uint8_t {
  kSteady,     // kernels and copies after the first call: what a regression shows in
  kFirstCall,  // the first call of a fresh process, imports too: the libraries' files are in the store already
  kCold,       // the same with an empty store: what the mount costs
};

// "steady" "first" "cold", as the probe writes them and histories keep them.
constexpr std::string_view to_string(MetricKind kind) {
  return kind == MetricKind::kSteady ? "steady" : kind == MetricKind::kFirstCall ? "first" : "cold";
}

// Always a time or a time per unit of work: more is worse. What is no time (a residual, a clock) is not a metric but
// goes into `detail` or `facts`.
struct Metric {
  std::string name;  // "gemm.steady", "copy.h2d", "import.torch": stable over versions, as histories are kept under it
  MetricKind kind = MetricKind::kSteady;
  double seconds = 0;
};

enum class Outcome : std::uint8_t {
  kOk,
  kFailed,   // a wrong result, an error of a library, a crash, or no end before the limit
  kSkipped,  // the image or the machine lacks what the step needs, and nobody required it; `detail` says what
};

// One step in one fresh process.
struct StepResult {
  std::string step;  // "driver" "libraries" "device" "memory" "kernel" "gemm" "convolution" "fft" "solve" "sparse"
                     // "random" "nccl" "compile" "torch" ...
  Outcome outcome = Outcome::kFailed;
  std::string detail;           // one line: what was checked, or what was wrong with which library, call, device
  std::vector<Metric> metrics;  // of successful parts only
  std::map<std::string, std::string> facts;  // "gpu" "uuid" "driver" "cuda_driver" "cuda_runtime" "clock.sm_mhz"
                                             // "ecc.uncorrected" "lib.libcublas.so.12" (its path) ...
  std::vector<std::string> warnings;  // ECC, Xid, clocks held back, a library found where it should not be: shown, and
                                      // alarmed of where the judge says so
  bool throttled = false;             // the clocks were held back meanwhile: its metrics are dropped from the history
  bool timed_out = false;             // killed at its limit
  bool cold = false;                  // ran with an empty store: its metrics are of MetricKind::kCold
  int exit_status = 0;                // of the process; 128 + signal when killed
  double seconds = 0;                 // wall time of the process as its caller saw it
  // What the mount fetched for it. Absent (false) where it did not run on a lazy mount.
  bool lazy = false;
  std::uint64_t fetched_bytes = 0;  // compressed side
  std::uint64_t requests = 0;
};

// Where a run took place: what histories are kept apart by.
struct Machine {
  std::string gpu;     // product name as NVML has it: "NVIDIA H200"; devices of one machine are the same product, else
                       // joined by " + "
  std::string driver;  // "580.95.05"
  std::string name;    // host name, for people; no history is kept apart by it
};

struct RunIdentity {
  std::int64_t unix_seconds = 0;
  Machine machine;
  std::string family;  // what the image is a version of: its reference without tag and digest, or --family
  std::string image;   // the image's digest, "" for an unpacked tree or the machine itself
};

}  // namespace varve::gpu
