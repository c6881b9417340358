#pragma once
// Which GPU has which architecture, and what device code it runs. A value like 86 is compute capability 8.6. Source:
// NVIDIA's tables of CUDA GPUs by compute capability, and the CUDA C++ Programming Guide, "Application Compatibility".
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace varve::cuda {

using GpuArchitectures = std::set<std::uint32_t>;

// All that CUDA 10 to 13 have code for.
const GpuArchitectures& known_gpu_architectures();
std::string gpu_architecture_name(std::uint32_t architecture);  // "sm_86"
std::string names_of(const GpuArchitectures& architectures);    // "sm_80, sm_86"

// "sm_86", "sm_90a", "sm_100f": the GPU that such code is for. Absent for what is not known.
std::optional<std::uint32_t> gpu_architecture_named(std::string_view name);

// As the driver names a GPU: "Tesla V100-SXM2-16GB", "NVIDIA H100 80GB HBM3 MIG 1g.10gb". Absent for what is not known.
std::optional<std::uint32_t> gpu_architecture_of_model(std::string_view model);

// Whether a GPU runs machine code for `code`: of the same major version, and no later minor one. Code for one GPU only
// ('a' as in sm_90a) runs on no other; that for a family ('f') as that without a letter.
bool runs_machine_code(std::uint32_t gpu, std::uint32_t code, char variant);

}  // namespace varve::cuda
