#include "analyzer/prune/savings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::prune {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

packages::Inventory inventory_of(const std::string& image,
                                 const std::vector<std::pair<std::string, std::uint64_t>>& layers) {
  packages::Inventory inventory;
  inventory.image = digest_of(image);
  for (const auto& [name, bytes] : layers) {
    inventory.layers.emplace_back();
    inventory.layers.back().digest = digest_of(name);
    inventory.layers.back().compressed_bytes = bytes;
  }
  return inventory;
}

void add(packages::Inventory& inventory, const std::string& name, std::vector<std::uint32_t> layers,
         std::vector<std::uint64_t> bytes, const std::string& vendored_by = "") {
  packages::Distribution one;
  one.name = one.normalized = name;
  one.layers = std::move(layers);
  one.layer_bytes = std::move(bytes);
  one.vendored_by = vendored_by;
  inventory.distributions.push_back(std::move(one));
}

ImageShares first_version() {
  auto inventory = inventory_of("v1", {{"base", 1'000}, {"libs", 500}});
  add(inventory, "numpy", {0, 1}, {100, 50});
  add(inventory, "old", {1}, {200});
  add(inventory, "inner", {1}, {7}, "old");
  return shares_of(inventory, "v1");
}

ImageShares second_version() {
  auto inventory = inventory_of("v2", {{"base", 1'000}, {"libs", 500}, {"update", 300}});
  add(inventory, "numpy", {0, 2}, {100, 120});  // its files in "libs" are hidden by those in "update"
  add(inventory, "old", {1}, {200});
  add(inventory, "inner", {1}, {7}, "old");
  return shares_of(inventory, "v2");
}

TEST(Savings, CountsALayerOnceHoweverManyVersionsHaveIt) {
  Savings savings;
  savings.add(first_version());
  EXPECT_EQ(savings.of("numpy"), 150U);
  EXPECT_EQ(savings.of("old"), 207U) << "what it carries inside goes with it";
  EXPECT_EQ(savings.stored_bytes(), 1'500U);
  savings.add(second_version());
  EXPECT_EQ(savings.of("numpy"), 270U) << "100 of the base, 50 that only the first version shows, 120 of the update";
  EXPECT_EQ(savings.of("old"), 207U);
  EXPECT_EQ(savings.stored_bytes(), 1'800U);
  EXPECT_EQ(savings.of("unheard-of"), 0U);
  savings.add(first_version());
  EXPECT_EQ(savings.of("numpy"), 270U) << "again the same";
  EXPECT_EQ(savings.images(), 3U);
}

TEST(Savings, DoesNotDependOnTheOrder) {
  Savings one, other;
  one.add(first_version());
  one.add(second_version());
  other.add(second_version());
  other.add(first_version());
  for (const auto* name : {"numpy", "old", "inner"}) EXPECT_EQ(one.of(name), other.of(name));
}

TEST(Savings, FillsThePlanAndSaysWhatIsNotCounted) {
  Plan plan;
  const auto add_row = [&](const std::string& name, const std::string& source, Verdict verdict,
                           std::uint64_t compressed_bytes) {
    auto& row = plan.verdicts.emplace_back();
    row.name = name;
    row.source = source;
    row.verdict = verdict;
    row.compressed_bytes = compressed_bytes;
  };
  add_row("numpy", "dpkg", Verdict::kHot, 40);
  add_row("numpy", "pip", Verdict::kCold, 110);
  add_row("old", "pip", Verdict::kArchived, 207);
  Savings savings;
  savings.add(first_version());
  savings.add_unknown(digest_of("v0"), "v0", "it has no index");
  savings.add_to(plan);
  EXPECT_EQ(plan.verdicts[0].unique_compressed_bytes, 40U);
  EXPECT_EQ(plan.verdicts[1].unique_compressed_bytes, 110U);
  EXPECT_EQ(plan.verdicts[2].unique_compressed_bytes, 207U);
  EXPECT_EQ(plan.saved_bytes, 317U);
  ASSERT_EQ(plan.unsure.size(), 1U);
  EXPECT_THAT(plan.unsure[0],
              HasSubstr("v0 (" + digest_of("v0").to_string() + ") would save is not counted: it has no index"));
}

TEST(ImageShares, AreWrittenAndReadAgain) {
  const auto shares = second_version();
  const auto text = to_json(shares);
  const auto read = parse_image_shares(text, "shares.json");
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.image, digest_of("v2"));
  EXPECT_EQ(read.layers, shares.layers);
  EXPECT_EQ(read.distributions, shares.distributions);
  EXPECT_THAT(read.distributions.at("numpy"),
              UnorderedElementsAre(Pair(digest_of("base"), 100U), Pair(digest_of("update"), 120U)));
}

void expect_refused(const std::string& from, const std::string& to, const std::string& why) {
  auto text = to_json(second_version());
  const auto at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  try {
    parse_image_shares(text, "shares.json");
    FAIL() << "taken: " << to;
  } catch (const CorruptData& error) {
    EXPECT_THAT(error.what(), HasSubstr("shares.json"));
    EXPECT_THAT(error.what(), HasSubstr(why));
  }
}

TEST(ImageShares, SayWhichFieldIsWrong) {
  expect_refused("varve-image-shares", "other", "is not varve-image-shares");
  expect_refused("\"version\":1", "\"version\":2", "another one");
  expect_refused("\"layer\":0", "\"layer\":3", "none of its layers");
  expect_refused("\"bytes\":120", "\"bytes\":400", "more than its layer");
  expect_refused("\"name\":\"old\"", "\"name\":\"numpy\"", "there twice");
  expect_refused("sha256:", "sha256:z", "is not a sha256 digest");
  expect_refused("\"bytes\":120", "\"bytes\":120,\"more\":1", "more");
}

TEST(SharesCache, KeepsAndDoubtsWhatItKept) {
  const test::TempDir folder;
  const SharesCache cache(folder.path() / "shares");
  EXPECT_FALSE(cache.find(digest_of("v1")));
  cache.put(first_version());
  cache.put(second_version());
  ASSERT_TRUE(cache.find(digest_of("v1")));
  EXPECT_EQ(to_json(*cache.find(digest_of("v1"))), to_json(first_version()));
  const auto file = folder.path() / "shares" / (digest_of("v1").hex() + ".json");
  const auto other = to_json(second_version());
  write_file_atomically(file, as_bytes(other));
  EXPECT_FALSE(cache.find(digest_of("v1"))) << "of another image";
  write_file_atomically(file, as_bytes(std::string_view("{")));
  EXPECT_FALSE(cache.find(digest_of("v1")));
  cache.put(first_version());
  EXPECT_TRUE(cache.find(digest_of("v1")));
}

TEST(ImageShares, AreNotKnownOfAFolder) {
  packages::Inventory folder;
  EXPECT_THROW(shares_of(folder, ""), Unsupported);
}

}  // namespace
}  // namespace varve::prune
