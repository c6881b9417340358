#include "cli/gpu_simulation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/text.h"

namespace varve::cli {
namespace {

std::string per_thousand(std::uint64_t alarms, std::uint64_t hours) {
  return hours == 0 ? "-" : fmt::format("{:.1f}", 1000.0 * double(alarms) / double(hours));
}

std::string delays(const gpu::SimulatedRow& row) {
  if (row.shifts == 0) return "-";
  std::string text = row.delays.empty() ? "none"
                                        : fmt::format("{} / {} / {}", row.delays.front(),
                                                      row.delays[row.delays.size() / 2], row.delays.back());
  if (row.delays.size() < row.shifts)
    text += fmt::format(" ({} of {} not within a week)", row.shifts - row.delays.size(), row.shifts);
  return text;
}

}  // namespace

void print_simulation(const gpu::Simulation& simulation, std::ostream& out) {
  const auto& options = simulation.options;
  out << fmt::format(
      "{} series of {} hours a row, {:g} % outliers, seed {}; shifts of {:g} times what is tolerated\n\n",
      options.series, options.hours, options.outliers * 100, options.seed, options.shift);
  std::vector<std::vector<std::string>> rows{{"kind", "series", "samples", "noise", "hours", "false alarms",
                                              "mean+3s /1000h", "rank test /1000h",
                                              "found after hours (least / median / most)"}};
  for (const auto& row : simulation.rows)
    rows.push_back({std::string(to_string(row.kind)), std::string(shape_name(row.shape)),
                    std::to_string(row.repetitions), fmt::format("{:g} %", row.noise * 100), std::to_string(row.hours),
                    std::to_string(row.alarms), per_thousand(row.mean_alarms, row.hours),
                    per_thousand(row.rank_alarms, row.hours), delays(row)});
  print_table(out, rows);
  out << (simulation.holds()
              ? "\nholds: no false alarm, and every shift found in time (busy hours and rows of one sample are not promised)\n"
              : "\ndoes not hold: a false alarm, or a shift that was found too late\n");
}

nlohmann::json simulation_json(const gpu::Simulation& simulation) {
  const auto& options = simulation.options;
  auto rows = nlohmann::json::array();
  for (const auto& row : simulation.rows)
    rows.push_back({{"kind", to_string(row.kind)},
                    {"series", shape_name(row.shape)},
                    {"repetitions", row.repetitions},
                    {"noise", row.noise},
                    {"hours", row.hours},
                    {"false_alarms", row.alarms},
                    {"suspicious_hours", row.suspicious},
                    {"mean_rule_alarms", row.mean_alarms},
                    {"rank_rule_alarms", row.rank_alarms},
                    {"shifts", row.shifts},
                    {"delays_hours", row.delays}});
  return {{"seed", options.seed},
          {"hours", options.hours},
          {"series", options.series},
          {"outliers", options.outliers},
          {"shift", options.shift},
          {"holds", simulation.holds()},
          {"rows", rows}};
}

}  // namespace varve::cli
