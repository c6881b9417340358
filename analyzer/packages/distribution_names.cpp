#include "analyzer/packages/distribution_names.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "analyzer/python/known_names.h"
#include "analyzer/python/requirement.h"
#include "analyzer/python/stdlib_names.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve::packages {
namespace {

constexpr std::uint64_t kMaxPackagesBytes = std::uint64_t(1) << 30;

// Distributions that are called as their module, and whose names people also give to folders of their own.
constexpr std::array<std::string_view, 16> kPlainNames = {
    "accelerate", "dash",   "datasets", "evaluate", "gym",   "lightning",    "metrics", "networks",
    "numpy",      "optuna", "pandas",   "peft",     "torch", "transformers", "trl",     "wandb"};

std::vector<std::string> sorted_names(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

void DistributionNames::add(const std::string& module, const std::string& distribution) {
  modules_[module].push_back(distribution);
  distributions_.insert(distribution);
}

void DistributionNames::add_program(const std::string& program, const std::string& distribution) {
  programs_[program].push_back(distribution);
}

DistributionNames DistributionNames::of_packages_file(const std::filesystem::path& path) {
  const auto bytes = read_file(path, kMaxPackagesBytes);
  const auto document =
      nlohmann::json::parse(reinterpret_cast<const char*>(bytes.data()),
                            reinterpret_cast<const char*>(bytes.data()) + bytes.size(), nullptr, false);
  const auto packages = document.is_object() ? document.find("packages") : document.end();
  if (!document.is_object() || packages == document.end() || !packages->is_array())
    fail<CorruptData>("{}: not what `varve packages --json` writes: no list \"packages\"", path.string());
  DistributionNames names;
  names.of_image_ = true;
  for (const auto& package : *packages) {
    const auto name = package.is_object() ? package.value("name", nlohmann::json()) : nlohmann::json();
    const auto imports = package.is_object() ? package.value("imports", nlohmann::json::array()) : nlohmann::json();
    if (!name.is_string() || !imports.is_array())
      fail<CorruptData>("{}: a package without name or list \"imports\"", path.string());
    const auto distribution = python::normalize_name(name.get<std::string>());
    names.distributions_.insert(distribution);
    for (const auto& module : imports)
      if (module.is_string()) names.add(module.get<std::string>(), distribution);
    for (const auto& script : package.value("scripts", nlohmann::json::array())) {
      const auto program = script.is_object() ? script.value("name", nlohmann::json()) : nlohmann::json();
      if (program.is_string()) names.add_program(program.get<std::string>(), distribution);
    }
  }
  return names;
}

DistributionNames DistributionNames::of_inventory(const Inventory& inventory) {
  DistributionNames names;
  names.of_image_ = true;
  for (const auto& distribution : inventory.distributions) names.distributions_.insert(distribution.normalized);
  for (const auto& distribution : inventory.distributions)
    for (const auto& script : distribution.scripts) names.add_program(script.name, distribution.normalized);
  for (const auto& [path, owners] : inventory.path_owners) {
    const auto program = std::string(program_of_path(path));
    if (program.empty()) continue;
    for (const auto owner : owners) names.add_program(program, inventory.distributions[owner].normalized);
  }
  for (const auto& [module, owners] : inventory.modules)
    for (const auto owner : owners) names.add(module, inventory.distributions[owner].normalized);
  return names;
}

std::vector<std::string> DistributionNames::of(const notebooks::Import& import) const {
  if (import.local || import.name.empty() || is_stdlib(import)) return {};
  if (import.module.empty()) {  // a command or the distribution itself
    if (const auto program = programs_.find(import.name);
        program != programs_.end() && import.kind == notebooks::ImportKind::kShell)
      return sorted_names(program->second);
    const auto name = python::normalize_name(import.name);
    if (of_image_ && !distributions_.contains(name)) return {};
    return {name};
  }
  if (!of_image_) {
    const auto known = python::known_distributions(import.name);
    if (!known.empty()) return sorted_names({known.begin(), known.end()});
    return {python::normalize_name(import.name.substr(0, import.name.find('.')))};
  }
  return sorted_names(modules_.owners(import.name));
}

bool DistributionNames::is_stdlib(const notebooks::Import& import) const {
  if (import.local || import.module.empty()) return false;
  const auto top = import.module.substr(0, import.module.find('.'));
  return python::is_stdlib(top, "") && !modules_.contains(top);
}

bool DistributionNames::is_distribution(std::string_view name) const {
  if (python::is_stdlib(name, "")) return true;
  if (of_image_) return modules_.has(name);
  return std::find(kPlainNames.begin(), kPlainNames.end(), name) != kPlainNames.end() ||
         !python::known_distributions(name).empty() || python::can_use_gpu(python::normalize_name(name));
}

}  // namespace varve::packages
