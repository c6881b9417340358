#pragma once
// Where the steps of `varve gpu-check` run: in sessions on a lazily mounted image or on an unpacked tree, or on this
// machine as it is.
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/session/session_options.h"
#include "gpu/suite.h"

namespace varve::cli {

struct GpuPlace {
  std::string image;  // at most one of these two: both empty = this machine
  std::filesystem::path rootfs;
  DeviceOptions devices{.gpus = "all", .devices = {}, .cdi_dirs = fuse::CdiRegistry::default_dirs()};  // of sessions
  std::vector<std::string> env;                                                                        // NAME=value
  std::string runtime = "auto", mode = "auto";
  std::filesystem::path manifest;  // "" = nothing says what the image should hold
};

// The probe as a file under ROOT/gpu, written there once. Throws NotFound if this program carries none.
std::filesystem::path probe_file(const std::filesystem::path& root);

// What keeps sessions from having a GPU, in one line; "" if nothing does. Throws Unsupported where a driver is loaded
// and nobody has described its devices.
std::string why_no_gpu(const Context& context, const GpuPlace& place);

// One at a time for a root. Context must outlive it.
std::unique_ptr<gpu::StepRunner> make_step_runner(const Context& context, const GpuPlace& place);

// The CUDA manifest of an indexed image (analyzer/cuda/manifest.h), as JSON: what `--manifest` takes. Reads the index
// only.
std::string cuda_manifest_json(const Context& context, const std::string& image);

}  // namespace varve::cli
