#pragma once
// How a session gets the machine's GPUs: by a CDI specification that is there, by one that NVIDIA's toolkit makes on
// the spot, or by NVIDIA's container runtime.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "fuse/session/cdi.h"

namespace varve::fuse {

inline constexpr std::string_view kNvidiaRuntime = "nvidia";  // --runtime nvidia: the program nvidia-container-runtime

struct GpuRequest {
  std::string gpus = "none";         // "all", "none", or how many
  std::vector<std::string> devices;  // CDI devices by their qualified names
  std::vector<std::filesystem::path> cdi_dirs;
  std::string runtime = "auto";  // "nvidia": GPUs come through it and not by CDI
  std::filesystem::path root;    // what nvidia-ctk said is kept in ROOT/cdi
};

struct GpuAccess {
  CdiEdits edits;       // with NVIDIA_VISIBLE_DEVICES among its variables where the runtime reads that
  std::string runtime;  // that the session must have; "" = any
};

// Empty for a wish without devices. Where no specification describes NVIDIA's GPUs: `nvidia-ctk cdi generate` makes
// one, which is kept until the driver, the GPUs or the program change; failing that, nvidia-container-runtime runs the
// session. What was tried is told to `say`. Throws NotFound saying what to install or call where a GPU cannot be given;
// UsageError.
GpuAccess find_gpus(const GpuRequest& wish, const std::function<void(const std::string&)>& say);

}  // namespace varve::fuse
