#include "gpu/probe/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

namespace varve::gpu::probe {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// splitmix64: a counter through a mixing function, so that the i-th number needs no others.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t word = seed + (i + 1) * 0x9E3779B97F4A7C15ULL;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
  return word ^ (word >> 31);
}

// NaN compares with nothing: it must not be lost in a maximum.
void raise(double& largest, double error) {
  largest = error <= largest ? largest : std::isnan(error) ? kInfinite : error;
}

double in_roundings(double difference, double sizes) {
  if (difference == 0) return 0;
  return sizes > 0 ? std::abs(difference) / (sizes * kFloatRounding) : kInfinite;
}

std::int64_t whole(float value) { return static_cast<std::int64_t>(value); }

bool is_whole(float value) { return std::abs(value) <= 1 << 24 && value == std::trunc(value); }

// One output of the convolution: image n, pixel (i, j), with filter weights that `weight(c, k, l)` gives.
template <typename Weight>
void add_pixel(const ConvolutionShape& shape, std::span<const float> x, std::size_t n, std::size_t i, std::size_t j,
               Weight&& weight, double& sum, double& sizes) {
  for (std::size_t c = 0; c < shape.channels; ++c) {
    const float* plane = x.data() + (n * shape.channels + c) * shape.size * shape.size;
    for (std::size_t k = 0; k < 3; ++k) {
      for (std::size_t l = 0; l < 3; ++l) {
        if (i + k < 1 || j + l < 1 || i + k > shape.size || j + l > shape.size) continue;
        const double value = plane[(i + k - 1) * shape.size + j + l - 1];
        const auto [w, w_size] = weight(c, k, l);
        sum += value * w;
        sizes += std::abs(value) * w_size;
      }
    }
  }
}

}  // namespace

std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers[i] = static_cast<float>(static_cast<std::int64_t>(mixed(seed, i) >> 40) - (1 << 23)) / (1 << 23);
  return numbers;
}

std::vector<float> random_integers(std::size_t count, std::uint64_t seed, int at_most) {
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers[i] = static_cast<float>(static_cast<int>((mixed(seed, i) >> 33) % (2u * at_most + 1)) - at_most);
  return numbers;
}

std::vector<std::uint64_t> random_words(std::size_t count, std::uint64_t seed) {
  std::vector<std::uint64_t> words(count);
  for (std::size_t i = 0; i < count; ++i) words[i] = mixed(seed, i);
  return words;
}

double gemm_error(std::span<const float> a, std::span<const float> b, std::span<const float> c, std::size_t n,
                  std::span<const std::size_t> samples) {
  double largest = 0;
  std::vector<double> sums(n), sizes(n);
  for (const auto column : samples) {
    std::ranges::fill(sums, 0.0);
    std::ranges::fill(sizes, 0.0);
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t i = 0; i < n; ++i) {
        const double product = double{a[k * n + i]} * b[column * n + k];
        sums[i] += product;
        sizes[i] += std::abs(product);
      }
    }
    for (std::size_t i = 0; i < n; ++i) raise(largest, in_roundings(c[column * n + i] - sums[i], sizes[i]));
  }
  std::vector<double> row(n);
  for (const auto i : samples) {
    for (std::size_t k = 0; k < n; ++k) row[k] = a[k * n + i];
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (std::size_t k = 0; k < n; ++k) {
        const double product = row[k] * b[j * n + k];
        sum += product;
        size += std::abs(product);
      }
      raise(largest, in_roundings(c[j * n + i] - sum, size));
    }
  }
  return largest;
}

bool gemm_is_exact(std::span<const float> a, std::span<const float> b, std::span<const float> c, std::size_t n,
                   std::uint64_t seed) {
  if (!std::ranges::all_of(c, is_whole)) return false;
  // C v = A (B v) for a v that the result could not know: a wrong element goes unseen for one v in a thousand at most.
  const auto v = random_integers(n, seed, 1000);
  std::vector<std::int64_t> b_v(n), a_b_v(n), c_v(n);
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < n; ++i) {
      b_v[i] += whole(b[j * n + i]) * whole(v[j]);
      c_v[i] += whole(c[j * n + i]) * whole(v[j]);
    }
  }
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < n; ++i) a_b_v[i] += whole(a[j * n + i]) * b_v[j];
  }
  return a_b_v == c_v;
}

double convolution_error(const ConvolutionShape& shape, std::span<const float> x, std::span<const float> w,
                         std::span<const float> y, std::size_t samples, std::uint64_t seed) {
  double largest = 0;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    const std::size_t at = mixed(seed, sample) % shape.output_count();
    const std::size_t j = at % shape.size, i = at / shape.size % shape.size,
                      filter = at / (shape.size * shape.size) % shape.filters,
                      n = at / (shape.size * shape.size * shape.filters);
    double sum = 0, sizes = 0;
    const auto weight = [&](std::size_t c, std::size_t k, std::size_t l) {
      const double value = w[((filter * shape.channels + c) * 3 + k) * 3 + l];
      return std::pair(value, std::abs(value));
    };
    add_pixel(shape, x, n, i, j, weight, sum, sizes);
    raise(largest, in_roundings(y[at] - sum, sizes));
  }
  return largest;
}

double convolution_sum_error(const ConvolutionShape& shape, std::span<const float> x, std::span<const float> w,
                             std::span<const float> y, std::uint64_t seed) {
  std::vector<double> sign(shape.filters), weights(shape.channels * 9), weight_sizes(shape.channels * 9);
  for (std::size_t f = 0; f < shape.filters; ++f) {
    sign[f] = mixed(seed, f) & 1 ? 1 : -1;
    for (std::size_t i = 0; i < shape.channels * 9; ++i) {
      weights[i] += sign[f] * w[f * shape.channels * 9 + i];
      weight_sizes[i] += std::abs(w[f * shape.channels * 9 + i]);
    }
  }
  double largest = 0;
  const std::size_t plane = shape.size * shape.size;
  const auto weight = [&](std::size_t c, std::size_t k, std::size_t l) {
    return std::pair(weights[c * 9 + k * 3 + l], weight_sizes[c * 9 + k * 3 + l]);
  };
  for (std::size_t n = 0; n < shape.images; ++n) {
    for (std::size_t pixel = 0; pixel < plane; ++pixel) {
      double expected = 0, sizes = 0, sum = 0;
      add_pixel(shape, x, n, pixel / shape.size, pixel % shape.size, weight, expected, sizes);
      for (std::size_t f = 0; f < shape.filters; ++f) sum += sign[f] * y[(n * shape.filters + f) * plane + pixel];
      raise(largest, in_roundings(sum - expected, sizes));
    }
  }
  return largest;
}

double fourier_error(std::span<const api::CufftComplex> x, std::span<const api::CufftComplex> transformed,
                     std::span<const std::size_t> frequencies) {
  double power = 0, largest = 0;
  for (const auto& value : x) power += double{value.re} * value.re + double{value.im} * value.im;
  for (const auto frequency : frequencies) {
    std::complex<double> sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      // The product modulo the count first: the sine of a large angle would lose what is being measured.
      const double turn = static_cast<double>(i * frequency % x.size()) / static_cast<double>(x.size());
      sum += std::complex<double>(x[i].re, x[i].im) * std::polar(1.0, -2 * std::numbers::pi * turn);
    }
    raise(largest, std::abs(std::complex<double>(transformed[frequency].re, transformed[frequency].im) - sum) /
                       std::sqrt(power));
  }
  return largest;
}

double round_trip_error(std::span<const api::CufftComplex> x, std::span<const api::CufftComplex> back,
                        std::size_t points) {
  double power = 0, largest = 0;
  for (const auto& value : x) power += double{value.re} * value.re + double{value.im} * value.im;
  const double scale = 1.0 / static_cast<double>(points), mean = std::sqrt(power / static_cast<double>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i)
    raise(
        largest,
        std::sqrt(std::norm(std::complex<double>(back[i].re * scale - x[i].re, back[i].im * scale - x[i].im))) / mean);
  return largest;
}

double solve_error(std::span<const float> a, std::span<const float> x, std::span<const float> b, std::size_t n) {
  std::vector<double> residual(b.begin(), b.end()), row_sums(n);
  double x_norm = 0, b_norm = 0, worst = 0;
  for (std::size_t j = 0; j < n; ++j) {
    raise(x_norm, std::abs(double{x[j]}));
    raise(b_norm, std::abs(double{b[j]}));
    for (std::size_t i = 0; i < n; ++i) {
      residual[i] -= double{a[j * n + i]} * x[j];
      row_sums[i] += std::abs(a[j * n + i]);
    }
  }
  if (!std::isfinite(x_norm)) return kInfinite;
  for (const double value : residual) raise(worst, std::abs(value));
  return worst / (*std::ranges::max_element(row_sums) * x_norm + b_norm);
}

SparseMatrix random_sparse(std::size_t rows, std::size_t per_row, std::uint64_t seed) {
  SparseMatrix matrix;
  matrix.values = random_floats(rows * per_row, seed);
  matrix.columns.reserve(rows * per_row);
  std::vector<int> columns;
  for (std::size_t row = 0; row <= rows; ++row) matrix.row_offsets.push_back(static_cast<int>(row * per_row));
  for (std::size_t row = 0; row < rows; ++row) {
    columns.clear();
    for (std::uint64_t draw = 0; columns.size() < per_row; ++draw) {
      const int column = static_cast<int>(mixed(seed + 1 + row, draw) % rows);
      if (std::ranges::find(columns, column) == columns.end()) columns.push_back(column);
    }
    std::ranges::sort(columns);
    matrix.columns.insert(matrix.columns.end(), columns.begin(), columns.end());
  }
  return matrix;
}

double spmv_error(const SparseMatrix& a, std::span<const float> x, std::span<const float> y) {
  double largest = 0;
  for (std::size_t row = 0; row < a.rows(); ++row) {
    double sum = 0, sizes = 0;
    for (int i = a.row_offsets[row]; i < a.row_offsets[row + 1]; ++i) {
      const double product = double{a.values[i]} * x[a.columns[i]];
      sum += product;
      sizes += std::abs(product);
    }
    raise(largest, in_roundings(y[row] - sum, sizes));
  }
  return largest;
}

Uniformity uniformity(std::span<const float> numbers) {
  constexpr std::size_t kBuckets = 256;
  Uniformity found;
  std::array<std::size_t, kBuckets> counts{};
  double sum = 0, squares = 0;
  found.in_range = !numbers.empty();
  for (const float number : numbers) {
    if (!(number > 0 && number <= 1)) {
      found.in_range = false;
      return found;
    }
    sum += number - 0.5;
    squares += (number - 0.5) * (number - 0.5);
    ++counts[std::min<std::size_t>(static_cast<std::size_t>(number * kBuckets), kBuckets - 1)];
  }
  const auto count = static_cast<double>(numbers.size());
  found.mean = std::abs(sum / count) / std::sqrt(1 / 12.0 / count);
  // The square of a centred uniform number has the variance 1/80 - 1/144.
  found.variance = std::abs(squares / count - 1 / 12.0) / std::sqrt((1 / 80.0 - 1 / 144.0) / count);
  double chi = 0;
  for (const auto in_bucket : counts)
    chi += std::pow(static_cast<double>(in_bucket) - count / kBuckets, 2) / (count / kBuckets);
  found.buckets = std::abs(chi - (kBuckets - 1)) / std::sqrt(2.0 * (kBuckets - 1));
  return found;
}

}  // namespace varve::gpu::probe
