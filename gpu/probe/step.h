#pragma once
// What the steps share: what they are told, the device they use, and how they take time. One process runs one step, in
// one thread.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/probe/device.h"
#include "gpu/probe/device_watch.h"

namespace varve::gpu::probe {

inline const LibraryNames kCublasLt = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"};

struct Step {
  Report& report;
  LibraryFolders folders;
  std::optional<int> device;  // nothing: the first, or all where a step takes several
  std::size_t size = 0;       // how large the problem is, in the step's own measure; 0: as the step has it
  int repetitions = 9;        // of what is timed in its steady state: the median counts

  std::size_t size_or(std::size_t otherwise) const { return size ? size : otherwise; }
};

// Throws Skip or any other exception, or returns what was checked, in one line.
using StepFunction = std::string (*)(Step& step);
struct StepEntry {
  std::string_view name;
  StepFunction run;
  std::string_view what;     // for --help
  std::string_view measure;  // what --size counts; "" if it means nothing
};
const std::vector<StepEntry>& step_entries();

std::string run_driver(Step& step);
std::string run_libraries(Step& step);
std::string run_compile(Step& step);
std::string run_device(Step& step);
std::string run_memory(Step& step);
std::string run_kernel(Step& step);
std::string run_gemm(Step& step);
std::string run_convolution(Step& step);
std::string run_fft(Step& step);
std::string run_solve(Step& step);
std::string run_sparse(Step& step);
std::string run_random(Step& step);
std::string run_nccl(Step& step);

template <typename Work>
double seconds_of(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values);  // of at least one

// Opens one library with its functions and says in the facts which file it was.
template <typename Functions>
Api<Functions> open_api(Step& step, const LibraryNames& names) {
  step.report.step("opening " + names.front());
  Api<Functions> api(Library::open(names, step.folders));
  step.report.fact("lib." + api.library.name(), api.library.path());
  return api;
}

// What a library says of its version becomes a fact.
template <typename Functions, typename GetVersion>
void tell_version(Step& step, const Api<Functions>& api, const GetVersion& get_version, std::string fact) {
  int version = 0;
  api.call(get_version, &version);
  step.report.fact(std::move(fact), std::to_string(version));
}

// A step that uses one device: the driver, the device with its context, and the watch over it, which has its say when
// this ends.
class DeviceStep {
 public:
  explicit DeviceStep(Step& step);

  // Once, with the device's end of it. A first call is what the files of a library cost.
  template <typename Work>
  void first(const std::string& metric, Work&& work) {
    step.report.step(metric);
    step.report.metric(metric, MetricKind::kFirstCall, seconds_of([&] {
                         work();
                         device.synchronize();
                       }));
    watch.sample();
  }

  // The median of repetitions. Each runs `work` as often in a row as it takes for kRepetitionSeconds, so that neither
  // the clock's nor the launch's own time counts much. Before them `work` runs for a while, as devices need time to
  // leave their idle clocks.
  template <typename Work>
  double steady(const std::string& metric, Work&& work) {
    step.report.step(metric);
    const double once = warm_up([] {}, work);
    const int in_a_row = std::clamp(static_cast<int>(kRepetitionSeconds / std::max(once, 1e-9)), 1, kMostInARow);
    return repeated(
        metric, in_a_row, [] {}, work);
  }

  // The same for work that spoils its own input: `prepare` makes it anew before each repetition and is not timed.
  template <typename Prepare, typename Work>
  double steady_after(const std::string& metric, Prepare&& prepare, Work&& work) {
    step.report.step(metric);
    warm_up(prepare, work);
    return repeated(metric, 1, prepare, work);
  }

  Step& step;
  const Driver driver;
  DeviceWatch watch;
  const Device device;

 private:
  static constexpr double kRepetitionSeconds = 0.005;
  static constexpr int kMostInARow = 200;
  static constexpr double kWarmUpSeconds = 0.25;

  // Returns what the last of the calls took. A problem made small on purpose is run once.
  template <typename Prepare, typename Work>
  double warm_up(Prepare&& prepare, Work&& work) {
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      prepare();
      const double once = seconds_of([&] { work(), device.synchronize(); });
      const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (step.size || all >= kWarmUpSeconds) return once;
    }
  }

  template <typename Prepare, typename Work>
  double repeated(const std::string& metric, int in_a_row, Prepare&& prepare, Work&& work) {
    std::vector<double> seconds;
    for (int i = 0; i < step.repetitions; ++i) {
      prepare();
      device.synchronize();
      seconds.push_back(seconds_of([&] {
                          for (int j = 0; j < in_a_row; ++j) work();
                          device.synchronize();
                        }) /
                        in_a_row);
      watch.sample();
    }
    const double middle = median(seconds);
    step.report.metric(metric, MetricKind::kSteady, middle);
    return middle;
  }
};

}  // namespace varve::gpu::probe
