#pragma once
// What a rewritten image must pass before anybody can see it. Each gate compares the old image with the new one.
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"

namespace varve::prune {

struct GateResult {
  std::string name;                   // "metadata" "elf" "imports" "replay" "cuda" "pins" "rebuild" "tree"
  bool ok = false;
  bool waived = false;                // failed or did not run, and the plan waives it with a reason
  std::string detail;                 // one line
  std::vector<std::string> findings;  // each names the object; the first decides
  double seconds = 0;
};

struct ProgramResult {
  int exit_status = 0;                // 128 + signal for a killed one
  bool timed_out = false;
  std::string out, err;               // at most kMaxProgramOutput each
};
inline constexpr std::size_t kMaxProgramOutput = 64u << 20;

// Runs a program in a session of its own on a lazily mounted image, without network. Safe to use from any thread.
class SessionRunner {
 public:
  virtual ~SessionRunner() = default;
  // Throws Unsupported where this machine cannot run sessions: the gate could not run then.
  virtual ProgramResult run(const Digest& image, const std::vector<std::string>& command, std::string_view standard_input, std::chrono::seconds limit) = 0;
};

}  // namespace varve::prune
