#include "gpu/probe/kernel_runs.h"

#include <cmath>

#include "core/base/embedded.h"
#include "gpu/probe/kernels/cases.h"

namespace varve::gpu::probe {

EmbeddedFiles kernel_files();  // made by varve_embed()

namespace {

constexpr unsigned kBeside = 64;  // elements behind the results, which must stay as they are

std::string kernel_file(const std::string& name) {
  for (const auto& file : kernel_files()) {
    if (file.name == name) return std::string(file.content);
  }
  fail<NotFound>("this program carries no {}", name);
}

}  // namespace

std::string kernel_ptx(const std::string& name) { return kernel_file(name + ".ptx"); }

std::string kernel_source(const std::string& name) { return kernel_file(name + ".cu"); }

void check_axpy(const Driver& driver, api::CuFunction axpy) {
  for (const auto& test : kernels::kAxpyCases) {
    std::vector<float> x(test.count), y(test.count + kBeside, -1.0F);
    for (unsigned i = 0; i < test.count; ++i) {
      x[i] = static_cast<float>(kernels::axpy_x(test, i));
      y[i] = static_cast<float>(kernels::axpy_y(test, i));
    }
    const DeviceArray<float> device_x(driver, x), device_y(driver, y);
    launch(driver, axpy, (test.count + test.threads - 1) / test.threads, test.threads, static_cast<float>(test.a),
           device_x.get(), device_y.get(), test.count);
    const auto result = device_y.download();
    long long total = 0;
    for (unsigned i = 0; i < result.size(); ++i) {
      const float expected = i < test.count ? static_cast<float>(kernels::axpy_result(test, i)) : -1.0F;
      if (!(result[i] == expected))
        fail<Error>("axpy of {} elements: element {} is {} instead of {}", test.count, i, result[i], expected);
      if (i < test.count) total += std::llround(result[i]);
    }
    if (total != test.total)
      fail<Error>("axpy of {} elements: the sum of all is {} instead of {}", test.count, total, test.total);
  }
}

void check_sum(const Driver& driver, api::CuFunction sum) {
  for (const auto& test : kernels::kSumCases) {
    std::vector<unsigned> values(test.count + kBeside, 0xFFFFFFFFu);  // what is behind them must not be added
    for (unsigned i = 0; i < test.count; ++i) values[i] = kernels::sum_value(test, i);
    const DeviceArray<unsigned> device_values(driver, values);
    const DeviceArray<unsigned long long> total(driver, std::vector<unsigned long long>{0});
    launch(driver, sum, test.blocks, test.threads, device_values.get(), test.count, total.get());
    const auto result = total.download().front();
    if (result != test.total)
      fail<Error>("the sum of {} values in {} blocks of {} is {} instead of {}", test.count, test.blocks, test.threads,
                  result, test.total);
  }
}

}  // namespace varve::gpu::probe
