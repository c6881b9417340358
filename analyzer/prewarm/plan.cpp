#include "analyzer/prewarm/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "core/base/errors.h"

namespace varve::prewarm {
namespace {

using index::LayerMap;

// A span, or a layer of one frame, which can only be fetched whole. By layer and number, so that sets of them are in
// order of the stream.
struct Unit {
  std::size_t layer = 0;  // in Layers
  std::size_t number = 0;
  auto operator<=>(const Unit&) const = default;
};

struct Layer {
  std::shared_ptr<const LayerMap> map;
  std::vector<bool> settled;        // by unit: here, or to be fetched by an item before
  std::set<std::uint64_t> windows;  // blocks that come with an item before

  bool one_frame() const { return map->format == index::LayerFormat::kZstdSingle; }
  std::size_t unit_of(std::size_t span) const { return one_frame() ? 0 : span; }
  ByteRange stream_range(std::size_t unit) const {
    return one_frame() ? ByteRange{0, map->stream_bytes} : map->spans[unit].stream_range;
  }
};

bool covers(const std::vector<ByteRange>& ranges, const ByteRange& wanted) {
  const auto after = std::ranges::upper_bound(ranges, wanted.offset, {}, &ByteRange::offset);
  return after != ranges.begin() && std::prev(after)->end() >= wanted.end();
}

// All layers of all images, each once, and what of them has been dealt with.
class Layers {
 public:
  Layers(const Present& present, const PlanOptions& options) : present_(present), options_(options) {}

  std::size_t add(const std::shared_ptr<const LayerMap>& map) {
    const auto [entry, fresh] = numbers_.try_emplace(map->layer_digest, layers_.size());
    if (!fresh) return entry->second;
    auto& layer = layers_.emplace_back(Layer{.map = map, .settled = {}, .windows = {}});
    layer.settled.resize(layer.one_frame() ? 1 : map->spans.size());
    const auto here = present_.find(map->layer_digest);
    for (std::size_t unit = 0; here != present_.end() && unit < layer.settled.size(); ++unit)
      layer.settled[unit] = covers(here->second, layer.stream_range(unit));
    return entry->second;
  }

  const Layer& operator[](std::size_t number) const { return layers_[number]; }
  bool settled(const Unit& unit) const { return layers_[unit.layer].settled[unit.number]; }

  // What these units take if they are fetched together, and nothing of them is settled.
  std::uint64_t cost(const std::set<Unit>& units) const {
    std::uint64_t bytes = 0;
    std::set<std::pair<std::size_t, std::uint64_t>> blocks;
    const Unit* before = nullptr;
    for (const auto& unit : units) {
      const auto& layer = layers_[unit.layer];
      if (layer.one_frame()) {
        bytes += layer.map->compressed_bytes;
        continue;
      }
      const auto& span = layer.map->spans[unit.number];
      bytes += span.compressed_range.length;
      if (before != nullptr && before->layer == unit.layer)
        bytes += gap_after(layer.map->spans[before->number].compressed_range.end(), span.compressed_range.offset);
      each_window_block(layer, unit.number, [&](std::uint64_t block) {
        if (!layer.windows.contains(block) && blocks.emplace(unit.layer, block).second)
          bytes += block_bytes(layer, block);
      });
      before = &unit;
    }
    return bytes;
  }

  void settle(const std::set<Unit>& units) {
    for (const auto& unit : units) {
      auto& layer = layers_[unit.layer];
      layer.settled[unit.number] = true;
      if (!layer.one_frame())
        each_window_block(layer, unit.number, [&](std::uint64_t block) { layer.windows.insert(block); });
    }
  }

 private:
  std::uint64_t gap_after(std::uint64_t end, std::uint64_t offset) const {
    const auto gap = offset > end ? offset - end : 0;
    return gap <= options_.merge_gap_bytes ? gap : 0;
  }

  std::uint64_t block_size(const Layer& layer) const {
    const bool whole = layer.map->windows_bytes <= options_.whole_windows_bytes || options_.window_block_bytes == 0;
    return whole ? layer.map->windows_bytes : options_.window_block_bytes;
  }
  template <typename Use>
  void each_window_block(const Layer& layer, std::size_t span, Use&& use) const {
    const auto record = layer.map->record_range(span);
    if (record.length == 0) return;
    const auto size = block_size(layer);
    for (auto block = record.offset / size; block <= (record.end() - 1) / size; ++block) use(block);
  }
  std::uint64_t block_bytes(const Layer& layer, std::uint64_t block) const {
    const auto size = block_size(layer);
    return std::min(size, layer.map->windows_bytes - block * size);
  }

  const Present& present_;
  const PlanOptions& options_;
  std::map<Digest, std::size_t> numbers_;
  std::vector<Layer> layers_;
};

// The layers of one image, and what of them is not for it.
class ImageLayers {
 public:
  ImageLayers(const Image& image, Layers& layers) : image_(image), layers_(layers) {
    for (const auto& map : image.maps) {
      const auto number = layers.add(map);
      if (!numbers_.try_emplace(map->layer_digest, number).second) continue;
      if (layers[number].one_frame()) continue;  // fetched whole or not at all; no marks are made for it
      index::for_each_span_within(*map, image.cold.of(map->layer_digest), [&](std::size_t span) {
        cold_.insert({number, span});
      });
    }
    for (const auto& pack : image.packs) numbers_.try_emplace(pack.map->layer_digest, layers.add(pack.map));
  }

  // Calls use(unit) with what of the range is neither settled nor cold, and what that follows.
  template <typename Use>
  void each_missing(const LayerRange& range, Use&& use) const {
    const auto number = numbers_.find(range.layer);
    if (number == numbers_.end())
      fail<CorruptData>("{}: layer {} is none of the image's", image_.name, range.layer.to_string());
    const auto& layer = layers_[number->second];
    if (!range.stream_range.fits_in(layer.map->stream_bytes))
      fail<CorruptData>("{}: {} bytes at {} lie outside of layer {}", image_.name, range.stream_range.length,
                        range.stream_range.offset, range.layer.to_string());
    auto [first, last] = layer.map->spans_of(range.stream_range);
    while (first < last && layer.map->spans[first].follows && !layers_.settled({number->second, first})) --first;
    for (auto span = first; span < last; ++span) {
      const Unit unit{.layer = number->second, .number = layer.unit_of(span)};
      if (!layers_.settled(unit) && !cold_.contains(unit)) use(unit);
    }
  }

 private:
  const Image& image_;
  Layers& layers_;
  std::map<Digest, std::size_t> numbers_;
  std::set<Unit> cold_;
};

class Planner {
 public:
  Planner(const std::vector<Image>& images, const Present& present, const PlanOptions& options)
      : images_(images), options_(options), layers_(present, options) {
    for (const auto& image : images) views_.emplace_back(image, layers_);
  }

  Plan run() {
    std::vector<std::size_t> order(images_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t image) { return images_[image].sessions; });
    for (const auto image : order) {
      if (!images_[image].packs.empty())
        add_packs(image);
      else if (!images_[image].profile.ranges.empty())
        add_profile(image);
    }
    add_packages(order);
    return std::move(plan_);
  }

 private:
  std::uint64_t left() const { return options_.budget_bytes - plan_.download_bytes; }

  void append(std::vector<LayerRange>& ranges, const Unit& unit) const {
    const auto& layer = layers_[unit.layer];
    const auto range = layer.stream_range(unit.number);
    if (!ranges.empty() && ranges.back().layer == layer.map->layer_digest &&
        ranges.back().stream_range.end() == range.offset)
      ranges.back().stream_range.length += range.length;
    else
      ranges.push_back({.layer = layer.map->layer_digest, .stream_range = range});
  }

  void take(Item item, const std::set<Unit>& units) {
    layers_.settle(units);
    plan_.download_bytes += item.download_bytes;
    plan_.items.push_back(std::move(item));
  }

  void add_profile(std::size_t image) {
    const auto& profile = images_[image].profile;
    std::vector<LayerRange> content;
    for (const auto& range : profile.ranges)
      content.push_back({.layer = profile.layers[range.layer], .stream_range = range.stream_range});
    add_start(What::kProfile, image, {}, images_[image].sessions, content);
  }

  // Of the package whose part it is.
  std::uint64_t sessions_that_read(const Image& image, const LayerRange& trigger) const {
    std::uint64_t sessions = 0;
    for (const auto& package : image.packages) {
      const bool has_it = std::ranges::any_of(package.content, [&](const LayerRange& part) {
        return part.layer == trigger.layer && part.stream_range.overlaps(trigger.stream_range);
      });
      if (has_it) sessions = std::max(sessions, package.sessions);
    }
    return sessions;
  }

  void add_packs(std::size_t number) {
    const auto& image = images_[number];
    struct Start {
      const Pack* pack;
      std::uint64_t sessions;
    };
    std::vector<Start> imports;
    const auto add = [&](const Start& start) {
      const auto& map = *start.pack->map;
      add_start(start.pack->is_program ? What::kProgramPack : What::kImportPack, number, start.pack->name,
                start.sessions,
                {{.layer = map.layer_digest, .stream_range = {.offset = 0, .length = map.stream_bytes}}});
    };
    for (const auto& pack : image.packs) {
      if (pack.is_program)
        add({.pack = &pack, .sessions = image.sessions});
      else if (const auto sessions = sessions_that_read(image, pack.trigger); sessions > 0 || image.packages.empty())
        imports.push_back({.pack = &pack, .sessions = sessions});
    }
    std::ranges::stable_sort(imports, [](const Start& a, const Start& b) {
      return more_sessions_a_byte(a.sessions, a.pack->map->compressed_bytes, b.sessions, b.pack->map->compressed_bytes)
          .value_or(a.pack->map->compressed_bytes < b.pack->map->compressed_bytes);
    });
    for (const auto& start : imports) add(start);
  }

  // Of these the beginning, if not all fits.
  void add_start(What what, std::size_t image, const std::string& name, std::uint64_t sessions,
                 const std::vector<LayerRange>& content) {
    Item item{.what = what,
              .image = image,
              .name = name,
              .sessions = sessions,
              .action = Action::kLocal,
              .download_bytes = 0,
              .ranges = {}};
    std::vector<Unit> order;
    std::set<Unit> units;
    for (const auto& range : content) {
      views_[image].each_missing(range, [&](const Unit& unit) {
        if (units.insert(unit).second) order.push_back(unit);
      });
    }
    if (units.empty()) return take(std::move(item), units);
    item.action = Action::kFetch;
    item.download_bytes = layers_.cost(units);
    if (item.download_bytes > left()) {
      const auto whole = item.download_bytes;
      order.resize(largest_start(order));
      units = {order.begin(), order.end()};
      item.action = order.empty() ? Action::kTooLarge : Action::kPart;
      item.download_bytes = order.empty() ? whole : layers_.cost(units);
    }
    for (const auto& unit : order) append(item.ranges, unit);
    if (item.action == Action::kTooLarge)
      plan_.items.push_back(std::move(item));
    else
      take(std::move(item), units);
  }

  // How many of these, from the first, fit into what is left. A longer start never costs less: a piece put into a gap
  // takes the gap's place.
  std::size_t largest_start(const std::vector<Unit>& order) const {
    std::size_t fits = 0, too_many = order.size();
    while (too_many - fits > 1) {
      const auto middle = fits + (too_many - fits) / 2;
      if (layers_.cost({order.begin(), order.begin() + std::ptrdiff_t(middle)}) <= left())
        fits = middle;
      else
        too_many = middle;
    }
    return fits;
  }

  struct Candidate {
    std::size_t image = 0;
    const Package* package = nullptr;
    std::set<Unit> missing;
    std::uint64_t bytes = 0;
  };

  // Absent if they are equal. Exact: products of 64-bit numbers.
  static std::optional<bool> more_sessions_a_byte(std::uint64_t sessions, std::uint64_t bytes,
                                                  std::uint64_t other_sessions, std::uint64_t other_bytes) {
    __extension__ typedef unsigned __int128 Wide;
    const auto left = Wide(sessions) * other_bytes, right = Wide(other_sessions) * bytes;
    if (left == right) return std::nullopt;
    return left > right;
  }

  // More sessions per byte first; of equals the smaller, then the one whose image comes first, then by name.
  static bool better(const Candidate& a, const Candidate& b) {
    return more_sessions_a_byte(a.package->sessions, a.bytes, b.package->sessions, b.bytes)
        .value_or(std::tie(a.bytes, a.package->name) < std::tie(b.bytes, b.package->name));
  }

  void add_packages(const std::vector<std::size_t>& order) {
    std::vector<Candidate> candidates;
    for (const auto image : order) {
      for (const auto& package : images_[image].packages) {
        if (package.sessions == 0) continue;
        auto& candidate =
            candidates.emplace_back(Candidate{.image = image, .package = &package, .missing = {}, .bytes = 0});
        for (const auto& range : package.content)
          views_[image].each_missing(range, [&](const Unit& unit) { candidate.missing.insert(unit); });
        candidate.bytes = layers_.cost(candidate.missing);
      }
    }
    while (!candidates.empty()) {
      const auto best = std::ranges::min_element(candidates, better);
      const auto taken = std::move(*best);
      candidates.erase(best);
      add_package(taken);
      if (plan_.items.back().action != Action::kFetch) continue;
      for (auto& candidate : candidates) {
        if (std::erase_if(candidate.missing, [&](const Unit& unit) { return layers_.settled(unit); }) != 0)
          candidate.bytes = layers_.cost(candidate.missing);
      }
    }
  }

  void add_package(const Candidate& candidate) {
    Item item{.what = What::kPackage,
              .image = candidate.image,
              .name = candidate.package->name,
              .sessions = candidate.package->sessions,
              .action = Action::kFetch,
              .download_bytes = layers_.cost(candidate.missing),
              .ranges = {}};
    if (candidate.missing.empty())
      item.action = Action::kLocal;
    else if (item.download_bytes > left())
      item.action = Action::kTooLarge;
    if (item.action == Action::kTooLarge) {
      plan_.items.push_back(std::move(item));
      return;
    }
    for (const auto& unit : candidate.missing) append(item.ranges, unit);
    take(std::move(item), candidate.missing);
  }

  const std::vector<Image>& images_;
  const PlanOptions& options_;
  Layers layers_;
  std::vector<ImageLayers> views_;
  Plan plan_;
};

}  // namespace

Plan make_plan(const std::vector<Image>& images, const Present& present, const PlanOptions& options) {
  return Planner(images, present, options).run();
}

}  // namespace varve::prewarm
