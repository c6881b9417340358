#pragma once
// Which CUDA architectures an image carries that no GPU of the fleet can run. For reading only: nothing is ever removed
// for it.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace varve::report {

// Compute capability times ten ("NVIDIA A100-SXM4-80GB" -> 80) from the model's name as the driver gives it. Absent for
// a model that the table lacks.
std::optional<unsigned> compute_capability(std::string_view model);

enum class ArchitectureVerdict : std::uint8_t {
  kUsed,      // the best match of at least one model of the fleet
  kRunnable,  // some model can run it, and the image carries a better match for every one of these
  kFallback,  // PTX that some model could compile, should no binary match
  kNever,     // no model of the fleet can run it
  kUnknown,   // a name we cannot read, or no model of the fleet is known
};

struct ArchitectureUse {
  std::string name;  // "sm_80", "compute_90"
  std::uint64_t bytes = 0;
  ArchitectureVerdict verdict = ArchitectureVerdict::kUnknown;
  std::vector<std::string> models;  // of the fleet, that decided the verdict
};

struct ArchitectureFindings {
  std::vector<ArchitectureUse> architectures;  // most bytes first
  std::vector<std::string>
      unknown_models;  // of the fleet, that the table lacks: `never` is then said of the others only
  std::uint64_t bytes = 0;
  std::uint64_t never_bytes = 0;
};

ArchitectureFindings judge_architectures(const std::map<std::string, std::uint64_t>& carried,
                                         const std::map<std::string, std::uint64_t>& models);

}  // namespace varve::report
