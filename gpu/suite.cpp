#include "gpu/suite.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/base/errors.h"
#include "gpu/frameworks.h"
#include "gpu/probe_output.h"

namespace varve::gpu {
namespace {

constexpr int kNoPython = 127;
constexpr int kColdLimitFactor = 3;  // what a step reads must be fetched first

bool named(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

void check_names(const std::vector<std::string>& names) {
  for (const auto& name : names) {
    if (std::ranges::find(steps(), name, &StepInfo::name) != steps().end()) continue;
    std::string known;
    for (const auto& step : steps()) known += (known.empty() ? "" : ", ") + step.name;
    fail<UsageError>("{} is no step of the GPU check; there are {}", name, known);
  }
}

// Metrics of a cold process are the mount's, whatever the step calls them; what is steady has nothing to do with the
// store.
void make_cold(StepResult& result) {
  result.cold = true;
  std::erase_if(result.metrics, [](const Metric& metric) { return metric.kind == MetricKind::kSteady; });
  for (auto& metric : result.metrics) metric.kind = MetricKind::kCold;
}

StepResult skipped(const std::string& step, std::string why) {
  StepResult result;
  result.step = step;
  result.outcome = Outcome::kSkipped;
  result.detail = std::move(why);
  return result;
}

ProgramOutput start(StepRunner& runner, const StepInfo& step, const SuiteOptions& options, Store store,
                    std::chrono::seconds limit) {
  if (step.python) return runner.python(framework_script(step.name), {}, store, limit);
  std::vector<std::string> words = {step.name};
  if (const auto size = options.sizes.find(step.name); size != options.sizes.end())
    words.insert(words.end(), {"--size", std::to_string(size->second)});
  return runner.probe(words, store, limit);
}

StepResult run_process(StepRunner& runner, const StepInfo& step, const SuiteOptions& options, Store store,
                       std::chrono::seconds limit) {
  const auto output = start(runner, step, options, store, limit);
  auto result = step.python && output.exit_status == kNoPython && !output.timed_out
                    ? skipped(step.name, "there is no Python")
                    : parse_probe_output(step.name, output.out, output.err, output.exit_status, output.timed_out);
  result.seconds = output.seconds;
  result.lazy = output.lazy;
  result.fetched_bytes = output.fetched_bytes;
  result.requests = output.requests;
  if (store == Store::kCold) make_cold(result);
  return result;
}

// One step over all its processes.
class StepRun {
 public:
  StepRun(StepRunner& runner, const SuiteOptions& options, const StepInfo& step, Store store, SuiteRun& run)
      : runner_(runner), options_(options), step_(step), store_(store), run_(run) {
    check_.step = step.name;
    check_.cold = store == Store::kCold;
    check_.first_result = run.results.size();
    limit_ = options.limit.count() != 0 ? options.limit : step.limit * (check_.cold ? kColdLimitFactor : 1);
    required_ = named(options.required, step.name);
  }

  // One repetition, retried once if it fails. False: no more of them.
  bool repeat() {
    const auto first = process();
    if (first.outcome == Outcome::kFailed) {
      check_.retried = true;
      const auto second = process();
      if (second.outcome != Outcome::kOk)
        return settle(Outcome::kFailed, second.outcome == Outcome::kFailed
                                            ? second.detail
                                            : "first failed: " + first.detail + "; then skipped: " + second.detail);
      warn("failed once, and not when tried again: " + first.detail);
      return settle(Outcome::kOk, second.detail);
    }
    if (first.outcome == Outcome::kSkipped && check_.outcome == Outcome::kOk)
      return settle(Outcome::kFailed, "worked before, now skipped: " + first.detail);
    return settle(first.outcome, first.detail);
  }

  void add(StepResult result) {
    take(result);
    settle(result.outcome, result.detail);
  }

  SuiteRun::Check end() {
    if (check_.outcome == Outcome::kSkipped && required_) {
      check_.outcome = Outcome::kFailed;
      check_.detail = "required, but skipped: " + check_.detail;
    }
    if (throttled_ != 0)
      warn(fmt::format("clocks were held back in {} of {} processes, whose times do not count", throttled_,
                       check_.processes));
    return std::move(check_);
  }

 private:
  StepResult process() {
    auto result = run_process(runner_, step_, options_, store_, limit_);
    take(result);
    return result;
  }

  void take(const StepResult& result) {
    check_.seconds += result.seconds;
    check_.fetched_bytes += result.fetched_bytes;
    check_.lazy = check_.lazy || result.lazy;
    if (result.throttled) ++throttled_;
    for (const auto& warning : result.warnings) warn(warning);
    ++check_.processes;
    run_.results.push_back(result);
  }

  void warn(std::string text) {
    if (!named(check_.warnings, text)) check_.warnings.push_back(std::move(text));
  }

  bool settle(Outcome outcome, const std::string& detail) {
    check_.outcome = outcome;
    check_.detail = detail;
    return outcome == Outcome::kOk;
  }

  StepRunner& runner_;
  const SuiteOptions& options_;
  const StepInfo& step_;
  Store store_;
  SuiteRun& run_;
  SuiteRun::Check check_;
  std::chrono::seconds limit_{0};
  bool required_ = false;
  std::size_t throttled_ = 0;
};

// The steps of one place, driver first: what comes of it decides about the others.
class Suite {
 public:
  using Each = std::function<void(const SuiteRun::Check&)>;
  Suite(StepRunner& runner, const SuiteOptions& options, const CancelFlag& cancel, Each each)
      : runner_(runner), options_(options), cancel_(cancel), each_(std::move(each)) {}

  bool wanted(const StepInfo& step) const {
    return step.name == "driver" || options_.only.empty() || named(options_.only, step.name);
  }

  void manifest(const StepInfo& step) {
    StepRun one(runner_, options_, step, Store::kWarm, run_);
    one.add(runner_.manifest());
    keep(one.end());
  }

  void step(const StepInfo& step, Store store, std::uint32_t repetitions) {
    StepRun one(runner_, options_, step, store, run_);
    if (driver_failed_) {
      one.add(skipped(step.name, "not run: the driver step failed"));
      return keep(one.end());
    }
    for (std::uint32_t i = 0; i < repetitions; ++i) {
      cancel_.throw_if_cancelled();
      if (!one.repeat()) break;
    }
    auto check = one.end();
    if (step.name == "driver") see_driver(check);
    if (!run_.no_gpu) keep(std::move(check));
  }

  const SuiteRun& run() const { return run_; }
  SuiteRun take() {
    for (const auto& result : run_.results) {
      take_fact(result, "gpu", run_.machine.gpu);
      take_fact(result, "driver", run_.machine.driver);
    }
    return std::move(run_);
  }

 private:
  // A machine without a GPU is nobody's failure, unless somebody required the step.
  void see_driver(const SuiteRun::Check& check) {
    driver_failed_ = check.outcome == Outcome::kFailed;
    if (check.outcome != Outcome::kSkipped) return;
    run_.no_gpu = true;
    run_.no_gpu_reason = check.detail;
  }

  void keep(SuiteRun::Check check) {
    run_.checks.push_back(std::move(check));
    if (each_) each_(run_.checks.back());
  }

  static void take_fact(const StepResult& result, const char* name, std::string& into) {
    const auto found = result.facts.find(name);
    if (into.empty() && found != result.facts.end()) into = found->second;
  }

  StepRunner& runner_;
  const SuiteOptions& options_;
  const CancelFlag& cancel_;
  Each each_;
  SuiteRun run_;
  bool driver_failed_ = false;
};

std::uint32_t repetitions_of(const StepInfo& step, const SuiteOptions& options) {
  return step.repeated ? std::max<std::uint32_t>(options.repetitions, 1) : 1;
}

const Metric* find_metric(const StepResult& result, const Metric& like) {
  const auto found = std::ranges::find_if(
      result.metrics, [&](const Metric& metric) { return metric.name == like.name && metric.kind == like.kind; });
  return found == result.metrics.end() ? nullptr : &*found;
}

void take_pair(const StepResult& a, const StepResult& b, std::vector<PairedMetric>& metrics) {
  if (a.outcome != Outcome::kOk || b.outcome != Outcome::kOk || a.throttled || b.throttled) return;
  for (const auto& metric : a.metrics) {
    const auto* other = find_metric(b, metric);
    if (other == nullptr) continue;
    auto of = std::ranges::find_if(
        metrics, [&](const PairedMetric& known) { return known.name == metric.name && known.kind == metric.kind; });
    if (of == metrics.end())
      of = metrics.insert(of, PairedMetric{.name = metric.name, .kind = metric.kind, .seconds = {}});
    of->seconds.emplace_back(metric.seconds, other->seconds);
  }
}

}  // namespace

const std::vector<StepInfo>& steps() {
  using std::chrono::seconds;
  static const std::vector<StepInfo> all = {
      {.name = "manifest",
       .what = "the image's CUDA files are those of --manifest: paths, digests, loader resolution, configuration",
       .limit = seconds(600)},
      {.name = "driver", .what = "the driver's libraries open, and there is a GPU", .limit = seconds(60)},
      {.name = "libraries",
       .what = "every CUDA library of the image opens with all its symbols bound",
       .limit = seconds(300),
       .repeated = true,
       .cold = true},
      {.name = "compile",
       .what = "NVRTC compiles a kernel to a cubin",
       .limit = seconds(120),
       .repeated = true,
       .cold = true},
      {.name = "device",
       .what = "the devices, their clocks, ECC counters, throttling and Xid events",
       .limit = seconds(60)},
      {.name = "memory",
       .what = "256 MB to the device, on it and back, compared",
       .limit = seconds(120),
       .repeated = true},
      {.name = "kernel",
       .what = "the first kernel of a fresh process, from PTX, without a cache of compiled code",
       .limit = seconds(120),
       .repeated = true,
       .cold = true},
      {.name = "gemm",
       .what = "cuBLAS sgemm: first call, steady, residual",
       .limit = seconds(300),
       .repeated = true,
       .cold = true},
      {.name = "convolution",
       .what = "cuDNN convolution: first call, steady, residual",
       .limit = seconds(300),
       .repeated = true,
       .cold = true},
      {.name = "fft", .what = "cuFFT there and back", .limit = seconds(120), .repeated = true},
      {.name = "solve", .what = "cuSOLVER getrf and getrs", .limit = seconds(180), .repeated = true},
      {.name = "sparse", .what = "cuSPARSE matrix times vector", .limit = seconds(180), .repeated = true},
      {.name = "random", .what = "cuRAND: mean and variance of what it gives", .limit = seconds(120), .repeated = true},
      {.name = "nccl",
       .what = "NCCL all-reduce on every set of devices, beginning with one",
       .limit = seconds(300),
       .repeated = true},
      {.name = "torch",
       .what = "PyTorch: import, a GPU is listed, one training step against the CPU's",
       .limit = seconds(600),
       .python = true,
       .repeated = true,
       .cold = true},
      {.name = "tensorflow",
       .what = "TensorFlow: import, a GPU is listed, one step compiled by XLA against the CPU's",
       .limit = seconds(900),
       .python = true,
       .repeated = true,
       .cold = true},
      {.name = "jax",
       .what = "JAX: import, a GPU is listed, one compiled step against the CPU's",
       .limit = seconds(600),
       .python = true,
       .repeated = true,
       .cold = true},
      {.name = "cupy",
       .what = "CuPy: import, one step against the CPU's",
       .limit = seconds(600),
       .python = true,
       .repeated = true,
       .cold = true},
      {.name = "pycuda",
       .what = "PyCUDA: import, a kernel compiled by nvcc against the CPU's result",
       .limit = seconds(300),
       .python = true,
       .repeated = true},
  };
  return all;
}

void check_steps(const SuiteOptions& options) {
  check_names(options.only);
  check_names(options.required);
  for (const auto& [step, size] : options.sizes) check_names({step});
}

bool SuiteRun::all_good() const {
  return std::ranges::none_of(checks, [](const Check& check) { return check.outcome == Outcome::kFailed; });
}

SuiteRun run_suite(StepRunner& runner, const SuiteOptions& options, const CancelFlag& cancel,
                   const std::function<void(const SuiteRun::Check&)>& each) {
  check_steps(options);
  Suite suite(runner, options, cancel, each);
  for (const auto& step : steps()) {
    cancel.throw_if_cancelled();
    if (suite.run().no_gpu) break;
    if (!suite.wanted(step)) continue;
    if (step.name == "manifest") {
      suite.manifest(step);
      continue;
    }
    suite.step(step, Store::kWarm, repetitions_of(step, options));
    if (options.cold && step.cold) suite.step(step, Store::kCold, 1);
  }
  return suite.take();
}

PairedRun run_pairs(StepRunner& a, StepRunner& b, std::uint32_t pairs, const SuiteOptions& options,
                    const CancelFlag& cancel, const std::function<void(const std::string& step)>& each) {
  check_steps(options);
  PairedRun run;
  const std::array<SuiteRun*, 2> sides = {&run.a, &run.b};
  Suite suite_a(a, options, cancel, {}), suite_b(b, options, cancel, {});
  for (const auto& step : steps()) {
    if (step.name == "driver") {
      suite_a.step(step, Store::kWarm, 1);
      suite_b.step(step, Store::kWarm, 1);
      run.a = suite_a.take(), run.b = suite_b.take();
      if (run.a.no_gpu || run.b.no_gpu || !run.a.all_good() || !run.b.all_good()) return run;
      continue;
    }
    if (!step.repeated || !suite_a.wanted(step)) continue;
    if (each) each(step.name);
    std::array<StepRun, 2> both = {StepRun(a, options, step, Store::kWarm, run.a),
                                   StepRun(b, options, step, Store::kWarm, run.b)};
    for (std::uint32_t pair = 0; pair < pairs; ++pair) {
      cancel.throw_if_cancelled();
      bool go_on = true;
      for (const std::size_t turn : {0, 1}) go_on = both[(turn + pair) % 2].repeat() && go_on;
      if (!go_on) break;
      take_pair(run.a.results.back(), run.b.results.back(), run.metrics);
    }
    for (const std::size_t side : {0, 1}) sides[side]->checks.push_back(both[side].end());
  }
  return run;
}

}  // namespace varve::gpu
