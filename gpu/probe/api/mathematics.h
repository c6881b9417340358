#pragma once
// The libraries of linear algebra, transforms and random numbers: libcublas, libcublasLt, libcufft, libcusolver,
// libcusparse, libcurand.
#include <cstddef>
#include <cstdint>

#include "gpu/probe/api/driver.h"

namespace varve::gpu::api {

using CublasStatus = int;
using CublasHandle = struct CublasHandleTag*;
inline constexpr int kCublasOpNone = 0;  // cublasOperation_t, of cuSOLVER too

#define VARVE_CUBLAS_REQUIRED(F)                                                                                    \
  F(cublasCreate_v2, CublasStatus, CublasHandle* handle)                                                            \
  F(cublasDestroy_v2, CublasStatus, CublasHandle handle)                                                            \
  F(cublasGetVersion_v2, CublasStatus, CublasHandle handle, int* version)                                           \
  F(cublasSgemm_v2, CublasStatus, CublasHandle handle, int op_a, int op_b, int m, int n, int k, const float* alpha, \
    const float* a, int lda, const float* b, int ldb, const float* beta, float* c, int ldc)
#define VARVE_CUBLAS_OPTIONAL(F) F(cublasGetStatusName, const char*, CublasStatus status) /* CUDA 11.4 */
VARVE_API_STRUCT(CublasFunctions, VARVE_CUBLAS_REQUIRED, VARVE_CUBLAS_OPTIONAL)

using CublasLtHandle = struct CublasLtHandleTag*;
#define VARVE_CUBLASLT_REQUIRED(F)                        \
  F(cublasLtCreate, CublasStatus, CublasLtHandle* handle) \
  F(cublasLtDestroy, CublasStatus, CublasLtHandle handle) \
  F(cublasLtGetVersion, std::size_t)
VARVE_API_STRUCT(CublasLtFunctions, VARVE_CUBLASLT_REQUIRED, VARVE_API_NONE)

using CufftResult = int;
using CufftHandle = int;
struct CufftComplex {
  float re, im;
};
inline constexpr int kCufftC2C = 0x29;  // cufftType
inline constexpr int kCufftForward = -1, kCufftInverse = 1;

#define VARVE_CUFFT_REQUIRED(F)                                                                       \
  F(cufftGetVersion, CufftResult, int* version)                                                       \
  F(cufftPlan1d, CufftResult, CufftHandle* plan, int points, int type, int batch)                     \
  F(cufftExecC2C, CufftResult, CufftHandle plan, CufftComplex* from, CufftComplex* to, int direction) \
  F(cufftDestroy, CufftResult, CufftHandle plan)
VARVE_API_STRUCT(CufftFunctions, VARVE_CUFFT_REQUIRED, VARVE_API_NONE)

using CusolverStatus = int;
using CusolverHandle = struct CusolverHandleTag*;

#define VARVE_CUSOLVER_REQUIRED(F)                                                                                    \
  F(cusolverGetVersion, CusolverStatus, int* version)                                                                 \
  F(cusolverDnCreate, CusolverStatus, CusolverHandle* handle)                                                         \
  F(cusolverDnDestroy, CusolverStatus, CusolverHandle handle)                                                         \
  F(cusolverDnSgetrf_bufferSize, CusolverStatus, CusolverHandle handle, int m, int n, float* a, int lda, int* floats) \
  F(cusolverDnSgetrf, CusolverStatus, CusolverHandle handle, int m, int n, float* a, int lda, float* workspace,       \
    int* pivots, int* info)                                                                                           \
  F(cusolverDnSgetrs, CusolverStatus, CusolverHandle handle, int op, int n, int right_sides, const float* a, int lda, \
    const int* pivots, float* b, int ldb, int* info)
VARVE_API_STRUCT(CusolverFunctions, VARVE_CUSOLVER_REQUIRED, VARVE_API_NONE)

using CusparseStatus = int;
using CusparseHandle = struct CusparseHandleTag*;
using CusparseMatrix = struct CusparseMatrixTag*;  // cusparseSpMatDescr_t
using CusparseVector = struct CusparseVectorTag*;  // cusparseDnVecDescr_t
inline constexpr int kCusparseOpNone = 0;          // cusparseOperation_t
inline constexpr int kCusparseIndex32 = 2;         // cusparseIndexType_t
inline constexpr int kCusparseBaseZero = 0;        // cusparseIndexBase_t
inline constexpr int kCudaReal32 = 0;              // cudaDataType
inline constexpr int kCusparseSpmvDefault = 0;     // cusparseSpMVAlg_t

#define VARVE_CUSPARSE_REQUIRED(F)                                                                                \
  F(cusparseCreate, CusparseStatus, CusparseHandle* handle)                                                       \
  F(cusparseDestroy, CusparseStatus, CusparseHandle handle)                                                       \
  F(cusparseGetVersion, CusparseStatus, CusparseHandle handle, int* version)                                      \
  F(cusparseGetErrorName, const char*, CusparseStatus status)                                                     \
  F(cusparseCreateCsr, CusparseStatus, CusparseMatrix* matrix, std::int64_t rows, std::int64_t columns,           \
    std::int64_t values_count, void* row_offsets, void* column_indices, void* values, int row_offsets_type,       \
    int column_indices_type, int base, int value_type)                                                            \
  F(cusparseDestroySpMat, CusparseStatus, CusparseMatrix matrix)                                                  \
  F(cusparseCreateDnVec, CusparseStatus, CusparseVector* vector, std::int64_t size, void* values, int value_type) \
  F(cusparseDestroyDnVec, CusparseStatus, CusparseVector vector)                                                  \
  F(cusparseSpMV_bufferSize, CusparseStatus, CusparseHandle handle, int op, const void* alpha, CusparseMatrix a,  \
    CusparseVector x, const void* beta, CusparseVector y, int compute_type, int algorithm, std::size_t* bytes)    \
  F(cusparseSpMV, CusparseStatus, CusparseHandle handle, int op, const void* alpha, CusparseMatrix a,             \
    CusparseVector x, const void* beta, CusparseVector y, int compute_type, int algorithm, void* buffer)
VARVE_API_STRUCT(CusparseFunctions, VARVE_CUSPARSE_REQUIRED, VARVE_API_NONE)

using CurandStatus = int;
using CurandGenerator = struct CurandGeneratorTag*;
inline constexpr int kCurandXorwow = 101, kCurandPhilox = 161;  // curandRngType_t

#define VARVE_CURAND_REQUIRED(F)                                                                          \
  F(curandGetVersion, CurandStatus, int* version)                                                         \
  F(curandCreateGenerator, CurandStatus, CurandGenerator* generator, int type)                            \
  F(curandDestroyGenerator, CurandStatus, CurandGenerator generator)                                      \
  F(curandSetPseudoRandomGeneratorSeed, CurandStatus, CurandGenerator generator, unsigned long long seed) \
  F(curandGenerateUniform, CurandStatus, CurandGenerator generator, float* to, std::size_t count)
VARVE_API_STRUCT(CurandFunctions, VARVE_CURAND_REQUIRED, VARVE_API_NONE)

}  // namespace varve::gpu::api
