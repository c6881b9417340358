#include "analyzer/packages/internal/needs.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "analyzer/packages/internal/interpreters.h"
#include "analyzer/python/known_names.h"
#include "analyzer/python/name.h"
#include "analyzer/python/version.h"
#include "core/base/text/image_path.h"

namespace varve::packages::internal {
namespace {

// Shared libraries and device code that only a CUDA program carries.
constexpr std::array<std::string_view, 14> kGpuLibraries{
    "libcuda",     "libcudart", "libcublas", "libcudnn",     "libcufft",  "libcurand",     "libcusolver",
    "libcusparse", "libnccl",   "libnvrtc",  "libnvJitLink", "libnvidia", "libtorch_cuda", "libnvinfer"};

bool is_gpu_file(std::string_view path) {
  const auto name = name_of(path);
  if (name.ends_with(".cubin") || name.ends_with(".fatbin") || name.ends_with(".ptx")) return true;
  if (name.find(".so") == std::string_view::npos) return false;
  return std::ranges::any_of(kGpuLibraries, [&](std::string_view library) { return name.starts_with(library); }) ||
         name.find("_cuda.") != std::string_view::npos || name.find("_cuda-") != std::string_view::npos;
}

bool is_cuda_distribution(std::string_view normalized) {
  return normalized.starts_with("nvidia-cu") || normalized.starts_with("nvidia-nccl") ||
         normalized.starts_with("nvidia-nv") || normalized.starts_with("cuda-") ||
         normalized.starts_with("cupy-cuda") || normalized.starts_with("libcublas") ||
         normalized.starts_with("libcudnn");
}

class NeedFinder {
 public:
  NeedFinder(const Records& records, const std::vector<Installed>& installed, Inventory& inventory)
      : records_(records), installed_(installed), inventory_(inventory) {
    for (std::uint32_t i = 0; i < inventory.distributions.size(); ++i) {
      const auto& distribution = inventory.distributions[i];
      if (!distribution.vendored_by.empty()) continue;
      by_name_[distribution.normalized].push_back(i);
      const auto& record = record_of(i);
      if (record.kind == RecordKind::kDpkg) note_package(dpkg_, record, i);
      if (record.kind == RecordKind::kConda) note_package(conda_, record, i);
      // A package that was joined is known by its own name too.
      if (const auto package = installed[i].package)
        note_package(distribution.source == Source::kConda ? conda_ : dpkg_, records.records[*package], i);
    }
  }

  void find() {
    for (std::uint32_t i = 0; i < installed_.size(); ++i) {
      add_python(i);
      add_packages(i);
      add_entry_points(i);
    }
  }

 private:
  using Packages = std::map<std::string, std::vector<std::uint32_t>>;
  const Record& record_of(std::uint32_t i) const { return records_.records[installed_[i].record]; }

  static void note_package(Packages& packages, const Record& record, std::uint32_t i) {
    packages[record.name].push_back(i);
    for (const auto& provided : record.provides) packages[provided].push_back(i);
  }

  // The interpreter that sees the folder, else the first, else none.
  const Interpreter* interpreter_of(const std::string& site) const {
    for (const auto& interpreter : inventory_.interpreters) {
      if (std::ranges::find(interpreter.sites, site) != interpreter.sites.end()) return &interpreter;
    }
    return inventory_.interpreters.empty() ? nullptr : &inventory_.interpreters.front();
  }

  // What `name` means there: the first on sys.path, else one in the same folder, else any that no interpreter sees
  // either.
  std::optional<std::uint32_t> find_distribution(const std::string& name, const std::string& site,
                                                 const Interpreter* interpreter) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return std::nullopt;
    const auto in = [&](const std::string& folder) -> std::optional<std::uint32_t> {
      for (const auto i : found->second) {
        if (is_python(record_of(i).kind) &&
            (inventory_.distributions[i].site == folder ||
             (record_of(i).kind == RecordKind::kEgg && parent_of(inventory_.distributions[i].site) == folder)))
          return i;
      }
      return std::nullopt;
    };
    const bool seen = interpreter != nullptr && std::ranges::find(interpreter->sites, site) != interpreter->sites.end();
    if (!seen) {
      if (const auto here = in(site)) return here;
    }
    if (interpreter != nullptr) {
      for (const auto& folder : interpreter->sites) {
        if (const auto there = in(folder)) return there;
      }
    }
    return std::nullopt;
  }

  void add_python(std::uint32_t i) {
    const auto& record = record_of(i);
    if (!is_python(record.kind)) return;
    auto& distribution = inventory_.distributions[i];
    const auto* interpreter = interpreter_of(distribution.site);
    const auto environment = interpreter != nullptr ? interpreter->environment : marker_environment("", "amd64");
    const bool in_metadata = record.metadata && !record.metadata->requires_dist.empty();
    for (const auto& requirement : in_metadata ? record.metadata->requires_dist : record.requires_text) {
      Need need;
      need.requirement = requirement;
      need.applies = !requirement.marker || requirement.marker->holds(environment, "");
      if (!need.applies) {
        for (const auto& extra : record.extras) {
          if (requirement.marker->holds(environment, python::normalize_name(extra))) need.extras.push_back(extra);
        }
      }
      if (const auto found = find_distribution(requirement.normalized, distribution.site, interpreter)) {
        need.satisfied_by = inventory_.distributions[*found].version;
        const auto version = python::Version::parse(need.satisfied_by);
        // As pip: what is installed may be a pre-release.
        need.compatible =
            version ? requirement.specifier.contains(*version, true) : requirement.specifier.text().empty();
      }
      distribution.needs.push_back(std::move(need));
    }
  }

  void add_packages(std::uint32_t i) {
    auto& distribution = inventory_.distributions[i];
    const auto add = [&](Source from, const std::string& name, const std::string& text, const Packages& packages) {
      if (name.empty()) return;
      Need need;
      need.from = from;
      need.requirement.name = name;
      need.requirement.normalized = python::normalize_name(name);
      need.requirement.text = text;
      need.applies = true;
      if (const auto found = packages.find(name); found != packages.end())
        need.satisfied_by = version_of_package(found->second.front());
      distribution.needs.push_back(std::move(need));
    };
    for (const auto* record : packages_of(i)) {
      for (const auto& spec : record->depends) add(Source::kConda, python::conda_dependency_name(spec), spec, conda_);
      for (const auto& alternatives : record->dpkg_depends) {
        if (alternatives.empty()) continue;
        auto chosen = std::ranges::find_if(alternatives, [&](const auto& one) { return dpkg_.contains(one.name); });
        if (chosen == alternatives.end()) chosen = alternatives.begin();
        add(Source::kDpkg, chosen->name,
            chosen->relation.empty() ? chosen->name
                                     : fmt::format("{} ({} {})", chosen->name, chosen->relation, chosen->version),
            dpkg_);
      }
    }
  }

  std::string version_of_package(std::uint32_t i) const {
    const auto& distribution = inventory_.distributions[i];
    return distribution.package_version.empty() ? distribution.version : distribution.package_version;
  }

  // Its own record if it is a package's, and that of the package it was joined with.
  std::vector<const Record*> packages_of(std::uint32_t i) const {
    std::vector<const Record*> found;
    if (!is_python(record_of(i).kind)) found.push_back(&record_of(i));
    if (installed_[i].package) found.push_back(&records_.records[*installed_[i].package]);
    return found;
  }

  void add_entry_points(std::uint32_t i) {
    auto& distribution = inventory_.distributions[i];
    std::set<std::string> groups;
    for (const auto& entry : record_of(i).entry_points.entries) {
      groups.insert(entry.group);
      if (entry.group == "console_scripts" || entry.group == "gui_scripts")
        distribution.scripts.push_back({.name = entry.name, .target = entry.target()});
    }
    distribution.entry_point_groups.assign(groups.begin(), groups.end());
  }

  const Records& records_;
  const std::vector<Installed>& installed_;
  Inventory& inventory_;
  std::map<std::string, std::vector<std::uint32_t>> by_name_;
  Packages dpkg_;
  Packages conda_;
};

// One that has CUDA, or is known to make use of it; then those that need such a one.
void find_gpu(const std::vector<Installed>& installed, const FileTable& table, Inventory& inventory) {
  std::set<std::string> capable;
  for (std::size_t i = 0; i < installed.size(); ++i) {
    auto& distribution = inventory.distributions[i];
    if (distribution.source == Source::kDpkg && distribution.site.empty() &&
        !is_cuda_distribution(distribution.normalized)) {
      distribution.gpu =
          std::ranges::any_of(installed[i].claims, [&](FileId id) { return is_gpu_file(table.path(id)); });
      continue;
    }
    const bool cpu_build = distribution.version.ends_with("+cpu") || distribution.version.ends_with("-cpu");
    distribution.gpu = is_cuda_distribution(distribution.normalized) ||
                       (!cpu_build && python::can_use_gpu(distribution.normalized)) ||
                       std::ranges::any_of(installed[i].claims, [&](FileId id) { return is_gpu_file(table.path(id)); });
    if (distribution.gpu) capable.insert(distribution.normalized);
  }
  for (auto& distribution : inventory.distributions) {
    if (distribution.gpu || distribution.source == Source::kDpkg) continue;
    distribution.gpu = std::ranges::any_of(distribution.needs, [&](const Need& need) {
      return need.applies && need.from != Source::kDpkg && !need.satisfied_by.empty() &&
             capable.contains(need.requirement.normalized);
    });
  }
}

}  // namespace

void find_needs(const Records& records, const std::vector<Installed>& installed, const FileTable& table,
                Inventory& inventory) {
  NeedFinder(records, installed, inventory).find();
  find_gpu(installed, table, inventory);
}

}  // namespace varve::packages::internal
