#include "indexer/pack_layers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/errors.h"

namespace varve::indexer {
namespace {

using index::Tier;

constexpr std::size_t kTierCount = 5;
constexpr std::uint64_t kMostLayerBytes =
    1ull << 43;  // far beyond what registries take; costs stay whole numbers of 64 bits

// Chances and costs are whole numbers, so that every machine comes to the same layers.
using Chance = std::uint64_t;  // of kCertain
using Cost = std::uint64_t;    // KiB to be stored anew with each release
constexpr Chance kCertain = 1ull << 30;
constexpr Cost kTooSmall = 1ull << 50;  // more than any real cost: avoided wherever possible

// How often a component changes before anything is known of it, by what two weeks of releases on PyPI do to the
// packages of a notebook image (docs/design/packing.md), and after how many releases its own history weighs as much.
constexpr std::uint32_t kPriorReleases = 8;
constexpr std::uint64_t kSmallComponentBytes = 1'000'000;
Chance prior_of(const ComponentFacts& component) {
  const auto percent = [](std::uint64_t value) { return kCertain / 100 * value; };
  if (component.tier == Tier::kCuda) return percent(5);
  if (component.name.starts_with("pip:") || component.name.starts_with("conda:"))
    return component.bytes < kSmallComponentBytes ? percent(9) : percent(23);
  if (component.name.starts_with("folder:")) return percent(3);
  return percent(50);  // the rest of the system: an image is rarely built anew without some file of it being written
}

constexpr std::uint64_t kLeastSmallest = 1u << 20, kMostSmallest = 8u << 20;

// How generous packing is with layers: to begin with by the smallest size of one.
struct Generosity {
  explicit Generosity(std::uint64_t smallest)
      : alone_bytes(2 * smallest), group_bytes(16 * smallest), layer_cost((smallest >> 10) / 16) {}

  std::uint64_t alone_bytes;  // from this size on a component has a layer of its own
  std::uint64_t group_bytes;  // a layer of several is not made larger
  Cost layer_cost;            // what one layer more may save, at least

  void reduce() {
    alone_bytes = alone_bytes * 5 / 4;
    group_bytes = group_bytes * 5 / 4;
    layer_cost = layer_cost * 5 / 4;
  }
};

struct PackItem {
  std::size_t number = 0;  // of the component
  std::uint64_t bytes = 0;
  Chance chance = 0;  // that the next release changes it
};

struct Draft {
  Tier tier = Tier::kSystem;
  std::vector<std::size_t> components;
  std::uint64_t bytes = 0;
  int previous = -1;  // kept from there
};

Chance unchanged(Chance chance) { return kCertain - chance; }

// Parts a list into stretches at the least cost: what is stored anew, on average, and something for each layer.
class Partition {
 public:
  Partition(const std::vector<PackItem>& items, const Generosity& generosity, const PackLimits& limits)
      : items_(items), generosity_(generosity), limits_(limits) {}

  std::vector<std::vector<PackItem>> run() {
    bundle();
    const auto count = ends_.size();
    std::vector<Cost> best(count + 1, std::numeric_limits<Cost>::max());
    std::vector<std::size_t> from(count + 1, 0);
    best[0] = 0;
    const auto cap = std::min(std::max(generosity_.group_bytes, limits_.min_layer_bytes * 3), limits_.max_layer_bytes);
    for (std::size_t first = 0; first < count; ++first) {
      std::uint64_t bytes = 0;
      Chance same = kCertain;
      for (std::size_t last = first; last < count; ++last) {
        for (auto i = begin_of(last); i < ends_[last]; ++i) {
          bytes += items_[i].bytes;
          same = (same * unchanged(items_[i].chance)) >> 30;
        }
        if (bytes > cap && last != first) break;
        const auto cost = best[first] + (((bytes >> 10) * unchanged(same)) >> 30) + generosity_.layer_cost +
                          (bytes < limits_.min_layer_bytes ? kTooSmall : 0);
        if (cost < best[last + 1]) {
          best[last + 1] = cost;
          from[last + 1] = first;
        }
      }
    }
    std::vector<std::vector<PackItem>> groups;
    for (auto end = count; end != 0; end = from[end])
      groups.emplace_back(items_.begin() + std::ptrdiff_t(begin_of(from[end])),
                          items_.begin() + std::ptrdiff_t(ends_[end - 1]));
    std::ranges::reverse(groups);
    return groups;
  }

 private:
  // The work grows with the square of the number: of very many, neighbours stay together.
  void bundle() {
    constexpr std::size_t kMaxSteps = 3000;
    const auto together = (items_.size() + kMaxSteps - 1) / kMaxSteps;
    std::uint64_t bytes = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (i != begin && (i - begin >= together || bytes + items_[i].bytes > limits_.min_layer_bytes)) {
        ends_.push_back(i);
        begin = i;
        bytes = 0;
      }
      bytes += items_[i].bytes;
    }
    if (!items_.empty()) ends_.push_back(items_.size());
  }
  std::size_t begin_of(std::size_t bundle) const { return bundle == 0 ? 0 : ends_[bundle - 1]; }

  const std::vector<PackItem>& items_;
  const Generosity& generosity_;
  const PackLimits& limits_;
  std::vector<std::size_t> ends_;
};

class Packer {
 public:
  Packer(const std::vector<ComponentFacts>& components, std::uint32_t kept_as_is, const LayoutRecord* previous,
         std::string_view writer, const PackLimits& limits)
      : components_(components), previous_(previous), writer_(writer), limits_(limits) {
    if (limits_.min_layer_bytes == 0)
      limits_.min_layer_bytes = std::min(smallest_layer_bytes(total_bytes()), limits_.max_layer_bytes);
    check();
    if (std::uint64_t(kept_as_is) + 1 < limits.max_layers) room_ = limits.max_layers - kept_as_is - 1;
    if (room_ == 0 && !components.empty())
      fail<UsageError>("{} layers stay as they are and one is for directories: of {} none is left to pack into",
                       kept_as_is, limits.max_layers);
    const auto recorded = recorded_components(components, previous);
    for (const auto& component : recorded) {
      const auto prior = prior_of(components[chances_.size()]);
      chances_.push_back((component.changes * kCertain + kPriorReleases * prior) /
                         (component.releases - 1 + kPriorReleases));
    }
  }

  std::vector<PackedLayer> run() {
    keep_previous();
    for (;;) {
      if (auto packed = pack_pool()) {
        packed->insert(packed->begin(), kept_.begin(), kept_.end());
        return finish(std::move(*packed));
      }
      if (!dissolve_smallest()) break;
    }
    fail<UsageError>("{} components of {} bytes do not fit into {} layers of at most {} bytes", components_.size(),
                     total_bytes(), room_, limits_.max_layer_bytes);
  }

 private:
  void check() {
    if (limits_.max_layer_bytes > kMostLayerBytes || limits_.min_layer_bytes > limits_.max_layer_bytes)
      fail<UsageError>("layers of {} to {} bytes cannot be made; at most {}", limits_.min_layer_bytes,
                       limits_.max_layer_bytes, kMostLayerBytes);
    std::set<std::string_view> names;
    std::set<Digest> contents;
    for (const auto& component : components_) {
      if (!names.insert(component.name).second) fail<UsageError>("component {} is there twice", component.name);
      if (!contents.insert(component.content).second)
        fail<UsageError>("component {} has the content of another one", component.name);
      if (component.bytes > limits_.max_layer_bytes)
        fail<UsageError>("component {} of {} bytes cannot be cut into layers of at most {} bytes: allow larger ones",
                         component.name, component.bytes, limits_.max_layer_bytes);
    }
  }

  std::uint64_t total_bytes() const {
    return std::accumulate(components_.begin(), components_.end(), std::uint64_t(0),
                           [](std::uint64_t sum, const ComponentFacts& component) { return sum + component.bytes; });
  }

  Draft draft_of(std::vector<std::size_t> numbers) const {
    Draft draft{.tier = Tier::kSystem, .components = std::move(numbers), .bytes = 0, .previous = -1};
    std::array<std::uint64_t, kTierCount> bytes{};
    for (const auto number : draft.components) {
      draft.bytes += components_[number].bytes;
      bytes[std::size_t(components_[number].tier)] += components_[number].bytes + 1;
    }
    draft.tier = Tier(std::ranges::max_element(bytes) - bytes.begin());
    return draft;
  }

  // A few bytes of another tier do no harm; moving them would write the whole layer anew.
  bool tiers_agree(const Draft& draft) const {
    std::uint64_t others = 0;
    for (const auto number : draft.components) {
      if (components_[number].tier != draft.tier) others += components_[number].bytes;
    }
    return others <= draft.bytes / 10;
  }

  void keep_previous() {
    std::map<Digest, std::size_t> by_content;
    for (std::size_t i = 0; i < components_.size(); ++i) by_content.emplace(components_[i].content, i);
    std::vector<char> is_kept(components_.size(), 0);
    for (std::size_t i = 0; previous_ != nullptr && i < previous_->layers.size(); ++i) {
      const auto& layer = previous_->layers[i];
      if (layer.kept_as_is || layer.components.empty() || layer.writer != writer_) continue;
      std::vector<std::size_t> numbers;
      for (const auto& [name, component] : layer.components) {
        const auto found = by_content.find(component.content);
        if (found != by_content.end() && !is_kept[found->second]) numbers.push_back(found->second);
      }
      if (numbers.size() != layer.components.size()) continue;
      auto draft = draft_of(std::move(numbers));
      if (!tiers_agree(draft) || draft.bytes > limits_.max_layer_bytes) continue;
      draft.previous = int(i);
      for (const auto number : draft.components) is_kept[number] = 1;
      kept_.push_back(std::move(draft));
    }
    for (std::size_t i = 0; i < components_.size(); ++i) {
      if (!is_kept[i]) pool_.push_back(i);
    }
  }

  std::vector<PackItem> pool_of(Tier tier) const {
    std::vector<PackItem> items;
    for (const auto number : pool_) {
      if (components_[number].tier == tier)
        items.push_back({.number = number, .bytes = components_[number].bytes, .chance = chances_[number]});
    }
    // By chance, so that what changes often is together; of the same chance by size, then by name.
    std::ranges::sort(items, {}, [&](const PackItem& item) {
      return std::tuple(item.chance, item.bytes, std::string_view(components_[item.number].name));
    });
    return items;
  }

  void add(std::vector<Draft>& drafts, const std::vector<PackItem>& group, Tier tier) const {
    std::vector<std::size_t> numbers;
    for (const auto& item : group) numbers.push_back(item.number);
    drafts.push_back(draft_of(std::move(numbers)));
    drafts.back().tier = tier;
  }

  void give_back(std::size_t kept) {
    pool_.insert(pool_.end(), kept_[kept].components.begin(), kept_[kept].components.end());
    std::ranges::sort(pool_);
    kept_.erase(kept_.begin() + std::ptrdiff_t(kept));
  }

  // The smallest kept layer of a tier, or of any; kept_.size() if there is none.
  std::size_t smallest_kept(std::optional<Tier> tier, std::uint64_t at_most) const {
    auto best = kept_.size();
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if ((tier && kept_[i].tier != *tier) || kept_[i].bytes > at_most) continue;
      if (best == kept_.size() || kept_[i].bytes < kept_[best].bytes) best = i;
    }
    return best;
  }

  bool dissolve_smallest() {
    const auto smallest = smallest_kept(std::nullopt, limits_.max_layer_bytes);
    if (smallest == kept_.size()) return false;
    give_back(smallest);
    return true;
  }

  // Kept layers that are too small, and one for a pool that is too small alone.
  void feed_small(Tier tier) {
    const auto in_heat = std::size_t(std::ranges::count(kept_, tier, &Draft::tier));
    auto bytes = std::uint64_t(0);
    bool any = false;
    for (const auto number : pool_) {
      if (components_[number].tier != tier) continue;
      bytes += components_[number].bytes;
      any = true;
    }
    if (!any && in_heat < 2) return;
    for (;;) {
      const auto smallest = smallest_kept(tier, limits_.max_layer_bytes);
      if (smallest == kept_.size()) return;
      const bool is_small = kept_[smallest].bytes < limits_.min_layer_bytes;
      const bool pool_is_small = any && bytes < limits_.min_layer_bytes;
      if (!is_small && (!pool_is_small || kept_[smallest].bytes + bytes > limits_.max_layer_bytes)) return;
      bytes += kept_[smallest].bytes;
      any = true;
      give_back(smallest);
    }
  }

  std::vector<Draft> pack_heat(Tier tier, const Generosity& generosity) const {
    std::vector<PackItem> shared;
    std::vector<PackItem> alone;
    std::uint64_t shared_bytes = 0;
    const auto enough = std::max(generosity.alone_bytes, limits_.min_layer_bytes);
    for (const auto& item : pool_of(tier)) (item.bytes >= enough ? alone : shared).push_back(item);
    for (const auto& item : shared) shared_bytes += item.bytes;
    if (!shared.empty() && shared_bytes < limits_.min_layer_bytes && !alone.empty()) {
      const auto smallest = std::ranges::min_element(alone, {}, &PackItem::bytes);
      if (smallest->bytes + shared_bytes <= limits_.max_layer_bytes) {
        // One group: they would be parted again where it is larger than groups are.
        shared.push_back(*smallest);
        alone.erase(smallest);
        std::vector<Draft> drafts;
        add(drafts, shared, tier);
        for (const auto& item : alone) add(drafts, {item}, tier);
        return drafts;
      }
    }
    std::vector<Draft> drafts;
    for (const auto& group : Partition(shared, generosity, limits_).run()) add(drafts, group, tier);
    for (const auto& item : alone) add(drafts, {item}, tier);
    return drafts;
  }

  // As few layers as first fit finds, largest first.
  std::vector<Draft> pack_tight(Tier tier) const {
    auto items = pool_of(tier);
    std::ranges::sort(items, [&](const PackItem& one, const PackItem& other) {
      return one.bytes != other.bytes ? one.bytes > other.bytes
                                      : components_[one.number].name < components_[other.number].name;
    });
    std::vector<std::vector<PackItem>> groups;
    std::vector<std::uint64_t> bytes;
    for (const auto& item : items) {
      std::size_t group = 0;
      while (group < groups.size() && bytes[group] + item.bytes > limits_.max_layer_bytes) ++group;
      if (group == groups.size()) {
        groups.emplace_back();
        bytes.push_back(0);
      }
      groups[group].push_back(item);
      bytes[group] += item.bytes;
    }
    std::vector<Draft> drafts;
    for (const auto& group : groups) add(drafts, group, tier);
    return drafts;
  }

  // What is still too small joins the smallest other layer of its tier that has room for it, a kept one at last.
  void join_small(std::vector<Draft>& drafts) {
    for (std::size_t i = 0; i < drafts.size();) {
      if (drafts[i].bytes >= limits_.min_layer_bytes) {
        ++i;
        continue;
      }
      const auto small = drafts[i];
      auto best = drafts.size();
      for (std::size_t other = 0; other < drafts.size(); ++other) {
        if (other == i || drafts[other].tier != small.tier ||
            drafts[other].bytes + small.bytes > limits_.max_layer_bytes)
          continue;
        if (best == drafts.size() || drafts[other].bytes < drafts[best].bytes) best = other;
      }
      auto absorb = [&](Draft& into, const std::vector<std::size_t>& numbers, std::uint64_t bytes) {
        into.components.insert(into.components.end(), numbers.begin(), numbers.end());
        into.bytes += bytes;
      };
      if (best != drafts.size()) {
        absorb(drafts[best], small.components, small.bytes);
        drafts.erase(drafts.begin() + std::ptrdiff_t(i));
        i = 0;
        continue;
      }
      const auto kept = smallest_kept(small.tier, limits_.max_layer_bytes - small.bytes);
      if (kept == kept_.size()) {
        ++i;
        continue;
      }
      absorb(drafts[i], kept_[kept].components, kept_[kept].bytes);
      kept_.erase(kept_.begin() + std::ptrdiff_t(kept));
    }
  }

  // Absent if there is no room for its layers beside those kept.
  std::optional<std::vector<Draft>> pack_pool() {
    for (std::size_t tier = 0; tier < kTierCount; ++tier) feed_small(Tier(tier));
    const auto fits = [&](const std::vector<Draft>& drafts) { return drafts.size() + kept_.size() <= room_; };
    const auto all_heats = [&](auto&& pack) {
      std::vector<Draft> all;
      for (std::size_t tier = 0; tier < kTierCount; ++tier)
        std::ranges::move(pack(Tier(tier)), std::back_inserter(all));
      return all;
    };
    Generosity generosity(std::clamp(limits_.min_layer_bytes, kLeastSmallest, kMostSmallest));
    for (;;) {
      auto drafts = all_heats([&](Tier tier) { return pack_heat(tier, generosity); });
      if (fits(drafts)) {
        join_small(drafts);
        return drafts;
      }
      if (generosity.alone_bytes > limits_.max_layer_bytes && generosity.group_bytes > limits_.max_layer_bytes) break;
      generosity.reduce();
    }
    auto drafts = all_heats([&](Tier tier) { return pack_tight(tier); });
    if (!fits(drafts)) return std::nullopt;
    join_small(drafts);
    return drafts;
  }

  Chance chance_of(const Draft& draft) const {
    auto same = kCertain;
    for (const auto number : draft.components) same = (same * unchanged(chances_[number])) >> 30;
    return unchanged(same);
  }

  std::vector<PackedLayer> finish(std::vector<Draft> drafts) {
    // What was packed anew may have come out as it was.
    std::map<std::set<Digest>, int> before;
    for (std::size_t i = 0; previous_ != nullptr && i < previous_->layers.size(); ++i) {
      const auto& layer = previous_->layers[i];
      if (layer.kept_as_is || layer.components.empty() || layer.writer != writer_) continue;
      std::set<Digest> contents;
      for (const auto& [name, component] : layer.components) contents.insert(component.content);
      before.emplace(std::move(contents), int(i));
    }
    for (auto& draft : drafts) {
      std::set<Digest> contents;
      for (const auto number : draft.components) contents.insert(components_[number].content);
      if (const auto found = before.find(contents); found != before.end()) draft.previous = found->second;
      std::ranges::sort(draft.components, {},
                        [&](std::size_t number) -> const std::string& { return components_[number].name; });
    }
    // Within a tier those of before in their order, then new ones, those that will change soonest last: whoever unpacks
    // layers on top of each other keeps what lies beneath a change.
    std::ranges::sort(drafts, {}, [&](const Draft& draft) {
      return std::tuple(draft.tier, draft.previous < 0, draft.previous, draft.previous < 0 ? chance_of(draft) : 0,
                        std::string_view(components_[draft.components.front()].name));
    });
    std::vector<PackedLayer> layers;
    for (const auto& draft : drafts) {
      layers.push_back({.tier = draft.tier, .components = {}, .same_as = draft.previous});
      for (const auto number : draft.components) layers.back().components.push_back(components_[number].name);
    }
    return layers;
  }

  const std::vector<ComponentFacts>& components_;
  const LayoutRecord* previous_;
  std::string_view writer_;
  PackLimits limits_;
  std::uint32_t room_ = 0;
  std::vector<Chance> chances_;
  std::vector<Draft> kept_;
  std::vector<std::size_t> pool_;  // numbers of components that have no layer yet, ascending
};

}  // namespace

std::uint64_t smallest_layer_bytes(std::uint64_t packed_bytes) {
  return std::clamp(std::bit_floor(packed_bytes / 1000), kLeastSmallest, kMostSmallest);
}

std::vector<PackedLayer> pack_layers(const std::vector<ComponentFacts>& components, std::uint32_t kept_as_is,
                                     const LayoutRecord* previous, std::string_view writer, const PackLimits& limits) {
  return Packer(components, kept_as_is, previous, writer, limits).run();
}

std::vector<RecordedComponent> recorded_components(const std::vector<ComponentFacts>& components,
                                                   const LayoutRecord* previous) {
  std::map<std::string_view, const RecordedComponent*> before;
  for (std::size_t i = 0; previous != nullptr && i < previous->layers.size(); ++i) {
    for (const auto& [name, component] : previous->layers[i].components) before.emplace(name, &component);
  }
  // After so many releases both counts are halved: what a component did lately says more.
  constexpr std::uint32_t kRemembered = 64;
  std::vector<RecordedComponent> recorded;
  for (const auto& component : components) {
    auto& now = recorded.emplace_back(RecordedComponent{.version = component.version,
                                                        .tier = component.tier,
                                                        .content = component.content,
                                                        .timeless = component.timeless,
                                                        .bytes = component.bytes,
                                                        .releases = 1,
                                                        .changes = 0});
    const auto found = before.find(component.name);
    if (found == before.end()) continue;
    now.releases = found->second->releases;
    now.changes = found->second->changes;
    if (now.releases >= kRemembered) {
      now.releases -= now.releases / 2;  // the larger half: it stays above the changes
      now.changes /= 2;
    }
    ++now.releases;
    const bool only_times = component.timeless && component.timeless == found->second->timeless;
    if (found->second->content != component.content && !only_times) ++now.changes;
  }
  return recorded;
}

}  // namespace varve::indexer
