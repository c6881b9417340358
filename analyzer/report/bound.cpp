#include "analyzer/report/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analyzer/report/report.h"

namespace varve::report {
namespace {

constexpr double kConfidence = 0.95;
constexpr int kMaxTerms = 200'000;  // the fraction converges in about sqrt(max(a, b)) terms

// lgamma of the C library keeps its sign in a global; all our arguments are positive.
double log_gamma(double value) {
  int sign = 0;
  return ::lgamma_r(value, &sign);
}

// The continued fraction of DLMF 8.17.22, evaluated by the modified Lentz method; converges quickly for x < (a + 1) /
// (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto away_from_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double result = d;
  for (int m = 1; m < kMaxTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    result *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    const double change = d * c;
    result *= change;
    if (std::abs(change - 1) < 4 * std::numeric_limits<double>::epsilon()) break;
  }
  return result;
}

}  // namespace

double regularized_incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double inverse_incomplete_beta(double a, double b, double probability) {
  // The function rises from 0 to 1, so halving always finds it; 200 halvings reach every double.
  double low = 0, high = 1;
  for (int step = 0; step < 200 && high - low > high * std::numeric_limits<double>::epsilon(); ++step) {
    const double middle = (low + high) / 2;
    (regularized_incomplete_beta(a, b, middle) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::optional<double> upper_bound(std::uint64_t uses, std::uint64_t sessions) {
  if (sessions == 0) return std::nullopt;
  if (uses >= sessions) return 1.0;
  if (uses == 0) return std::min(1.0, 3.0 / double(sessions));
  return inverse_incomplete_beta(double(uses) + 1, double(sessions - uses), kConfidence);
}

}  // namespace varve::report
