#pragma once
// The toolkit's runtime, compiler and collective library: libcudart, libnvrtc, libnccl.
#include <cstddef>

#include "gpu/probe/api/driver.h"

namespace varve::gpu::api {

// libcudart: asked for its version only. Programs that link it have it linked in statically as often as not.
#define VARVE_CUDART_REQUIRED(F) F(cudaRuntimeGetVersion, int, int* version)
VARVE_API_STRUCT(CudartFunctions, VARVE_CUDART_REQUIRED, VARVE_API_NONE)

using NvrtcResult = int;
using NvrtcProgram = struct NvrtcProgramTag*;
inline constexpr NvrtcResult kNvrtcSuccess = 0;

#define VARVE_NVRTC_REQUIRED(F)                                                                                \
  F(nvrtcVersion, NvrtcResult, int* major, int* minor)                                                         \
  F(nvrtcGetErrorString, const char*, NvrtcResult result)                                                      \
  F(nvrtcCreateProgram, NvrtcResult, NvrtcProgram* program, const char* source, const char* name, int headers, \
    const char* const* contents, const char* const* names)                                                     \
  F(nvrtcCompileProgram, NvrtcResult, NvrtcProgram program, int count, const char* const* options)             \
  F(nvrtcGetProgramLogSize, NvrtcResult, NvrtcProgram program, std::size_t* bytes)                             \
  F(nvrtcGetProgramLog, NvrtcResult, NvrtcProgram program, char* log)                                          \
  F(nvrtcGetPTXSize, NvrtcResult, NvrtcProgram program, std::size_t* bytes)                                    \
  F(nvrtcGetPTX, NvrtcResult, NvrtcProgram program, char* ptx)                                                 \
  F(nvrtcDestroyProgram, NvrtcResult, NvrtcProgram* program)
#define VARVE_NVRTC_OPTIONAL(F)                                                               \
  F(nvrtcGetNumSupportedArchs, NvrtcResult, int* count)                       /* CUDA 11.2 */ \
  F(nvrtcGetSupportedArchs, NvrtcResult, int* architectures)                  /* CUDA 11.2 */ \
  F(nvrtcGetCUBINSize, NvrtcResult, NvrtcProgram program, std::size_t* bytes) /* CUDA 11.1 */ \
  F(nvrtcGetCUBIN, NvrtcResult, NvrtcProgram program, char* cubin)            /* CUDA 11.1 */
VARVE_API_STRUCT(NvrtcFunctions, VARVE_NVRTC_REQUIRED, VARVE_NVRTC_OPTIONAL)

using NcclResult = int;
using NcclComm = struct NcclCommTag*;
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr int kNcclSum = 0;      // ncclRedOp_t
inline constexpr int kNcclFloat32 = 7;  // ncclDataType_t

#define VARVE_NCCL_REQUIRED(F)                                                                              \
  F(ncclGetVersion, NcclResult, int* version)                                                               \
  F(ncclGetErrorString, const char*, NcclResult result)                                                     \
  F(ncclCommInitAll, NcclResult, NcclComm* comms, int devices, const int* ordinals)                         \
  F(ncclCommDestroy, NcclResult, NcclComm comm)                                                             \
  F(ncclCommGetAsyncError, NcclResult, NcclComm comm, NcclResult* error)                                    \
  F(ncclAllReduce, NcclResult, const void* send, void* receive, std::size_t count, int type, int operation, \
    NcclComm comm, CuStream stream)                                                                         \
  F(ncclGroupStart, NcclResult)                                                                             \
  F(ncclGroupEnd, NcclResult)
VARVE_API_STRUCT(NcclFunctions, VARVE_NCCL_REQUIRED, VARVE_API_NONE)

}  // namespace varve::gpu::api
