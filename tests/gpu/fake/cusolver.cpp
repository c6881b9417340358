// libcusolver.so.11: LU factors with pivots, and solutions by them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {
namespace {

enum Status : int { kSuccess = 0, kNotInitialized = 1, kInvalidValue = 3 };

// Columns one after the other; computed in doubles, kept as floats as the real one does.
struct Square {
  std::vector<double> values;
  std::size_t n;
  double& at(std::size_t row, std::size_t column) { return values[column * n + row]; }
};

Square read(const float* a, std::size_t n, std::size_t stride) {
  Square result{.values = std::vector<double>(n * n), .n = n};
  for (std::size_t column = 0; column < n; ++column)
    std::copy_n(a + column * stride, n, result.values.begin() + long(column * n));
  return result;
}

// Row by row; returns the number of the first pivot that is zero, or 0.
int factor(Square& a, std::vector<int>& pivots) {
  int bad = 0;
  for (std::size_t k = 0; k < a.n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < a.n; ++i) {
      if (std::abs(a.at(i, k)) > std::abs(a.at(pivot, k))) pivot = i;
    }
    pivots[k] = int(pivot) + 1;
    for (std::size_t j = 0; j < a.n; ++j) std::swap(a.at(k, j), a.at(pivot, j));
    if (a.at(k, k) == 0) {
      if (!bad) bad = int(k) + 1;
      continue;
    }
    for (std::size_t i = k + 1; i < a.n; ++i) a.at(i, k) /= a.at(k, k);
    for (std::size_t j = k + 1; j < a.n; ++j) {
      for (std::size_t i = k + 1; i < a.n; ++i) a.at(i, j) -= a.at(i, k) * a.at(k, j);
    }
  }
  return bad;
}

}  // namespace

FAKE_VERSION(cusolverGetVersion, 11703)

FAKE_LIFETIME(int, cusolverDnCreate, cusolverDnDestroy)

FAKE_API int cusolverDnSgetrf_bufferSize(void* handle, int m, int n, float* a, int lda, int* floats) {
  if (const int code = enter("cusolverDnSgetrf_bufferSize")) return code;
  if (!handle) return kNotInitialized;
  if (m < 0 || n < 0 || lda < m) return kInvalidValue;
  on_device(a, "cusolverDnSgetrf_bufferSize");
  *floats = n;
  return kSuccess;
}

FAKE_API int cusolverDnSgetrf(void* handle, int m, int n, float* a, int lda, float* workspace, int* pivots, int* info) {
  if (const int code = enter("cusolverDnSgetrf")) return code;
  if (!handle) return kNotInitialized;
  if (m != n || n < 1 || lda < m) return kInvalidValue;
  on_device(workspace, "cusolverDnSgetrf: workspace")[n - 1] = 0;
  const auto how = wrong("factor");
  float* const values = on_device(a, "cusolverDnSgetrf: A");
  auto square = read(values, std::size_t(n), std::size_t(lda));
  std::vector<int> rows(static_cast<std::size_t>(n));
  *on_device(info, "cusolverDnSgetrf: info") = factor(square, rows);
  std::copy(rows.begin(), rows.end(), on_device(pivots, "cusolverDnSgetrf: pivots"));
  std::vector<float> narrow(square.values.begin(), square.values.end());
  for (std::size_t j = 0; j < std::size_t(n); ++j) {
    give(how == Wrong::kFlip && j != std::size_t(n) / 2 ? Wrong::kNo : how, values + j * std::size_t(lda),
         narrow.data() + j * std::size_t(n), std::size_t(n));
  }
  return kSuccess;
}

FAKE_API int cusolverDnSgetrs(void* handle, int op, int n, int right_sides, const float* a, int lda, const int* pivots,
                              float* b, int ldb, int* info) {
  if (const int code = enter("cusolverDnSgetrs")) return code;
  if (!handle) return kNotInitialized;
  if (op != 0 || n < 1 || right_sides < 1 || lda < n || ldb < n) return kInvalidValue;
  const auto how = wrong("solve");
  const auto size = std::size_t(n);
  auto factors = read(on_device(a, "cusolverDnSgetrs: A"), size, std::size_t(lda));
  const int* const rows = on_device(pivots, "cusolverDnSgetrs: pivots");
  float* const sides = on_device(b, "cusolverDnSgetrs: B");
  *on_device(info, "cusolverDnSgetrs: info") = 0;
  for (std::size_t side = 0; side < std::size_t(right_sides); ++side) {
    float* const values = sides + side * std::size_t(ldb);
    std::vector<double> x(values, values + n);
    for (std::size_t i = 0; i < size; ++i) {
      if (rows[i] < 1 || rows[i] > n) fault("cusolverDnSgetrs: a pivot that is no row");
      std::swap(x[i], x[std::size_t(rows[i]) - 1]);
    }
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < i; ++j) x[i] -= factors.at(i, j) * x[j];
    }
    for (std::size_t i = size; i-- > 0;) {
      for (std::size_t j = i + 1; j < size; ++j) x[i] -= factors.at(i, j) * x[j];
      x[i] /= factors.at(i, i);
    }
    const std::vector<float> narrow(x.begin(), x.end());
    give(how, values, narrow.data(), size);
  }
  return kSuccess;
}

}  // namespace varve::gpu::fake
