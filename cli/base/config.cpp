#include "cli/base/config.h"

#include <cstdlib>

#include <CLI/Error.hpp>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/toml.h"
#include "core/trust/read_settings.h"

namespace varve::cli {
namespace {

constexpr std::uint64_t kMaxConfigFileBytes = 1 << 20;
constexpr std::string_view kTrustTable = "trust";  // also a command, which takes its defaults from nowhere

void set_default(const std::string& file, CLI::App& app, const std::string& key, const TomlValue& value) {
  auto* option = app.get_option_no_throw("--" + key);
  if (option == nullptr || key == "help" || key == "version" || key == "config")
    fail<UsageError>("{}: '{}' is no option of `varve{}{}`", toml_place(file, value), key, app.get_parent() ? " " : "",
                     app.get_parent() ? app.get_name() : "");
  std::vector<std::string> values;
  if (value.kind == TomlValue::Kind::kArray) {
    for (const auto& element : value.array) values.push_back(element.scalar_text(file, key));
  } else {
    values.push_back(value.scalar_text(file, key));
  }
  try {
    option->run_callback_for_default();
    if (values.size() == 1) {
      option->default_val(values.front());
    } else {
      option->default_val(values);
    }
  } catch (const CLI::Error& error) {
    fail<UsageError>("{}: {}", toml_place(file, value), error.what());
  }
}

void apply_table(const std::string& file, CLI::App& app, const TomlValue& table) {
  for (const auto& [key, value] : table.table) {
    if (value.kind == TomlValue::Kind::kTable) {
      const auto commands = app.get_subcommands([&name = key](const CLI::App* one) { return one->get_name() == name; });
      if (commands.empty()) fail<UsageError>("{}: there is no command '{}'", toml_place(file, value), key);
      apply_table(file, *commands.front(), value);
    } else {
      set_default(file, app, key, value);
    }
  }
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
  if (const auto root = environment("VARVE_ROOT")) return std::filesystem::absolute(*root).lexically_normal();
  if (is_root) return "/var/lib/varve";
  if (const auto data = environment("XDG_DATA_HOME"); data && data->front() == '/')
    return std::filesystem::path(*data) / "varve";
  if (const auto home = environment("HOME")) return std::filesystem::absolute(*home) / ".local/share/varve";
  throw UsageError("neither HOME nor VARVE_ROOT is set: say where the state lives with --root DIR");
}

std::filesystem::path default_run_dir(const Environment& environment, bool is_root, const std::filesystem::path& root) {
  const auto usual_root = default_root(
      [&](const std::string& name) { return name == "VARVE_ROOT" ? std::nullopt : environment(name); }, is_root);
  if (root != usual_root) return root / "run";
  if (is_root) return "/run/varve";
  if (const auto runtime = environment("XDG_RUNTIME_DIR")) return std::filesystem::path(*runtime) / "varve";
  return root / "run";
}

std::vector<std::filesystem::path> config_files(const Environment& environment) {
  if (const auto only = environment("VARVE_CONFIG")) return {*only};
  std::vector<std::filesystem::path> files = {"/etc/varve/varve.toml"};
  if (const auto config = environment("XDG_CONFIG_HOME"); config && config->front() == '/') {
    files.push_back(std::filesystem::path(*config) / "varve/varve.toml");
  } else if (const auto home = environment("HOME")) {
    files.push_back(std::filesystem::path(*home) / ".config/varve/varve.toml");
  }
  return files;
}

void apply_config_file(const std::filesystem::path& path, CLI::App& app, trust::TrustSettings& trust) {
  const auto bytes = read_file_if_there(path, kMaxConfigFileBytes);
  if (!bytes) return;
  try {
    auto root = parse_toml(as_text(*bytes), path.string());
    if (const auto* table = root.find(kTrustTable)) {
      if (table->kind != TomlValue::Kind::kTable)
        fail<CorruptData>("{}: 'trust' must be a table: [trust]", toml_place(path.string(), *table));
      trust::read_trust_settings(*table, path.string(), trust);
      root.table.erase(std::string(kTrustTable));
    }
    apply_table(path.string(), app, root);
  } catch (const CorruptData& error) {
    throw UsageError(error.what());
  }
}

}  // namespace varve::cli
