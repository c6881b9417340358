// libcublas.so.12
#include <cstdint>
#include <vector>

#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {
namespace {

enum Status : int { kSuccess = 0, kNotInitialized = 1, kInvalidValue = 7 };
constexpr std::uint32_t kAlive = 0xB1A5;
struct Handle {
  std::uint32_t state = kAlive;
};

// Columns one after the other, as in Fortran; op 0 is as it is, 1 and 2 transposed.
struct Matrix {
  const float* values;
  std::size_t stride;
  bool transposed;
  float at(std::size_t row, std::size_t column) const {
    return transposed ? values[row * stride + column] : values[column * stride + row];
  }
};

}  // namespace

FAKE_API int cublasCreate_v2(Handle** handle) {
  if (const int code = enter("cublasCreate_v2")) return code;
  *handle = new Handle;
  return kSuccess;
}

FAKE_API int cublasDestroy_v2(Handle* handle) {
  if (const int code = enter("cublasDestroy_v2")) return code;
  if (!handle || handle->state != kAlive) return kNotInitialized;
  handle->state = 0;
  delete handle;
  return kSuccess;
}

FAKE_API int cublasGetVersion_v2(Handle*, int* version) {
  if (const int code = enter("cublasGetVersion_v2")) return code;
  *version = 120804;
  return kSuccess;
}

FAKE_API const char* cublasGetStatusName(int status) {
  static constexpr const char* kNames[] = {"CUBLAS_STATUS_SUCCESS", "CUBLAS_STATUS_NOT_INITIALIZED"};
  if (status >= 0 && status < 2) return kNames[status];
  return status == 7    ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == 13 ? "CUBLAS_STATUS_EXECUTION_FAILED"
         : status == 14 ? "CUBLAS_STATUS_INTERNAL_ERROR"
                        : "CUBLAS_STATUS_UNKNOWN";
}

FAKE_API int cublasSgemm_v2(Handle* handle, int op_a, int op_b, int m, int n, int k, const float* alpha, const float* a,
                            int lda, const float* b, int ldb, const float* beta, float* c, int ldc) {
  if (const int code = enter("cublasSgemm_v2")) return code;
  if (!handle || handle->state != kAlive) return kNotInitialized;
  if (m < 0 || n < 0 || k < 0 || lda < (op_a ? k : m) || ldb < (op_b ? n : k) || ldc < m) return kInvalidValue;
  const Matrix left{on_device(a, "cublasSgemm_v2: A"), std::size_t(lda), op_a != 0},
      right{on_device(b, "cublasSgemm_v2: B"), std::size_t(ldb), op_b != 0};
  float* const result = on_device(c, "cublasSgemm_v2: C");
  const auto how = wrong("gemm");
  std::vector<double> sums(static_cast<std::size_t>(m));
  std::vector<float> column(static_cast<std::size_t>(m));
  for (std::size_t j = 0; j < std::size_t(n); ++j) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t p = 0; p < std::size_t(k); ++p) {
      const double factor = right.at(p, j);
      for (std::size_t i = 0; i < std::size_t(m); ++i) sums[i] += left.at(i, p) * factor;
    }
    for (std::size_t i = 0; i < std::size_t(m); ++i)
      column[i] = float(*alpha * sums[i] + (*beta != 0 ? *beta * result[j * std::size_t(ldc) + i] : 0.0));
    // One wrong value in all of the matrix is enough.
    give(how == Wrong::kFlip && j != std::size_t(n) / 2 ? Wrong::kNo : how, result + j * std::size_t(ldc),
         column.data(), column.size());
  }
  return kSuccess;
}

}  // namespace varve::gpu::fake
