#pragma once
// GPUs in sessions: which devices `--gpus` means, and whether the machine's driver is what the image asks for.
#include <string>
#include <string_view>
#include <vector>

#include "fuse/session/cdi.h"

namespace varve::fuse {

inline constexpr std::string_view kGpuKind = "nvidia.com/gpu";

// "all", "none", or how many; as qualified names of CDI devices. Throws UsageError for other words, NotFound if the
// machine has no specification or not so many.
std::vector<std::string> select_gpus(const CdiRegistry& registry, std::string_view wanted);

// The version of the NVIDIA driver that the kernel has loaded: "550.54.15". "" = none.
std::string installed_driver_version();

// The requirements in an image's environment (NVIDIA_REQUIRE_*: alternatives separated by spaces, terms of one by
// commas) that a driver does not meet: one line each, with the variable. Judged are the terms "driver" and "cuda" (by
// the newest CUDA that a driver branch runs); terms on brands and architectures are taken as met. Nothing with
// NVIDIA_DISABLE_REQUIRE. `driver` as installed_driver_version() gives it.
std::vector<std::string> unmet_requirements(const std::vector<std::string>& environment, std::string_view driver);

}  // namespace varve::fuse
