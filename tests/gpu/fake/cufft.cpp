// libcufft.so.11: complex to complex in one dimension.
#include <bit>
#include <complex>
#include <cstdint>
#include <map>
#include <numbers>
#include <vector>

#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {
namespace {

enum Result : int { kSuccess = 0, kInvalidPlan = 1, kInvalidType = 3, kInvalidValue = 4, kInvalidSize = 8 };
using Value = std::complex<double>;

struct Plan {
  std::size_t points, batch;
};
std::map<int, Plan> plans;  // NOLINT: handles are numbers, and the library's

// Not scaled, as the real one. By halves while the length is even, by the definition else.
std::vector<Value> transformed(const std::vector<Value>& in, double sign) {
  const auto n = in.size();
  std::vector<Value> out(n);
  if (n % 2 == 0) {
    std::vector<Value> even(n / 2), odd(n / 2);
    for (std::size_t i = 0; i < n / 2; ++i) even[i] = in[2 * i], odd[i] = in[2 * i + 1];
    even = transformed(even, sign), odd = transformed(odd, sign);
    for (std::size_t i = 0; i < n / 2; ++i) {
      const auto turned = std::polar(1.0, sign * 2 * std::numbers::pi * double(i) / double(n)) * odd[i];
      out[i] = even[i] + turned;
      out[i + n / 2] = even[i] - turned;
    }
    return out;
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j)
      out[i] += in[j] * std::polar(1.0, sign * 2 * std::numbers::pi * double(i * j % n) / double(n));
  }
  return out;
}

}  // namespace

FAKE_VERSION(cufftGetVersion, 11303)

FAKE_API int cufftPlan1d(int* plan, int points, int type, int batch) {
  if (const int code = enter("cufftPlan1d")) return code;
  if (type != 0x29) return kInvalidType;
  if (points < 1 || batch < 1) return kInvalidSize;
  *plan = plans.empty() ? 1 : plans.rbegin()->first + 1;
  plans[*plan] = {.points = std::size_t(points), .batch = std::size_t(batch)};
  return kSuccess;
}

FAKE_API int cufftExecC2C(int plan, std::complex<float>* from, std::complex<float>* to, int direction) {
  if (const int code = enter("cufftExecC2C")) return code;
  const auto found = plans.find(plan);
  if (found == plans.end()) return kInvalidPlan;
  if (direction != -1 && direction != 1) return kInvalidValue;
  const auto [points, batch] = found->second;
  const auto* const in = on_device(from, "cufftExecC2C: input");
  auto* const out = on_device(to, "cufftExecC2C: output");
  std::vector<std::complex<float>> result;
  for (std::size_t b = 0; b < batch; ++b) {
    for (const auto& value : transformed(std::vector<Value>(in + b * points, in + (b + 1) * points), direction))
      result.emplace_back(value);
  }
  give(wrong("fft"), reinterpret_cast<float*>(out), reinterpret_cast<const float*>(result.data()), result.size() * 2);
  return kSuccess;
}

FAKE_API int cufftDestroy(int plan) {
  if (const int code = enter("cufftDestroy")) return code;
  return plans.erase(plan) ? kSuccess : kInvalidPlan;
}

}  // namespace varve::gpu::fake
