#pragma once
// What results should be, worked out on the host in double precision or in integers, and how far from it they are. Pure
// functions. Matrices are column by column, as BLAS has them.
//
// Errors are given in units of the rounding error that the arithmetic itself causes, so that one limit holds for all
// sizes; where anything is not a number, they are infinite.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/probe/api/mathematics.h"

namespace varve::gpu::probe {

inline constexpr double kFloatRounding = 1.0 / (1 << 24);  // half a unit in the last place of a float

// The same numbers for the same seed, on every machine.
std::vector<float> random_floats(std::size_t count, std::uint64_t seed);  // in [-1, 1)
std::vector<float> random_integers(std::size_t count, std::uint64_t seed,
                                   int at_most);  // whole numbers in [-at_most, at_most]
std::vector<std::uint64_t> random_words(std::size_t count, std::uint64_t seed);

// C = A B, all n x n. Rows and columns are the samples; the largest error of one element in units of the rounding of
// the sum of its products' sizes.
double gemm_error(std::span<const float> a, std::span<const float> b, std::span<const float> c, std::size_t n,
                  std::span<const std::size_t> samples);
// Whether C = A B exactly, where all three hold whole numbers: every element is looked at, by one product with a random
// vector. False where C holds others.
bool gemm_is_exact(std::span<const float> a, std::span<const float> b, std::span<const float> c, std::size_t n,
                   std::uint64_t seed);

// Images of `size` x `size` in `channels` (NCHW), `filters` of 3 x 3, stride 1, borders of one zero: the output has the
// size of the input.
struct ConvolutionShape {
  std::size_t images = 32, channels = 64, filters = 64, size = 56;
  std::size_t input_count() const { return images * channels * size * size; }
  std::size_t filter_count() const { return filters * channels * 9; }
  std::size_t output_count() const { return images * filters * size * size; }
};
// Elements taken here and there, `samples` of them.
double convolution_error(const ConvolutionShape& shape, std::span<const float> x, std::span<const float> w,
                         std::span<const float> y, std::size_t samples, std::uint64_t seed);
// All elements: the sum of all filters' outputs with random signs is the output of that sum of the filters.
double convolution_sum_error(const ConvolutionShape& shape, std::span<const float> x, std::span<const float> w,
                             std::span<const float> y, std::uint64_t seed);

// X, the transform of x, at some frequencies; and x again after the transform back, which is not divided by the count.
// Errors as a share of the root mean square.
double fourier_error(std::span<const api::CufftComplex> x, std::span<const api::CufftComplex> transformed,
                     std::span<const std::size_t> frequencies);
double round_trip_error(std::span<const api::CufftComplex> x, std::span<const api::CufftComplex> back,
                        std::size_t points);

// A x = b: the largest |b - A x| over |A| |x| + |b| (norms of the largest), which is the backward error.
double solve_error(std::span<const float> a, std::span<const float> x, std::span<const float> b, std::size_t n);

struct SparseMatrix {  // rows x rows, by rows
  std::vector<int> row_offsets, columns;
  std::vector<float> values;
  std::size_t rows() const { return row_offsets.size() - 1; }
};
SparseMatrix random_sparse(std::size_t rows, std::size_t per_row, std::uint64_t seed);
// y = A x, all rows: the largest error in units of the rounding of the sum of products' sizes.
double spmv_error(const SparseMatrix& a, std::span<const float> x, std::span<const float> y);

// Whether numbers look uniform in (0, 1]. Each is the distance from what is expected in standard deviations; `buckets`
// of the chi-squared sum over 256 of them.
struct Uniformity {
  bool in_range = false;  // all of them, and none NaN
  double mean = 0, variance = 0, buckets = 0;
};
Uniformity uniformity(std::span<const float> numbers);

}  // namespace varve::gpu::probe
