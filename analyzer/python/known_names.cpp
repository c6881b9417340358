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
    "accelerate", "adapters", "allennlp", "apex", "auto-gptq", "autoawq", "autogluon", "bertopic", "bitsandbytes", "botorch", "catboost",
    "causal-conv1d", "chex", "cuda-bindings", "cuda-core", "cuda-python", "cuda-toolkit", "cudf", "cugraph", "cuml", "cupy", "cuspatial",
    "cuvs", "cuxfilter", "dask-cuda", "deepchem", "deepspeed", "detectron2", "dgl", "diffusers", "dm-haiku", "dm-sonnet", "easyocr", "effdet",
    "espnet", "exllamav2", "fairseq", "faiss-gpu", "fastai", "faster-whisper", "flair", "flash-attn", "flax", "gpustat", "gputil", "gpytorch",
    "horovod", "jax", "jax-cuda12-plugin", "jaxlib", "keras", "keras-cv", "keras-hub", "keras-nlp", "kornia", "lightgbm", "lightning",
    "lightning-bolts", "lightning-fabric", "llama-cpp-python", "mamba-ssm", "minkowskiengine", "mmcv", "mmcv-full", "mmdet", "mmengine",
    "monai", "mxnet", "numba", "numba-cuda", "numpyro", "nvtx", "onnxruntime-gpu", "open-clip-torch", "open3d", "openai-whisper", "optax",
    "optimum", "paddleocr", "paddlepaddle-gpu", "peft", "py3nvml", "pycuda", "pylibraft", "pynvml", "pyopencl", "pyro-ppl",
    "pytorch-forecasting", "pytorch-ignite", "pytorch-lightning", "pytorch-tabnet", "pytorch3d", "raft-dask", "rmm", "segmentation-models",
    "segmentation-models-pytorch", "sentence-transformers", "setfit", "simpletransformers", "spacy", "stable-baselines3", "stanza",
    "tensorflow", "tensorflow-addons", "tensorflow-gpu", "tensorflow-hub", "tensorflow-probability", "tensorflow-text", "tensorrt", "tf-keras",
    "tf-models-official", "tf-nightly", "thinc", "timm", "torch", "torch-cluster", "torch-geometric", "torch-scatter", "torch-sparse",
    "torch-spline-conv", "torchaudio", "torchmetrics", "torchrec", "torchtext", "torchtune", "torchvision", "transformers", "triton", "trl",
    "ucx-py", "ultralytics", "unsloth", "vllm", "warp-lang", "xformers", "xgboost"};
static_assert(std::ranges::is_sorted(kGpu));

// Families whose names carry the CUDA version at their end: "cupy-cuda12x", "cudf-cu12", "jax-cuda12-pjrt", "nvidia-cublas-cu12", "tensorrt-cu12".
constexpr std::string_view kGpuFamilies[] = {"cudf-cu",  "cugraph-cu", "cuml-cu",     "cupy-cuda",  "cupy-rocm",      "cuspatial-cu", "cuvs-cu",
                                             "cuxfilter-cu", "dask-cudf-cu", "dgl-cu",  "faiss-gpu-",  "jax-cuda",   "libcudf-cu",   "libcuml-cu",
                                             "mxnet-cu",   "nvidia-",  "nx-cugraph-cu", "pylibcudf-cu", "pylibraft-cu", "raft-dask-cu", "rmm-cu",
                                             "tensorrt-",  "ucx-py-cu", "ucxx-cu"};

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

std::vector<std::string_view> known_modules(std::string_view normalized) {
  std::vector<std::string_view> out;
  for (const auto& known : kNames) {
    if (known.distribution == normalized) out.push_back(known.module);
  }
  return out;
}

bool can_use_gpu(std::string_view normalized) {
  if (std::ranges::find(kNoGpu, normalized) != std::end(kNoGpu)) return false;
  return std::ranges::binary_search(kGpu, normalized) ||
         std::ranges::any_of(kGpuFamilies, [&](std::string_view family) { return normalized.starts_with(family); });
}

}  // namespace varve::python
