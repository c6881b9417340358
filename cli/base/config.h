#pragma once
// Where defaults come from: the environment and varve.toml. Flags win over the environment, the environment over the
// files.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>

#include "cli/command.h"

namespace varve::cli {

// Looks up one variable; absent if unset or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// The state folder of this user where no setting names one: /var/lib/varve as root, else ~/.local/share/varve
// ($XDG_DATA_HOME is honoured).
std::filesystem::path default_root(const Environment& environment, bool is_root);
// The folder of sockets that belongs to `root`: /run/varve or $XDG_RUNTIME_DIR/varve for the default root, ROOT/run
// otherwise, so that daemons with different roots never meet.
std::filesystem::path default_run_dir(const Environment& environment, bool is_root, const std::filesystem::path& root);

// The files to read, weakest first: /etc/varve/varve.toml, ~/.config/varve/varve.toml, which need not exist;
// $VARVE_CONFIG replaces both. Throws UsageError if that names no file.
std::vector<std::filesystem::path> config_files(const Environment& environment);

// Has the command of that name added to the program, if it is not there yet; all, if there is no such command.
using AddNamed = std::function<void(std::string_view command)>;

// Makes the values of one TOML file the defaults of the options of `app`: `platform = "linux/arm64"` at the top is
// --platform, and the key `store-size` in the table [daemon] is --store-size of that command. Values are strings,
// integers, booleans, or arrays of them. The table [trust] is no command's: it says which indexes are believed
// (core/trust/read_settings.h). What was set is noted in `global.set_by`. Does nothing if there is no such file. Throws
// UsageError naming file and line for a key that is no option, with the nearest, or a value it does not take.
void apply_config_file(const std::filesystem::path& path, CLI::App& app, GlobalOptions& global, const AddNamed& add);

// The same for the variables that settings (settings.h) are read from: all are of the program itself, none of a
// command.
void apply_environment(const Environment& environment, CLI::App& app, GlobalOptions& global);

}  // namespace varve::cli
