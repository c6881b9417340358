#pragma once
// Where in an image's layers the part of each distribution lies that sessions use.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analyzer/packages/inventory.h"
#include "analyzer/prewarm/plan.h"
#include "core/index/merge/flat_tree.h"

namespace varve::prewarm {

// What is known of the use of one distribution.
struct KnownUse {
  std::uint64_t sessions = 0;
  std::map<std::string, std::uint64_t>
      modules;  // dotted, at most two parts, that they loaded; empty: not known by module
};

// The packages of an image with their content, for each distribution of the inventory (by normalised name) that has
// sessions. Where modules are known, a subpackage
// ("scipy.signal": a folder with an __init__.py in a package's folder) that is not among them is left out, with all
// below it: tests, most often. A file that several distributions own is each one's. The maps are those of the image's
// layers, base first. Throws CorruptData if a file lies outside of them.
std::vector<Package> used_packages(const index::FlatTree& tree, const packages::Inventory& inventory,
                                   const std::vector<std::shared_ptr<const index::LayerMap>>& maps,
                                   const std::map<std::string, KnownUse>& use);

}  // namespace varve::prewarm
