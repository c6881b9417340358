// From an indexed image to its packed layers without writing them: how long it takes and what comes out. The index is
// looked for under --root.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "analyzer/packages/inventory.h"
#include "analyzer/prune/placement.h"
#include "core/base/clock.h"
#include "core/index/opened_image.h"
#include "core/oci/image.h"
#include "indexer/pack_units.h"

using namespace varve;

int main(int argc, char** argv) try {
  CLI::App app("From an indexed image to its packed layers, without writing them");
  std::string reference;
  std::filesystem::path root;
  indexer::PackLimits limits;
  app.add_option("IMAGE", reference)->required();
  app.add_option("--root", root, "Where its index is")->required();
  app.add_option("--max-layers", limits.max_layers);
  CLI11_PARSE(app, argc, argv);

  const auto image = oci::open_image(
      {.reference = oci::Reference::parse(reference), .platform = oci::Platform::of_this_machine(), .registry = {}});
  const index::OpenedImage opened(index::LocalIndex(root), image);
  auto timed = [watch = Stopwatch()](const char* what) mutable {
    fmt::print("{:28} {:6.2f} s\n", what, watch.seconds());
    watch = Stopwatch();
  };
  const auto& tree = opened.tree();
  timed("read and flatten");
  const auto inventory = packages::read_inventory(opened);
  timed("read the inventory");
  // Without ELF facts names and roots are all that placing looks at anyway; the selection is measured by its own room.
  const auto placement = prune::make_placement(tree, inventory, nullptr, nullptr);
  timed("place");
  const auto units = indexer::cut_into_units(tree, placement, nullptr, limits);
  timed("cut into units, digests");
  std::vector<indexer::ComponentFacts> facts;
  for (const auto& unit : units.units) facts.push_back(unit.facts);
  const auto layers = indexer::pack_layers(facts, 0, nullptr, "bench", limits);
  timed("pack");

  std::size_t wrong = 0;
  std::map<std::string_view, std::string_view> component_of;
  for (const auto& component : placement.components)
    for (const auto& path : component.paths) wrong += component_of.emplace(path, component.name).second ? 0 : 1;
  for (const auto& [path, entry] : tree.entries) {
    if (entry.type == FileType::kDirectory) continue;
    const auto& owners = inventory.owners_of_path(path);
    const bool of_python = !owners.empty() && inventory.distributions[owners.front()].source != packages::Source::kDpkg;
    wrong += of_python && !component_of.contains(path) ? 1 : 0;
  }
  fmt::print("{} entries, {} components, {} units, {} directories apart, {} layers, {} files misplaced\n",
             tree.entries.size(), placement.components.size(), units.units.size(), units.directories.size(),
             layers.size(), wrong);
  std::map<std::string, std::uint64_t> bytes;
  for (const auto& fact : facts) bytes[fact.name] = fact.bytes;
  for (const auto& layer : layers) {
    std::uint64_t all = 0;
    for (const auto& name : layer.components) all += bytes[name];
    fmt::print("{:8} {:8.1f} MB {:4} components: {}\n", index::tier_name(layer.tier), double(all) / 1e6,
               layer.components.size(), layer.components.front());
  }
  return wrong == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
