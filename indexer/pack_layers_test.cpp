#include "indexer/pack_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "core/base/errors.h"
#include "testing/refusal.h"

namespace varve::indexer {
namespace {

using index::Tier;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::string_view kWriter = "a writer";
constexpr PackLimits kCoarse{.max_layers = 127, .max_layer_bytes = 8'000'000'000, .min_layer_bytes = 8 * kMiB};

ComponentFacts component(std::string name, std::uint64_t bytes, Tier tier = Tier::kHot, std::string version = "1") {
  const auto content = digest_of(name + " " + version);
  return {.name = std::move(name), .version = std::move(version), .tier = tier, .bytes = bytes, .content = content};
}

// Sizes as images have them: a few giants, many dwarfs.
std::vector<ComponentFacts> some_image(std::mt19937_64& random, std::size_t count) {
  std::vector<ComponentFacts> image;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bytes = (std::uint64_t(1) << (random() % 31)) + random() % 5000;
    image.push_back(component("pip:p" + std::to_string(i), bytes, Tier(random() % 5), std::to_string(random() % 3)));
  }
  return image;
}

PackLimits some_limits(unsigned seed) {
  if (seed % 3 == 1) return {.max_layers = 40, .max_layer_bytes = 3ull << 30, .min_layer_bytes = 64 * kMiB};
  if (seed % 3 == 2) return {.max_layers = 127, .max_layer_bytes = 2ull << 30, .min_layer_bytes = 1};
  return {};
}

// Upgrades, removals and additions.
std::vector<ComponentFacts> next_version(std::mt19937_64& random, std::vector<ComponentFacts> image) {
  std::erase_if(image, [&](const auto&) { return random() % 100 == 0; });
  for (auto& facts : image) {
    if (random() % 12 == 0)
      facts = component(facts.name, facts.bytes + random() % 1000, facts.tier, facts.version + "'");
    if (random() % 40 == 0) facts.tier = Tier(random() % 5);
  }
  if (random() % 2 == 0) image.push_back(component("pip:new" + std::to_string(random()), random() % (100 * kMiB)));
  std::ranges::shuffle(image, random);
  return image;
}

LayoutRecord record_of(const std::vector<PackedLayer>& layers, const std::vector<ComponentFacts>& components,
                       const LayoutRecord* previous = nullptr) {
  const auto recorded = recorded_components(components, previous);
  LayoutRecord record;
  record.layers.push_back({.digest = {},
                           .diff_id = {},
                           .compressed_bytes = 0,
                           .stream_bytes = 0,
                           .kept_as_is = true,
                           .tier = Tier::kSystem,
                           .writer = "",
                           .components = {}});
  for (const auto& layer : layers) {
    record.layers.push_back({.digest = {},
                             .diff_id = {},
                             .compressed_bytes = 0,
                             .stream_bytes = 0,
                             .kept_as_is = false,
                             .tier = layer.tier,
                             .writer = std::string(kWriter),
                             .components = {}});
    for (const auto& name : layer.components) {
      const auto at = std::ranges::find(components, name, &ComponentFacts::name) - components.begin();
      record.layers.back().components[name] = recorded.at(std::size_t(at));
    }
  }
  record.layers.push_back({.digest = {},
                           .diff_id = {},
                           .compressed_bytes = 0,
                           .stream_bytes = 0,
                           .kept_as_is = false,
                           .tier = Tier::kSystem,
                           .writer = std::string(kWriter),
                           .components = {}});
  return record;
}

std::uint64_t bytes_of(const PackedLayer& layer, const std::vector<ComponentFacts>& components) {
  std::uint64_t bytes = 0;
  for (const auto& name : layer.components) bytes += std::ranges::find(components, name, &ComponentFacts::name)->bytes;
  return bytes;
}

void expect_promises_kept(const std::vector<PackedLayer>& layers, const std::vector<ComponentFacts>& components,
                          const LayoutRecord* previous, std::uint32_t kept_as_is, const PackLimits& limits) {
  EXPECT_LE(layers.size() + kept_as_is + 1, limits.max_layers);
  std::uint64_t total = 0;
  for (const auto& facts : components) total += facts.bytes;
  const auto smallest = limits.min_layer_bytes == 0 ? smallest_layer_bytes(total) : limits.min_layer_bytes;
  std::multiset<std::string> names;
  for (const auto& layer : layers) names.insert(layer.components.begin(), layer.components.end());
  EXPECT_EQ(names.size(), components.size());
  for (const auto& facts : components) EXPECT_EQ(names.count(facts.name), 1u) << facts.name;
  EXPECT_TRUE(std::ranges::is_sorted(layers, {}, &PackedLayer::tier));
  std::set<int> reused;
  for (const auto& layer : layers) {
    const auto bytes = bytes_of(layer, components);
    EXPECT_FALSE(layer.components.empty());
    EXPECT_TRUE(std::ranges::is_sorted(layer.components));
    EXPECT_LE(bytes, limits.max_layer_bytes);
    std::uint64_t others = 0;
    for (const auto& name : layer.components) {
      const auto& facts = *std::ranges::find(components, name, &ComponentFacts::name);
      if (facts.tier != layer.tier) others += facts.bytes;
    }
    EXPECT_LE(others, bytes / 10);
    if (bytes < smallest) {
      for (const auto& other : layers) {
        if (&other != &layer && other.tier == layer.tier) {
          EXPECT_GT(bytes + bytes_of(other, components), limits.max_layer_bytes);
        }
      }
    }
    if (layer.same_as < 0) continue;
    ASSERT_NE(previous, nullptr);
    EXPECT_TRUE(reused.insert(layer.same_as).second);
    std::set<Digest> before, now;
    for (const auto& [name, recorded] : previous->layers.at(std::size_t(layer.same_as)).components)
      before.insert(recorded.content);
    for (const auto& name : layer.components)
      now.insert(std::ranges::find(components, name, &ComponentFacts::name)->content);
    EXPECT_EQ(before, now);
  }
}

std::string error_of(const std::vector<ComponentFacts>& components, std::uint32_t kept_as_is,
                     const PackLimits& limits) {
  return test::refusal_of<UsageError>([&] { pack_layers(components, kept_as_is, nullptr, kWriter, limits); });
}

TEST(PackLayers, PromisesHoldForAnySeriesOfVersions) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto image = some_image(random, 1 + random() % 400);
    const auto limits = some_limits(seed);
    const auto kept_as_is = std::uint32_t(random() % 4);
    std::optional<LayoutRecord> record;
    for (int version = 0; version < 6; ++version) {
      const auto* previous = record ? &*record : nullptr;
      const auto layers = pack_layers(image, kept_as_is, previous, kWriter, limits);
      expect_promises_kept(layers, image, previous, kept_as_is, limits);
      record = record_of(layers, image, previous);
      image = next_version(random, std::move(image));
    }
  }
}

TEST(PackLayers, TheSameImageKeepsAllItsLayers) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto image = some_image(random, 1 + random() % 300);
    const auto limits = some_limits(seed);
    std::optional<LayoutRecord> record;
    for (int version = 0; version < 4; ++version) {
      record = record_of(pack_layers(image, 0, record ? &*record : nullptr, kWriter, limits), image,
                         record ? &*record : nullptr);
      image = next_version(random, std::move(image));
    }
    record = record_of(pack_layers(image, 0, &*record, kWriter, limits), image, &*record);
    const auto again = pack_layers(image, 0, &*record, kWriter, limits);
    for (std::size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].same_as, int(i) + 1);
    EXPECT_EQ(again.size() + 2, record->layers.size());
  }
}

TEST(PackLayers, TheOrderOfTheInputDoesNotMatter) {
  std::mt19937_64 random(1);
  auto image = some_image(random, 300);
  const auto record = record_of(pack_layers(image, 0, nullptr, kWriter, {}), image);
  image = next_version(random, image);
  const auto layers = pack_layers(image, 0, &record, kWriter, {});
  for (int i = 0; i < 5; ++i) {
    std::ranges::shuffle(image, random);
    const auto again = pack_layers(image, 0, &record, kWriter, {});
    ASSERT_EQ(again.size(), layers.size());
    for (std::size_t at = 0; at < layers.size(); ++at) {
      EXPECT_EQ(again[at].components, layers[at].components);
      EXPECT_EQ(again[at].same_as, layers[at].same_as);
    }
  }
}

TEST(PackLayers, AnUpgradeOfOneSmallComponentLeavesTheOtherLayersAlone) {
  std::vector<ComponentFacts> image;
  for (int i = 0; i < 200; ++i) image.push_back(component("pip:small" + std::to_string(i), 900'000));
  for (int i = 0; i < 20; ++i) image.push_back(component("pip:large" + std::to_string(i), 200 * kMiB));
  const auto record = record_of(pack_layers(image, 0, nullptr, kWriter, {}), image);
  image[7] = component(image[7].name, image[7].bytes, Tier::kHot, "2");
  const auto layers = pack_layers(image, 0, &record, kWriter, {});
  std::uint64_t anew = 0;
  for (const auto& layer : layers) anew += layer.same_as < 0 ? bytes_of(layer, image) : 0;
  EXPECT_GT(anew, 0u);
  EXPECT_LE(anew, 32 * kMiB);
}

TEST(PackLayers, WhatKeepsChangingEndsUpTogether) {
  std::vector<ComponentFacts> image;
  for (int i = 0; i < 100; ++i) image.push_back(component("pip:p" + std::to_string(i), 3 * kMiB));
  auto record = record_of(pack_layers(image, 0, nullptr, kWriter, kCoarse), image);
  std::uint64_t anew = 0;
  for (int version = 1; version <= 10; ++version) {
    for (const int churning : {3, 20, 41, 77})
      image[std::size_t(churning)] =
          component("pip:p" + std::to_string(churning), 3 * kMiB, Tier::kHot, std::to_string(version));
    const auto layers = pack_layers(image, 0, &record, kWriter, kCoarse);
    anew = 0;
    for (const auto& layer : layers) anew += layer.same_as < 0 ? bytes_of(layer, image) : 0;
    record = record_of(layers, image, &record);
  }
  // Four of 3 MiB change; at first each of them took others along.
  EXPECT_LE(anew, 18 * kMiB);
}

TEST(PackLayers, AFewBytesThatChangeHeatDoNotMoveALayer) {
  std::vector<ComponentFacts> image{component("pip:a", 6 * kMiB), component("pip:b", 6 * kMiB),
                                    component("pip:c", kMiB / 2), component("pip:giant", 500 * kMiB)};
  const auto record = record_of(pack_layers(image, 0, nullptr, kWriter, kCoarse), image);
  ASSERT_EQ(record.layers.size(), 4u);
  image[2].tier = Tier::kCold;
  for (const auto& layer : pack_layers(image, 0, &record, kWriter, kCoarse)) EXPECT_GE(layer.same_as, 0);
  // All of a layer: it goes where it belongs, and its blob with it.
  image[3].tier = Tier::kCold;
  const auto moved = pack_layers(image, 0, &record, kWriter, kCoarse);
  EXPECT_EQ(moved.back().tier, Tier::kCold);
  EXPECT_THAT(moved.back().components, ElementsAre("pip:giant"));
  EXPECT_GE(moved.back().same_as, 0);
  image[0].tier = Tier::kCold;
  EXPECT_THAT(pack_layers(image, 0, &record, kWriter, kCoarse), Contains(Field(&PackedLayer::same_as, -1)));
}

TEST(PackLayers, ASmallImageGetsSmallLayers) {
  EXPECT_EQ(smallest_layer_bytes(0), kMiB);
  EXPECT_EQ(smallest_layer_bytes(4'500'000'000), 4 * kMiB);
  EXPECT_EQ(smallest_layer_bytes(100'000'000'000), 8 * kMiB);
  std::mt19937_64 random(5);
  std::vector<ComponentFacts> image;
  for (int i = 0; i < 30; ++i)
    image.push_back(component("pip:large" + std::to_string(i), 3 * kMiB + random() % (30 * kMiB)));
  for (int i = 0; i < 80; ++i) image.push_back(component("pip:small" + std::to_string(i), random() % kMiB));
  const auto layers = pack_layers(image, 0, nullptr, kWriter, {});
  expect_promises_kept(layers, image, nullptr, 0, {});
  EXPECT_GE(layers.size(), 45u);
  EXPECT_LE(layers.size(), 80u);
}

TEST(PackLayers, LayersOfAnotherWriterAreWrittenAnew) {
  std::mt19937_64 random(2);
  const auto image = some_image(random, 100);
  const auto record = record_of(pack_layers(image, 0, nullptr, kWriter, {}), image);
  for (const auto& layer : pack_layers(image, 0, &record, "another writer", {})) EXPECT_EQ(layer.same_as, -1);
}

TEST(PackLayers, FewerLayersAllowedMeansLargerOnes) {
  std::mt19937_64 random(3);
  const auto image = some_image(random, 400);
  for (const std::uint32_t max_layers : {127u, 60u, 30u, 15u}) {
    const PackLimits limits{.max_layers = max_layers, .max_layer_bytes = 8'000'000'000, .min_layer_bytes = 8 * kMiB};
    expect_promises_kept(pack_layers(image, 3, nullptr, kWriter, limits), image, nullptr, 3, limits);
  }
}

TEST(PackLayers, APreviousVersionOfMoreLayersThanAllowedNowIsPackedTogether) {
  std::vector<ComponentFacts> image;
  for (int i = 0; i < 100; ++i) image.push_back(component("pip:p" + std::to_string(i), 50 * kMiB));
  const auto record = record_of(pack_layers(image, 0, nullptr, kWriter, {}), image);
  EXPECT_EQ(record.layers.size(), 102u);
  const PackLimits limits{.max_layers = 50, .max_layer_bytes = 8'000'000'000, .min_layer_bytes = 8 * kMiB};
  const auto layers = pack_layers(image, 0, &record, kWriter, limits);
  expect_promises_kept(layers, image, &record, 0, limits);
  EXPECT_GE(std::ranges::count_if(layers, [](const auto& layer) { return layer.same_as >= 0; }), 10);
}

TEST(PackLayers, FitsExactlyWhereItJustFits) {
  // Neighbours by rate or name would not fit: 5+3, 5+3, 4+4.
  std::vector<ComponentFacts> image;
  for (const std::uint64_t size : {5, 4, 3, 5, 3, 4})
    image.push_back(component("pip:p" + std::to_string(image.size()), size * kMiB * 100));
  const PackLimits limits{.max_layers = 4, .max_layer_bytes = 800 * kMiB, .min_layer_bytes = 1};
  expect_promises_kept(pack_layers(image, 0, nullptr, kWriter, limits), image, nullptr, 0, limits);
  EXPECT_THAT(error_of(image, 1, limits), HasSubstr("do not fit into 2 layers"));
}

TEST(PackLayers, SaysWhatCannotBe) {
  const auto one = component("folder:models", 9'000'000'000);
  EXPECT_THAT(error_of({one}, 0, {}), HasSubstr("component folder:models of 9000000000 bytes cannot be cut"));
  EXPECT_THAT(error_of({component("a", 1), component("a", 1)}, 0, {}), HasSubstr("component a is there twice"));
  auto twin = component("a", 1);
  twin.name = "b";
  EXPECT_THAT(error_of({component("a", 1), twin}, 0, {}), HasSubstr("component b has the content of another one"));
  EXPECT_THAT(error_of({component("a", 1)}, 126, {}), HasSubstr("of 127 none is left"));
  EXPECT_THAT(error_of({component("a", 1)}, 0, {.max_layers = 127, .max_layer_bytes = 10, .min_layer_bytes = 20}),
              HasSubstr("cannot be made"));
}

TEST(PackLayers, NothingGivesNoLayers) { EXPECT_TRUE(pack_layers({}, 126, nullptr, kWriter, {}).empty()); }

TEST(PackLayers, ManyComponentsAreNoTrouble) {
  std::mt19937_64 random(4);
  std::vector<ComponentFacts> image;
  for (int i = 0; i < 100'000; ++i) image.push_back(component("pip:p" + std::to_string(i), random() % 10'000));
  expect_promises_kept(pack_layers({image.begin(), image.begin() + 5'000}, 0, nullptr, kWriter, {}),
                       {image.begin(), image.begin() + 5'000}, nullptr, 0, {});
  EXPECT_FALSE(pack_layers(image, 0, nullptr, kWriter, {}).empty());
}

TEST(RecordedComponents, CountReleasesAndChanges) {
  std::vector<ComponentFacts> image{component("pip:a", 1), component("pip:b", 1)};
  auto record = record_of(pack_layers(image, 0, nullptr, kWriter, {}), image);
  for (int version = 2; version <= 200; ++version) {
    image[0] = component("pip:a", 1, Tier::kHot, std::to_string(version));
    const auto recorded = recorded_components(image, &record);
    EXPECT_LT(recorded[0].changes, recorded[0].releases);
    EXPECT_EQ(recorded[1].changes, 0u);
    if (version <= 64) {
      EXPECT_EQ(recorded[0].releases, std::uint32_t(version));
      EXPECT_EQ(recorded[0].changes, std::uint32_t(version - 1));
    }
    EXPECT_LE(recorded[0].releases, 64u);
    record = record_of(pack_layers(image, 0, &record, kWriter, {}), image, &record);
    EXPECT_EQ(parse_layout_record(to_json(record), "record"), record);
  }
  record.layers[1].components.at("pip:a").releases = 101;
  record.layers[1].components.at("pip:a").changes = 100;
  image[0] = component("pip:a", 1, Tier::kHot, "another");
  const auto recorded = recorded_components(image, &record);
  EXPECT_LT(recorded[0].changes, recorded[0].releases);
}

}  // namespace
}  // namespace varve::indexer
