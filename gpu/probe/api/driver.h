#pragma once
// libcuda.so.1, the driver's own interface.
#include <cstddef>

#include "gpu/probe/api/functions.h"

namespace varve::gpu::api {

using CuResult = int;
using CuDevice = int;
using CuDevicePtr = unsigned long long;
using CuContext = struct CuContextTag*;
using CuModule = struct CuModuleTag*;
using CuFunction = struct CuFunctionTag*;
using CuStream = struct CuStreamTag*;  // what the libraries of the toolkit call cudaStream_t
struct CuUuid {
  char bytes[16];
};

inline constexpr CuResult kCudaSuccess = 0;
inline constexpr CuResult kCudaErrorNoDevice = 100;
inline constexpr int kCuDeviceComputeCapabilityMajor = 75;  // CUdevice_attribute
inline constexpr int kCuDeviceComputeCapabilityMinor = 76;
inline constexpr int kCuJitErrorLogBuffer = 5;  // CUjit_option
inline constexpr int kCuJitErrorLogBufferSizeBytes = 6;
inline constexpr unsigned kCuStreamNonBlocking = 1;

#define VARVE_DRIVER_REQUIRED(F)                                                                                     \
  F(cuInit, CuResult, unsigned flags)                                                                                \
  F(cuDriverGetVersion, CuResult, int* version)                                                                      \
  F(cuGetErrorName, CuResult, CuResult error, const char** name)                                                     \
  F(cuDeviceGetCount, CuResult, int* count)                                                                          \
  F(cuDeviceGet, CuResult, CuDevice* device, int ordinal)                                                            \
  F(cuDeviceGetName, CuResult, char* name, int size, CuDevice device)                                                \
  F(cuDeviceGetAttribute, CuResult, int* value, int attribute, CuDevice device)                                      \
  F(cuDeviceTotalMem_v2, CuResult, std::size_t* bytes, CuDevice device)                                              \
  F(cuDeviceGetPCIBusId, CuResult, char* id, int size, CuDevice device)                                              \
  F(cuDevicePrimaryCtxRetain, CuResult, CuContext* context, CuDevice device)                                         \
  F(cuDevicePrimaryCtxRelease_v2, CuResult, CuDevice device)                                                         \
  F(cuCtxSetCurrent, CuResult, CuContext context)                                                                    \
  F(cuCtxSynchronize, CuResult)                                                                                      \
  F(cuMemGetInfo_v2, CuResult, std::size_t* free, std::size_t* total)                                                \
  F(cuMemAlloc_v2, CuResult, CuDevicePtr* pointer, std::size_t bytes)                                                \
  F(cuMemFree_v2, CuResult, CuDevicePtr pointer)                                                                     \
  F(cuMemAllocHost_v2, CuResult, void** pointer, std::size_t bytes)                                                  \
  F(cuMemFreeHost, CuResult, void* pointer)                                                                          \
  F(cuMemcpyHtoD_v2, CuResult, CuDevicePtr to, const void* from, std::size_t bytes)                                  \
  F(cuMemcpyDtoH_v2, CuResult, void* to, CuDevicePtr from, std::size_t bytes)                                        \
  F(cuMemcpyDtoD_v2, CuResult, CuDevicePtr to, CuDevicePtr from, std::size_t bytes)                                  \
  F(cuMemsetD8_v2, CuResult, CuDevicePtr to, unsigned char value, std::size_t count)                                 \
  F(cuStreamCreate, CuResult, CuStream* stream, unsigned flags)                                                      \
  F(cuStreamSynchronize, CuResult, CuStream stream)                                                                  \
  F(cuStreamDestroy_v2, CuResult, CuStream stream)                                                                   \
  F(cuModuleLoadDataEx, CuResult, CuModule* module, const void* image, unsigned count, int* options, void** values)  \
  F(cuModuleGetFunction, CuResult, CuFunction* function, CuModule module, const char* name)                          \
  F(cuModuleUnload, CuResult, CuModule module)                                                                       \
  F(cuLaunchKernel, CuResult, CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                \
    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CuStream stream, void** parameters, \
    void** extra)

#define VARVE_DRIVER_OPTIONAL(F)                                                 \
  F(cuGetErrorString, CuResult, CuResult error, const char** text)               \
  F(cuDeviceGetUuid_v2, CuResult, CuUuid* uuid, CuDevice device) /* CUDA 11.4 */ \
  F(cuDeviceGetUuid, CuResult, CuUuid* uuid, CuDevice device)    /* before */

VARVE_API_STRUCT(DriverFunctions, VARVE_DRIVER_REQUIRED, VARVE_DRIVER_OPTIONAL)

}  // namespace varve::gpu::api
