#pragma once
// Where the steps of the GPU check run: on this machine as it is, or in sessions that the caller knows how to start.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/suite.h"

namespace varve::gpu {

// Where sessions have the probe.
inline constexpr std::string_view kProbeInSession = "/run/varve/gpu-probe";

struct SessionPlace {
  std::string name;            // of the image or tree, for messages
  bool lazy = false;           // its sessions say what they fetched
  std::filesystem::path root;  // the machine's store; ROOT/gpu has what cold ones are made of, and goes with them
  // The words of a process that runs a command, which follows them, in a session on the store of `root`. Where the
  // place is lazy it leaves `stats`: JSON with fetched_bytes and requests. It ends with the command's status, or with
  // 125 and the reason in the last line of its standard error where there was no session.
  std::function<std::vector<std::string>(const std::filesystem::path& root, const std::filesystem::path& stats)>
      session;
  // Ends what serves the store of `root`, before it is removed. May throw: then it stays, and that is logged.
  std::function<void(const std::filesystem::path& root)> end_store;
  std::function<StepResult()> manifest;  // absent: nothing says what the place should hold of CUDA
};

// `cancel` must outlive them. Of sessions one at a time for a root: what another left that was killed is removed.
std::unique_ptr<StepRunner> run_on_this_machine(const std::filesystem::path& probe, const CancelFlag& cancel);
std::unique_ptr<StepRunner> run_in_sessions(SessionPlace place, const CancelFlag& cancel);

}  // namespace varve::gpu
