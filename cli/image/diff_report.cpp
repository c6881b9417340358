#include "cli/image/diff_report.h"

#include <array>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/text.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/text/units.h"

namespace varve::cli {
namespace {

using compare::ComparedPackage;
using compare::FileChange;
using compare::PackageChange;
using nlohmann::json;

constexpr std::size_t kMaxConfigShown = 12;
constexpr std::size_t kMaxCudaShown = 8;
constexpr std::size_t kMaxValueShown = 60;
constexpr std::array kFileChanges{FileChange::kAdded, FileChange::kRemoved, FileChange::kContent,
                                  FileChange::kAttributes, FileChange::kTime};

std::string shown_list(const std::vector<std::string>& words) { return words.empty() ? "-" : printable(joined(words)); }

std::string shortened(const std::string& text) {
  const auto shown = printable(text);
  return shown.empty() ? "not set" : shown.size() <= kMaxValueShown ? shown : shown.substr(0, kMaxValueShown) + "…";
}

std::string signed_bytes(std::uint64_t before, std::uint64_t after) {
  if (before == after) return "0 B";
  return after > before ? "+" + human_bytes(after - before) : "-" + human_bytes(before - after);
}

void print_package_rows(const std::vector<ComparedPackage>& packages, std::size_t limit, std::ostream& out) {
  if (packages.empty()) return;
  std::vector<std::vector<std::string>> rows{{"PACKAGE", "SOURCE", "CHANGE", "A", "B", "SIZE"}};
  for (const auto& package : compare::breaking_first(packages)) {
    if (rows.size() > limit) break;
    const auto change = package.change == PackageChange::kRebuilt ? fmt::format("{} files", package.changed_files)
                                                                  : std::string(package_change_name(package.change));
    rows.push_back({printable(package.name) + (package.gpu ? " (gpu)" : ""),
                    std::string(packages::source_name(package.source)), change, shown_list(package.before),
                    shown_list(package.after), signed_bytes(package.bytes_before, package.bytes_after)});
  }
  print_table(out, rows);
  if (packages.size() > limit) out << fmt::format("… and {} more: -v shows all, --json too\n", packages.size() - limit);
}

// The notebook is named where `notebook` is a folder or an archive of several.
void print_imports(std::string_view heading, const std::vector<compare::BrokenImport>& imports,
                   const std::string& notebook, std::ostream& out) {
  if (imports.empty()) return;
  out << heading << '\n';
  for (const auto& import : imports) {
    auto where = import.cell == 0 ? fmt::format("line {}", import.line)
                                  : fmt::format("cell {}, line {}", import.cell, import.line);
    if (import.path != notebook) where.insert(0, printable(import.path) + ", ");
    if (import.files > 1) where += fmt::format(", and {} more files", import.files - 1);
    out << fmt::format("  {}  ({}{}): {}\n", printable(import.name), where,
                       import.kind == "import" ? "" : ", " + import.kind, printable(import.why));
  }
}

void print_notebook(const DiffInput& diff, const DiffView& view, std::ostream& out) {
  const auto& notebook = *diff.for_notebook;
  out << fmt::format("\nfor {}\n", printable(diff.notebook));
  for (const auto& error : notebook.errors) out << "  not read: " << printable(error) << '\n';
  for (const auto& warning : notebook.warnings) out << "  read, but: " << printable(warning) << '\n';
  print_imports("these imports break:", notebook.lost, diff.notebook, out);
  print_imports("in neither image:", notebook.never, diff.notebook, out);
  print_imports("new in B:", notebook.gained, diff.notebook, out);
  out << fmt::format("{} of {} packages that it imports changed, and {} of {} that those need\n",
                     notebook.direct.size(), notebook.direct.size() + notebook.unchanged_direct,
                     notebook.transitive.size(), notebook.transitive.size() + notebook.unchanged_transitive);
  print_package_rows(notebook.direct, view.packages, out);
  if (!notebook.transitive.empty()) {
    out << "needed by those:\n";
    print_package_rows(notebook.transitive, view.packages, out);
  }
}

std::string summary_of_packages(const compare::PackageComparison& packages) {
  std::map<packages::Source, std::map<PackageChange, std::uint64_t>> counts;
  for (const auto& package : packages.changed) ++counts[package.source][package.change];
  for (const auto& [source, same] : packages.unchanged) counts[source];
  std::string text;
  for (const auto& [source, by_change] : counts) {
    const auto count = [&](PackageChange change) {
      const auto found = by_change.find(change);
      return found == by_change.end() ? 0 : found->second;
    };
    const auto same = packages.unchanged.find(source);
    text += fmt::format("{}{}: {} changed, {} added, {} removed, {} rebuilt, {} the same", text.empty() ? "" : "; ",
                        source_name(source), count(PackageChange::kChanged), count(PackageChange::kAdded),
                        count(PackageChange::kRemoved), count(PackageChange::kRebuilt),
                        same == packages.unchanged.end() ? 0 : same->second);
  }
  return text.empty() ? "none" : text;
}

void print_head(const DiffInput& diff, std::ostream& out) {
  const auto& comparison = diff.comparison;
  const auto& layers = comparison.layers;
  out << fmt::format("A         {} ({})\nB         {} ({})\n", printable(diff.before),
                     diff.image_before.digest().to_string(), printable(diff.after),
                     diff.image_after.digest().to_string());
  out << fmt::format("layers    {} of B's {} are A's: {} shared, {} new, {} of A's gone", layers.reused,
                     layers.layers_after, human_bytes(layers.shared_bytes), human_bytes(layers.new_bytes),
                     human_bytes(layers.gone_bytes));
  if (layers.recompressed != 0)
    out << fmt::format("; {} of the new ones hold a stream of A's, compressed anew", layers.recompressed);
  const auto& files = comparison.files;
  out << fmt::format("\ncontent   {} of B's {} of files are somewhere in A", human_bytes(files.shared_content_bytes),
                     human_bytes(files.content_bytes));
  if (files.bytecode_bytes != 0)
    out << fmt::format(", {} more are bytecode of sources that are: who has A fetches neither",
                       human_bytes(files.bytecode_bytes));
  out << '\n';
  out << "files     ";
  for (const auto change : kFileChanges) {
    const auto found = files.counts.find(change);
    const auto count = found == files.counts.end() ? compare::FileCount() : found->second;
    switch (change) {
      case FileChange::kAdded:
        out << fmt::format("{} added ({})", count.files, human_bytes(count.bytes));
        break;
      case FileChange::kRemoved:
        out << fmt::format(", {} removed ({})", count.files, human_bytes(count.bytes));
        break;
      case FileChange::kContent:
        out << fmt::format(", {} with other content ({})", count.files, human_bytes(count.bytes));
        break;
      case FileChange::kAttributes:
        out << fmt::format(", {} with other attributes", count.files);
        break;
      case FileChange::kTime:
        out << fmt::format(", {} with another time only", count.files);
        break;
    }
  }
  out << fmt::format(", {} the same\npackages  {}\n", files.unchanged, summary_of_packages(comparison.packages));
  const auto& python = comparison.python;
  out << "python    "
      << (python.before == python.after ? shown_list(python.after) + " in both"
                                        : shown_list(python.before) + " -> " + shown_list(python.after))
      << '\n';
}

void print_config(const compare::Comparison& comparison, const DiffView& view, std::ostream& out) {
  const auto limit = view.files != 0 ? comparison.config.size() : kMaxConfigShown;
  for (std::size_t i = 0; i < comparison.config.size() && i < limit; ++i) {
    const auto& change = comparison.config[i];
    out << fmt::format("config    {}: {} -> {}\n", printable(change.field), shortened(change.before),
                       shortened(change.after));
  }
  if (comparison.config.size() > limit)
    out << fmt::format("config    … and {} more\n", comparison.config.size() - limit);
}

void print_cuda(const DiffInput& diff, const DiffView& view, std::ostream& out) {
  const auto& cuda = diff.comparison.cuda;
  const auto limit = view.files != 0 ? cuda.size() : kMaxCudaShown;
  for (std::size_t i = 0; i < cuda.size() && i < limit; ++i) {
    const auto& library = cuda[i];
    const auto what = library.before == library.after ? shown_list(library.after) + ", other content"
                                                      : shown_list(library.before) + " -> " + shown_list(library.after);
    out << fmt::format("cuda      {}: {}\n", printable(library.name), what);
  }
  if (cuda.size() > limit) out << fmt::format("cuda      … and {} more libraries\n", cuda.size() - limit);
}

void print_files(const compare::FileComparison& files, std::size_t limit, std::ostream& out) {
  if (limit == 0 || files.changed.empty()) return;
  out << '\n';
  std::size_t shown = 0;
  for (const auto& file : files.changed) {
    if (shown++ == limit) {
      out << fmt::format("… and {} more files: --files N\n", files.changed.size() - limit);
      return;
    }
    const auto detail = file.detail.empty() ? std::string() : "  " + printable(file.detail);
    out << fmt::format("{:<10}  {}{}\n", file_change_name(file.change), printable(file.path), detail);
  }
}

json to_json(const ComparedPackage& package) {
  return {{"name", package.name},
          {"source", packages::source_name(package.source)},
          {"change", package_change_name(package.change)},
          {"before", package.before},
          {"after", package.after},
          {"bytes_before", package.bytes_before},
          {"bytes_after", package.bytes_after},
          {"changed_files", package.changed_files},
          {"gpu", package.gpu}};
}

json to_json(const std::vector<ComparedPackage>& packages) {
  auto list = json::array();
  for (const auto& package : packages) list.push_back(to_json(package));
  return list;
}

json to_json(const std::vector<compare::BrokenImport>& imports) {
  auto list = json::array();
  for (const auto& import : imports)
    list.push_back({{"name", json_name(import.name)},
                    {"kind", import.kind},
                    {"path", json_name(import.path)},
                    {"files", import.files},
                    {"cell", import.cell},
                    {"line", import.line},
                    {"why", json_name(import.why)}});
  return list;
}

json files_json(const compare::FileComparison& files, std::size_t limit) {
  json document{{"unchanged", files.unchanged}};
  for (const auto change : kFileChanges) {
    const auto found = files.counts.find(change);
    const auto count = found == files.counts.end() ? compare::FileCount() : found->second;
    document[std::string(file_change_name(change))] = {{"files", count.files}, {"bytes", count.bytes}};
  }
  document["list"] = json::array();
  for (std::size_t i = 0; i < files.changed.size() && i < limit; ++i) {
    const auto& file = files.changed[i];
    document["list"].push_back({{"path", json_name(file.path)},
                                {"change", file_change_name(file.change)},
                                {"bytes_before", file.bytes_before},
                                {"bytes_after", file.bytes_after},
                                {"detail", json_name(file.detail)}});
  }
  document["left_out"] = files.changed.size() - document["list"].size();
  return document;
}

}  // namespace

void print_diff(const DiffInput& diff, const DiffView& view, std::ostream& out) {
  print_head(diff, out);
  print_config(diff.comparison, view, out);
  print_cuda(diff, view, out);
  if (diff.for_notebook)
    print_notebook(diff, view, out);
  else if (!diff.comparison.packages.changed.empty())
    print_package_rows(diff.comparison.packages.changed, view.packages, out << '\n');
  print_files(diff.comparison.files, view.files, out);
}

json diff_json(const DiffInput& diff, const DiffView& view) {
  const auto& comparison = diff.comparison;
  const auto& layers = comparison.layers;
  json unchanged = json::object();
  for (const auto& [source, count] : comparison.packages.unchanged) unchanged[std::string(source_name(source))] = count;
  auto config = json::array();
  for (const auto& change : comparison.config)
    config.push_back(
        {{"field", json_name(change.field)}, {"before", json_name(change.before)}, {"after", json_name(change.after)}});
  auto libraries = json::array();
  for (const auto& library : comparison.cuda)
    libraries.push_back({{"name", json_name(library.name)},
                         {"before", library.before},
                         {"after", library.after},
                         {"content_changed", library.content_changed}});
  json document{{"a", {{"reference", json_name(diff.before)}, {"image", diff.image_before.digest().to_string()}}},
                {"b", {{"reference", json_name(diff.after)}, {"image", diff.image_after.digest().to_string()}}},
                {"identical", comparison.identical()},
                {"packages", to_json(comparison.packages.changed)},
                {"packages_unchanged", std::move(unchanged)},
                {"files", files_json(comparison.files, view.files)},
                {"shared_bytes", layers.shared_bytes},
                {"new_bytes", layers.new_bytes},
                {"gone_bytes", layers.gone_bytes},
                {"layers",
                 {{"before", layers.layers_before},
                  {"after", layers.layers_after},
                  {"reused", layers.reused},
                  {"recompressed", layers.recompressed}}},
                {"content",
                 {{"bytes", comparison.files.content_bytes},
                  {"shared_bytes", comparison.files.shared_content_bytes},
                  {"bytecode_bytes", comparison.files.bytecode_bytes}}},
                {"config", std::move(config)},
                {"python", {{"before", comparison.python.before}, {"after", comparison.python.after}}},
                {"cuda", {{"libraries", std::move(libraries)}}}};
  if (diff.for_notebook) {
    const auto& notebook = *diff.for_notebook;
    auto errors = json::array();
    for (const auto& error : notebook.errors) errors.push_back(json_name(error));
    auto warnings = json::array();
    for (const auto& warning : notebook.warnings) warnings.push_back(json_name(warning));
    document["notebook"] = {{"path", json_name(diff.notebook)},
                            {"lost", to_json(notebook.lost)},
                            {"never", to_json(notebook.never)},
                            {"gained", to_json(notebook.gained)},
                            {"direct", to_json(notebook.direct)},
                            {"transitive", to_json(notebook.transitive)},
                            {"unchanged_direct", notebook.unchanged_direct},
                            {"unchanged_transitive", notebook.unchanged_transitive},
                            {"errors", std::move(errors)},
                            {"warnings", std::move(warnings)}};
  }
  return document;
}

}  // namespace varve::cli
