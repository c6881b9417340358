// Our declarations of the C interfaces against NVIDIA's headers, where this machine has them. Compiling is the test:
// nothing is run, and no library is needed. With VARVE_HAVE_CUDNN, VARVE_HAVE_NCCL and VARVE_HAVE_NVML their headers
// too, which come apart from the toolkit.
//
// Ours first: NVIDIA's headers map some names to newer ones (cuDeviceGetUuid to cuDeviceGetUuid_v2).
// clang-format off
#include "gpu/probe/api/cudnn.h"
#include "gpu/probe/api/driver.h"
#include "gpu/probe/api/mathematics.h"
#include "gpu/probe/api/nvml.h"
#include "gpu/probe/api/toolkit.h"
// clang-format on

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cufft.h>
#include <curand.h>
#include <cusolverDn.h>
#include <cusparse.h>
#include <nvrtc.h>
#ifdef VARVE_HAVE_CUDNN
#include <cudnn.h>
#endif
#ifdef VARVE_HAVE_NCCL
#include <nccl.h>
#endif
#ifdef VARVE_HAVE_NVML
#include <nvml.h>
#endif

#include <cstddef>
#include <type_traits>

namespace varve::gpu::api {
namespace {

template <typename T>
constexpr bool kNumber = std::is_integral_v<T> || std::is_enum_v<T>;

// Whether a caller that passes an Ours and a function that takes a Theirs mean the same bytes. Enumerations of theirs
// are integers of ours; what pointers point to is compared down to structs, which are compared by their members below.
template <typename Ours, typename Theirs>
constexpr bool same_value() {
  using A = std::remove_cv_t<Ours>;
  using B = std::remove_cv_t<Theirs>;
  if constexpr (std::is_same_v<A, B>) {
    return true;
  } else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    return same_value<std::remove_pointer_t<A>, std::remove_pointer_t<B>>();
  } else if constexpr (kNumber<A> && std::is_enum_v<B>) {
    return sizeof(A) == sizeof(B);
  } else if constexpr (kNumber<A> && kNumber<B>) {
    return sizeof(A) == sizeof(B) && std::is_signed_v<A> == std::is_signed_v<B>;
  } else {
    return std::is_class_v<A> && std::is_class_v<B>;
  }
}

template <typename Ours, typename Theirs>
struct SameFunction : std::false_type {};

template <typename A, typename B, typename... Ours, typename... Theirs>
requires(sizeof...(Ours) == sizeof...(Theirs)) struct SameFunction<A(Ours...), B(Theirs...)> {
  static constexpr bool value = same_value<A, B>() && (same_value<Ours, Theirs>() && ...);
};
// C++17 made noexcept a part of the type; some headers have it.
template <typename A, typename B, typename... Ours, typename... Theirs>
struct SameFunction<A(Ours...), B(Theirs...) noexcept> : SameFunction<A(Ours...), B(Theirs...)> {};

// The comparison itself sees what is wrong.
static_assert(SameFunction<int(int, const float*), CUresult(CUdevice, float*)>::value);
static_assert(!SameFunction<int(int), int(int, int)>::value &&
              !SameFunction<int(int, float*), int(float*, int)>::value &&
              !SameFunction<int(int), int(std::size_t)>::value);
static_assert(!SameFunction<int(float*), int(double*)>::value && !SameFunction<int(void**), int(void*)>::value &&
              !SameFunction<int(unsigned), int(int)>::value);
static_assert(!SameFunction<int(const char*), int(CUcontext)>::value && !SameFunction<void(float), void(int)>::value &&
              !SameFunction<int(), void()>::value);

#define CHECK_FUNCTION(name, result, ...) \
  static_assert(SameFunction<result(__VA_ARGS__), decltype(::name)>::value, #name);
#define CHECK_VALUE(ours, theirs) \
  static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #theirs);
#define CHECK_MEMBER(Ours, our_member, Theirs, their_member)                    \
  static_assert(offsetof(Ours, our_member) == offsetof(Theirs, their_member) && \
                    sizeof(Ours::our_member) == sizeof(Theirs::their_member),   \
                #Theirs "." #their_member);

VARVE_DRIVER_REQUIRED(CHECK_FUNCTION)
CHECK_FUNCTION(cuGetErrorString, CuResult, CuResult error, const char** text)
#if CUDA_VERSION >= 11040
CHECK_FUNCTION(cuDeviceGetUuid_v2, CuResult, CuUuid* uuid, CuDevice device)
#endif
static_assert(sizeof(CuUuid) == sizeof(CUuuid) && sizeof(CuDevicePtr) == sizeof(CUdeviceptr) &&
              std::is_same_v<CuDevice, CUdevice>);
CHECK_VALUE(kCudaSuccess, CUDA_SUCCESS)
CHECK_VALUE(kCudaErrorNoDevice, CUDA_ERROR_NO_DEVICE)
CHECK_VALUE(kCuDeviceComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
CHECK_VALUE(kCuDeviceComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
CHECK_VALUE(kCuJitErrorLogBuffer, CU_JIT_ERROR_LOG_BUFFER)
CHECK_VALUE(kCuJitErrorLogBufferSizeBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
CHECK_VALUE(kCuStreamNonBlocking, CU_STREAM_NON_BLOCKING)

VARVE_CUDART_REQUIRED(CHECK_FUNCTION)
VARVE_NVRTC_REQUIRED(CHECK_FUNCTION)
#if CUDA_VERSION >= 11020
VARVE_NVRTC_OPTIONAL(CHECK_FUNCTION)
#endif
CHECK_VALUE(kNvrtcSuccess, NVRTC_SUCCESS)

VARVE_CUBLAS_REQUIRED(CHECK_FUNCTION)
#if CUDA_VERSION >= 11042
VARVE_CUBLAS_OPTIONAL(CHECK_FUNCTION)
#endif
VARVE_CUBLASLT_REQUIRED(CHECK_FUNCTION)
CHECK_VALUE(0, CUBLAS_STATUS_SUCCESS)
CHECK_VALUE(kCublasOpNone, CUBLAS_OP_N)

VARVE_CUFFT_REQUIRED(CHECK_FUNCTION)
static_assert(sizeof(CufftComplex) == sizeof(cufftComplex));
CHECK_MEMBER(CufftComplex, re, cufftComplex, x)
CHECK_MEMBER(CufftComplex, im, cufftComplex, y)
CHECK_VALUE(0, CUFFT_SUCCESS)
CHECK_VALUE(kCufftC2C, CUFFT_C2C)
CHECK_VALUE(kCufftForward, CUFFT_FORWARD)
CHECK_VALUE(kCufftInverse, CUFFT_INVERSE)

VARVE_CUSOLVER_REQUIRED(CHECK_FUNCTION)
CHECK_VALUE(0, CUSOLVER_STATUS_SUCCESS)

VARVE_CUSPARSE_REQUIRED(CHECK_FUNCTION)
CHECK_VALUE(0, CUSPARSE_STATUS_SUCCESS)
CHECK_VALUE(kCusparseOpNone, CUSPARSE_OPERATION_NON_TRANSPOSE)
CHECK_VALUE(kCusparseIndex32, CUSPARSE_INDEX_32I)
CHECK_VALUE(kCusparseBaseZero, CUSPARSE_INDEX_BASE_ZERO)
CHECK_VALUE(kCudaReal32, CUDA_R_32F)
#if CUSPARSE_VERSION >= 11400
CHECK_VALUE(kCusparseSpmvDefault, CUSPARSE_SPMV_ALG_DEFAULT)
#else
CHECK_VALUE(kCusparseSpmvDefault, CUSPARSE_MV_ALG_DEFAULT)
#endif

VARVE_CURAND_REQUIRED(CHECK_FUNCTION)
CHECK_VALUE(0, CURAND_STATUS_SUCCESS)
CHECK_VALUE(kCurandXorwow, CURAND_RNG_PSEUDO_XORWOW)
CHECK_VALUE(kCurandPhilox, CURAND_RNG_PSEUDO_PHILOX4_32_10)

#ifdef VARVE_HAVE_CUDNN
VARVE_CUDNN_REQUIRED(CHECK_FUNCTION)
static_assert(sizeof(CudnnForwardAlgorithm) == sizeof(cudnnConvolutionFwdAlgoPerf_t));
CHECK_MEMBER(CudnnForwardAlgorithm, algorithm, cudnnConvolutionFwdAlgoPerf_t, algo)
CHECK_MEMBER(CudnnForwardAlgorithm, status, cudnnConvolutionFwdAlgoPerf_t, status)
CHECK_MEMBER(CudnnForwardAlgorithm, milliseconds, cudnnConvolutionFwdAlgoPerf_t, time)
CHECK_MEMBER(CudnnForwardAlgorithm, workspace_bytes, cudnnConvolutionFwdAlgoPerf_t, memory)
CHECK_MEMBER(CudnnForwardAlgorithm, determinism, cudnnConvolutionFwdAlgoPerf_t, determinism)
CHECK_MEMBER(CudnnForwardAlgorithm, math_type, cudnnConvolutionFwdAlgoPerf_t, mathType)
CHECK_VALUE(kCudnnSuccess, CUDNN_STATUS_SUCCESS)
CHECK_VALUE(kCudnnNchw, CUDNN_TENSOR_NCHW)
CHECK_VALUE(kCudnnFloat, CUDNN_DATA_FLOAT)
CHECK_VALUE(kCudnnCrossCorrelation, CUDNN_CROSS_CORRELATION)
CHECK_VALUE(kCudnnForwardAlgorithms, CUDNN_CONVOLUTION_FWD_ALGO_COUNT)
#if CUDNN_MAJOR >= 8
CHECK_VALUE(kCudnnFmaMath, CUDNN_FMA_MATH)
#endif
#endif

#ifdef VARVE_HAVE_NCCL
VARVE_NCCL_REQUIRED(CHECK_FUNCTION)
CHECK_VALUE(kNcclSuccess, ncclSuccess)
CHECK_VALUE(kNcclSum, ncclSum)
CHECK_VALUE(kNcclFloat32, ncclFloat32)
#endif

#ifdef VARVE_HAVE_NVML
VARVE_NVML_REQUIRED(CHECK_FUNCTION)
static_assert(sizeof(NvmlEventData) == sizeof(nvmlEventData_t));
CHECK_MEMBER(NvmlEventData, device, nvmlEventData_t, device)
CHECK_MEMBER(NvmlEventData, type, nvmlEventData_t, eventType)
CHECK_MEMBER(NvmlEventData, data, nvmlEventData_t, eventData)
CHECK_MEMBER(NvmlEventData, gpu_instance, nvmlEventData_t, gpuInstanceId)
CHECK_MEMBER(NvmlEventData, compute_instance, nvmlEventData_t, computeInstanceId)
CHECK_VALUE(kNvmlSuccess, NVML_SUCCESS)
CHECK_VALUE(kNvmlErrorNotSupported, NVML_ERROR_NOT_SUPPORTED)
CHECK_VALUE(kNvmlErrorInsufficientSize, NVML_ERROR_INSUFFICIENT_SIZE)
CHECK_VALUE(kNvmlFeatureEnabled, NVML_FEATURE_ENABLED)
CHECK_VALUE(kNvmlTemperatureGpu, NVML_TEMPERATURE_GPU)
CHECK_VALUE(kNvmlClockSm, NVML_CLOCK_SM)
CHECK_VALUE(kNvmlClockMem, NVML_CLOCK_MEM)
CHECK_VALUE(kNvmlMemoryErrorUncorrected, NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
CHECK_VALUE(kNvmlVolatileEcc, NVML_VOLATILE_ECC)
CHECK_VALUE(kNvmlAggregateEcc, NVML_AGGREGATE_ECC)
CHECK_VALUE(kNvmlRetiredMultipleSingleBit, NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
CHECK_VALUE(kNvmlRetiredDoubleBit, NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
CHECK_VALUE(kNvmlEventDoubleBitEcc, nvmlEventTypeDoubleBitEccError)
CHECK_VALUE(kNvmlEventXidCritical, nvmlEventTypeXidCriticalError)
CHECK_VALUE(kNvmlReasonGpuIdle, nvmlClocksThrottleReasonGpuIdle)
CHECK_VALUE(kNvmlReasonApplicationClocks, nvmlClocksThrottleReasonApplicationsClocksSetting)
CHECK_VALUE(kNvmlReasonSwPowerCap, nvmlClocksThrottleReasonSwPowerCap)
CHECK_VALUE(kNvmlReasonHwSlowdown, nvmlClocksThrottleReasonHwSlowdown)
CHECK_VALUE(kNvmlReasonSyncBoost, nvmlClocksThrottleReasonSyncBoost)
CHECK_VALUE(kNvmlReasonSwThermal, nvmlClocksThrottleReasonSwThermalSlowdown)
CHECK_VALUE(kNvmlReasonHwThermal, nvmlClocksThrottleReasonHwThermalSlowdown)
CHECK_VALUE(kNvmlReasonHwPowerBrake, nvmlClocksThrottleReasonHwPowerBrakeSlowdown)
CHECK_VALUE(kNvmlReasonDisplayClocks, nvmlClocksThrottleReasonDisplayClockSetting)
CHECK_VALUE(kNvmlNameBytes, NVML_DEVICE_NAME_V2_BUFFER_SIZE)
CHECK_VALUE(kNvmlVersionBytes, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE)
#endif

}  // namespace
}  // namespace varve::gpu::api
