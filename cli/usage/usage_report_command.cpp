#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "analyzer/report/report.h"
#include "analyzer/report/window.h"
#include "cli/usage/usage_command.h"
#include "cli/usage/usage_database.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/calendar.h"
#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

using report::SortBy;

struct ReportArguments {
  std::string database, image, window = "90d";
  std::string html, csv, sort = "sessions", sources;
  bool all = false;
  std::uint64_t min_sessions = report::ReportOptions{}.min_sessions;
  report::TableOptions table;
};

const std::map<std::string, SortBy> kSorts{{"sessions", SortBy::kSessions},  {"users", SortBy::kUsers},
                                           {"direct", SortBy::kDirect},      {"transitive", SortBy::kTransitive},
                                           {"bytes", SortBy::kBytes},        {"trend", SortBy::kTrend},
                                           {"last-used", SortBy::kLastUsed}, {"bound", SortBy::kBound},
                                           {"could-go", SortBy::kCouldGo},   {"name", SortBy::kName}};

constexpr std::array kSources{"pip", "conda", "dpkg"};

std::set<std::string> parse_sources(const std::string& text) {
  std::set<std::string> sources;
  for (const auto& word : split(text, ",")) {
    if (word == "all")
      sources.insert(kSources.begin(), kSources.end());
    else if (std::find(kSources.begin(), kSources.end(), word) != kSources.end())
      sources.emplace(word);
    else
      fail<UsageError>("--source {}: '{}' is no source of packages; name pip, conda, dpkg, or all", text, word);
  }
  return sources;
}

void write_file(const Context& context, const std::string& path, const std::function<void(std::ostream&)>& write) {
  if (path.empty()) return;
  std::ostringstream text;
  write(text);
  const auto content = std::move(text).str();
  write_file_atomically(path, as_bytes(content));
  if (!context.global.json) context.out << "written: " << path << '\n';
}

void run_report(Context& context, const ReportArguments& arguments) {
  auto table = arguments.table;
  table.sort = kSorts.at(arguments.sort);
  if (arguments.all) table.limit = 0;
  if (!arguments.sources.empty()) table.sources = parse_sources(arguments.sources);
  const auto today = today_utc();
  usage::SnapshotQuery query{.window = report::parse_window(arguments.window, today), .image = std::nullopt};
  const auto database = open_existing_database(context, arguments.database);
  if (!arguments.image.empty()) query.image = find_image(context, *database, arguments.image, query.window);
  const auto made =
      report::make_report(database->snapshot(query), {.today = today, .min_sessions = arguments.min_sessions});
  context.cancel.throw_if_cancelled();
  const bool into_files = !arguments.html.empty() || !arguments.csv.empty();
  if (context.global.json) {
    context.print_json(report::report_json(made, table));
  } else if (into_files) {
    report::write_summary(made, context.out);
  } else {
    report::write_table(made, context.out, table);
  }
  write_file(context, arguments.html, [&](std::ostream& out) { report::write_html(made, out); });
  write_file(context, arguments.csv, [&](std::ostream& out) { report::write_csv(made, out, table); });
}

}  // namespace

void add_usage_report_command(CLI::App& usage, Context& context) {
  const auto arguments = std::make_shared<ReportArguments>();
  auto* command = usage.add_subcommand(
      "report", "Who uses what, what nobody uses and what it weighs, as a table, JSON, CSV or one HTML page");
  command->add_option("--db", arguments->database,
                      "The usage database: a file, or postgresql://...; usage.db under --root if none is given");
  command->add_option("--image", arguments->image, "Only this image: its label, digest or reference");
  command->add_option("--window", arguments->window, "The time looked at: Nd, Nw, Ny or FROM..TO")
      ->capture_default_str();
  command->add_option("--html", arguments->html, "Write the report as one page that needs no network")
      ->type_name("FILE");
  command->add_option("--csv", arguments->csv, "Write one record per distribution")->type_name("FILE");
  const CLI::Validator known(
      [](std::string& word) { return kSorts.contains(word) ? "" : word + ": nothing to sort by"; }, "BY");
  command
      ->add_option("--sort", arguments->sort,
                   "sessions, users, direct, transitive, bytes, trend, last-used, bound, could-go or name")
      ->check(known)
      ->type_name("")
      ->capture_default_str();
  command->add_flag("--unused", arguments->table.unused_only,
                    "Only what nobody used, most bytes first, and what it stays for");
  command->add_flag("--could-go", arguments->table.could_go_only, "Only what nobody used and nothing that stays needs");
  command
      ->add_option("--source", arguments->sources,
                   "Only what came by these, in one table: pip, conda, dpkg (the operating system), or all")
      ->type_name("LIST");
  command->add_option("--limit", arguments->table.limit, "Rows of the table; 0 for all")
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--all", arguments->all, "All rows");
  command
      ->add_option("--min-sessions", arguments->min_sessions,
                   "Count, but do not name, what no image has and fewer sessions used")
      ->capture_default_str()
      ->type_name("K");
  command->footer(
      "--unused, --could-go and --source also choose the packages of --json and --csv; the page has all, and filters "
      "of its own.\n"
      "Examples:\n  varve usage report --db usage.db --unused\n  varve usage report --could-go --source pip,conda\n  "
      "varve usage report --db usage.db --window 1y --image "
      "v143 --html report.html");
  command->callback([&context, arguments] { run_report(context, *arguments); });
}

}  // namespace varve::cli
