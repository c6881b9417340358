#include "analyzer/report/architectures.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace varve::report {
namespace {

struct Model {
  std::string_view words;  // all must stand in the name as words of their own
  unsigned capability;
};

// NVIDIA's published compute capabilities, data-centre cards and the workstation cards found beside them. The more
// telling entry comes first.
constexpr auto kModels = std::to_array<Model>({
    {"GB300", 103},
    {"B300", 103},
    {"GB200", 100},
    {"B200", 100},
    {"B100", 100},
    {"GH200", 90},
    {"H200", 90},
    {"H100", 90},
    {"H800", 90},
    {"H20", 90},
    {"L40S", 89},
    {"L40", 89},
    {"L20", 89},
    {"L4", 89},
    {"L2", 89},
    {"A100", 80},
    {"A800", 80},
    {"A30", 80},
    {"A40", 86},
    {"A16", 86},
    {"A10G", 86},
    {"A10M", 86},
    {"A10", 86},
    {"A2", 86},
    {"T4", 75},
    {"T4G", 75},
    {"V100", 70},
    {"V100S", 70},
    {"TITAN V", 70},
    {"TITAN RTX", 75},
    {"P100", 60},
    {"P40", 61},
    {"P4", 61},
    {"P6", 61},
    {"M60", 52},
    {"M40", 52},
    {"M10", 50},
    {"M4", 52},
    {"K80", 37},
    {"K40", 35},
    {"K40m", 35},
    {"K20", 35},
    {"RTX PRO 6000", 120},
    {"RTX 6000 Ada", 89},
    {"Quadro RTX 6000", 75},
    {"Quadro RTX 8000", 75},
    {"RTX A6000", 86},
    {"RTX A5000", 86},
    {"RTX A4000", 86},
    {"RTX 5090", 120},
    {"RTX 5080", 120},
    {"RTX 4090", 89},
    {"RTX 4080", 89},
    {"RTX 3090", 86},
    {"RTX 3080", 86},
    {"RTX 2080", 75},
    {"GTX 1080", 61},
    {"GB10", 121},
});

// "NVIDIA A100-SXM4-80GB" -> " NVIDIA A100 SXM4 80GB ": words between single spaces.
std::string spaced(std::string_view text) {
  std::string words = " ";
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words += c;
    } else if (words.back() != ' ') {
      words += ' ';
    }
  }
  if (words.back() != ' ') words += ' ';
  return words;
}

struct Architecture {
  bool ptx = false;
  unsigned capability = 0;
  char feature = 0;  // 'a': this capability only; 'f': its family, the same major number from here on
};

// "sm_90a", "compute_100f"; absent for anything else.
std::optional<Architecture> parse(std::string_view name) {
  Architecture architecture;
  if (name.starts_with("compute_")) {
    architecture.ptx = true;
    name.remove_prefix(8);
  } else if (name.starts_with("sm_")) {
    name.remove_prefix(3);
  } else {
    return std::nullopt;
  }
  if (!name.empty() && (name.back() == 'a' || name.back() == 'f')) {
    architecture.feature = name.back();
    name.remove_suffix(1);
  }
  if (name.size() < 2 || name.size() > 3 ||
      !std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  for (const char c : name) architecture.capability = architecture.capability * 10 + unsigned(c - '0');
  return architecture;
}

// CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility": a binary runs on its major version from
// its minor version on, PTX is compiled for any capability from its own on; what uses features of one architecture runs
// there only.
bool runs_on(const Architecture& architecture, unsigned device) {
  if (architecture.feature == 'a') return architecture.capability == device;
  const bool same_major = architecture.capability / 10 == device / 10;
  if (architecture.ptx && architecture.feature == 0) return architecture.capability <= device;
  return same_major && architecture.capability <= device;
}

struct Fleet {
  std::vector<std::pair<std::string, unsigned>> models;
  std::vector<std::string> unknown;
};

Fleet known_models(const std::map<std::string, std::uint64_t>& models) {
  Fleet fleet;
  for (const auto& [model, sessions] : models) {
    if (sessions == 0) continue;
    if (const auto capability = compute_capability(model)) {
      fleet.models.emplace_back(model, *capability);
    } else {
      fleet.unknown.push_back(model);
    }
  }
  return fleet;
}

// The highest binary that the device can run, as the CUDA loader picks it; absent if it must compile PTX.
std::optional<unsigned> best_match(const std::vector<Architecture>& carried, unsigned device) {
  std::optional<unsigned> best;
  for (const auto& architecture : carried) {
    if (!architecture.ptx && runs_on(architecture, device) && (!best || architecture.capability > *best))
      best = architecture.capability;
  }
  return best;
}

void judge(ArchitectureUse& use, const Architecture& architecture, const std::vector<Architecture>& carried,
           const Fleet& fleet) {
  if (fleet.models.empty()) return;
  use.verdict = ArchitectureVerdict::kNever;
  std::vector<std::string> runners;
  for (const auto& [model, device] : fleet.models) {
    if (!runs_on(architecture, device)) continue;
    runners.push_back(model);
    const auto best = best_match(carried, device);
    if (architecture.ptx ? !best : best == architecture.capability) use.models.push_back(model);
  }
  if (!use.models.empty()) {
    use.verdict = ArchitectureVerdict::kUsed;
  } else if (!runners.empty()) {
    use.verdict = architecture.ptx ? ArchitectureVerdict::kFallback : ArchitectureVerdict::kRunnable;
    use.models = std::move(runners);
  }
}

}  // namespace

std::optional<unsigned> compute_capability(std::string_view model) {
  const auto words = spaced(model);
  for (const auto& known : kModels) {
    if (words.find(spaced(known.words)) != std::string::npos) return known.capability;
  }
  return std::nullopt;
}

ArchitectureFindings judge_architectures(const std::map<std::string, std::uint64_t>& carried,
                                         const std::map<std::string, std::uint64_t>& models) {
  auto fleet = known_models(models);
  std::vector<Architecture> parsed;
  for (const auto& [name, bytes] : carried) {
    if (const auto architecture = parse(name)) parsed.push_back(*architecture);
  }
  ArchitectureFindings findings;
  for (const auto& [name, bytes] : carried) {
    ArchitectureUse use{.name = name, .bytes = bytes, .verdict = ArchitectureVerdict::kUnknown, .models = {}};
    if (const auto architecture = parse(name)) judge(use, *architecture, parsed, fleet);
    findings.bytes += bytes;
    if (use.verdict == ArchitectureVerdict::kNever) findings.never_bytes += bytes;
    findings.architectures.push_back(std::move(use));
  }
  std::stable_sort(findings.architectures.begin(), findings.architectures.end(),
                   [](const ArchitectureUse& a, const ArchitectureUse& b) { return a.bytes > b.bytes; });
  findings.unknown_models = std::move(fleet.unknown);
  return findings;
}

}  // namespace varve::report
