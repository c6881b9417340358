#include "analyzer/prewarm/used_content.h"

#include <algorithm>

#include "core/base/errors.h"

namespace varve::prewarm {
namespace {

// "SITE/scipy/signal/a.py" -> "scipy.signal", if that is a subpackage; else "".
std::string subpackage_of(const index::FlatTree& tree, std::string_view site, std::string_view path) {
  if (!site.empty()) {
    if (!path.starts_with(site) || path.size() <= site.size() || path[site.size()] != '/') return {};
    path.remove_prefix(site.size() + 1);
  }
  const auto package = path.find('/');
  if (package == std::string_view::npos) return {};
  const auto inner = path.find('/', package + 1);
  if (inner == std::string_view::npos) return {};
  const auto folder = (site.empty() ? std::string() : std::string(site) + "/") + std::string(path.substr(0, inner));
  if (!tree.entries.contains(folder + "/__init__.py")) return {};
  return std::string(path.substr(0, package)) + "." + std::string(path.substr(package + 1, inner - package - 1));
}

}  // namespace

std::vector<Package> used_packages(const index::FlatTree& tree, const packages::Inventory& inventory,
                                   const std::vector<std::shared_ptr<const index::LayerMap>>& maps,
                                   const std::map<std::string, KnownUse>& use) {
  std::map<std::uint32_t, std::pair<const KnownUse*, Package>> packages;  // by place in the inventory
  for (std::uint32_t i = 0; i < inventory.distributions.size(); ++i) {
    const auto& distribution = inventory.distributions[i];
    const auto known = use.find(distribution.normalized);
    if (known == use.end() || known->second.sessions == 0 || !distribution.vendored_by.empty()) continue;
    packages[i] = {&known->second,
                   {.name = distribution.normalized, .sessions = known->second.sessions, .content = {}}};
  }
  for (const auto& [path, entry] : tree.entries) {
    if (entry.type != FileType::kRegular) continue;
    const auto first_name = entry.link_of.empty() ? tree.entries.end() : tree.entries.find(entry.link_of);
    const auto& runs = first_name == tree.entries.end() ? entry.runs : first_name->second.runs;
    for (const auto owner : inventory.owners_of_path(path)) {
      const auto found = packages.find(owner);
      if (found == packages.end()) continue;
      auto& [known, package] = found->second;
      const auto subpackage =
          known->modules.empty() ? std::string() : subpackage_of(tree, inventory.distributions[owner].site, path);
      if (!subpackage.empty() && !known->modules.contains(subpackage)) continue;
      for (const auto& run : runs) {
        const ByteRange range{.offset = run.run.stream_offset, .length = run.run.length};
        if (run.layer >= maps.size() || !range.fits_in(maps[run.layer]->stream_bytes))
          fail<CorruptData>("'{:.200}' lies outside of the image's layers", path);
        if (range.length != 0)
          package.content.push_back({.layer = maps[run.layer]->layer_digest, .stream_range = range});
      }
    }
  }
  std::vector<Package> result;
  for (auto& [number, one] : packages) result.push_back(std::move(one.second));
  return result;
}

}  // namespace varve::prewarm
