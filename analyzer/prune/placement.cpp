#include "analyzer/prune/placement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "analyzer/packages/record_files.h"
#include "core/base/text/image_path.h"
#include "core/base/text/utf8.h"

namespace varve::prune {
namespace {

using index::FlatEntry;
using index::Tier;

using Number = std::uint32_t;  // of a component
constexpr Number kSystem = 0;
constexpr int kMaxSplitDepth = 3;  // folders are not taken apart further down than this

Tier tier_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHot:
      return Tier::kHot;
    case Verdict::kWatch:
      return Tier::kWatch;
    case Verdict::kCold:
    case Verdict::kArchived:
      break;
  }
  return Tier::kCold;
}

class Placer {
 public:
  Placer(const index::FlatTree& tree, const packages::Inventory& inventory, const Plan* plan,
         const cuda::Selection* cuda)
      : inventory_(inventory), plan_(plan), cuda_(cuda) {
    components_.push_back({.name = "system", .versions = {}, .tier = Tier::kSystem});
    for (const auto& [path, entry] : tree.entries) {
      if (entry.type != FileType::kDirectory) files_.push_back({.path = path, .entry = &entry});
    }
  }

  index::Placement run() {
    find_owners();
    number_distributions();
    place_owned();
    if (cuda_ != nullptr) place_cuda();
    place_unowned();
    unite_links();
    return placement();
  }

 private:
  struct File {
    std::string_view path;
    const FlatEntry* entry = nullptr;
    const std::vector<std::uint32_t>* owners = nullptr;  // null: nobody
    Number component = kSystem;
  };
  struct Component {
    std::string name;
    std::set<std::string> versions;
    Tier tier = Tier::kSystem;
  };
  struct Folder {
    std::uint64_t bytes = 0;  // of files that nobody owns
    bool mixed = false;       // there are others, too
    std::vector<std::string_view> children;
  };

  static std::uint64_t bytes_of(const File& file) {
    return file.entry->link_of.empty() && file.entry->type == FileType::kRegular ? file.entry->size : 0;
  }

  Number number_of(const std::string& name, Tier tier) {
    const auto [found, is_new] = numbers_.try_emplace(name, Number(components_.size()));
    if (is_new) components_.push_back({.name = name, .versions = {}, .tier = tier});
    auto& component = components_[found->second];
    component.tier = std::min(component.tier, tier);
    return found->second;
  }

  // Files and owners' prefixes are both in byte order, and no prefix lies below another: one walk.
  void find_owners() {
    const auto& owners = inventory_.path_owners;
    auto next = owners.begin();
    auto last = owners.end();
    for (auto& file : files_) {
      for (; next != owners.end() && next->first <= file.path; ++next) last = next;
      if (last == owners.end() || last->second.empty()) continue;
      const bool owned = last->first.ends_with('/') ? file.path.starts_with(last->first) : file.path == last->first;
      if (owned) file.owners = &last->second;
    }
  }

  // Whose part it is, if it is a copy inside another one.
  const packages::Distribution& outermost(const packages::Distribution& distribution) const {
    const auto* at = &distribution;
    for (int depth = 0; depth < 8 && !at->vendored_by.empty(); ++depth) {
      const auto outer = std::ranges::find_if(inventory_.distributions, [&](const auto& other) {
        return other.normalized == at->vendored_by && other.vendored_by.empty();
      });
      if (outer == inventory_.distributions.end()) break;
      at = &*outer;
    }
    return *at;
  }

  void number_distributions() {
    using Identity = std::pair<std::string_view, std::string_view>;
    std::map<Identity, Verdict> verdicts;
    for (std::size_t i = 0; plan_ != nullptr && i < plan_->verdicts.size(); ++i) {
      const auto& planned = plan_->verdicts[i];
      verdicts.emplace(Identity(planned.name, planned.source), planned.verdict);
    }
    for (const auto& distribution : inventory_.distributions) {
      const auto& outer = outermost(distribution);
      const auto source = packages::source_name(outer.source);
      const auto verdict = verdicts.find(Identity(outer.normalized, source));
      const auto tier = verdict == verdicts.end() ? Tier::kHot : tier_of(verdict->second);
      tiers_.push_back(tier);
      names_.push_back(outer.normalized);
      auto number = kSystem;
      if (outer.source != packages::Source::kDpkg) {
        number = number_of(fmt::format("{}:{}", source, outer.normalized), tier);
      } else if (outer.bytes >= kOwnComponentBytes || tier > Tier::kHot) {
        number = number_of(fmt::format("dpkg:{}", outer.normalized), tier > Tier::kHot ? tier : Tier::kSystem);
      }
      if (number != kSystem && &outer == &distribution) components_[number].versions.insert(distribution.version);
      of_distribution_.push_back(number);
    }
  }

  // The hottest of them; of equally hot ones the first by name.
  std::uint32_t decisive(const std::vector<std::uint32_t>& owners) const {
    return *std::ranges::min_element(owners, {}, [&](std::uint32_t owner) {
      const auto& component = components_[of_distribution_[owner]];
      return std::tuple(component.tier, std::string_view(component.name), owner);
    });
  }

  void place_owned() {
    std::unordered_map<const void*, std::uint32_t> of_set;
    for (auto& file : files_) {
      if (file.owners == nullptr) continue;
      auto found = of_set.find(file.owners);
      if (found == of_set.end()) found = of_set.emplace(file.owners, decisive(*file.owners)).first;
      file.component = of_distribution_[found->second];
      // Whoever asks for entry points reads it, used or not: it is no reason to enter a cold layer.
      if (components_[file.component].tier == Tier::kCold && packages::is_python_metadata(file.path))
        file.component = number_of("metadata", Tier::kHot);
    }
  }

  void place_cuda() {
    const auto is_named = [](const cuda::Kept& kept) {
      return kept.rule.starts_with("R1") || kept.rule.starts_with("R2");
    };
    std::vector<File*> named;
    std::map<std::uint32_t, std::uint64_t> named_bytes, all_bytes;  // by distribution that decides
    auto selected = cuda_->files.begin();
    for (auto& file : files_) {
      const auto owner = file.owners == nullptr ? kNobody : decisive(*file.owners);
      if (owner != kNobody) all_bytes[owner] += bytes_of(file);
      while (selected != cuda_->files.end() && selected->first < file.path) ++selected;
      if (selected == cuda_->files.end() || selected->first != file.path || !is_named(selected->second)) continue;
      named.push_back(&file);
      if (owner != kNobody) named_bytes[owner] += bytes_of(file);
    }
    std::map<std::uint32_t, Number> whole;
    for (auto* file : named) {
      if (file->owners == nullptr) {
        place_cuda_of_nobody(*file);
        continue;
      }
      const auto owner = decisive(*file->owners);
      const auto number = cuda_of_distribution(owner);
      file->component = number;
      const auto& distribution = inventory_.distributions[owner];
      if (distribution.source != packages::Source::kDpkg && named_bytes[owner] != 0 &&
          named_bytes[owner] * 2 >= all_bytes[owner])
        whole[owner] = number;
    }
    for (auto& file : files_) {
      if (file.owners == nullptr) continue;
      if (const auto found = whole.find(decisive(*file.owners)); found != whole.end()) file.component = found->second;
    }
  }

  Number cuda_of_distribution(std::uint32_t owner) {
    const auto number = number_of("cuda:" + names_[owner], tiers_[owner] > Tier::kHot ? tiers_[owner] : Tier::kCuda);
    components_[number].versions.insert(inventory_.distributions[owner].version);
    return number;
  }

  // "usr/local/cuda-12.4/lib64/x" is of "usr/local/cuda-12.4", "opt/tool/lib/libcublas.so" of the folder it lies in.
  // Links among the system's folders stay with the system.
  void place_cuda_of_nobody(File& file) {
    auto folder = parent_of(file.path);
    for (auto at = folder; !at.empty(); at = parent_of(at)) {
      if (name_of(at).starts_with("cuda")) folder = at;
    }
    if (folder.empty() || (file.entry->type == FileType::kSymlink && !name_of(folder).starts_with("cuda")) ||
        !is_utf8(folder))
      return;
    file.component = number_of("cuda:" + std::string(folder), Tier::kCuda);
  }

  void place_unowned() {
    std::map<std::string_view, Folder> folders;
    folders[""];
    const auto folder_of = [&](std::string_view path) -> Folder& {
      // Made with all above it, each known to the one above.
      auto found = folders.find(path);
      if (found != folders.end()) return found->second;
      for (auto at = path; !at.empty() && !folders.contains(at); at = parent_of(at)) folders.try_emplace(at);
      return folders.at(path);
    };
    for (const auto& file : files_) {
      const bool nobodys = file.owners == nullptr && file.component == kSystem;
      auto at = parent_of(file.path);
      folder_of(at);
      for (;; at = parent_of(at)) {
        auto& folder = folders.at(at);
        if (nobodys) folder.bytes += bytes_of(file);
        if (!nobodys && std::exchange(folder.mixed, true)) break;
        if (at.empty()) break;
      }
    }
    folders.at("").mixed = true;
    for (auto& [path, folder] : folders) {
      if (!path.empty()) folders.at(parent_of(path)).children.push_back(path);
    }
    std::map<std::string_view, Number> chosen;
    for (const auto& [path, folder] : folders) {
      if (!folder.mixed && folders.at(parent_of(path)).mixed) choose(folders, path, chosen);
    }
    // A file is of the nearest folder above it that was chosen.
    for (auto& file : files_) {
      if (file.owners != nullptr || file.component != kSystem) continue;
      const auto parent = parent_of(file.path);
      for (auto at = parent; !at.empty() && file.component == kSystem; at = parent_of(at)) {
        if (const auto found = chosen.find(at); found != chosen.end()) file.component = found->second;
      }
      if (file.component == kSystem && bytes_of(file) >= kOwnComponentBytes && is_utf8(file.path))
        file.component = number_of("file:" + std::string(file.path), Tier::kSystem);
    }
  }

  // Of a folder that is nobody's: itself, or those of its folders that hold most of it.
  void choose(const std::map<std::string_view, Folder>& folders, std::string_view path,
              std::map<std::string_view, Number>& chosen) {
    const auto& folder = folders.at(path);
    if (folder.bytes < kOwnComponentBytes || !is_utf8(path)) return;
    std::vector<std::string_view> large;
    std::uint64_t large_bytes = 0;
    for (const auto child : folder.children) {
      if (folders.at(child).bytes < kOwnComponentBytes) continue;
      large.push_back(child);
      large_bytes += folders.at(child).bytes;
    }
    const bool take_apart = std::ranges::count(path, '/') + 1 < kMaxSplitDepth && large_bytes >= folder.bytes / 5 * 4;
    if (take_apart) {
      for (const auto child : large) choose(folders, child, chosen);
    }
    if (!take_apart || folder.bytes - large_bytes >= kOwnComponentBytes)
      chosen.emplace(path, number_of("folder:" + std::string(path), Tier::kSystem));
  }

  void unite_links() {
    std::unordered_map<std::string_view, Number> hottest;  // by first name, of those that have several
    const auto hotter = [&](Number one, Number other) {
      return std::tuple(components_[one].tier, std::string_view(components_[one].name)) <
                     std::tuple(components_[other].tier, std::string_view(components_[other].name))
                 ? one
                 : other;
    };
    for (const auto& file : files_) {
      if (file.entry->link_of.empty()) continue;
      const auto [found, is_new] = hottest.try_emplace(file.entry->link_of, file.component);
      if (!is_new) found->second = hotter(found->second, file.component);
    }
    if (hottest.empty()) return;
    for (auto& file : files_) {
      if (!file.entry->link_of.empty()) continue;
      const auto found = hottest.find(file.path);
      if (found == hottest.end()) continue;
      file.component = found->second = hotter(found->second, file.component);
    }
    for (auto& file : files_) {
      if (!file.entry->link_of.empty()) file.component = hottest.at(file.entry->link_of);
    }
  }

  index::Placement placement() const {
    std::vector<index::Component> components;
    for (const auto& component : components_) {
      std::string versions;
      for (const auto& version : component.versions) versions += (versions.empty() ? "" : ",") + version;
      components.push_back({.name = component.name,
                            .version = is_utf8(versions) ? versions.substr(0, 500) : "",
                            .tier = component.tier,
                            .paths = {}});
    }
    for (const auto& file : files_) {
      if (file.component != kSystem) components[file.component].paths.emplace_back(file.path);
    }
    std::erase_if(components, [](const index::Component& component) { return component.paths.empty(); });
    std::ranges::sort(components, {}, &index::Component::name);
    return {.components = std::move(components), .removed = {}, .added = {}};
  }

  static constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();
  const packages::Inventory& inventory_;
  const Plan* plan_;
  const cuda::Selection* cuda_;
  std::vector<File> files_;  // by path
  std::vector<Component> components_;
  std::map<std::string, Number> numbers_;
  std::vector<Number> of_distribution_;
  std::vector<Tier> tiers_;         // by distribution, of the outermost
  std::vector<std::string> names_;  // the same
};

}  // namespace

index::Placement make_placement(const index::FlatTree& tree, const packages::Inventory& inventory, const Plan* plan,
                                const cuda::Selection* cuda) {
  return Placer(tree, inventory, plan, cuda).run();
}

}  // namespace varve::prune
