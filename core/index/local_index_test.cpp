#include "core/index/local_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "core/base/file.h"
#include "core/index/format/layer_entries.h"
#include "core/index/index_sources.h"
#include "core/index/publish_index.h"
#include "testing/artifact_repository.h"
#include "testing/fake_registry.h"
#include "testing/one_span_map.h"
#include "testing/temp_dir.h"
#include "testing/trees.h"

namespace varve::index {
namespace {

constexpr std::uint64_t kStreamBytes = 100'000;

// An image of three layers, the first and the last of them the same, in a repository in memory, and all that its index
// consists of.
class LocalIndexTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b"}) {
      oci::Descriptor layer;
      layer.media_type = "application/vnd.oci.image.layer.v1.tar+gzip";
      layer.digest = digest_of(std::string("blob ") + name);
      layer.size = 1000;
      image_.manifest.layers.push_back(layer);
      image_.config.diff_ids.push_back(digest_of(std::string("stream ") + name));
    }
    image_.manifest.layers.push_back(image_.manifest.layers[0]);
    image_.config.diff_ids.push_back(image_.config.diff_ids[0]);
    image_.repository = repository_;
    image_.document.descriptor.media_type = oci::kDockerManifestType;
    image_.document.descriptor.digest = digest_of("image");
    image_.document.descriptor.size = 500;

    Tree tree;
    tree.layers = 3;
    test::put(tree, "etc/hosts", test::make_file(200, {{1, {0, 512, 200}}}));
    test::put(tree, "sparse", test::make_file(10'000, {{2, {100, 1024, 200}}}));
    erofs_ = write_erofs(tree, tags(), {kStreamBytes, kStreamBytes, kStreamBytes});
  }

  std::vector<std::string> tags() const {
    std::vector<std::string> tags;
    for (const auto& diff_id : image_.config.diff_ids) tags.push_back(diff_id.hex());
    return tags;
  }

  LayerMap map_of(std::size_t layer) const {
    return test::one_span_map(image_.manifest.layers[layer].digest, image_.config.diff_ids[layer], kStreamBytes);
  }

  LayerIndexBlobs publish_layer(const LayerMap& map) {
    LayerEntries entries{.layer_digest = map.layer_digest, .entries = {}};
    return {.layer_digest = map.layer_digest,
            .map = repository_->add_blob(map.encode()),
            .windows = std::nullopt,
            .entries = repository_->add_blob(entries.encode())};
  }

  ImageIndexBlobs blobs_of(const std::vector<LayerMap>& maps) {
    ImageIndexBlobs blobs;
    blobs.tree = repository_->add_blob(pack_tree(erofs_));
    blobs.tree_bytes = erofs_.bytes.size();
    blobs.ranges = repository_->add_blob(pack_ranges(erofs_.ranges));
    for (const auto& map : maps) blobs.layers.push_back(publish_layer(map));
    blobs.tool = "varve test";
    return blobs;
  }

  oci::Descriptor publish(const ImageIndexBlobs& blobs) {
    return repository_->put_manifest(make_index_manifest(image_, blobs).to_json(), oci::kOciManifestType, "");
  }
  oci::Descriptor publish() { return publish(blobs_of({map_of(0), map_of(1), map_of(2)})); }

  test::TempDir dir_;
  std::shared_ptr<test::ArtifactRepository> repository_ = std::make_shared<test::ArtifactRepository>();
  oci::Image image_;
  ErofsImage erofs_;
};

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

TEST_F(LocalIndexTest, TakesTheIndexOfTheNewestTool) {
  for (const char* tool : {"varve 0.1.9", "varve 0.1.10", "varve 0.1", "another 7.0", ""}) {
    auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
    blobs.tool = tool;
    publish(blobs);
  }
  EXPECT_EQ(find_index(*repository_, image_)->tool, "varve 0.1.10");
}

// Anybody can say that his tool is the newest.
TEST_F(LocalIndexTest, TakesNoToolFromTheFuture) {
  for (const char* tool : {"varve 0.1", "varve 99.0"}) {
    auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
    blobs.tool = tool;
    blobs.generation = tool == std::string("varve 99.0") ? 7 : 0;
    publish(blobs);
  }
  EXPECT_EQ(find_index(*repository_, image_)->tool, "varve 0.1");
}

TEST_F(LocalIndexTest, LooksAtSoManyCandidatesAndNoMore) {
  auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  for (std::uint64_t generation = 1; generation <= 2 * kMaxCandidates; ++generation) {
    blobs.generation = generation;
    publish(blobs);
  }
  std::size_t seen = 0;
  visit_indexes(*repository_, image_, [&](FoundIndex) {
    ++seen;
    return false;
  });
  EXPECT_EQ(seen, kMaxCandidates);
}

TEST_F(LocalIndexTest, BelievesNoIndexOfAnotherRepository) {
  publish();
  LocalIndex local(dir_ / "root");
  load_index(local, image_);
  auto elsewhere = image_;
  const auto other = std::make_shared<test::ArtifactRepository>("memory:other");
  elsewhere.repository = other;
  EXPECT_THROW(load_index(local, elsewhere), trust::Untrusted);
  other->put_manifest(make_index_manifest(image_, blobs_of({map_of(0), map_of(1), map_of(2)})).to_json(),
                      oci::kOciManifestType, "");
  EXPECT_NO_THROW(load_index(local, elsewhere)) << "its own word, though the blobs are here";
  EXPECT_EQ(local.origins().of(find_index(*other, image_)->manifest.digest).repositories,
            (std::set<std::string>{"memory:other", "memory:test"}));
}

class IndexFromTest : public LocalIndexTest {
 protected:
  // A layout folder of that name with an index of the image, which index-from names.
  std::shared_ptr<oci::Repository> offer(const std::string& name, const ImageIndexBlobs& blobs) {
    const auto folder = oci::create_layout(dir_ / name);
    publish_index(image_, blobs, *repository_, *folder, CancelFlag());
    image_.registry.index_from.push_back("oci:" + (dir_ / name).string());
    return folder;
  }
  ImageIndexBlobs honest() { return blobs_of({map_of(0), map_of(1), map_of(2)}); }
  ImageIndexBlobs other(std::uint64_t generation) {
    auto map = map_of(1);
    map.spans[0].stream_digest = digest_of("other bytes");
    auto blobs = blobs_of({map_of(0), map, map_of(2)});
    blobs.generation = generation;
    return blobs;
  }
  // So that the image's own repository has none of the blobs.
  void forget_own() {
    auto own = std::make_shared<test::ArtifactRepository>("memory:foreign");
    image_.repository = own;
  }
  const trust::TrustSettings pinned_{.index = trust::IndexRule::kPinned};
};

TEST_F(IndexFromTest, TheWholeIndexComesFromThereAndItsOriginIsThat) {
  const auto folder = offer("indexes", honest());
  forget_own();
  LocalIndex local(dir_ / "root", pinned_);
  const auto loaded = load_index(local, image_);
  EXPECT_EQ(loaded.source->name(), folder->name());
  EXPECT_EQ(local.origins().of(loaded.blobs.manifest.digest).repositories, std::set<std::string>{folder->name()});
  const auto again = load_index(local, image_);  // from here; what was not fetched yet still comes from there
  EXPECT_EQ(again.source->name(), folder->name());
  EXPECT_EQ(local.blob(again.blobs.layers[0].entries, *again.source, 1 << 20).size(),
            again.blobs.layers[0].entries.size);
  image_.registry.index_from.clear();
  EXPECT_THROW(load_index(local, image_), trust::Untrusted) << "nobody looks there any more";
}

TEST_F(IndexFromTest, BesideTheImageComesFirstThenTheOrderOfTheSetting) {
  const auto second = offer("b", other(9));
  const auto third = offer("c", honest());
  LocalIndex local(dir_ / "root", {.index = trust::IndexRule::kAny});
  EXPECT_EQ(load_index(local, image_).source->name(), second->name());
  const auto own = publish();
  LocalIndex fresh(dir_ / "fresh", {.index = trust::IndexRule::kAny});
  EXPECT_EQ(load_index(fresh, image_).blobs.manifest.digest, own.digest);
}

TEST_F(IndexFromTest, WithoutASettingOrAVoucherNothingFromThereCounts) {
  offer("indexes", honest());
  LocalIndex local(dir_ / "root");
  EXPECT_THROW(load_index(local, image_), trust::Untrusted);
  local.origins().note_built_here(find_offered(image_)->blobs.manifest.digest);
  EXPECT_TRUE(load_index(local, image_).judgement.vouched);
}

// Pinned is one index of an image, wherever it was seen: a second place does not begin anew.
TEST_F(IndexFromTest, APusherToASecondPlaceDoesNotReplaceWhatWasSeenFirst) {
  offer("first", honest());
  LocalIndex local(dir_ / "root", pinned_);
  const auto seen = load_index(local, image_).blobs.manifest.digest;
  offer("second", other(50));
  EXPECT_EQ(load_index(local, image_, IndexPlace::kRepository).blobs.manifest.digest, seen);
  std::filesystem::remove_all(dir_ / "first");  // nor when the first is away
  EXPECT_EQ(load_index(local, image_, IndexPlace::kRepository).blobs.manifest.digest, seen);
}

TEST_F(IndexFromTest, WordOfOthersIsNotCarriedToTheImagesRepository) {
  offer("indexes", honest());
  LocalIndex local(dir_ / "root", pinned_);
  const auto loaded = load_index(local, image_);
  EXPECT_THROW(publish_cold(image_, loaded, ColdRanges(), local, *repository_, CancelFlag()), trust::Untrusted);
  EXPECT_EQ(find_index(*repository_, image_), std::nullopt);
}

TEST_F(IndexFromTest, OneThatIsAwayIsNamedOnlyIfNoOtherHasAnIndex) {
  image_.registry.index_from = {"oci:" + (dir_ / "none").string()};
  LocalIndex local(dir_ / "root", pinned_);
  try {
    load_index(local, image_);
    FAIL();
  } catch (const NotFound& error) {
    EXPECT_NE(std::string(error.what()).find((dir_ / "none").string()), std::string::npos) << error.what();
  }
  offer("indexes", honest());
  EXPECT_NO_THROW(load_index(local, image_));
}

TEST_F(LocalIndexTest, WindowsComeFromTheRegistryOfTheIndexWithTheCredentialsThatTheImageIsOpenedWith) {
  test::FakeRegistry registry;
  registry.set([](auto& switches) { switches.auth = test::FakeRegistry::Auth::kBasic; });
  const Bytes windows(10, std::byte(1));
  registry.add_blob("team/app", windows);
  auto map = map_of(1);
  map.windows_bytes = windows.size();
  map.windows_digest = digest_of(windows);
  auto second = map.spans[0];
  map.spans[0].stream_range.length = kStreamBytes / 2;
  map.spans[0].compressed_range.length = 500;
  second.stream_range = {kStreamBytes / 2, kStreamBytes / 2};
  second.compressed_range = {500, 500};
  second.member_header = false;
  second.window = {0, windows.size()};
  map.spans.push_back(second);
  auto blobs = blobs_of({map_of(0), map, map_of(2)});
  blobs.layers[1].windows = repository_->add_blob(windows);
  const auto index = publish(blobs);
  LocalIndex local(dir_ / "root");
  load_index(local, image_);
  auto repository = registry.reference("team/app");
  repository.resize(repository.rfind(':'));
  local.origins().note_repository(index.digest, repository);
  local.origins().note_built_here(index.digest);

  auto elsewhere = image_;
  elsewhere.repository = std::make_shared<test::ArtifactRepository>("memory:other");
  elsewhere.registry = {.authfile = dir_ / "auth.json", .ca_file = {}, .plain_http = true, .max_attempts = 1};
  write_file_atomically(elsewhere.registry.authfile, as_bytes("{}"));
  EXPECT_THROW(load_index(local, elsewhere), NotFound);
  write_file_atomically(elsewhere.registry.authfile,
                        as_bytes("{\"auths\":{\"" + registry.host() + "\":{\"auth\":\"dXNlcjpwYXNzOndvcmQ=\"}}}"));
  load_index(local, elsewhere);
  EXPECT_TRUE(local.repository().has_blob(*blobs.layers[1].windows));
}

TEST_F(LocalIndexTest, WhoAsksByDigestGetsWhatIsVouchedForOnly) {
  const auto index = publish();
  LocalIndex local(dir_ / "root");
  auto pinned = image_;
  pinned.selector = image_.digest().to_string();
  EXPECT_THROW(load_index(local, pinned), trust::Untrusted);
  EXPECT_EQ(local.find_index(pinned), std::nullopt) << "nothing of it is kept";
  load_index(local, image_);  // by tag
  EXPECT_THROW(load_index(local, pinned), trust::Untrusted);
  local.origins().note_built_here(index.digest);
  EXPECT_EQ(load_index(local, pinned).judgement.rule, "built on this machine");
  local.origins().note_refuted(index.digest, "a layer is another one");
  EXPECT_THROW(load_index(local, pinned), trust::Untrusted);
  EXPECT_THROW(load_index(local, image_), trust::Untrusted);
}

// Who can push may say that his index is a later one.
TEST_F(LocalIndexTest, WhatIsVouchedForComesBeforeWhatIsOffered) {
  const auto ours = publish();
  LocalIndex local(dir_ / "root");
  load_index(local, image_);
  local.origins().note_built_here(ours.digest);
  auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  blobs.generation = 5;
  const auto later = publish(blobs);
  EXPECT_EQ(load_index(local, image_, IndexPlace::kRepository).blobs.manifest.digest, later.digest)
      << "the same content with other notes";
  auto map = map_of(1);
  map.spans[0].stream_digest = digest_of("other bytes");
  auto other = blobs_of({map_of(0), map, map_of(2)});
  other.generation = 50;
  publish(other);
  const auto loaded = load_index(local, image_, IndexPlace::kRepository);
  EXPECT_EQ(loaded.blobs.manifest.digest, later.digest);
}

TEST_F(LocalIndexTest, PinnedKeepsToWhatWasSeenFirst) {
  const auto first = publish();
  LocalIndex local(dir_ / "root", {.index = trust::IndexRule::kPinned});
  load_index(local, image_);
  auto map = map_of(1);
  map.spans[0].stream_digest = digest_of("other bytes");
  auto other = blobs_of({map_of(0), map, map_of(2)});
  other.generation = 50;
  publish(other);
  EXPECT_EQ(load_index(local, image_, IndexPlace::kRepository).blobs.manifest.digest, first.digest);
  LocalIndex believing(dir_ / "root");
  EXPECT_NE(load_index(believing, image_, IndexPlace::kRepository).blobs.manifest.digest, first.digest);
}

TEST_F(LocalIndexTest, SignedTakesNothingUnsigned) {
  publish();
  LocalIndex local(dir_ / "root", {.index = trust::IndexRule::kSigned});
  try {
    load_index(local, image_);
    FAIL();
  } catch (const trust::Untrusted& error) {
    for (const char* part : {"varve keygen", "--index-here", "signed"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST_F(LocalIndexTest, TakesTheLatestGenerationOfTheNewestTool) {
  auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  for (const char* tool : {"varve 0.1.9", "varve 0.1.8"}) {
    for (const std::uint64_t generation : {0, 2, 10}) {
      blobs.tool = tool;
      blobs.generation = generation + (tool == std::string("varve 0.1.8") ? 100 : 0);
      publish(blobs);
    }
  }
  const auto found = find_index(*repository_, image_);
  EXPECT_EQ(found->tool, "varve 0.1.9");
  EXPECT_EQ(found->generation, 10u);
  EXPECT_EQ(make_index_manifest(image_, *found).annotations.at("dev.varve.generation"), "10");
}

TEST_F(LocalIndexTest, RefusesGenerationsThatCannotBe) {
  auto manifest = make_index_manifest(image_, blobs_of({map_of(0), map_of(1), map_of(2)}));
  for (const char* text : {"0", "-1", "01", "1 ", "x", "", "10000000000"}) {
    manifest.annotations["dev.varve.generation"] = text;
    const auto json = manifest.to_json();
    oci::Document document;
    document.descriptor.media_type = oci::kOciManifestType;
    document.descriptor.digest = digest_of(json);
    document.descriptor.size = json.size();
    document.bytes = json;
    EXPECT_THROW(parse_index_manifest(document, image_), CorruptData) << text;
  }
}

class ColdMarksTest : public LocalIndexTest {
 protected:
  ColdMarksTest() {
    cold_.layers.push_back({.layer_digest = digest_of(std::string("blob a")), .ranges = {{0, 512}, {1024, 5000}}});
  }
  LoadedIndex load() { return load_index(local_, image_, IndexPlace::kRepository); }
  ImageIndexBlobs mark(const ColdRanges& cold) {
    return publish_cold(image_, load(), cold, local_, *repository_, CancelFlag());
  }

  LocalIndex local_{dir_.path() / "root"};
  ColdRanges cold_;
};

TEST_F(ColdMarksTest, MakeANewIndexOfTheSameBlobs) {
  const auto before = publish();
  const auto old = *find_index(*repository_, image_);
  const auto marked = mark(cold_);
  EXPECT_NE(marked.manifest.digest, before.digest);
  EXPECT_EQ(marked.generation, 1u);
  EXPECT_EQ(marked.tree.digest, old.tree.digest);
  for (std::size_t i = 0; i < old.layers.size(); ++i) EXPECT_EQ(marked.layers[i].map.digest, old.layers[i].map.digest);
  EXPECT_EQ(load().cold, cold_);
  EXPECT_EQ(load_index(local_, image_).cold, cold_) << "this machine knows without asking";
  EXPECT_EQ(marked.first_load_bytes(),
            old.first_load_bytes() - old.manifest.size + marked.manifest.size + cold_.encode().size());
  // Another machine has the old index and learns of the new one when it asks.
  LocalIndex other(dir_.path() / "other");
  EXPECT_EQ(load_index(other, image_).cold, cold_);
}

TEST_F(ColdMarksTest, TheSameMarksAgainPublishNothing) {
  publish();
  const auto first = mark(cold_);
  EXPECT_EQ(mark(cold_).manifest.digest, first.manifest.digest);
}

TEST_F(ColdMarksTest, AreChangedAndTakenAwayByFurtherGenerations) {
  publish();
  mark(cold_);
  cold_.layers[0].ranges = {{2048, 512}};
  EXPECT_EQ(mark(cold_).generation, 2u);
  EXPECT_EQ(load().cold, cold_);
  const auto bare = mark({});
  EXPECT_EQ(bare.generation, 3u);
  EXPECT_EQ(bare.cold, std::nullopt);
  EXPECT_TRUE(load().cold.empty());
}

TEST_F(ColdMarksTest, AMachineWithAnOlderIndexLearnsOfTheMarksWhenItAsks) {
  publish();
  LocalIndex other(dir_.path() / "other");
  load_index(other, image_);
  mark(cold_);
  EXPECT_TRUE(load_index(other, image_).cold.empty());
  EXPECT_EQ(load_index(other, image_, IndexPlace::kRepository).cold, cold_);
  EXPECT_EQ(load_index(other, image_).cold, cold_) << "and keeps what it learned";
}

TEST_F(ColdMarksTest, AndTheProfileAreChangedOneWithoutTheOther) {
  publish();
  Profile profile{.recordings = 1,
                  .layers = {digest_of(std::string("blob a"))},
                  .ranges = {{.layer = 0, .stream_range = {0, 512}}}};
  const auto attach = [&] { return publish_profile(image_, load(), profile, local_, *repository_, CancelFlag()); };
  mark(cold_);
  const auto attached = attach();
  EXPECT_EQ(attached.generation, 2u);
  EXPECT_EQ(load().profile, profile);
  EXPECT_EQ(load().cold, cold_);
  EXPECT_EQ(attach().manifest.digest, attached.manifest.digest) << "the same again publishes nothing";
  mark({});
  EXPECT_EQ(load().profile, profile);
  EXPECT_TRUE(load().cold.empty());
  LocalIndex other(dir_.path() / "other");
  EXPECT_EQ(load_index(other, image_).profile, profile);
  profile.ranges[0].stream_range.length = kStreamBytes + 1;
  EXPECT_THROW(attach(), CorruptData);
  profile = {};
  EXPECT_EQ(attach().profile, std::nullopt);
  EXPECT_TRUE(load().profile.ranges.empty());
}

TEST_F(ColdMarksTest, OutsideOfTheLayersAreRefusedByWriterAndReader) {
  publish();
  auto outside = cold_;
  outside.layers[0].ranges = {{kStreamBytes - 1, 2}};
  EXPECT_THROW(mark(outside), CorruptData);
  auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  blobs.cold = repository_->add_blob(outside.encode());
  blobs.generation = 1;
  publish(blobs);
  EXPECT_THROW(load(), CorruptData);
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
  blobs.tree = repository_->add_blob(pack_tree(broken));
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
