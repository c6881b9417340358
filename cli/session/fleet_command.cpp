#include <algorithm>
#include <ostream>
#include <string>

#include <nlohmann/json.hpp>

#include "analyzer/fleet/pools.h"
#include "analyzer/fleet/simulate.h"
#include "cli/base/text.h"
#include "cli/command.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve::cli {
namespace {

using nlohmann::json;
constexpr std::uint64_t kMaxTraceBytes = 16u << 20;
constexpr std::size_t kBarWidth = 30;
constexpr std::size_t kHoursShown = 168;

struct FleetArguments {
  std::string arrivals;
  std::filesystem::path trace;
  fleet::Machines machines;
  double target_wait = 10;
  double percentile = 95;
  std::optional<std::uint32_t> warm;
  std::optional<std::uint32_t> fixed;
  double days = 200;
  std::uint64_t seed = 1;
};

fleet::Demand read_demand(const FleetArguments& arguments) {
  if (arguments.arrivals.empty() == arguments.trace.empty())
    fail<UsageError>("say how many sessions are asked for: either --arrivals or --trace");
  if (!arguments.arrivals.empty()) return fleet::parse_arrivals(arguments.arrivals);
  const auto bytes = read_file_if_there(arguments.trace, kMaxTraceBytes);
  if (!bytes) fail<NotFound>("{}: no such file", arguments.trace.string());
  return fleet::parse_trace(as_text(*bytes), arguments.trace.string());
}

fleet::Promise promise_of(const FleetArguments& arguments) {
  return {.seconds = arguments.target_wait, .share = arguments.percentile / 100};
}

json pool_json(const fleet::Pool& pool, const FleetArguments& arguments) {
  const auto& outcome = pool.outcome;
  return {{"pool", fleet::pool_kind_name(pool.kind)},
          {"machines", pool.machines},
          {"arrivals", outcome.arrivals},
          {"delayed", outcome.delayed},
          {"mean_wait_seconds", outcome.mean_wait},
          {"wait_seconds",
           {{"p50", outcome.p50},
            {"p90", outcome.p90},
            {"p95", outcome.p95},
            {"p99", outcome.p99},
            {"max", outcome.max_wait}}},
          {"target_met", promise_of(arguments).kept_by(outcome)},
          {"busy_machine_hours_a_day", outcome.busy_hours / arguments.days},
          {"idle_machine_hours_a_day", outcome.idle_hours / arguments.days},
          {"making_machine_hours_a_day", outcome.making_hours / arguments.days},
          {"cost_a_day", outcome.cost / arguments.days},
          {"hourly_p95_seconds", outcome.hourly_p95}};
}

std::string bar(double value, double most) {
  return std::string(most <= 0 ? 0 : std::size_t(value / most * double(kBarWidth) + 0.5), '#');
}

std::string range_of(const std::vector<std::uint32_t>& machines) {
  const auto [least, most] = std::ranges::minmax(machines);
  return least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most);
}

void print_pools(const Context& context, const FleetArguments& arguments, const fleet::Demand& demand,
                 const std::vector<fleet::Pool>& pools) {
  const auto busiest = *std::ranges::max_element(demand.arrivals_per_hour);
  context.out << fmt::format(
      "demand: {:.1f} sessions an hour on average, {:.1f} in the busiest; {} sessions simulated over {:g} days\n\n",
      demand.mean(), busiest, pools.front().outcome.arrivals, arguments.days);
  std::vector<std::vector<std::string>> rows{
      {"pool", "machines", "wait mean", "p50", "p95", "p99", "no machine ready", "idle h/day", "cost/day"}};
  for (const auto& pool : pools) {
    const auto& outcome = pool.outcome;
    const auto delayed = outcome.arrivals == 0 ? 0.0 : 100.0 * double(outcome.delayed) / double(outcome.arrivals);
    rows.push_back({std::string(fleet::pool_kind_name(pool.kind)), range_of(pool.machines),
                    fmt::format("{:.1f} s", outcome.mean_wait), fmt::format("{:.1f} s", outcome.p50),
                    fmt::format("{:.1f} s", outcome.p95), fmt::format("{:.1f} s", outcome.p99),
                    fmt::format("{:.2f} %", delayed), fmt::format("{:.1f}", outcome.idle_hours / arguments.days),
                    fmt::format("{:.2f}", outcome.cost / arguments.days)});
  }
  print_table(context.out, rows);
  const auto hours = demand.arrivals_per_hour.size();
  if (hours == 1 || hours > kHoursShown) return;
  const auto& shown = pools.back();
  context.out << "\n";
  std::vector<std::vector<std::string>> chart{{"hour", "sessions", "machines", "p95", "demand"}};
  for (std::size_t hour = 0; hour < hours; ++hour)
    chart.push_back({fmt::format("{:02}", hour), fmt::format("{:.1f}", demand.arrivals_per_hour[hour]),
                     fmt::format("{}", shown.machines[hour % shown.machines.size()]),
                     fmt::format("{:.1f} s", shown.outcome.hourly_p95[hour]),
                     bar(demand.arrivals_per_hour[hour], busiest)});
  print_table(context.out, chart);
}

void run_simulate(Context& context, const FleetArguments& arguments) {
  const auto demand = read_demand(arguments);
  const auto promise = promise_of(arguments);
  const auto pools =
      fleet::simulate_pools(demand, arguments.machines, promise, {.warm = arguments.warm, .fixed = arguments.fixed},
                            {.hours = arguments.days * 24, .seed = arguments.seed}, context.cancel);
  const auto met = std::ranges::all_of(pools, [&](const auto& pool) { return promise.kept_by(pool.outcome); });
  if (!met) context.exit_status = 3;
  if (!context.global.json) return print_pools(context, arguments, demand, pools);
  auto list = json::array();
  for (const auto& pool : pools) list.push_back(pool_json(pool, arguments));
  context.print_json({{"arrivals_per_hour", demand.arrivals_per_hour},
                      {"target_wait_seconds", arguments.target_wait},
                      {"percentile", arguments.percentile},
                      {"days", arguments.days},
                      {"seed", arguments.seed},
                      {"pools", std::move(list)}});
}

void add_simulate(CLI::App& group, Context& context) {
  const auto arguments = std::make_shared<FleetArguments>();
  auto* command = group.add_subcommand("simulate", "How many warm machines a pool needs so that people do not wait");
  const auto seconds = CLI::Range(0.0, 1e7);
  command
      ->add_option(
          "--arrivals", arguments->arrivals,
          "Sessions asked for in each hour, from midnight on: 24 numbers are a day, 168 a week, one is always the same")
      ->type_name("N,N,…");
  command
      ->add_option("--trace", arguments->trace, "The same from a CSV file: one hour a line, in the column \"arrivals\"")
      ->type_name("FILE");
  command->add_option("--target-wait", arguments->target_wait, "What a session may take to start")
      ->type_name("SECONDS")
      ->check(seconds)
      ->capture_default_str();
  command->add_option("--percentile", arguments->percentile, "For how many of a hundred people that must hold")
      ->check(CLI::Range(1.0, 99.999))
      ->capture_default_str();
  command
      ->add_option("--warm", arguments->warm,
                   "Judge a pool of so many warm machines instead of looking for the smallest")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000));
  command->add_option("--machines", arguments->fixed, "Judge a fixed fleet: machines that go from session to session")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option("--start-warm", arguments->machines.start_warm,
                   "A session on a machine that is ready; `ready_seconds` of `varve run --stats`")
      ->type_name("SECONDS")
      ->check(seconds)
      ->capture_default_str();
  command->add_option("--make-warm", arguments->machines.make_warm, "From ordering a machine until it is ready")
      ->type_name("SECONDS")
      ->check(seconds)
      ->capture_default_str();
  command->add_option("--session", arguments->machines.session, "Mean length of a session")
      ->type_name("SECONDS")
      ->check(seconds)
      ->capture_default_str();
  command->add_option("--reset", arguments->machines.reset, "Of a fixed fleet's machine between two sessions")
      ->type_name("SECONDS")
      ->check(seconds)
      ->capture_default_str();
  command->add_option("--cost", arguments->machines.cost_per_hour, "Of a machine an hour, in any currency")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  command->add_option("--days", arguments->days, "To simulate")
      ->check(CLI::Range(1.0, 36'600.0))
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "Of the arrivals; the same seed gives the same people")
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  varve fleet simulate --arrivals 42 --make-warm 240 --target-wait 5\n"
      "  varve fleet simulate --trace october.csv --percentile 99 --cost 0.95\n"
      "  varve fleet simulate --trace october.csv --machines 60\n\n"
      "Exit status 3 if a pool does not keep the target. docs/guide/warm-machines.md says how the pool works and "
      "what it is checked against.");
  command->callback([&context, arguments] { run_simulate(context, *arguments); });
}

}  // namespace

void add_fleet_command(CLI::App& app, Context& context) {
  auto* group = app.add_subcommand("fleet", "Machines for sessions: how many to keep warm");
  group->require_subcommand(1);
  group->footer("Example:\n  varve fleet simulate --arrivals 42 --target-wait 5");
  add_simulate(*group, context);
}

}  // namespace varve::cli
