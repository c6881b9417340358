#include "cli/base/config.h"

#include <cstdlib>

#include <CLI/Error.hpp>

#include "cli/base/settings.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/nearest.h"
#include "core/base/text/strings.h"
#include "core/base/text/toml.h"
#include "core/trust/read_settings.h"

namespace varve::cli {
namespace {

constexpr std::uint64_t kMaxConfigFileBytes = 1 << 20;
constexpr std::string_view kTrustTable = "trust";  // also a command, which takes its defaults from nowhere
constexpr std::string_view kMirrorTables = "mirror";

// The command whose help lists the options of `app`.
std::string spoken(const CLI::App& app) {
  return app.get_parent() == nullptr ? "varve" : spoken(*app.get_parent()) + " " + app.get_name();
}

std::vector<std::string> keys_of(const CLI::App& app) {
  std::vector<std::string> keys;
  for (const auto* option :
       app.get_options([](const CLI::Option* one) { return is_setting(*one) && !one->get_group().empty(); }))
    for (const auto& name : option->get_lnames()) keys.push_back(name);
  return keys;
}

std::vector<std::string> tables_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (app.get_parent() == nullptr) names.insert(names.end(), {std::string(kTrustTable), std::string(kMirrorTables)});
  return names;
}

void set_default(CLI::Option& option, const std::vector<std::string>& values, const std::string& place) try {
  option.run_callback_for_default();
  if (values.size() == 1) {
    option.default_val(values.front());
  } else {
    option.default_val(values);
  }
} catch (const CLI::Error& error) {
  fail<UsageError>("{}: {}", place, error.what());
}

// Reads one file.
class ConfigFile {
 public:
  ConfigFile(std::string name, GlobalOptions& global) : name_(std::move(name)), global_(global) {}

  void apply(CLI::App& app, const TomlValue& table, const std::string& prefix) {
    for (const auto& [key, value] : table.table) {
      if (value.kind == TomlValue::Kind::kTable) {
        apply(command(app, key, value), value, prefix + key + ".");
      } else {
        set(app, key, value, prefix);
      }
    }
  }

  void apply_trust(const TomlValue& table) {
    if (table.kind != TomlValue::Kind::kTable)
      fail<CorruptData>("{}: 'trust' must be a table: [trust]", toml_place(name_, table));
    trust::read_trust_settings(table, name_, global_.trust);
    for (const auto& [key, value] : table.table) note(fmt::format("{}.{}", kTrustTable, key), shown(value), value);
  }

  // A later file's tables take the place of an earlier one's.
  void apply_mirrors(const TomlValue& root, const TomlValue& tables) {
    auto& rules = global_.registry.mirrors.rules;
    rules.clear();
    std::vector<std::string> prefixes;
    for (const auto* table : toml_tables(root, kMirrorTables, name_)) {
      rules.push_back(mirror_of(*table));
      prefixes.push_back(rules.back().prefix + " -> " + joined(rules.back().locations));
    }
    note(std::string(kMirrorTables), joined(prefixes, "; "), tables);
  }

 private:
  oci::MirrorRule mirror_of(const TomlValue& table) const {
    toml_only_keys(table, {"prefix", "location", "resolve", "upstream"}, name_);
    oci::MirrorRule rule;
    rule.place = toml_place(name_, table);
    rule.prefix = toml_string(table, "prefix", name_, true);
    rule.locations = toml_strings(table, "location", name_, true);
    rule.resolve = toml_flag(table, "resolve", name_, false);
    rule.upstream = toml_flag(table, "upstream", name_, true);
    while (rule.prefix.ends_with('/')) rule.prefix.pop_back();
    if (rule.prefix.empty() || rule.prefix.find("://") != rule.prefix.npos)
      fail<CorruptData>("{}: prefix must be HOST[:PORT][/PATH], as images are named", rule.place);
    if (rule.locations.empty()) fail<CorruptData>("{}: a mirror without location", rule.place);
    for (auto& location : rule.locations) {
      const auto scheme = location.find("://");
      const auto at = scheme == location.npos ? 0 : scheme + 3;
      while (location.ends_with('/') && location.size() > at) location.pop_back();
      const bool known = scheme == location.npos || location.starts_with("http://") || location.starts_with("https://");
      if (!known || location.size() == at)
        fail<CorruptData>("{}: '{:.200}' is no [http[s]://]HOST[:PORT][/PATH]", rule.place, location);
    }
    if (!rule.upstream && !rule.resolve)
      fail<CorruptData>("{}: upstream = false needs resolve = true: nobody else could say what a tag names",
                        rule.place);
    return rule;
  }

  CLI::App& command(CLI::App& app, const std::string& name, const TomlValue& value) const {
    const auto found = app.get_subcommands([&](const CLI::App* one) { return one->get_name() == name; });
    if (found.empty())
      fail<UsageError>("{}: there is no command '{}'{}", toml_place(name_, value), name,
                       did_you_mean(name, tables_of(app), 1));
    return *found.front();
  }

  void set(CLI::App& app, const std::string& key, const TomlValue& value, const std::string& prefix) {
    auto* option = app.get_option_no_throw("--" + key);
    if (option == nullptr || !is_setting(*option))
      fail<UsageError>("{}: '{}' is no option of `{}`{}", toml_place(name_, value), key, spoken(app),
                       did_you_mean(key, keys_of(app), 1));
    std::vector<std::string> values;
    if (value.kind == TomlValue::Kind::kArray) {
      for (const auto& element : value.array) values.push_back(element.scalar_text(name_, key));
    } else {
      values.push_back(value.scalar_text(name_, key));
    }
    set_default(*option, values, toml_place(name_, value));
    note(prefix + option->get_lnames().front(), joined(values), value);
  }

  // For people: the rules themselves are read in core/trust.
  static std::string shown(const TomlValue& value) {
    if (value.kind == TomlValue::Kind::kTable) {
      const auto* prefix = value.find("prefix");
      return prefix == nullptr ? "{}" : prefix->text;
    }
    if (value.kind != TomlValue::Kind::kArray) return value.scalar_text("", "");
    std::vector<std::string> parts;
    for (const auto& element : value.array) parts.push_back(shown(element));
    return joined(parts);
  }

  void note(const std::string& key, std::string text, const TomlValue& value) {
    global_.set_by[key] = {.value = std::move(text), .place = toml_place(name_, value), .from_file = true};
  }

  const std::string name_;
  GlobalOptions& global_;
};

std::optional<std::filesystem::path> usual_root(const Environment& environment, bool is_root) {
  if (is_root) return "/var/lib/varve";
  if (const auto data = environment("XDG_DATA_HOME"); data && data->front() == '/')
    return std::filesystem::path(*data) / "varve";
  if (const auto home = environment("HOME")) return std::filesystem::absolute(*home) / ".local/share/varve";
  return std::nullopt;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

std::filesystem::path default_root(const Environment& environment, bool is_root) {
  if (const auto root = usual_root(environment, is_root)) return *root;
  throw UsageError("neither HOME nor VARVE_ROOT is set: say where the state lives with --root DIR");
}

std::filesystem::path default_run_dir(const Environment& environment, bool is_root, const std::filesystem::path& root) {
  if (root != usual_root(environment, is_root)) return root / "run";
  if (is_root) return "/run/varve";
  if (const auto runtime = environment("XDG_RUNTIME_DIR")) return std::filesystem::path(*runtime) / "varve";
  return root / "run";
}

std::vector<std::filesystem::path> config_files(const Environment& environment) {
  if (const auto only = environment("VARVE_CONFIG")) {
    std::error_code error;
    if (!std::filesystem::exists(*only, error))
      fail<UsageError>("VARVE_CONFIG: {}: {}; unset it, or make the file", *only,
                       error ? error.message() : "there is no such file");
    return {*only};
  }
  std::vector<std::filesystem::path> files = {"/etc/varve/varve.toml"};
  if (const auto config = environment("XDG_CONFIG_HOME"); config && config->front() == '/') {
    files.push_back(std::filesystem::path(*config) / "varve/varve.toml");
  } else if (const auto home = environment("HOME")) {
    files.push_back(std::filesystem::path(*home) / ".config/varve/varve.toml");
  }
  return files;
}

void apply_config_file(const std::filesystem::path& path, CLI::App& app, GlobalOptions& global, const AddNamed& add) {
  const auto bytes = read_file_if_there(path, kMaxConfigFileBytes);
  if (!bytes) return;
  try {
    auto root = parse_toml(as_text(*bytes), path.string());
    ConfigFile file(path.string(), global);
    if (const auto* table = root.find(kTrustTable)) {
      file.apply_trust(*table);
      root.table.erase(std::string(kTrustTable));
    }
    if (const auto* tables = root.find(kMirrorTables)) {
      file.apply_mirrors(root, *tables);
      root.table.erase(std::string(kMirrorTables));
    }
    for (const auto& [key, value] : root.table)
      if (value.kind == TomlValue::Kind::kTable) add(key);
    file.apply(app, root, "");
  } catch (const CorruptData& error) {
    throw UsageError(error.what());
  }
}

void apply_environment(const Environment& environment, CLI::App& app, GlobalOptions& global) {
  for (const auto& setting : settings()) {
    if (setting.variable.empty()) continue;
    const auto value = environment(std::string(setting.variable));
    if (!value) continue;
    set_default(*option_of(app, setting.key), {*value}, std::string(setting.variable));
    global.set_by[std::string(setting.key)] = {.value = *value, .place = std::string(setting.variable)};
  }
}

}  // namespace varve::cli
