#include "analyzer/prune/probe/targets.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "analyzer/packages/record_files.h"
#include "analyzer/prune/apply/import_session.h"
#include "analyzer/python/entry_points.h"
#include "core/base/text/image_path.h"
#include "core/base/text/strings.h"

namespace varve::prune {
namespace {

using usage::ProbedKind;

constexpr std::uint64_t kMaxEntryPointsBytes = 4u << 20;
constexpr std::size_t kMaxTargets = 20'000;  // an image that has more was made to have them
constexpr std::string_view kKernels = "/jupyter/kernels/";

class TargetFinder {
 public:
  TargetFinder(const index::FileSource& files, const packages::Inventory& inventory, const oci::ImageConfig& config)
      : files_(files), tree_(files.tree().entries), inventory_(inventory), config_(config) {
    for (std::uint32_t i = 0; i < inventory.distributions.size(); ++i)
      by_record_.emplace(inventory.distributions[i].record, i);
  }

  std::vector<ProbeTarget> find() {
    for (const auto& of_python : distributions_by_python(inventory_)) {
      for (const auto i : of_python.distributions) {
        python_of_[i] = of_python.python;
        add_imports(i, of_python.python);
        add_scripts(i, of_python.python);
      }
    }
    add_entry_points();
    add_kernels();
    add_starts();
    const auto order = [](const ProbeTarget& target) {
      return std::tie(target.kind, target.name, target.distribution, target.object, target.python);
    };
    std::ranges::stable_sort(found_, {}, order);
    const auto same = [&](const ProbeTarget& a, const ProbeTarget& b) { return order(a) == order(b); };
    found_.erase(std::unique(found_.begin(), found_.end(), same), found_.end());
    if (found_.size() > kMaxTargets)
      fail<Unsupported>("the image has {} things that can be started; at most {} are", found_.size(), kMaxTargets);
    return std::move(found_);
  }

 private:
  const packages::Distribution& distribution(std::uint32_t i) const { return inventory_.distributions[i]; }

  void add_imports(std::uint32_t i, const std::string& python) {
    for (const auto& name : distribution(i).imports)
      add({.kind = ProbedKind::kImport,
           .name = name,
           .distribution = distribution(i).normalized,
           .python = python,
           .object = name,
           .words = {},
           .kernel_spec = {}});
  }

  // Where installers put the scripts of a site folder: beside its "lib"; else beside its Python, or on the PATH.
  std::vector<std::string> script_folders(const packages::Distribution& of, const std::string& python) const {
    std::vector<std::string> folders;
    if (const auto lib = of.site.find("/lib/"); lib != std::string::npos)
      folders.push_back(of.site.substr(0, lib) + "/bin");
    folders.emplace_back(parent_of(python));
    const auto path = files_.facts().environment.find("PATH");
    if (path != files_.facts().environment.end())
      for (const auto folder : split_words(path->second, ":")) folders.emplace_back(without_leading_slashes(folder));
    return folders;
  }

  std::optional<std::string> program(const std::vector<std::string>& folders, const std::string& name) const {
    if (name.empty() || name.find('/') != std::string::npos) return std::nullopt;
    for (const auto& folder : folders)
      if (const auto path = join_path(folder, name); tree_.contains(path)) return "/" + path;
    return std::nullopt;
  }

  void add_scripts(std::uint32_t i, const std::string& python) {
    const auto& one = distribution(i);
    const auto folders = one.scripts.empty() ? std::vector<std::string>() : script_folders(one, python);
    for (const auto& script : one.scripts) {
      const auto path = program(folders, script.name);
      if (!path) continue;
      add_program(ProbedKind::kScript, script.name, one.normalized, {*path, "--help"});
      if (script.name == "jupyter-server")
        add_program(ProbedKind::kServerExtension, "", one.normalized, {*path, "extension", "list"});
      if (script.name == "jupyter-labextension")
        add_program(ProbedKind::kLabExtension, "", one.normalized, {*path, "list"});
    }
  }

  // The distribution whose record folder it lies in.
  std::optional<std::uint32_t> owner_of_record(std::string_view path) const {
    if (const auto found = by_record_.find(parent_of(path)); found != by_record_.end()) return found->second;
    const auto& owners = inventory_.owners_of_path(path);
    return owners.size() == 1 ? std::optional(owners.front()) : std::nullopt;
  }

  void add_entry_points() {
    std::map<std::string, std::uint32_t> owners;
    for (const auto& [path, entry] : tree_) {
      if (packages::record_file(path) != packages::RecordFile::kEntryPoints) continue;
      if (const auto owner = owner_of_record(path); owner && python_of_.contains(*owner)) owners.emplace(path, *owner);
    }
    std::vector<std::string> paths;
    for (const auto& [path, owner] : owners) paths.push_back(path);
    std::map<std::string, Bytes> contents;  // read in any order, told in one
    files_.read(paths, kMaxEntryPointsBytes, [&](const std::string& path, std::optional<Bytes> content) {
      if (content) contents.emplace(path, std::move(*content));
    });
    for (const auto& [path, content] : contents) {
      const auto owner = owners.at(path);
      for (const auto& point : python::parse_entry_points(as_text(content)).entries) {
        if (point.group == "console_scripts" || point.group == "gui_scripts") continue;
        add({.kind = ProbedKind::kEntryPoint,
             .name = point.group + ":" + point.name,
             .distribution = distribution(owner).normalized,
             .python = python_of_.at(owner),
             .object = point.target(),
             .words = {},
             .kernel_spec = {}});
      }
    }
  }

  void add_kernels() {
    for (const auto& [path, entry] : tree_) {
      if (!path.ends_with("/kernel.json")) continue;
      const auto folder = parent_of(path);
      if (!parent_of(folder).ends_with(kKernels.substr(0, kKernels.size() - 1))) continue;
      const auto& owners = inventory_.owners_of_path(path);
      add({.kind = ProbedKind::kKernel,
           .name = std::string(name_of(folder)),
           .distribution = owners.size() == 1 ? distribution(owners.front()).normalized : "",
           .python = {},
           .object = {},
           .words = {},
           .kernel_spec = "/" + path});
    }
  }

  void add_starts() {
    if (!inventory_.interpreters.empty()) {
      const auto& python = inventory_.interpreters.front().executable;
      add_program(ProbedKind::kPython, python, "", {"/" + python, "-c", "pass"});
    }
    auto command = config_.entrypoint;
    command.insert(command.end(), config_.cmd.begin(), config_.cmd.end());
    if (!command.empty()) add_program(ProbedKind::kCommand, command.front(), "", command);
  }

  void add_program(ProbedKind kind, const std::string& name, const std::string& of, std::vector<std::string> words) {
    add({.kind = kind,
         .name = name,
         .distribution = of,
         .python = {},
         .object = {},
         .words = std::move(words),
         .kernel_spec = {}});
  }
  void add(ProbeTarget target) { found_.push_back(std::move(target)); }

  const index::FileSource& files_;
  const index::FlatTree::Entries& tree_;
  const packages::Inventory& inventory_;
  const oci::ImageConfig& config_;
  std::map<std::string, std::uint32_t, std::less<>> by_record_;
  std::map<std::uint32_t, std::string> python_of_;  // distribution -> executable
  std::vector<ProbeTarget> found_;
};

}  // namespace

std::vector<ProbeTarget> probe_targets(const index::FileSource& files, const packages::Inventory& inventory,
                                       const oci::ImageConfig& config) {
  return TargetFinder(files, inventory, config).find();
}

}  // namespace varve::prune
