#pragma once

namespace varve::report {

// I_x(a, b), the regularized incomplete beta function, for a, b > 0 and 0 <= x <= 1. Relative error below 1e-9 for a +
// b up to 1e9.
double regularized_incomplete_beta(double a, double b, double x);

// The x with I_x(a, b) = probability.
double inverse_incomplete_beta(double a, double b, double probability);

}  // namespace varve::report
