#include "gpu/probe/reference.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

#include "gpu/probe/kernels/cases.h"
#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

using ::testing::Each;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> product_of(const std::vector<float>& a, const std::vector<float>& b, std::size_t n) {
  std::vector<float> c(n * n);
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < n; ++i) {
      float sum = 0;
      for (std::size_t k = 0; k < n; ++k) sum += a[k * n + i] * b[j * n + k];
      c[j * n + i] = sum;
    }
  }
  return c;
}

TEST(Numbers, AreTheSameEverywhereAndInTheirRange) {
  EXPECT_EQ(random_words(1, 0).front(),
            0xE220A8397B1DCDAFULL);  // the first of splitmix64 from 0, as its author gives it
  const auto floats = random_floats(10000, 3), whole = random_integers(10000, 3, 5);
  EXPECT_EQ(floats, random_floats(10000, 3));
  EXPECT_NE(floats, random_floats(10000, 4));
  EXPECT_TRUE(std::ranges::all_of(floats, [](float value) { return value >= -1 && value < 1; }));
  EXPECT_TRUE(
      std::ranges::all_of(whole, [](float value) { return std::abs(value) <= 5 && value == std::trunc(value); }));
  for (int value = -5; value <= 5; ++value) EXPECT_NE(std::ranges::count(whole, static_cast<float>(value)), 0) << value;
}

TEST(Gemm, OfFloatsIsWithinFewRoundingsAndATransposedOneIsNot) {
  constexpr std::size_t kN = 65;
  const auto a = random_floats(kN * kN, 1), b = random_floats(kN * kN, 2);
  const std::vector<std::size_t> samples = {0, 32, 64};
  const auto c = product_of(a, b, kN);
  EXPECT_LT(gemm_error(a, b, c, kN, samples), 16);
  EXPECT_GT(gemm_error(a, b, product_of(b, a, kN), kN, samples), 1000);
  for (const std::size_t at : {std::size_t{0}, 32 * kN + 5, kN * kN - 1}) {
    auto wrong = c;
    wrong[at] *= 1.001F;
    EXPECT_GT(gemm_error(a, b, wrong, kN, samples), 16) << at;
    wrong[at] = kNan;
    EXPECT_EQ(gemm_error(a, b, wrong, kN, samples), std::numeric_limits<double>::infinity()) << at;
  }
}

TEST(Gemm, RoundedToTenBitsIsSeen) {
  // What tensor cores do with TF32 where nobody asked for it.
  constexpr std::size_t kN = 256;
  auto a = random_floats(kN * kN, 1), b = random_floats(kN * kN, 2);
  const auto exact_a = a, exact_b = b;
  for (auto* values : {&a, &b}) {
    for (auto& value : *values) value = std::ldexp(std::nearbyint(std::ldexp(value, 10)), -10);
  }
  EXPECT_GT(gemm_error(exact_a, exact_b, product_of(a, b, kN), kN, std::vector<std::size_t>{0, 100}), 16);
}

TEST(Gemm, OfWholeNumbersIsExactAndEveryWrongElementIsSeen) {
  constexpr std::size_t kN = 24;
  const auto a = random_integers(kN * kN, 1, 31), b = random_integers(kN * kN, 2, 31);
  const auto c = product_of(a, b, kN);
  EXPECT_TRUE(gemm_is_exact(a, b, c, kN, 3));
  std::size_t seen = 0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    auto wrong = c;
    wrong[i] += 1;
    seen += gemm_is_exact(a, b, wrong, kN, 3) ? 0 : 1;
  }
  EXPECT_EQ(seen, c.size());
  auto broken = c;
  broken[7] += 0.5F;
  EXPECT_FALSE(gemm_is_exact(a, b, broken, kN, 3));
  broken[7] = kNan;
  EXPECT_FALSE(gemm_is_exact(a, b, broken, kN, 3));
}

std::vector<float> convolved(const ConvolutionShape& shape, const std::vector<float>& x, const std::vector<float>& w) {
  const auto size = static_cast<int>(shape.size);
  std::vector<float> y;
  for (std::size_t n = 0; n < shape.images; ++n) {
    for (std::size_t f = 0; f < shape.filters; ++f) {
      for (int i = 0; i < size; ++i) {
        for (int j = 0; j < size; ++j) {
          float sum = 0;
          for (std::size_t c = 0; c < shape.channels; ++c) {
            for (int k = -1; k <= 1; ++k) {
              for (int l = -1; l <= 1; ++l) {
                if (i + k < 0 || i + k >= size || j + l < 0 || j + l >= size) continue;
                sum += x[((n * shape.channels + c) * shape.size + static_cast<std::size_t>(i + k)) * shape.size +
                         static_cast<std::size_t>(j + l)] *
                       w[(f * shape.channels + c) * 9 + static_cast<std::size_t>((k + 1) * 3 + l + 1)];
              }
            }
          }
          y.push_back(sum);
        }
      }
    }
  }
  return y;
}

TEST(ConvolutionResults, AreRightOrSeenToBeWrong) {
  const ConvolutionShape shape{.images = 2, .channels = 3, .filters = 4, .size = 7};
  const auto x = random_floats(shape.input_count(), 1), w = random_floats(shape.filter_count(), 2);
  const auto y = convolved(shape, x, w);
  ASSERT_EQ(y.size(), shape.output_count());
  EXPECT_LT(convolution_error(shape, x, w, y, 1000, 3), 16);
  EXPECT_LT(convolution_sum_error(shape, x, w, y, 4), 16);
  auto flipped = w;  // a true convolution instead of the cross correlation that was asked for
  for (std::size_t f = 0; f < w.size(); f += 9)
    std::reverse(flipped.begin() + static_cast<std::ptrdiff_t>(f),
                 flipped.begin() + static_cast<std::ptrdiff_t>(f) + 9);
  EXPECT_GT(convolution_error(shape, x, w, convolved(shape, x, flipped), 1000, 3), 1024);
  for (std::size_t at = 0; at < y.size(); ++at) {
    auto wrong = y;
    wrong[at] += 0.25F;
    EXPECT_GT(convolution_sum_error(shape, x, w, wrong, 4), 1024) << at;
    wrong[at] = kNan;
    EXPECT_FALSE(convolution_sum_error(shape, x, w, wrong, 4) <= 1024) << at;
  }
}

std::vector<api::CufftComplex> transform_of(const std::vector<api::CufftComplex>& x, int direction) {
  std::vector<api::CufftComplex> result;
  for (std::size_t frequency = 0; frequency < x.size(); ++frequency) {
    std::complex<double> sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum += std::complex<double>(x[i].re, x[i].im) *
             std::polar(1.0, direction * 2 * std::numbers::pi * static_cast<double>(i * frequency % x.size()) /
                                 static_cast<double>(x.size()));
    }
    result.push_back({static_cast<float>(sum.real()), static_cast<float>(sum.imag())});
  }
  return result;
}

TEST(Fourier, TransformsAreRightOrSeenToBeWrong) {
  constexpr std::size_t kPoints = 48;
  const auto numbers = random_floats(2 * kPoints, 1);
  std::vector<api::CufftComplex> x;
  for (std::size_t i = 0; i < kPoints; ++i) x.push_back({numbers[2 * i], numbers[2 * i + 1]});
  const auto there = transform_of(x, api::kCufftForward), back = transform_of(there, api::kCufftInverse);
  const std::vector<std::size_t> frequencies = {0, 1, 16, 47};
  EXPECT_LT(fourier_error(x, there, frequencies), 1e-6);
  EXPECT_LT(round_trip_error(x, back, kPoints), 1e-6);
  EXPECT_GT(fourier_error(x, transform_of(x, api::kCufftInverse), frequencies),
            0.01);                             // the wrong direction, whose way back is right
  EXPECT_GT(round_trip_error(x, back, 1), 1);  // not divided
  auto wrong = back;
  wrong[30].im = kNan;
  EXPECT_FALSE(round_trip_error(x, wrong, kPoints) <= 1);
}

TEST(Solving, IsJudgedByTheResidual) {
  // A = [2 1; 1 3], b = [3; 5]: x = [0.8; 1.4].
  const std::vector<float> a = {2, 1, 1, 3}, b = {3, 5}, x = {0.8F, 1.4F};
  EXPECT_LT(solve_error(a, x, b, 2), 1e-7);
  EXPECT_NEAR(solve_error(a, std::vector<float>{0.8F, 1.5F}, b, 2), 0.3 / (4 * 1.5 + 5), 1e-6);
  EXPECT_EQ(solve_error(a, std::vector<float>{0.8F, kNan}, b, 2), std::numeric_limits<double>::infinity());
}

TEST(Sparse, ProductsAreRightOrSeenToBeWrong) {
  const auto a = random_sparse(100, 7, 1);
  ASSERT_EQ(a.rows(), 100u);
  for (std::size_t row = 0; row < 100; ++row) {
    const std::vector<int> columns(a.columns.begin() + a.row_offsets[row], a.columns.begin() + a.row_offsets[row + 1]);
    ASSERT_EQ(columns.size(), 7u);
    EXPECT_TRUE(std::ranges::is_sorted(columns) && std::ranges::adjacent_find(columns) == columns.end());
    EXPECT_TRUE(columns.front() >= 0 && columns.back() < 100);
  }
  const auto x = random_floats(100, 2);
  std::vector<float> y(100);
  for (std::size_t row = 0; row < 100; ++row) {
    for (int i = a.row_offsets[row]; i < a.row_offsets[row + 1]; ++i)
      y[row] +=
          a.values[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(a.columns[static_cast<std::size_t>(i)])];
  }
  EXPECT_LT(spmv_error(a, x, y), 11);
  y[99] += 0.01F;
  EXPECT_GT(spmv_error(a, x, y), 1000);
  y[99] = kNan;
  EXPECT_FALSE(spmv_error(a, x, y) <= 11);
}

TEST(Uniform, NumbersAreToldFromOthers) {
  std::vector<float> numbers;
  for (const auto word : random_words(1 << 16, 1)) numbers.push_back(static_cast<float>((word >> 40) + 1) / (1 << 24));
  const auto good = uniformity(numbers);
  EXPECT_TRUE(good.in_range);
  EXPECT_THAT((std::vector{good.mean, good.variance, good.buckets}), Each(::testing::Lt(7)));
  auto wrong = numbers;
  wrong.back() = 0;
  EXPECT_FALSE(uniformity(wrong).in_range);
  wrong.back() = kNan;
  EXPECT_FALSE(uniformity(wrong).in_range);
  EXPECT_FALSE(uniformity({}).in_range);
  for (auto& number : wrong) number = 0.25F + number / 2;  // the right mean, too close to it
  wrong.back() = 0.5F;
  EXPECT_GT(uniformity(wrong).variance, 7);
  for (std::size_t i = 0; i < wrong.size(); ++i) wrong[i] = numbers[i] * numbers[i];
  EXPECT_GT(uniformity(wrong).mean, 7);
  for (std::size_t i = 0; i < wrong.size(); ++i)
    wrong[i] = (std::floor(numbers[i] * 8) + 0.5F) / 8;  // eight values only
  EXPECT_GT(uniformity(wrong).buckets, 7);
}

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 8, 2}), 3);
}

TEST(KernelCases, HaveTheTotalsThatTheirInputsGive) {
  for (const auto& test : kernels::kAxpyCases) {
    long long total = 0;
    for (unsigned i = 0; i < test.count; ++i) {
      total += kernels::axpy_result(test, i);
      // In the arithmetic of floats, and as whole numbers: the same.
      ASSERT_EQ(std::fma(static_cast<float>(test.a), static_cast<float>(kernels::axpy_x(test, i)),
                         static_cast<float>(kernels::axpy_y(test, i))),
                static_cast<float>(kernels::axpy_result(test, i)));
      ASSERT_LT(std::abs(kernels::axpy_result(test, i)), 1 << 24);
    }
    EXPECT_EQ(total, test.total) << test.count;
  }
  for (const auto& test : kernels::kSumCases) {
    unsigned long long total = 0;
    for (unsigned i = 0; i < test.count; ++i) total += kernels::sum_value(test, i);
    EXPECT_EQ(total, test.total) << test.count;
  }
}

}  // namespace
}  // namespace varve::gpu::probe
