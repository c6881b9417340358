#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/report/window.h"
#include "cli/usage/usage_command.h"
#include "cli/usage/usage_database.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/text/calendar.h"

namespace varve::cli {
namespace {

struct AgeArguments {
  std::string db, sessions = "30d", keep = "800d";
};

// Days of "30d", "12w" or "2y".
std::int32_t days_of(const char* option, const std::string& text) {
  if (text.find("..") != std::string::npos) fail<UsageError>("{} {}: a time is wanted: 30d, 12w or 2y", option, text);
  const auto window = report::parse_window(text, today_utc());
  return window.last - window.first + 1;
}

void run_age(Context& context, const AgeArguments& arguments) {
  const usage::Retention retention{.raw_days = days_of("--sessions", arguments.sessions),
                                   .aggregate_days = days_of("--keep", arguments.keep)};
  if (retention.aggregate_days < retention.raw_days)
    fail<UsageError>("--keep {}: shorter than --sessions {}; sessions are part of the counts of their day",
                     arguments.keep, arguments.sessions);
  const Stopwatch watch;
  const auto database = open_existing_database(context, arguments.db);
  const auto aged = database->age_out(retention, today_utc(), context.cancel);
  if (context.global.json) {
    context.print_json({{"aged_sessions", aged.sessions},
                        {"months_summed", aged.months_summed},
                        {"months_without_days", aged.months_without_days},
                        {"partitions_removed", aged.partitions},
                        {"seconds", watch.seconds()}});
    return;
  }
  context.out << fmt::format(
      "{} sessions are only counted from now on; {} months were summed up; of {} only the sums are left\n",
      aged.sessions, aged.months_summed, aged.months_without_days);
  if (aged.partitions != 0) context.out << fmt::format("{} partitions were removed\n", aged.partitions);
}

}  // namespace

void add_usage_age_command(CLI::App& usage, Context& context) {
  const auto arguments = std::make_shared<AgeArguments>();
  auto* command = usage.add_subcommand(
      "age", "Keeps the usage database small: old sessions become counts, old days become months; harmless to repeat");
  command->add_option("--db", arguments->db,
                      "The usage database: a file, or postgresql://...; usage.db under --root if none is given");
  command->add_option("--sessions", arguments->sessions, "How long single sessions are kept: Nd, Nw or Ny")
      ->type_name("TIME")
      ->capture_default_str();
  command
      ->add_option("--keep", arguments->keep,
                   "How long counts per day are kept; of months that ended before that, sums are: Nd, Nw or Ny")
      ->type_name("TIME")
      ->capture_default_str();
  command->footer(
      "It may run beside collectors and reports, and be ended at any time: the next one goes on.\n"
      "Examples:\n  varve usage age --db usage.db\n"
      "  varve usage age --db postgresql://usage@db/usage --sessions 14d --keep 400d --json");
  command->callback([&context, arguments] { run_age(context, *arguments); });
}

}  // namespace varve::cli
