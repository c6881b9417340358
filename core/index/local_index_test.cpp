#include "core/index/local_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "core/base/files/file.h"
#include "core/codec/span_decoder.h"
#include "core/index/this_index.h"
#include "testing/indexed_image_fixture.h"

namespace varve::index {
namespace {

class LocalIndexTest : public test::IndexedImageFixture {};

TEST_F(LocalIndexTest, FindsWhatWasPublished) {
  EXPECT_EQ(find_index(*repository_, image_), std::nullopt);
  const auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  const auto manifest = publish(blobs);
  const auto found = find_index(*repository_, image_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->manifest.digest, manifest.digest);
  EXPECT_EQ(found->image_digest, image_.digest());
  EXPECT_EQ(found->tree.digest, blobs.tree.digest);
  EXPECT_EQ(found->tree_bytes, erofs_.bytes.size());
  ASSERT_TRUE(found->ranges);
  EXPECT_EQ(found->ranges->digest, blobs.ranges->digest);
  EXPECT_EQ(found->tool, "varve test");
  ASSERT_EQ(found->layers.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found->layers[i].map.digest, blobs.layers[i].map.digest);
    EXPECT_EQ(found->layers[i].entries.size, blobs.layers[i].entries.size);
    EXPECT_FALSE(found->layers[i].windows);
  }
  // The repeated layer counts once.
  const auto first_load =
      manifest.size + blobs.tree.size + blobs.ranges->size + blobs.layers[0].map.size + blobs.layers[1].map.size;
  EXPECT_EQ(found->first_load_bytes(), first_load);
  EXPECT_EQ(found->index_bytes(), first_load + blobs.layers[0].entries.size + blobs.layers[1].entries.size);
  EXPECT_EQ(make_index_manifest(image_, *found).to_json(), make_index_manifest(image_, blobs).to_json());
}

TEST_F(LocalIndexTest, FindsTheIndexOfALayer) {
  auto blobs = publish_layer(map_of(0));
  blobs.windows = repository_->add_blob(as_bytes("windows"));
  repository_->put_manifest(make_layer_manifest(image_.manifest.layers[0], blobs).to_json(), oci::kOciManifestType, "");
  const auto found = find_layer_index(*repository_, image_.manifest.layers[0].digest);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->map.digest, blobs.map.digest);
  EXPECT_EQ(found->entries.digest, blobs.entries.digest);
  EXPECT_EQ(found->windows->digest, blobs.windows->digest);
  EXPECT_EQ(find_layer_index(*repository_, image_.manifest.layers[1].digest), std::nullopt);
}

TEST_F(LocalIndexTest, TakesTheSmallestDigestOfThoseThatParse) {
  std::vector<Digest> good;
  for (const char* tool : {"one", "two", "three", "four"}) {
    auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
    blobs.tool = tool;
    good.push_back(publish(blobs).digest);
  }
  for (int i = 0; i < 8; ++i) {  // some of these sort before
    oci::ArtifactManifest broken = make_index_manifest(image_, *find_index(*repository_, image_));
    broken.annotations["number"] = std::to_string(i);
    broken.layers.erase(broken.layers.begin());
    repository_->put_manifest(broken.to_json(), oci::kOciManifestType, "");
  }
  EXPECT_EQ(find_index(*repository_, image_)->manifest.digest, *std::ranges::min_element(good));
}

TEST_F(LocalIndexTest, RefusesIndexesOfOtherForms) {
  const auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  const auto refused = [&](void (*change)(oci::ArtifactManifest&)) {
    auto manifest = make_index_manifest(image_, blobs);
    change(manifest);
    oci::Document document;
    document.bytes = manifest.to_json();
    document.descriptor.media_type = oci::kOciManifestType;
    document.descriptor.digest = digest_of(document.bytes);
    document.descriptor.size = document.bytes.size();
    EXPECT_THROW(parse_index_manifest(document, image_), CorruptData);
  };
  refused([](auto& manifest) { manifest.artifact_type = "application/x-other"; });
  refused([](auto& manifest) { manifest.subject->digest = digest_of("another image"); });
  refused([](auto& manifest) { manifest.subject.reset(); });
  refused([](auto& manifest) { manifest.layers.erase(manifest.layers.begin()); });      // no tree
  refused([](auto& manifest) { manifest.layers.push_back(manifest.layers.front()); });  // two
  refused([](auto& manifest) { manifest.layers.push_back(manifest.layers[1]); });       // ranges
  refused([](auto& manifest) { manifest.layers.push_back(manifest.layers[2]); });       // maps
  refused([](auto& manifest) { manifest.layers.pop_back(); });                          // no entries
  refused([](auto& manifest) { manifest.layers.back().annotations.clear(); });
  refused([](auto& manifest) { manifest.layers.back().annotations[std::string(kLayerAnnotation)] = "sha256:x"; });
  refused([](auto& manifest) {
    manifest.layers.back().annotations[std::string(kLayerAnnotation)] = digest_of("stranger").to_string();
  });
  for (const char* size : {"", "12x", "-512", "513", "0", "99999999999999999999", "17179869696"}) {
    auto manifest = make_index_manifest(image_, blobs);
    manifest.layers.front().annotations[std::string(kUncompressedBytesAnnotation)] = size;
    oci::Document document;
    document.bytes = manifest.to_json();
    document.descriptor.media_type = oci::kOciManifestType;
    EXPECT_THROW(parse_index_manifest(document, image_), CorruptData) << size;
  }
}

// A daemon that follows one that died goes on with it; whoever looks for an index knows nothing of it yet.
TEST_F(LocalIndexTest, WhatIsLoadedFirstIsFoundByItsDigestAloneUntilItIsListed) {
  const auto manifest = publish();
  LocalIndex local(dir_ / "root", {}, std::chrono::hours(1));
  std::size_t maps = 0;
  load_index_first(local, image_, choose_index(local, image_),
                   [&](const LoadedIndex& index) { maps = index.maps.size(); });
  EXPECT_EQ(maps, 3u);
  image_.repository = std::make_shared<test::ArtifactRepository>();  // an empty one
  LocalIndex next(dir_ / "root");
  EXPECT_FALSE(next.find_index(image_));
  EXPECT_EQ(load_this_index(next, image_, manifest.digest).maps.size(), 3u);
  EXPECT_TRUE(next.origins().of(manifest.digest).repositories.contains(repository_->name()));
  EXPECT_EQ(local.find_index(image_)->manifest.digest, manifest.digest) << "who is asked has waited for it";
  EXPECT_EQ(next.find_index(image_)->manifest.digest, manifest.digest);
}

TEST_F(LocalIndexTest, WhatAKilledProcessHadNoTimeToListIsListed) {
  const auto manifest = publish();
  LocalIndex local(dir_ / "root", {}, std::chrono::hours(1));
  load_index_first(local, image_, choose_index(local, image_), {});
  LocalIndex next(dir_ / "root");
  EXPECT_FALSE(next.find_index(image_));
  list_this_index(next, load_this_index(next, image_, manifest.digest));
  EXPECT_EQ(next.find_index(image_)->manifest.digest, manifest.digest);
}

TEST_F(LocalIndexTest, LoadsFromTheRepositoryOnceAndThenWithoutIt) {
  publish();
  LocalIndex local(dir_ / "root");
  const auto first = load_index(local, image_);
  for (const char* folder : {"index", "trees"})  // names and attributes of images that may be private
    EXPECT_EQ(std::filesystem::status(dir_ / "root" / folder).permissions(), std::filesystem::perms::owner_all);
  EXPECT_EQ(first.loaded_bytes, first.blobs.first_load_bytes());
  ASSERT_EQ(first.maps.size(), 3u);
  EXPECT_EQ(first.maps[0], first.maps[2]);
  EXPECT_EQ(*first.maps[1], map_of(1));
  EXPECT_EQ(first.ranges.ranges, erofs_.ranges.ranges);
  EXPECT_TRUE(first.tree->resolve("etc/hosts", true));
  EXPECT_TRUE(std::ranges::equal(first.tree_mapping.bytes(), erofs_.bytes));

  image_.repository = std::make_shared<test::ArtifactRepository>();  // an empty one
  LocalIndex again(dir_ / "root");
  const auto second = load_index(again, image_);
  EXPECT_EQ(second.loaded_bytes, 0u);
  EXPECT_EQ(second.tree_file, first.tree_file);
  EXPECT_EQ(second.blobs.manifest.digest, first.blobs.manifest.digest);
}

TEST_F(LocalIndexTest, ReadsATreeInTheFormOfEarlierVersionsAndKeepsIt) {
  auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  blobs.tree = repository_->add_blob(codec::compress_zstd(erofs_.bytes, kIndexZstdLevel));
  blobs.tree.media_type = kPlainTreeMediaType;
  const auto published = publish(blobs);
  LocalIndex local(dir_ / "root");
  const auto index = load_index(local, image_);
  EXPECT_EQ(read_file(index.tree_file), erofs_.bytes);
  EXPECT_EQ(digest_of(make_index_manifest(image_, index.blobs).to_json()), published.digest);
}

TEST_F(LocalIndexTest, SaysWhatToDoWithoutAnIndex) {
  LocalIndex local(dir_ / "root");
  try {
    load_index(local, image_);
    FAIL() << "loaded";
  } catch (const NotFound& error) {
    EXPECT_NE(std::string(error.what()).find("`varve index " + image_.typed() + "`"), std::string::npos)
        << error.what();
  }
}

TEST_F(LocalIndexTest, RepairsBlobsAndTreesThatTheDiskBroke) {
  publish();
  LocalIndex local(dir_ / "root");
  const auto index = load_index(local, image_);
  const auto blob = dir_ / "root" / "index" / "blobs" / "sha256" / index.blobs.layers[0].map.digest.hex();
  auto bytes = read_file(blob);
  bytes[20] ^= std::byte(1);
  std::filesystem::remove(blob);
  write_file_atomically(blob, bytes);
  const auto expect_repaired = [&] {
    const auto again = load_index(local, image_);
    EXPECT_EQ(*again.maps[0], map_of(0));
    EXPECT_TRUE(std::ranges::equal(again.tree_mapping.bytes(), erofs_.bytes));
  };
  expect_repaired();
  std::filesystem::resize_file(index.tree_file, 512);
  expect_repaired();
  for (const std::size_t at : {1024u + 30, 1152u + 10, 1800u, unsigned(erofs_.bytes.size()) - 1}) {
    auto tree = erofs_.bytes;
    tree[at] ^= std::byte(4);
    write_file_atomically(index.tree_file, tree);
    expect_repaired();
  }
}

TEST_F(LocalIndexTest, RefusesBlobsThatDoNotBelongToTheImage) {
  LocalIndex local(dir_ / "root");
  const auto refused = [&](const ImageIndexBlobs& blobs) {
    auto repository = std::make_shared<test::ArtifactRepository>(*repository_);
    repository->put_manifest(make_index_manifest(image_, blobs).to_json(), oci::kOciManifestType, "");
    auto image = image_;
    image.repository = repository;
    EXPECT_THROW(load_index(local, image), CorruptData);
    EXPECT_EQ(local.find_index(image), std::nullopt);  // nothing is kept of it that later runs would trust
  };
  const auto good = [&] { return blobs_of({map_of(0), map_of(1), map_of(2)}); };
  const auto with_map = [&](void (*change)(LayerMap&)) {
    auto map = map_of(1);
    change(map);
    auto blobs = good();
    const auto digest = blobs.layers[1].layer_digest;
    blobs.layers[1] = publish_layer(map);
    blobs.layers[1].layer_digest = digest;
    refused(blobs);
  };
  with_map([](LayerMap& map) { map.layer_digest = digest_of("other"); });
  with_map([](LayerMap& map) { map.diff_id = digest_of("other"); });
  with_map([](LayerMap& map) { map.compressed_bytes = 1001; });
  with_map([](LayerMap& map) { map.stream_bytes = map.spans[0].stream_range.length = kStreamBytes + 1000; });
  with_map([](LayerMap& map) {
    map.windows_bytes = 10;
    map.windows_digest = digest_of("w");
  });
  auto blobs = good();
  blobs.layers[1].windows = repository_->add_blob(as_bytes("windows"));
  refused(blobs);
  blobs = good();
  blobs.ranges.reset();
  refused(blobs);
  blobs = good();
  blobs.ranges =
      repository_->add_blob(pack_ranges({.bytes = erofs_.ranges.bytes, .ranges = {{0, 2, kStreamBytes - 10, 20}}}));
  refused(blobs);
  blobs = good();
  blobs.tree_bytes += 512;
  refused(blobs);
  Tree other;
  other.layers = 3;
  auto other_tags = tags();
  other_tags[1] = digest_of("other").hex();
  blobs = good();
  const auto other_tree = write_erofs(other, other_tags, {kStreamBytes, kStreamBytes, kStreamBytes});
  blobs.tree = repository_->add_blob(pack_tree(other_tree));
  blobs.tree_bytes = other_tree.bytes.size();
  refused(blobs);
  auto broken = erofs_;
  broken.bytes[broken.bytes.size() / 2] ^= std::byte(0xff);
  broken.bytes[1152 + 128 * 4 + 4] ^= std::byte(0xff);  // the root's mode
  blobs = good();
  blobs.tree = repository_->add_blob(codec::compress_zstd(broken.bytes, 1));
  blobs.tree.media_type = kPlainTreeMediaType;
  refused(blobs);
}

TEST_F(LocalIndexTest, LoadsInManyThreadsAtOnce) {
  publish();
  LocalIndex shared(dir_ / "root");
  std::barrier start(8);
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      std::optional<LocalIndex> own;  // as other processes have it
      if (i % 2 == 0) own.emplace(dir_ / "root");
      start.arrive_and_wait();
      const auto index = load_index(own ? *own : shared, image_);
      if (std::ranges::equal(index.tree_mapping.bytes(), erofs_.bytes) && *index.maps[1] == map_of(1)) ++right;
    });
  }
  threads.clear();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(shared.repository().referrers(image_.digest(), kIndexArtifactType).size(), 1u);
}

TEST_F(LocalIndexTest, PassesOnABrokenTransfer) {
  const auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  publish(blobs);
  repository_->blob(blobs.tree.digest)[5] ^= std::byte(1);
  LocalIndex local(dir_ / "root");
  EXPECT_THROW(load_index(local, image_), CorruptData);
  repository_->blob(blobs.tree.digest)[5] ^= std::byte(1);
  EXPECT_NO_THROW(load_index(local, image_));
}

}  // namespace
}  // namespace varve::index
