// What the rules of GPU alarms are worth: false alarms and delays on made-up histories, as a table. Exit status 3 where
// they do not hold what docs/design/gpu-alarms.md promises.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "bench/gpu_alarms/simulate.h"

namespace varve::gpu {
namespace {

std::string per_thousand(std::uint64_t alarms, std::uint64_t hours) {
  return hours == 0 ? "-" : fmt::format("{:.1f}", 1000.0 * double(alarms) / double(hours));
}

std::string delays(const SimulatedRow& row) {
  if (row.shifts == 0) return "-";
  auto text = row.delays.empty() ? "none"
                                 : fmt::format("{} / {} / {}", row.delays.front(), row.delays[row.delays.size() / 2],
                                               row.delays.back());
  if (row.delays.size() < row.shifts)
    text += fmt::format(" ({} of {} not within a week)", row.shifts - row.delays.size(), row.shifts);
  return text;
}

void print(const Simulation& simulation) {
  const auto& options = simulation.options;
  fmt::print("{} series of {} hours a row, {:g} % outliers, seed {}; shifts of {:g} times what is tolerated\n\n",
             options.series, options.hours, options.outliers * 100, options.seed, options.shift);
  constexpr auto kRow = "{:<11} {:<11} {:>7} {:>6} {:>7} {:>12} {:>14} {:>16}  {}\n";
  fmt::print(kRow, "kind", "series", "samples", "noise", "hours", "false alarms", "mean+3s /1000h", "rank test /1000h",
             "found after hours (least / median / most)");
  for (const auto& row : simulation.rows)
    fmt::print(kRow, to_string(row.kind), shape_name(row.shape), row.repetitions,
               fmt::format("{:g} %", row.noise * 100), row.hours, row.alarms, per_thousand(row.mean_alarms, row.hours),
               per_thousand(row.rank_alarms, row.hours), delays(row));
  fmt::print("\n{}\n", simulation.holds()
                           ? "holds: no false alarm, and every shift found in time (busy hours and rows of one sample "
                             "are not promised)"
                           : "does not hold: a false alarm, or a shift that was found too late");
}

}  // namespace
}  // namespace varve::gpu

int main(int argc, char** argv) {
  varve::gpu::SimulationOptions options;
  CLI::App app("Alarms on made-up GPU histories");
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--hours", options.hours, "Of every series")->capture_default_str();
  app.add_option("--series", options.series, "Of every row")->capture_default_str();
  app.add_option("--shifts", options.shifts, "Slowdowns of every row")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto simulation = varve::gpu::simulate(options);
  varve::gpu::print(simulation);
  return simulation.holds() ? 0 : 3;
}
