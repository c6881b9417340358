#pragma once
// libcudnn: the convolution interface that cuDNN 7 (its _v7 functions), 8 and 9 share.
#include <cstddef>

#include "gpu/probe/api/driver.h"

namespace varve::gpu::api {

using CudnnStatus = int;
using CudnnHandle = struct CudnnHandleTag*;
using CudnnTensor = struct CudnnTensorTag*;
using CudnnFilter = struct CudnnFilterTag*;
using CudnnConvolution = struct CudnnConvolutionTag*;
struct CudnnForwardAlgorithm {  // cudnnConvolutionFwdAlgoPerf_t
  int algorithm;
  CudnnStatus status;
  float milliseconds;
  std::size_t workspace_bytes;
  int determinism;
  int math_type;
  int reserved[3];
};

inline constexpr CudnnStatus kCudnnSuccess = 0;
inline constexpr int kCudnnNchw = 0;               // cudnnTensorFormat_t
inline constexpr int kCudnnFloat = 0;              // cudnnDataType_t
inline constexpr int kCudnnCrossCorrelation = 1;   // cudnnConvolutionMode_t
inline constexpr int kCudnnFmaMath = 3;            // cudnnMathType_t, from 8.0: 32-bit arithmetic, no TF32
inline constexpr int kCudnnForwardAlgorithms = 8;  // how many cudnnConvolutionFwdAlgo_t there are

#define VARVE_CUDNN_REQUIRED(F)                                                                                      \
  F(cudnnGetVersion, std::size_t)                                                                                    \
  F(cudnnGetErrorString, const char*, CudnnStatus status)                                                            \
  F(cudnnCreate, CudnnStatus, CudnnHandle* handle)                                                                   \
  F(cudnnDestroy, CudnnStatus, CudnnHandle handle)                                                                   \
  F(cudnnCreateTensorDescriptor, CudnnStatus, CudnnTensor* tensor)                                                   \
  F(cudnnSetTensor4dDescriptor, CudnnStatus, CudnnTensor tensor, int format, int type, int n, int c, int h, int w)   \
  F(cudnnDestroyTensorDescriptor, CudnnStatus, CudnnTensor tensor)                                                   \
  F(cudnnCreateFilterDescriptor, CudnnStatus, CudnnFilter* filter)                                                   \
  F(cudnnSetFilter4dDescriptor, CudnnStatus, CudnnFilter filter, int type, int format, int k, int c, int h, int w)   \
  F(cudnnDestroyFilterDescriptor, CudnnStatus, CudnnFilter filter)                                                   \
  F(cudnnCreateConvolutionDescriptor, CudnnStatus, CudnnConvolution* convolution)                                    \
  F(cudnnSetConvolution2dDescriptor, CudnnStatus, CudnnConvolution convolution, int pad_h, int pad_w, int stride_h,  \
    int stride_w, int dilation_h, int dilation_w, int mode, int type)                                                \
  F(cudnnDestroyConvolutionDescriptor, CudnnStatus, CudnnConvolution convolution)                                    \
  F(cudnnGetConvolution2dForwardOutputDim, CudnnStatus, CudnnConvolution convolution, CudnnTensor input,             \
    CudnnFilter filter, int* n, int* c, int* h, int* w)                                                              \
  F(cudnnGetConvolutionForwardAlgorithm_v7, CudnnStatus, CudnnHandle handle, CudnnTensor input, CudnnFilter filter,  \
    CudnnConvolution convolution, CudnnTensor output, int wanted, int* returned, CudnnForwardAlgorithm* algorithms)  \
  F(cudnnGetConvolutionForwardWorkspaceSize, CudnnStatus, CudnnHandle handle, CudnnTensor input, CudnnFilter filter, \
    CudnnConvolution convolution, CudnnTensor output, int algorithm, std::size_t* bytes)                             \
  F(cudnnConvolutionForward, CudnnStatus, CudnnHandle handle, const void* alpha, CudnnTensor input, const void* x,   \
    CudnnFilter filter, const void* w, CudnnConvolution convolution, int algorithm, void* workspace,                 \
    std::size_t workspace_bytes, const void* beta, CudnnTensor output, void* y)
#define VARVE_CUDNN_OPTIONAL(F) F(cudnnSetConvolutionMathType, CudnnStatus, CudnnConvolution convolution, int math_type)
VARVE_API_STRUCT(CudnnFunctions, VARVE_CUDNN_REQUIRED, VARVE_CUDNN_OPTIONAL)

}  // namespace varve::gpu::api
