// libcusparse.so.12: a sparse matrix (CSR, 32-bit indices, floats) times a vector.
#include <cstdint>
#include <vector>

#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {
namespace {

enum Status : int { kSuccess = 0, kNotInitialized = 1, kInvalidValue = 3, kNotSupported = 10 };
constexpr std::size_t kBuffer = 512;

struct Matrix {
  std::int64_t rows, columns, count;
  const std::int32_t *offsets, *indices;
  const float* values;
  std::int32_t base;
};
struct Vector {
  std::int64_t size;
  float* values;
};

int check(const void* handle, int op, const Matrix* a, const Vector* x, const Vector* y, int compute_type) {
  if (!handle) return kNotInitialized;
  if (op != 0 || compute_type != 0) return kNotSupported;
  return !a || !x || !y || x->size != a->columns || y->size != a->rows ? kInvalidValue : kSuccess;
}

}  // namespace

FAKE_LIFETIME(int, cusparseCreate, cusparseDestroy)

FAKE_API int cusparseGetVersion(void*, int* version) {
  if (const int code = enter("cusparseGetVersion")) return code;
  *version = 12508;
  return kSuccess;
}

FAKE_API const char* cusparseGetErrorName(int status) {
  return status == kSuccess        ? "CUSPARSE_STATUS_SUCCESS"
         : status == kInvalidValue ? "CUSPARSE_STATUS_INVALID_VALUE"
         : status == 6             ? "CUSPARSE_STATUS_EXECUTION_FAILED"
                                   : "unrecognized error code";
}

FAKE_API int cusparseCreateCsr(Matrix** matrix, std::int64_t rows, std::int64_t columns, std::int64_t count,
                               void* offsets, void* indices, void* values, int offset_type, int index_type, int base,
                               int value_type) {
  if (const int code = enter("cusparseCreateCsr")) return code;
  if (offset_type != 2 || index_type != 2 || value_type != 0) return kNotSupported;
  if (rows < 0 || columns < 0 || count < 0 || base < 0 || base > 1) return kInvalidValue;
  *matrix = new Matrix{.rows = rows,
                       .columns = columns,
                       .count = count,
                       .offsets = on_device(static_cast<std::int32_t*>(offsets), "cusparseCreateCsr: offsets"),
                       .indices = on_device(static_cast<std::int32_t*>(indices), "cusparseCreateCsr: indices"),
                       .values = on_device(static_cast<float*>(values), "cusparseCreateCsr: values"),
                       .base = base};
  return kSuccess;
}

FAKE_API int cusparseDestroySpMat(Matrix* matrix) {
  if (const int code = enter("cusparseDestroySpMat")) return code;
  delete matrix;
  return kSuccess;
}

FAKE_API int cusparseCreateDnVec(Vector** vector, std::int64_t size, void* values, int value_type) {
  if (const int code = enter("cusparseCreateDnVec")) return code;
  if (value_type != 0) return kNotSupported;
  *vector = new Vector{.size = size, .values = on_device(static_cast<float*>(values), "cusparseCreateDnVec")};
  return kSuccess;
}

FAKE_API int cusparseDestroyDnVec(Vector* vector) {
  if (const int code = enter("cusparseDestroyDnVec")) return code;
  delete vector;
  return kSuccess;
}

FAKE_API int cusparseSpMV_bufferSize(void* handle, int op, const float*, Matrix* a, Vector* x, const float*, Vector* y,
                                     int compute_type, int, std::size_t* bytes) {
  if (const int code = enter("cusparseSpMV_bufferSize")) return code;
  *bytes = kBuffer;
  return check(handle, op, a, x, y, compute_type);
}

FAKE_API int cusparseSpMV(void* handle, int op, const float* alpha, Matrix* a, Vector* x, const float* beta, Vector* y,
                          int compute_type, int, void* buffer) {
  if (const int code = enter("cusparseSpMV")) return code;
  if (const int status = check(handle, op, a, x, y, compute_type)) return status;
  on_device(static_cast<char*>(buffer), "cusparseSpMV: buffer")[kBuffer - 1] = 0;
  std::vector<float> result;
  for (std::int64_t row = 0; row < a->rows; ++row) {
    double sum = 0;
    for (auto i = a->offsets[row] - a->base; i < a->offsets[row + 1] - a->base; ++i) {
      const auto column = a->indices[i] - a->base;
      if (i < 0 || i >= a->count || column < 0 || column >= a->columns) fault("cusparseSpMV: an index behind the end");
      sum += double(a->values[i]) * x->values[column];
    }
    result.push_back(float(*alpha * sum + (*beta != 0 ? *beta * y->values[row] : 0)));
  }
  give(wrong("sparse"), y->values, result.data(), result.size());
  return kSuccess;
}

}  // namespace varve::gpu::fake
