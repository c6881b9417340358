#pragma once
// The kernels of gpu/probe/kernels on a device, tried on their table of cases.
#include <string>

#include "gpu/probe/device.h"

namespace varve::gpu::probe {

// The text of kernels/NAME.ptx, and of its counterpart kernels/NAME.cu.
std::string kernel_ptx(const std::string& name);
std::string kernel_source(const std::string& name);

// All cases, exactly; and nothing written beside the results. Throws Error that names the case and the first wrong
// element.
void check_axpy(const Driver& driver, api::CuFunction axpy);
void check_sum(const Driver& driver, api::CuFunction sum);

}  // namespace varve::gpu::probe
