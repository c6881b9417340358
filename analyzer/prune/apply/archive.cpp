#include "analyzer/prune/apply/archive.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "analyzer/packages/record_files.h"
#include "analyzer/prune/apply/internal/carried_files.h"
#include "analyzer/prune/gpu_code.h"
#include "core/base/text/strings.h"

namespace varve::prune {
namespace {

constexpr std::string_view kHead =
    "# Varve archived 1: what this image no longer has. A line each: module, project, version, the last image that "
    "has it.\n";
constexpr std::int64_t kSecondsPerDay = 86'400;

std::string plain(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

// Paths of the image that belong to nobody but `gone`.
std::vector<std::string> owned_by(const std::vector<std::uint32_t>& gone, const packages::Inventory& inventory,
                                  const index::FileSource& files) {
  std::vector<std::string> paths;
  for (const auto& [path, file] : files.tree().entries) {
    if (file.type == FileType::kDirectory) continue;
    const auto& owners = inventory.owners_of_path(path);
    if (!owners.empty() &&
        std::ranges::all_of(owners, [&](std::uint32_t owner) { return std::ranges::binary_search(gone, owner); }))
      paths.push_back(path);
  }
  return paths;
}

// What nobody recorded in the folders of modules that go: left alone it would make a namespace package of the name, and
// probes would find that.
void add_left_overs(const std::vector<std::uint32_t>& gone, const packages::Inventory& inventory,
                    const index::FileSource& files, std::vector<std::string>& removed) {
  const std::set<std::string> known(removed.begin(), removed.end());
  for (const auto number : gone) {
    const auto& distribution = inventory.distributions[number];
    for (auto name : distribution.imports) {
      std::ranges::replace(name, '.', '/');
      const auto folder = distribution.site + "/" + name + "/";
      std::vector<std::string> left;
      bool stays = false;
      for (auto file = files.tree().entries.lower_bound(folder);
           file != files.tree().entries.end() && file->first.starts_with(folder); ++file) {
        if (file->second.type == FileType::kDirectory || known.contains(file->first)) continue;
        stays = stays || !inventory.owners_of_path(file->first).empty();
        left.push_back(file->first);
      }
      if (!stays) removed.insert(removed.end(), left.begin(), left.end());
    }
  }
}

// The site folders of the Pythons that look into `site`, itself among them.
std::set<std::string> seen_together(const packages::Inventory& inventory, const std::string& site) {
  std::set<std::string> sites{site};
  for (const auto& interpreter : inventory.interpreters)
    if (std::ranges::find(interpreter.sites, site) != interpreter.sites.end())
      sites.insert(interpreter.sites.begin(), interpreter.sites.end());
  return sites;
}

// Modules of the site that nobody has once `gone` are gone.
std::vector<ArchivedModule> modules_of(const std::string& site, const std::vector<std::uint32_t>& gone,
                                       const packages::Inventory& inventory, std::string_view image_name) {
  std::vector<ArchivedModule> modules;
  const auto sites = seen_together(inventory, site);
  for (const auto number : gone) {
    const auto& distribution = inventory.distributions[number];
    if (!sites.contains(distribution.site) || !distribution.vendored_by.empty()) continue;
    for (const auto& name : distribution.imports) {
      const auto owners = inventory.modules.find(name);
      const bool stays =
          owners != inventory.modules.end() && std::ranges::any_of(owners->second, [&](std::uint32_t owner) {
            return !std::ranges::binary_search(gone, owner) && sites.contains(inventory.distributions[owner].site);
          });
      if (!stays) modules.push_back({name, distribution.name, distribution.version, std::string(image_name)});
    }
  }
  return modules;
}

std::map<std::string, std::string> read_tables(const index::FileSource& files, const std::set<std::string>& sites) {
  std::vector<std::string> wanted;
  for (const auto& site : sites)
    if (const auto path = site + "/" + std::string(kArchivedTable); files.tree().entries.contains(path))
      wanted.push_back(path);
  std::map<std::string, std::string> tables;
  files.read(wanted, kMaxArchivedTableBytes, [&](const std::string& path, std::optional<Bytes> content) {
    if (!content) fail<Unsupported>("{}: more than {} bytes, or no file", path, kMaxArchivedTableBytes);
    tables[path] = std::string(as_text(*content));
  });
  return tables;
}

}  // namespace

std::vector<ArchivedModule> parse_archived_table(std::string_view text) {
  std::vector<ArchivedModule> modules;
  for (const auto line : split(text, "\n")) {
    if (line.starts_with('#')) continue;
    const auto fields = split(line, "\t");
    if (fields.size() == 4 && !fields[0].empty())
      modules.push_back(
          {std::string(fields[0]), std::string(fields[1]), std::string(fields[2]), std::string(fields[3])});
  }
  return modules;
}

std::string archived_table(const std::vector<ArchivedModule>& modules) {
  std::string text(kHead);
  for (const auto& module : modules)
    text += fmt::format("{}\t{}\t{}\t{}\n", plain(module.module), plain(module.project), plain(module.version),
                        plain(module.image));
  return text;
}

TreeChange archive(const Plan& plan, const packages::Inventory& inventory, const index::FileSource& files,
                   std::string_view image_name) {
  const auto gone = archived_distributions(&plan, inventory);
  TreeChange change;
  if (gone.empty()) return change;
  change.removed = owned_by(gone, inventory, files);
  add_left_overs(gone, inventory, files, change.removed);
  std::set<std::string> sites;
  for (const auto number : gone) {
    const auto& distribution = inventory.distributions[number];
    if (!distribution.vendored_by.empty()) continue;
    const bool seen = std::ranges::any_of(inventory.interpreters, [&](const packages::Interpreter& interpreter) {
      return std::ranges::find(interpreter.sites, distribution.site) != interpreter.sites.end();
    });
    if (!distribution.imports.empty() && !seen)
      fail<Unsupported>(
          "the plan archives {} of {}, which is no site folder of a Python of this image: nobody would say where it "
          "went; write cold instead",
          distribution.name, distribution.site.empty() ? distribution.record : distribution.site);
    if (seen) sites.insert(distribution.site);
  }
  const auto tables = read_tables(files, sites);
  const auto add = [&](const std::string& path, std::string content) {
    // One of an earlier apply is replaced.
    if (files.tree().entries.contains(path)) change.removed.push_back(path);
    change.added.push_back(
        {.path = path, .content = std::move(content), .mode = 0644, .mtime_seconds = plan.made_on * kSecondsPerDay});
  };
  for (const auto& site : sites) {
    auto modules = modules_of(site, gone, inventory, image_name);
    if (const auto old = tables.find(site + "/" + std::string(kArchivedTable)); old != tables.end()) {
      for (auto& module : parse_archived_table(old->second))
        if (!inventory.modules.contains(module.module)) modules.push_back(std::move(module));
    }
    std::ranges::sort(modules, {}, [](const ArchivedModule& module) {
      return std::tie(module.module, module.project, module.version, module.image);
    });
    modules.erase(std::unique(modules.begin(), modules.end()), modules.end());
    for (const auto& [name, content] : internal::python_files())
      if (name.starts_with("varve_archived")) add(site + "/" + std::string(name), std::string(content));
    add(site + "/" + std::string(kArchivedTable), archived_table(modules));
  }
  std::ranges::sort(change.removed);
  change.removed.erase(std::unique(change.removed.begin(), change.removed.end()), change.removed.end());
  std::ranges::sort(change.added, {}, &index::AddedFile::path);
  return change;
}

index::ColdContent cold_content(const Plan& plan, const packages::Inventory& inventory,
                                const index::FileSource& files) {
  auto paths = owned_by(planned_distributions(plan, inventory, Verdict::kCold), inventory, files);
  std::erase_if(paths, packages::is_python_metadata);
  return {.files = {paths.begin(), paths.end()}, .parts = cold_parts(plan, files.tree())};
}

std::string image_name_of(const Plan& plan) {
  auto name = plan.reference;
  if (name.starts_with("docker://")) name = name.substr(9);
  if (const auto at = name.find('@'); at != name.npos) name.resize(at);
  return fmt::format("{}@{}", name, plan.image.to_string());
}

}  // namespace varve::prune
