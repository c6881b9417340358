#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "indexer/repack_image.h"

namespace varve::indexer {
namespace {

using index::Tier;

constexpr std::uint32_t kMostTakenOver = 100;  // of 127: the rest is for new ones

// Bytes of a layer that the tree still shows, as tar has them.
struct LiveBytes {
  std::uint64_t all = 0, system = 0, cuda = 0;
};

}  // namespace

std::vector<std::uint32_t> layers_worth_keeping(const RepackInput& input, const PackLimits& limits) {
  constexpr double kNearlyAll = 0.95, kHardlyWasted = 0.10;
  constexpr std::uint64_t kWorthKeepingBytes = 8u << 20;  // smaller ones are better off packed
  const auto count = std::uint32_t(input.index.maps.size());
  std::unordered_map<std::string_view, const index::Component*> holders;
  auto base = count;  // layers below the first that carries a distribution
  for (const auto& component : input.placement.components) {
    const bool distribution = component.name.starts_with("pip:") || component.name.starts_with("egg:") ||
                              component.name.starts_with("conda:");
    for (const auto& path : component.paths) {
      holders.emplace(path, &component);
      if (const auto found = input.tree.entries.find(path); distribution && found != input.tree.entries.end())
        base = std::min(base, found->second.layer);
    }
  }
  std::vector<LiveBytes> live(count);
  for (const auto& [path, entry] : input.tree.entries) {
    if (entry.layer >= count || entry.implied) continue;
    const auto holder = holders.find(path);
    const auto tier = holder == holders.end() ? Tier::kSystem : holder->second->tier;
    const auto bytes = 512 + (entry.link_of.empty() ? (entry.size + 511) / 512 * 512 : 0);
    live[entry.layer].all += bytes;
    if (entry.type == FileType::kDirectory) continue;  // nobody's
    if (tier == Tier::kSystem) live[entry.layer].system += bytes;
    if (tier == Tier::kCuda) live[entry.layer].cuda += bytes;
  }
  std::unordered_set<std::string> taken_before;
  if (input.previous_layout != nullptr)
    for (const auto& layer : input.previous_layout->layers)
      if (layer.kept_as_is) taken_before.insert(layer.digest.to_string());
  std::vector<std::uint32_t> kept;
  for (std::uint32_t layer = 0; layer < count && kept.size() < kMostTakenOver; ++layer) {
    const auto& bytes = live[layer];
    const auto stream = input.index.maps[layer]->stream_bytes;
    const bool one_kind = double(std::max(bytes.system, bytes.cuda)) >= kNearlyAll * double(bytes.all);
    const bool worth_it = one_kind &&
                          stream >= (limits.min_layer_bytes == 0 ? kWorthKeepingBytes : limits.min_layer_bytes) &&
                          double(bytes.all) >= (1 - kHardlyWasted) * double(stream);
    if (layer < base || worth_it || taken_before.contains(input.image.manifest.layers.at(layer).digest.to_string()))
      kept.push_back(layer);
  }
  return kept;
}

}  // namespace varve::indexer
