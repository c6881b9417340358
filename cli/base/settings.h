#pragma once
// The settings that people write into varve.toml, as one table: of it are made `varve config`, its page
// (docs/guide/configuration.md) and the example file. Any other option of a command may stand in the file as well.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace varve::cli {

struct Setting {
  // "daemon.store-size": the key in the table [daemon], and the option --store-size of `varve daemon`, which knows
  // type, default and help.
  std::string_view key;
  std::string_view example;        // a value as TOML
  std::string_view variable = {};  // of the environment, which wins over the files
  std::string_view standard = {};  // the default, where the option does not say it
  std::string_view meaning = {};   // where no option has the key: [trust]
};

// In the order of the page, those of a table together. A line here adds one.
std::span<const Setting> settings();

// True for options that a file may set.
bool is_setting(const CLI::Option& option);
// Null if no option has the key.
CLI::Option* option_of(CLI::App& app, std::string_view key);
const CLI::Option* option_of(const CLI::App& app, std::string_view key);

// What holds now.
struct HeldSetting {
  std::string key;
  std::optional<std::string> value;  // as on a command line; absent where nothing is set and there is no default
  std::string_view from;             // "default" "environment" "file" "flag"
  std::string place;                 // "/etc/varve/varve.toml:3", "VARVE_ROOT", "--root"; "" of a default
  bool is_flag = false;              // the value is "true" or "false"
};

// Those of the table, and what else files set.
std::vector<HeldSetting> held_settings(const CLI::App& app, const GlobalOptions& global);
// Of any key. Throws UsageError for one that is none, with the nearest.
HeldSetting held_setting(const CLI::App& app, const GlobalOptions& global, const std::string& key);

// The page and the example file, the same on every machine if no file sets anything.
std::string settings_page(const CLI::App& app);
std::string settings_example(const CLI::App& app);

}  // namespace varve::cli
