#include <memory>

#include <nlohmann/json.hpp>

#include "analyzer/report/report.h"
#include "analyzer/report/window.h"
#include "cli/usage/usage_command.h"
#include "cli/usage/usage_database.h"
#include "core/base/text/calendar.h"

namespace varve::cli {
namespace {

struct ExplainArguments {
  std::string name, database, image, window = "2y";
};

void run_explain(Context& context, const ExplainArguments& arguments) {
  usage::SnapshotQuery query{.window = report::parse_window(arguments.window, today_utc()), .image = std::nullopt};
  const auto database = open_existing_database(context, arguments.database);
  if (!arguments.image.empty()) query.image = find_image(context, *database, arguments.image, query.window);
  const auto explanation = database->explain(arguments.name, query);
  if (context.global.json) return context.print_json(report::explanation_json(explanation));
  report::write_explanation(explanation, context.out);
}

}  // namespace

void add_usage_explain_command(CLI::App& usage, Context& context) {
  const auto arguments = std::make_shared<ExplainArguments>();
  auto* command = usage.add_subcommand("explain", "Every piece of evidence about one distribution or import name");
  command
      ->add_option("NAME", arguments->name,
                   "A distribution (beautifulsoup4) or what code imports (bs4, google.cloud.storage)")
      ->required();
  command->add_option("--db", arguments->database,
                      "The usage database: a file, or postgresql://...; usage.db under --root if none is given");
  command->add_option("--image", arguments->image, "Only this image: its label, digest or reference");
  command->add_option("--window", arguments->window, "The time looked at: Nd, Nw, Ny or FROM..TO")
      ->capture_default_str();
  command->footer(
      "Examples:\n  varve usage explain bs4 --db usage.db\n  varve usage explain google.cloud.storage --db usage.db "
      "--json");
  command->callback([&context, arguments] { run_explain(context, *arguments); });
}

}  // namespace varve::cli
