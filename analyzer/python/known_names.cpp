#include "analyzer/python/known_names.h"

#include <algorithm>
#include <iterator>

namespace varve::python {

namespace {

struct KnownName {
  std::string_view module, distribution;
};

constexpr KnownName kNames[] = {
#include "analyzer/python/known_names_table.inc"
};
static_assert(std::ranges::is_sorted(kNames, {}, &KnownName::module));

// What computes on a GPU by itself or through a library made for it, drives one, or is a part of CUDA.
constexpr std::string_view kGpu[] = {
#include "analyzer/python/gpu_names_table.inc"
};
static_assert(std::ranges::is_sorted(kGpu));

// Families whose names carry the CUDA version at their end: "cupy-cuda12x", "cudf-cu12", "jax-cuda12-pjrt",
// "nvidia-cublas-cu12", "tensorrt-cu12".
constexpr std::string_view kGpuFamilies[] = {
    "cudf-cu",      "cugraph-cu",   "cuml-cu",      "cupy-cuda", "cupy-rocm",     "cuspatial-cu",
    "cuvs-cu",      "cuxfilter-cu", "dask-cudf-cu", "dgl-cu",    "faiss-gpu-",    "jax-cuda",
    "libcudf-cu",   "libcuml-cu",   "mxnet-cu",     "nvidia-",   "nx-cugraph-cu", "pylibcudf-cu",
    "pylibraft-cu", "raft-dask-cu", "rmm-cu",       "tensorrt-", "ucx-py-cu",     "ucxx-cu"};

// "nvidia-…" that only look at a GPU's numbers or talk to services.
constexpr std::string_view kNoGpu[] = {"nvidia-pyindex", "nvidia-riva-client"};

}  // namespace

std::vector<std::string_view> known_distributions(std::string_view module) {
  std::vector<std::string_view> out;
  for (;;) {
    const auto* known = std::ranges::lower_bound(kNames, module, {}, &KnownName::module);
    for (; known != std::end(kNames) && known->module == module; ++known) out.push_back(known->distribution);
    const auto dot = module.rfind('.');
    if (!out.empty() || dot == std::string_view::npos) return out;
    module = module.substr(0, dot);
  }
}

bool can_use_gpu(std::string_view normalized) {
  if (std::ranges::find(kNoGpu, normalized) != std::end(kNoGpu)) return false;
  return std::ranges::binary_search(kGpu, normalized) ||
         std::ranges::any_of(kGpuFamilies, [&](std::string_view family) { return normalized.starts_with(family); });
}

}  // namespace varve::python
