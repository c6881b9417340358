#include "cli/config.h"

#include <cstdlib>

#include <CLI/Error.hpp>
#include <toml++/toml.h>

#include "core/base/errors.h"
#include "core/base/file.h"

namespace varve::cli {
namespace {

constexpr std::uint64_t kMaxConfigFileBytes = 1 << 20;

std::string place_of(const std::filesystem::path& path, const toml::node& node) {
  return fmt::format("{}:{}", path.string(), node.source().begin.line);
}

std::string scalar_text(const std::filesystem::path& path, std::string_view key, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  fail<UsageError>("{}: '{}' must be a string, a number, a boolean or an array of them", place_of(path, node), key);
}

void set_default(const std::filesystem::path& path, CLI::App& app, std::string_view key, const toml::node& node) {
  auto* option = app.get_option_no_throw("--" + std::string(key));
  if (option == nullptr || key == "help" || key == "version" || key == "config")
    fail<UsageError>("{}: '{}' is no option of `varve{}{}`", place_of(path, node), key, app.get_parent() ? " " : "",
                     app.get_parent() ? app.get_name() : "");
  std::vector<std::string> values;
  if (const auto* array = node.as_array()) {
    for (const auto& element : *array) values.push_back(scalar_text(path, key, element));
  } else {
    values.push_back(scalar_text(path, key, node));
  }
  try {
    option->run_callback_for_default();
    if (values.size() == 1) {
      option->default_val(values.front());
    } else {
      option->default_val(values);
    }
  } catch (const CLI::Error& error) {
    fail<UsageError>("{}: {}", place_of(path, node), error.what());
  }
}

void apply_table(const std::filesystem::path& path, CLI::App& app, const toml::table& table) {
  for (const auto& [key, node] : table) {
    if (const auto* inner = node.as_table()) {
      const auto commands = app.get_subcommands([name = key.str()](const CLI::App* one) { return one->get_name() == name; });
      if (commands.empty()) fail<UsageError>("{}: there is no command '{}'", place_of(path, node), key.str());
      apply_table(path, *commands.front(), *inner);
    } else {
      set_default(path, app, key.str(), node);
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
  if (const auto data = environment("XDG_DATA_HOME"); data && data->front() == '/') return std::filesystem::path(*data) / "varve";
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

void apply_config_file(const std::filesystem::path& path, CLI::App& app) {
  const auto bytes = read_file_if_there(path, kMaxConfigFileBytes);
  if (!bytes) return;
  toml::table table;
  try {
    table = toml::parse(as_text(*bytes), path.string());
  } catch (const toml::parse_error& error) {
    fail<UsageError>("{}:{}: {}", path.string(), error.source().begin.line, error.description());
  }
  apply_table(path, app, table);
}

}  // namespace varve::cli
