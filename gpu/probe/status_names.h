#pragma once
// The names of what the libraries' functions return, for messages: asked of the library where it knows them, else from
// a table. Never fails; an unknown status is its number.
#include <string>

#include "gpu/probe/api/cudnn.h"
#include "gpu/probe/api/driver.h"
#include "gpu/probe/api/mathematics.h"
#include "gpu/probe/api/nvml.h"
#include "gpu/probe/api/toolkit.h"

namespace varve::gpu::probe {

std::string error_name(const api::DriverFunctions& driver, int status);
std::string error_name(const api::NvmlFunctions& nvml, int status);
std::string error_name(const api::CudartFunctions& cudart, int status);
std::string error_name(const api::NvrtcFunctions& nvrtc, int status);
std::string error_name(const api::CublasFunctions& cublas, int status);
std::string error_name(const api::CublasLtFunctions& cublas_lt, int status);
std::string error_name(const api::CudnnFunctions& cudnn, int status);
std::string error_name(const api::CufftFunctions& cufft, int status);
std::string error_name(const api::CusolverFunctions& cusolver, int status);
std::string error_name(const api::CusparseFunctions& cusparse, int status);
std::string error_name(const api::CurandFunctions& curand, int status);
std::string error_name(const api::NcclFunctions& nccl, int status);

}  // namespace varve::gpu::probe
