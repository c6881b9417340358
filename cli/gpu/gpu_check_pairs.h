#pragma once
// `varve gpu-check A --ab B`: two images, or trees, side by side on this machine.
#include <string>

#include "cli/command.h"
#include "cli/gpu/gpu_places.h"
#include "gpu/suite.h"

namespace varve::cli {

struct GpuPairs {
  GpuPlace a, b;
  std::string name_a, name_b;  // for people
  std::uint32_t pairs = 10;
  gpu::SuiteOptions suite;
};

// Prints table or JSON. The exit status: 0, 3 if B is slower or a check of either fails, 77 without a GPU.
int check_pairs(const Context& context, const GpuPairs& wanted);

// One line on standard error for a machine without a GPU, and the exit status that goes with it.
int tell_no_gpu(const Context& context, const std::string& reason);

}  // namespace varve::cli
