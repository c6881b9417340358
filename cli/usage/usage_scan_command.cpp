#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/notebooks/scan.h"
#include "analyzer/packages/distribution_names.h"
#include "analyzer/usage/database.h"
#include "analyzer/usage/scan_batches.h"
#include "analyzer/usage/scan_summary.h"
#include "cli/base/open_image.h"
#include "cli/base/text.h"
#include "cli/usage/usage_command.h"
#include "core/base/progress.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/text/units.h"

namespace varve::cli {
namespace {

using nlohmann::json;
using notebooks::Import;
using notebooks::ScannedFile;
using packages::DistributionNames;

constexpr std::size_t kMaxErrorsShown = 20;  // to people; --json has all
constexpr std::size_t kMaxInstallsShown = 20;

struct ScanArguments {
  std::vector<std::string> paths;
  unsigned jobs = 0;
  std::string image;
  std::string packages;
  std::string database;
};

json to_json(const Import& import, const DistributionNames& names) {
  json entry = {{"name", import.name},
                {"kind", notebooks::import_kind_name(import.kind)},
                {"cell", import.cell},
                {"line", import.line}};
  if (import.module != import.name) entry["module"] = import.module;
  if (import.local) entry["local"] = true;
  if (import.rescued) entry["rescued"] = true;
  if (import.written_file) entry["written_file"] = true;
  if (import.unknown_name) entry["unknown_name"] = true;
  const bool stdlib = names.is_stdlib(import);
  if (stdlib) entry["stdlib"] = true;
  const auto distributions = names.of(import);
  entry["distribution"] = distributions;
  const bool looked_for = !stdlib && !import.local && !import.unknown_name;
  if (names.of_image() && looked_for && distributions.empty()) entry["missing"] = true;
  return entry;
}

json to_json(const notebooks::Install& install) {
  json entry = {{"tool", install.tool},
                {"package", install.package},
                {"argument", install.argument},
                {"cell", install.cell},
                {"line", install.line}};
  if (install.upgrade) entry["upgrade"] = true;
  if (install.remove) entry["remove"] = true;
  return entry;
}

json to_json(const ScannedFile& file, const DistributionNames& names) {
  json entry = {{"path", json_name(file.path)},
                {"format", file.format},
                {"language", file.language},
                {"code_cells", file.code_cells}};
  if (file.nbformat != 0) entry["nbformat"] = file.nbformat;
  entry["code_digest"] = file.code_digest == Digest() ? json(nullptr) : json(file.code_digest.to_string());
  if (!file.duplicate_of.empty()) entry["duplicate_of"] = json_name(file.duplicate_of);
  entry["imports"] = json::array();
  for (const auto& import : file.imports) entry["imports"].push_back(to_json(import, names));
  entry["installs"] = json::array();
  for (const auto& install : file.installs) entry["installs"].push_back(to_json(install));
  if (!file.backends.empty()) entry["backends"] = json::array();
  for (const auto& backend : file.backends)
    entry["backends"].push_back(
        {{"name", backend.module}, {"call", backend.call}, {"cell", backend.cell}, {"line", backend.line}});
  entry["hints"] = json::array();
  for (const auto& hint : file.hints)
    entry["hints"].push_back({{"kind", hint.kind}, {"text", hint.text}, {"cell", hint.cell}, {"line", hint.line}});
  return entry;
}

json to_json(const usage::ScanSummary& summary, const notebooks::ScanResult& result) {
  json languages = json::object();
  for (const auto& [language, count] : summary.languages()) languages[language] = count;
  return {{"files", summary.files()},       {"distinct", summary.distinct()}, {"duplicates", summary.duplicates()},
          {"errors", result.errors.size()}, {"skipped", result.skipped},      {"bytes", result.bytes},
          {"languages", languages}};
}

void print_uses(const usage::ScanSummary& summary, const DistributionNames& names, std::ostream& out) {
  const auto uses = summary.uses();
  if (uses.empty()) return;
  std::vector<std::vector<std::string>> table = {{"NOTEBOOKS", "SHARE", "OPTIONAL", "NAME", "DISTRIBUTION"}};
  for (const auto& use : uses) {
    const auto* nobody = names.of_image() ? "(not in the image)" : "-";
    table.push_back({std::to_string(use.notebooks),
                     fmt::format("{:.1f}%", 100.0 * double(use.notebooks) / double(summary.distinct())),
                     std::to_string(use.optional), printable(use.module),
                     use.distributions.empty() ? nobody : printable(use.distributions)});
  }
  print_table(out, table);
  out << '\n';
}

void print_installs(const usage::ScanSummary& summary, std::ostream& out) {
  const auto installs = summary.installs();
  if (installs.empty()) return;
  std::vector<std::vector<std::string>> table = {{"NOTEBOOKS", "INSTALL"}};
  for (std::size_t i = 0; i < std::min(installs.size(), kMaxInstallsShown); ++i)
    table.push_back({std::to_string(installs[i].notebooks), printable(installs[i].what)});
  print_table(out, table);
  if (installs.size() > kMaxInstallsShown)
    out << fmt::format("{} more: --json lists all\n", installs.size() - kMaxInstallsShown);
  out << '\n';
}

void print(const usage::ScanSummary& summary, const DistributionNames& names, const notebooks::ScanResult& result,
           std::ostream& out) {
  print_uses(summary, names, out);
  print_installs(summary, out);
  out << fmt::format(
      "{} notebooks and scripts, {} distinct ({} more have the same code as another), {}; {} other files, {} errors\n",
      summary.files(), summary.distinct(), summary.duplicates(), human_bytes(result.bytes), result.skipped,
      result.errors.size());
  std::vector<std::string> languages;
  for (const auto& [language, count] : summary.languages())
    languages.push_back(fmt::format("{} {}", count, printable(language)));
  if (!languages.empty()) out << "languages: " << joined(languages) << '\n';
}

void print_errors(const Context& context, const std::vector<notebooks::ScanError>& errors) {
  for (std::size_t i = 0; i < std::min(errors.size(), kMaxErrorsShown); ++i)
    context.err << fmt::format("varve: warning: {}: {}\n", printable(errors[i].path), printable(errors[i].what));
  if (errors.size() > kMaxErrorsShown)
    context.err << fmt::format("varve: warning: {} more files with errors: --json lists all\n",
                               errors.size() - kMaxErrorsShown);
}

// One JSON document whose files are written as they are scanned, one to a line: it may be larger than memory.
class JsonWriter {
 public:
  explicit JsonWriter(std::ostream& out) : out_(out) { out_ << "{\"files\": ["; }
  void file(const json& entry) {
    out_ << (first_ ? "\n" : ",\n") << text(entry);
    first_ = false;
  }
  void end(const std::vector<notebooks::ScanError>& errors, const json& summary) {
    out_ << "\n],\n\"errors\": [";
    for (std::size_t i = 0; i < errors.size(); ++i)
      out_ << (i == 0 ? "\n" : ",\n")
           << text({{"path", json_name(errors[i].path)}, {"what", json_name(errors[i].what)}});
    out_ << "\n],\n\"summary\": " << text(summary) << "}\n";
  }

 private:
  static std::string text(const json& entry) { return entry.dump(-1, ' ', false, json::error_handler_t::replace); }
  std::ostream& out_;
  bool first_ = true;
};

DistributionNames names_for(const Context& context, const ScanArguments& arguments) {
  if (!arguments.packages.empty()) return DistributionNames::of_packages_file(arguments.packages);
  if (arguments.image.empty()) return {};
  Progress progress;
  const ProgressLine line(progress, "packages of " + arguments.image, context.global.quiet);
  return DistributionNames::of_inventory(packages::read_inventory(*open_files(context, arguments.image, progress)));
}

void run_scan(Context& context, const ScanArguments& arguments) {
  for (const auto& path : arguments.paths)
    if (!std::filesystem::exists(path)) fail<NotFound>("{}: there is no such file or folder", path);
  const auto names = names_for(context, arguments);
  notebooks::ScanOptions options;
  options.jobs = arguments.jobs;
  options.is_distribution = [&](std::string_view name) { return names.is_distribution(name); };
  usage::ScanSummary summary(names);
  const auto database = arguments.database.empty() ? nullptr : usage::open_database(arguments.database);
  usage::ScanBatches kept([&](const notebooks::ScanResult& batch) { database->put_scan(batch); });
  std::optional<JsonWriter> writer;
  if (context.global.json) writer.emplace(context.out);
  const auto result = notebooks::scan({arguments.paths.begin(), arguments.paths.end()}, options, context.cancel,
                                      [&](ScannedFile&& file) {
                                        summary.add(file);
                                        if (writer) writer->file(to_json(file, names));
                                        if (database) kept.add(std::move(file));
                                      });
  kept.finish();
  if (writer) return writer->end(result.errors, to_json(summary, result));
  print(summary, names, result, context.out);
  print_errors(context, result.errors);
}

}  // namespace

void add_usage_scan_command(CLI::App& usage, Context& context) {
  const auto arguments = std::make_shared<ScanArguments>();
  auto* command =
      usage.add_subcommand("scan", "Finds the imports and installs of notebooks and scripts; runs nothing of them");
  command->add_option("PATH", arguments->paths, "Files (.ipynb .py .R .jl .Rmd .qmd), folders, zip and tar archives")
      ->required();
  command->add_option("--jobs", arguments->jobs, "How many files are read at once; one per core if not given")
      ->type_name("N");
  auto* image =
      command->add_option("--image", arguments->image, "Name distributions as this image (or folder) has them")
          ->type_name("IMAGE");
  command->add_option("--packages", arguments->packages, "The same, from what `varve packages --json` wrote")
      ->type_name("FILE")
      ->excludes(image);
  command->add_option("--db", arguments->database, "Keep what was found in this usage database")->type_name("DB");
  command->footer(
      "Examples:\n  varve usage scan notebooks/ --db usage.db\n  varve usage scan --json --jobs 4 archive.zip > "
      "scan.json");
  command->callback([&context, arguments] { run_scan(context, *arguments); });
}

}  // namespace varve::cli
