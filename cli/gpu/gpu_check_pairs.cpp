#include "cli/gpu/gpu_check_pairs.h"

#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/text.h"
#include "core/base/text/safe_text.h"
#include "gpu/judge.h"
#include "gpu/probe_output.h"
#include "gpu/report.h"
#include "gpu/text.h"

namespace varve::cli {
namespace {

using nlohmann::json;

constexpr int kFindings = 3;
constexpr int kSkipped = 77;
constexpr std::uint64_t kSeed = 1;  // the same pairs give the same interval

struct Compared {
  const gpu::PairedMetric* metric;
  gpu::Comparison comparison;
  double a = 0, b = 0;  // medians
};

std::vector<Compared> compare_all(const gpu::PairedRun& run) {
  std::vector<Compared> all;
  for (const auto& metric : run.metrics) {
    std::vector<double> a, b;
    for (const auto& [of_a, of_b] : metric.seconds) a.push_back(of_a), b.push_back(of_b);
    all.push_back({.metric = &metric,
                   .comparison = gpu::compare(metric.seconds, metric.kind, kSeed),
                   .a = gpu::median(a),
                   .b = gpu::median(b)});
  }
  return all;
}

std::string_view verdict_of(const gpu::Comparison& comparison) {
  using Verdict = gpu::Comparison::Verdict;
  return comparison.verdict == Verdict::kSlower      ? "slower"
         : comparison.verdict == Verdict::kNotSlower ? "not slower"
                                                     : "undecided";
}

json checks_json(const gpu::SuiteRun& run) {
  auto list = json::array();
  for (const auto& check : run.checks)
    list.push_back({{"name", check.step},
                    {"result", to_string(check.outcome)},
                    {"seconds", check.seconds},
                    {"detail", check.detail},
                    {"warnings", check.warnings}});
  return list;
}

void print_json(const Context& context, const GpuPairs& wanted, const gpu::PairedRun& run,
                const std::vector<Compared>& compared, bool good) {
  auto list = json::array();
  for (const auto& one : compared)
    list.push_back({{"metric", one.metric->name},
                    {"kind", to_string(one.metric->kind)},
                    {"pairs", one.metric->seconds.size()},
                    {"a", one.a},
                    {"b", one.b},
                    {"ratio", one.comparison.ratio},
                    {"low", one.comparison.low},
                    {"high", one.comparison.high},
                    {"tolerated", gpu::tolerated(one.metric->kind)},
                    {"verdict", verdict_of(one.comparison)}});
  context.print_json({{"a", wanted.name_a},
                      {"b", wanted.name_b},
                      {"gpu", run.a.machine.gpu},
                      {"driver", run.a.machine.driver},
                      {"ok", good},
                      {"comparisons", list},
                      {"checks", {{"a", checks_json(run.a)}, {"b", checks_json(run.b)}}}});
}

void print_failures(const Context& context, const std::string& name, const gpu::SuiteRun& run) {
  for (const auto& check : run.checks)
    if (check.outcome == gpu::Outcome::kFailed)
      context.out << fmt::format("{}: {} FAILED: {}\n", printable(name), check.step, printable(check.detail));
}

void print_text(const Context& context, const GpuPairs& wanted, const gpu::PairedRun& run,
                const std::vector<Compared>& compared) {
  std::vector<std::vector<std::string>> rows = {
      {"metric", "kind", "A", "B", "B / A", "95 %", "tolerated", "verdict", "pairs"}};
  for (const auto& one : compared)
    rows.push_back({one.metric->name, std::string(to_string(one.metric->kind)), gpu::time_text(one.a),
                    gpu::time_text(one.b), fmt::format("{:.3f}", one.comparison.ratio),
                    fmt::format("{:.3f} to {:.3f}", one.comparison.low, one.comparison.high),
                    fmt::format("{:.2f}", 1 + gpu::tolerated(one.metric->kind)),
                    std::string(verdict_of(one.comparison)), std::to_string(one.metric->seconds.size())});
  context.out << fmt::format("A {}\nB {}\non {} (driver {})\n\n", printable(wanted.name_a), printable(wanted.name_b),
                             printable(run.a.machine.gpu), printable(run.a.machine.driver));
  print_table(context.out, rows);
  print_failures(context, "A", run.a);
  print_failures(context, "B", run.b);
}

}  // namespace

int tell_no_gpu(const Context& context, const std::string& reason) {
  context.err << "varve: skipped: no GPU: " << printable(reason) << '\n';
  return kSkipped;
}

int check_pairs(const Context& context, const GpuPairs& wanted) {
  const auto a = make_step_runner(context, wanted.a), b = make_step_runner(context, wanted.b);
  const auto run = gpu::run_pairs(*a, *b, wanted.pairs, wanted.suite, context.cancel, [&](const std::string& step) {
    if (!context.global.quiet) context.err << fmt::format("{}: {} pairs\n", step, wanted.pairs);
  });
  if (run.a.no_gpu || run.b.no_gpu)
    return tell_no_gpu(context, run.a.no_gpu ? run.a.no_gpu_reason : run.b.no_gpu_reason);
  const auto compared = compare_all(run);
  const bool slower = std::ranges::any_of(
      compared, [](const Compared& one) { return one.comparison.verdict == gpu::Comparison::Verdict::kSlower; });
  const bool good = !slower && run.a.all_good() && run.b.all_good();
  if (context.global.json) {
    print_json(context, wanted, run, compared, good);
  } else {
    print_text(context, wanted, run, compared);
  }
  return good ? 0 : kFindings;
}

}  // namespace varve::cli
