#include "analyzer/notebooks/internal/backends.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/base/embedded.h"
#include "core/base/errors.h"
#include "core/base/text/toml.h"

namespace varve::notebooks {

namespace internal {
EmbeddedFiles data_files();
}

namespace {

struct BackendRow {
  std::set<std::string, std::less<>> libraries, modules;
  std::vector<std::string> backends;
  std::map<std::string, std::string> engines;
};

struct BackendTable {
  std::vector<BackendRow> rows;
  std::map<std::string, std::vector<std::size_t>, std::less<>> by_call;

  BackendTable() {
    constexpr std::string_view kWhat = "backends.toml";
    const auto document = parse_toml(embedded_file(internal::data_files(), kWhat), kWhat);
    toml_only_keys(document, {"use"}, kWhat);
    for (const auto* table : toml_tables(document, "use", kWhat)) {
      toml_only_keys(*table, {"library", "name", "module", "backend", "engine", "source"}, kWhat);
      BackendRow row;
      for (auto& library : toml_strings(*table, "library", kWhat, true)) row.libraries.insert(std::move(library));
      for (auto& module : toml_strings(*table, "module", kWhat)) row.modules.insert(std::move(module));
      row.backends = toml_strings(*table, "backend", kWhat, true);
      toml_string(*table, "source", kWhat, true);
      if (const auto* engines = table->find("engine")) {
        for (const auto& [engine, module] : engines->table) row.engines[engine] = module.text;
      }
      for (auto& name : toml_strings(*table, "name", kWhat)) by_call[std::move(name)].push_back(rows.size());
      rows.push_back(std::move(row));
    }
  }
};

const BackendTable& backend_table() {
  static const BackendTable table;
  return table;
}

std::string_view top_of(std::string_view dotted) { return dotted.substr(0, dotted.find('.')); }

// What the engine stands for; all backends where none is given, or one that the table does not know.
std::vector<std::string> chosen(const BackendRow& row, const std::string& engine) {
  if (const auto named = row.engines.find(engine); named != row.engines.end())
    return named->second.empty() ? std::vector<std::string>() : std::vector{named->second};
  if (std::ranges::find(row.backends, engine) != row.backends.end()) return {engine};
  return row.backends;
}

}  // namespace

const std::vector<std::size_t>& backend_rows(std::string_view name, std::string_view qualifier) {
  static const std::vector<std::size_t> kNone;
  const auto& calls = backend_table().by_call;
  if (const auto found = calls.find(name); found != calls.end()) return found->second;
  if (const auto found = calls.find(qualifier.substr(qualifier.rfind('.') + 1)); found != calls.end())
    return found->second;
  return kNone;
}

std::vector<Backend> backends_of(const std::vector<BackendHit>& hits, const std::vector<Import>& imports) {
  const auto& rows = backend_table().rows;
  std::vector<Backend> found;
  const auto add = [&](const std::vector<std::string>& modules, const std::string& call, std::uint32_t cell,
                       std::uint32_t line) {
    for (const auto& module : modules) {
      if (found.size() < kMaxFindings) found.push_back({.module = module, .call = call, .cell = cell, .line = line});
    }
  };
  std::set<std::string_view> libraries;
  for (const auto& import : imports) {
    if (import.local || import.module.empty()) continue;
    libraries.insert(top_of(import.module));
    for (const auto& row : rows) {
      if (row.libraries.contains(top_of(import.name)) &&
          (row.modules.contains(import.name) || row.modules.contains(import.module)))
        add(row.backends, import.name, import.cell, import.line);
    }
  }
  for (const auto& hit : hits) {
    const auto& row = rows[hit.row];
    if (std::ranges::any_of(row.libraries, [&](const std::string& library) { return libraries.contains(library); }))
      add(chosen(row, hit.engine), hit.call, hit.cell, hit.line);
  }
  const auto place = [](const Backend& one) { return std::tie(one.cell, one.line, one.module, one.call); };
  std::ranges::sort(found, {}, place);
  found.erase(std::ranges::unique(found, {}, place).begin(), found.end());
  return found;
}

}  // namespace varve::notebooks
