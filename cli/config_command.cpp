#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/settings.h"
#include "cli/base/text.h"
#include "core/base/errors.h"
#include "core/base/text/safe_text.h"

namespace varve::cli {
namespace {

struct ConfigArguments {
  std::string key;
  bool markdown = false;
  bool example = false;
};

nlohmann::json value_json(const HeldSetting& held) {
  if (!held.value) return nullptr;
  if (held.is_flag && (*held.value == "true" || *held.value == "false")) return *held.value == "true";
  return *held.value;
}

nlohmann::json to_json(const std::vector<HeldSetting>& held) {
  auto rows = nlohmann::json::array();
  for (const auto& one : held) {
    auto place = one.place.empty() ? nlohmann::json() : nlohmann::json(one.place);
    rows.push_back({{"name", one.key}, {"value", value_json(one)}, {"from", one.from}, {"place", std::move(place)}});
  }
  return {{"settings", std::move(rows)}};
}

void print(std::ostream& out, const std::vector<HeldSetting>& held) {
  std::vector<std::vector<std::string>> rows{{"SETTING", "VALUE", "FROM"}};
  for (const auto& one : held)
    rows.push_back({one.key, one.value && !one.value->empty() ? printable(*one.value) : "-",
                    one.place.empty() ? std::string(one.from) : printable(one.place)});
  print_table(out, rows);
}

void run_config(const CLI::App& app, Context& context, const ConfigArguments& arguments) {
  if (!arguments.key.empty() && (arguments.markdown || arguments.example))
    throw UsageError("config: --markdown and --example are of all settings, without a KEY");
  if (arguments.markdown) {
    context.out << settings_page(app);
    return;
  }
  if (arguments.example) {
    context.out << settings_example(app);
    return;
  }
  const auto held = arguments.key.empty() ? held_settings(app, context.global)
                                          : std::vector{held_setting(app, context.global, arguments.key)};
  if (context.global.json) return context.print_json(to_json(held));
  if (arguments.key.empty()) return print(context.out, held);
  context.out << printable(held.front().value.value_or("")) << '\n';
}

}  // namespace

void add_config_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<ConfigArguments>();
  auto* command = app.add_subcommand("config", "Shows which settings hold, and from where");
  command->add_option("KEY", arguments->key, "Only the value of this one, e.g. daemon.store-size");
  command->add_flag("--example", arguments->example, "Print a varve.toml that has all settings as comments");
  command->add_flag("--markdown", arguments->markdown, "Print the page that describes them")->group("");
  command->footer(
      "Examples:\n"
      "  varve config\n"
      "  varve config daemon.store-size\n"
      "  varve config --example > ~/.config/varve/varve.toml\n\n"
      "Of /etc/varve/varve.toml, ~/.config/varve/varve.toml, the environment and the options of a command the later "
      "wins; VARVE_CONFIG\n"
      "names one file in place of both. A daemon that runs has the settings it was started with. KEY may be any "
      "option: COMMAND.OPTION.");
  command->callback([&app, &context, arguments] { run_config(app, context, *arguments); });
}

}  // namespace varve::cli
