// How much of an image is stored anew with each version, by how it is packed: reads a series of bench/pack_series.py
// and compares pack_layers() with simpler ways.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/base/clock.h"
#include "indexer/pack_layers.h"

namespace {

using namespace varve;
using indexer::ComponentFacts;

constexpr double kMegabyte = 1e6;

index::Tier tier_of(std::string_view name) {
  for (const auto tier :
       {index::Tier::kSystem, index::Tier::kCuda, index::Tier::kHot, index::Tier::kWatch, index::Tier::kCold})
    if (index::tier_name(tier) == name) return tier;
  throw CLI::ValidationError("heat", std::string(name));
}

std::vector<std::vector<ComponentFacts>> read_series(std::istream& in) {
  std::vector<std::vector<ComponentFacts>> series;
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::size_t release = 0;
    ComponentFacts component;
    std::string tier;
    fields >> release >> component.name >> component.version >> tier >> component.bytes;
    component.tier = tier_of(tier);
    component.content = digest_of(component.name + " " + component.version);
    series.resize(std::max(series.size(), release + 1));
    series[release].push_back(component);
  }
  return series;
}

using Layers = std::vector<std::vector<std::string>>;  // names of components
// A way to pack: one version after the other is given.
using Packing = std::function<Layers(const std::vector<ComponentFacts>&)>;

class Memory {
 public:
  explicit Memory(bool remembers_layers, indexer::PackLimits limits)
      : remembers_layers_(remembers_layers), limits_(limits) {}

  Layers pack(const std::vector<ComponentFacts>& components) {
    const auto* previous = record_ ? record_.get() : nullptr;
    const auto packed = indexer::pack_layers(components, 0, previous, remembers_layers_ ? "bench" : "another", limits_);
    const auto recorded = indexer::recorded_components(components, previous);
    auto record = std::make_unique<indexer::LayoutRecord>();
    Layers layers;
    for (const auto& layer : packed) {
      indexer::RecordedLayer to_record{.digest = {},
                                       .diff_id = {},
                                       .compressed_bytes = 0,
                                       .stream_bytes = 0,
                                       .kept_as_is = false,
                                       .tier = layer.tier,
                                       .writer = "bench",
                                       .components = {}};
      for (const auto& name : layer.components) {
        const auto at = std::ranges::find(components, name, &ComponentFacts::name) - components.begin();
        to_record.components[name] = recorded[std::size_t(at)];
      }
      record->layers.push_back(std::move(to_record));
      layers.push_back(layer.components);
    }
    record_ = std::move(record);
    return layers;
  }

 private:
  bool remembers_layers_;
  indexer::PackLimits limits_;
  std::unique_ptr<indexer::LayoutRecord> record_;
};

Layers one_layer(const std::vector<ComponentFacts>& components) {
  Layers layers(1);
  for (const auto& component : components) layers[0].push_back(component.name);
  return layers;
}

// The most important ones alone, the rest together.
Layers alone_and_rest(const std::vector<ComponentFacts>& components, std::size_t max_layers,
                      const std::function<double(const ComponentFacts&)>& importance) {
  auto sorted = components;
  std::ranges::stable_sort(sorted, std::greater<>(), importance);
  Layers layers;
  for (const auto& component : sorted) {
    if (layers.size() < max_layers) layers.emplace_back();
    layers.back().push_back(component.name);
  }
  return layers;
}

struct Result {
  double stored = 0;  // MB, over the series
  double reused_sum = 0, reused_worst = 1;
  double spared_worst = 1;  // of the bytes of components that are what they were
  std::size_t most_layers = 0;
  std::size_t at_least_90 = 0, releases = 0;
};

Result measure(const std::vector<std::vector<ComponentFacts>>& series, const Packing& pack, bool print) {
  Result result;
  std::set<std::string> known;
  std::set<Digest> before;  // contents of the versions so far
  for (const auto& components : series) {
    std::map<std::string, const ComponentFacts*> by_name;
    for (const auto& component : components) by_name[component.name] = &component;
    double total = 0, fresh = 0, changed = 0;
    for (const auto& component : components)
      changed += before.contains(component.content) ? 0 : double(component.bytes) / kMegabyte;
    const auto layers = pack(components);
    for (const auto& layer : layers) {
      std::set<std::string> content;
      double bytes = 0;
      for (const auto& name : layer) {
        content.insert(name + " " + by_name.at(name)->version);
        bytes += double(by_name.at(name)->bytes) / kMegabyte;
      }
      std::string identity;
      for (const auto& text : content) identity += text + "\n";
      total += bytes;
      if (known.insert(identity).second) fresh += bytes;
    }
    result.stored += fresh;
    result.most_layers = std::max(result.most_layers, layers.size());
    const bool first = &components == &series.front();
    if (!first) {
      const auto reused = 1 - fresh / total;
      result.reused_sum += reused;
      result.reused_worst = std::min(result.reused_worst, reused);
      result.at_least_90 += reused >= 0.9 ? 1 : 0;
      result.spared_worst = std::min(result.spared_worst, (total - fresh) / (total - changed));
      ++result.releases;
    }
    for (const auto& component : components) before.insert(component.content);
    if (print)
      fmt::print("  {:2}: {:6.0f} MB in {:3} layers, {:6.0f} MB new, {:6.0f} MB of them changed\n",
                 &components - series.data(), total, layers.size(), fresh, changed);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "How much of an image is stored anew with each version, by how it is packed; a series of bench/pack_series.py "
      "on standard input");
  bool each = false;
  indexer::PackLimits limits;
  app.add_flag("--each", each, "A line for each version");
  app.add_option("--max-layers", limits.max_layers, "Of the image");
  app.add_option("--min-layer-bytes", limits.min_layer_bytes,
                 "Smaller layers are put together; 0 = by the size of the image");
  CLI11_PARSE(app, argc, argv);
  const auto series = read_series(std::cin);

  std::map<std::string, double> rates;  // the whole truth, future included: what no packer can know
  for (std::size_t i = 1; i < series.size(); ++i) {
    std::map<std::string, Digest> before;
    for (const auto& component : series[i - 1]) before[component.name] = component.content;
    for (const auto& component : series[i])
      rates[component.name] += before[component.name] != component.content ? 1 : 0;
  }
  Memory remembering(true, limits), forgetful(false, limits);
  const std::vector<std::pair<std::string, Packing>> packings{
      {"varve, given the version before", [&](const auto& components) { return remembering.pack(components); }},
      {"varve, layers of before unknown", [&](const auto& components) { return forgetful.pack(components); }},
      {"one layer for all", one_layer},
      {"63 largest alone, rest together",
       [](const auto& components) {
         return alone_and_rest(components, 64, [](const auto& c) { return double(c.bytes); });
       }},
      {"126 largest alone, rest together",
       [](const auto& components) {
         return alone_and_rest(components, 127, [](const auto& c) { return double(c.bytes); });
       }},
      {"63 of most size x true rate alone",
       [&](const auto& components) {
         return alone_and_rest(components, 64, [&](const auto& c) { return double(c.bytes) * rates.at(c.name); });
       }},
      {"every component alone (the bound)",
       [](const auto& components) {
         return alone_and_rest(components, components.size(), [](const auto& c) { return double(c.bytes); });
       }},
  };
  fmt::print("{:36} {:>8} {:>8} {:>8} {:>10} {:>10} {:>8}\n", "", "reused", "worst", ">= 90 %", "unchanged",
             "stored MB", "layers");
  for (const auto& [name, packing] : packings) {
    const Stopwatch watch;
    const auto result = measure(series, packing, each);
    fmt::print("{:36} {:7.1f}% {:7.1f}% {:>5}/{:<2} {:9.1f}% {:10.0f} {:8}   {:.3f} s\n", name,
               100 * result.reused_sum / double(std::max<std::size_t>(result.releases, 1)), 100 * result.reused_worst,
               result.at_least_90, result.releases, 100 * result.spared_worst, result.stored, result.most_layers,
               watch.seconds());
  }
  return 0;
}
