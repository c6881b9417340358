#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>

#include <nlohmann/json.hpp>

#include "analyzer/notebooks/scan.h"
#include "analyzer/packages/distribution_names.h"
#include "analyzer/usage/database.h"
#include "cli/base/open_image.h"
#include "cli/base/text.h"
#include "cli/usage/usage_command.h"
#include "core/base/progress.h"
#include "core/base/safe_text.h"
#include "core/base/units.h"

namespace varve::cli {
namespace {

using nlohmann::json;
using notebooks::Import;
using notebooks::ScannedFile;
using packages::DistributionNames;

constexpr std::size_t kMaxErrorsShown = 20;  // to people; --json has all
constexpr std::size_t kMaxInstallsShown = 20;
constexpr std::size_t kFilesPerTransaction = 2000;  // of the database; also what is held for it

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
  entry["hints"] = json::array();
  for (const auto& hint : file.hints)
    entry["hints"].push_back({{"kind", hint.kind}, {"text", hint.text}, {"cell", hint.cell}, {"line", hint.line}});
  return entry;
}

// What people want to know of all files together. Files with the same code count once.
class Summary {
 public:
  explicit Summary(const DistributionNames& names) : names_(names) {}

  void add(const ScannedFile& file) {
    ++files_;
    if (!file.duplicate_of.empty()) return void(++duplicates_);
    ++languages_[file.language.empty() ? "unknown" : file.language];
    std::map<std::pair<std::string, std::string>, bool> used;  // row -> only optional
    for (const auto& import : file.imports) {
      if (import.local || import.unknown_name || names_.is_stdlib(import)) continue;
      const auto [row, is_new] = used.try_emplace(row_of(import), true);
      row->second = row->second && import.kind == notebooks::ImportKind::kOptional;
    }
    for (const auto& [row, optional] : used) {
      ++uses_[row].notebooks;
      uses_[row].optional += optional ? 1 : 0;
    }
    std::set<std::string> installed;
    for (const auto& install : file.installs)
      if (!install.remove)
        installed.insert(install.tool + " " + (install.package.empty() ? install.argument : install.package));
    for (const auto& name : installed) ++installs_[name];
  }

  json to_json(const notebooks::ScanResult& result) const {
    json languages = json::object();
    for (const auto& [language, count] : languages_) languages[language] = count;
    return {{"files", files_},           {"distinct", files_ - duplicates_},
            {"duplicates", duplicates_}, {"errors", result.errors.size()},
            {"skipped", result.skipped}, {"bytes", result.bytes},
            {"languages", languages}};
  }

  void print(std::ostream& out, const notebooks::ScanResult& result) const {
    print_uses(out);
    print_installs(out);
    out << fmt::format(
        "{} notebooks and scripts, {} distinct ({} more have the same code as another), {}; {} other files, {} "
        "errors\n",
        files_, files_ - duplicates_, duplicates_, human_bytes(result.bytes), result.skipped, result.errors.size());
    std::string line;
    for (const auto& [language, count] : languages_)
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", count, printable(language));
    if (!line.empty()) out << "languages: " << line << '\n';
  }

 private:
  struct Use {
    std::uint64_t notebooks = 0;
    std::uint64_t optional = 0;  // of these: only inside try or if
  };

  // Module and distribution, as the table shows them.
  std::pair<std::string, std::string> row_of(const Import& import) const {
    std::string distributions;
    for (const auto& name : names_.of(import)) distributions += (distributions.empty() ? "" : ", ") + name;
    if (distributions.empty()) distributions = names_.of_image() ? "(not in the image)" : "-";
    return {import.name.substr(0, import.name.find('.')), distributions};
  }

  void print_uses(std::ostream& out) const {
    std::vector<std::pair<std::pair<std::string, std::string>, Use>> rows(uses_.begin(), uses_.end());
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto& a, const auto& b) { return a.second.notebooks > b.second.notebooks; });
    if (rows.empty()) return;
    std::vector<std::vector<std::string>> table = {{"NOTEBOOKS", "SHARE", "OPTIONAL", "NAME", "DISTRIBUTION"}};
    for (const auto& [row, use] : rows)
      table.push_back({std::to_string(use.notebooks),
                       fmt::format("{:.1f}%", 100.0 * double(use.notebooks) / double(files_ - duplicates_)),
                       std::to_string(use.optional), printable(row.first), printable(row.second)});
    print_table(out, table);
    out << '\n';
  }

  void print_installs(std::ostream& out) const {
    std::vector<std::pair<std::string, std::uint64_t>> rows(installs_.begin(), installs_.end());
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    if (rows.empty()) return;
    std::vector<std::vector<std::string>> table = {{"NOTEBOOKS", "INSTALL"}};
    for (std::size_t i = 0; i < std::min(rows.size(), kMaxInstallsShown); ++i)
      table.push_back({std::to_string(rows[i].second), printable(rows[i].first)});
    print_table(out, table);
    if (rows.size() > kMaxInstallsShown)
      out << fmt::format("{} more: --json lists all\n", rows.size() - kMaxInstallsShown);
    out << '\n';
  }

  const DistributionNames& names_;
  std::uint64_t files_ = 0, duplicates_ = 0;
  std::map<std::string, std::uint64_t> languages_;
  std::map<std::pair<std::string, std::string>, Use> uses_;
  std::map<std::string, std::uint64_t> installs_;
};

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

// Files for the database, some thousand at a time. Without a database it does nothing.
class Keeper {
 public:
  explicit Keeper(const std::string& where) {
    if (!where.empty()) database_ = usage::open_database(where);
  }
  void add(ScannedFile&& file) {
    if (database_ == nullptr) return;
    waiting_.files.push_back(std::move(file));
    if (waiting_.files.size() >= kFilesPerTransaction) flush();
  }
  void flush() {
    if (database_ == nullptr || waiting_.files.empty()) return;
    database_->put_scan(waiting_);
    waiting_.files.clear();
  }

 private:
  std::unique_ptr<usage::Database> database_;
  notebooks::ScanResult waiting_;
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
  Summary summary(names);
  Keeper keeper(arguments.database);
  std::optional<JsonWriter> writer;
  if (context.global.json) writer.emplace(context.out);
  const auto result = notebooks::scan({arguments.paths.begin(), arguments.paths.end()}, options, context.cancel,
                                      [&](ScannedFile&& file) {
                                        summary.add(file);
                                        if (writer) writer->file(to_json(file, names));
                                        keeper.add(std::move(file));
                                      });
  keeper.flush();
  if (writer) return writer->end(result.errors, summary.to_json(result));
  summary.print(context.out, result);
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
