// Which of the indexes that are offered counts.
#include <gtest/gtest.h>

#include "core/index/index_sources.h"
#include "testing/indexed_image_fixture.h"

namespace varve::index {
namespace {

class BelievedIndexTest : public test::IndexedImageFixture {};

TEST_F(BelievedIndexTest, TakesTheIndexOfTheNewestTool) {
  for (const char* tool : {"varve 0.1.9", "varve 0.1.10", "varve 0.1", "another 7.0", ""}) {
    auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
    blobs.tool = tool;
    publish(blobs);
  }
  EXPECT_EQ(find_index(*repository_, image_)->tool, "varve 0.1.10");
}

// Anybody can say that his tool is the newest.
TEST_F(BelievedIndexTest, TakesNoToolFromTheFuture) {
  for (const char* tool : {"varve 0.1", "varve 99.0"}) {
    auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
    blobs.tool = tool;
    blobs.generation = tool == std::string("varve 99.0") ? 7 : 0;
    publish(blobs);
  }
  EXPECT_EQ(find_index(*repository_, image_)->tool, "varve 0.1");
}

TEST_F(BelievedIndexTest, LooksAtSoManyCandidatesAndNoMore) {
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

TEST_F(BelievedIndexTest, BelievesNoIndexOfAnotherRepository) {
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

TEST_F(BelievedIndexTest, WhoAsksByDigestGetsWhatIsVouchedForOnly) {
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
TEST_F(BelievedIndexTest, WhatIsVouchedForComesBeforeWhatIsOffered) {
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
  map.digests[0].stream = digest_of("other bytes");
  auto other = blobs_of({map_of(0), map, map_of(2)});
  other.generation = 50;
  publish(other);
  const auto loaded = load_index(local, image_, IndexPlace::kRepository);
  EXPECT_EQ(loaded.blobs.manifest.digest, later.digest);
}

// They say which bytes are shown, out of layers that the image does not have.
TEST_F(BelievedIndexTest, SeedsAreNotTakenOnOthersWord) {
  const auto ours = publish();
  LocalIndex local(dir_ / "root");
  load_index(local, image_);
  local.origins().note_built_here(ours.digest);
  auto theirs = blobs_of({map_of(0), map_of(1), map_of(2)});
  theirs.generation = 5;
  theirs.seeds = repository_->add_blob(to_bytes(as_bytes(std::string_view("seeds"))));
  publish(theirs);
  EXPECT_EQ(load_index(local, image_, IndexPlace::kRepository).blobs.manifest.digest, ours.digest);
}

TEST_F(BelievedIndexTest, AProofByTheLayersSaysNothingOfSeeds) {
  const auto plain = publish();
  LocalIndex local(dir_ / "root");
  load_index(local, image_);
  local.origins().note_proved(plain.digest);
  EXPECT_TRUE(load_index(local, image_).judgement.vouched);
  auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  blobs.generation = 1;
  blobs.seeds = repository_->add_blob(to_bytes(as_bytes(std::string_view("seeds"))));
  const auto seeded = publish(blobs);
  LocalIndex other(dir_ / "other");
  other.origins().note_proved(seeded.digest);
  other.origins().note_repository(seeded.digest, repository_->name());
  visit_indexes(*repository_, image_, [&](const FoundIndex& index) {
    EXPECT_FALSE(other.judge(image_, index, *repository_, true).vouched);
    return false;
  });
  other.origins().note_built_here(seeded.digest);
  const auto taken = load_index(other, image_, IndexPlace::kRepository).blobs.seeds;
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->digest, blobs.seeds->digest);
}

TEST_F(BelievedIndexTest, PinnedKeepsToWhatWasSeenFirst) {
  const auto first = publish();
  LocalIndex local(dir_ / "root", {.index = trust::IndexRule::kPinned});
  load_index(local, image_);
  auto map = map_of(1);
  map.digests[0].stream = digest_of("other bytes");
  auto other = blobs_of({map_of(0), map, map_of(2)});
  other.generation = 50;
  publish(other);
  EXPECT_EQ(load_index(local, image_, IndexPlace::kRepository).blobs.manifest.digest, first.digest);
  LocalIndex believing(dir_ / "root");
  EXPECT_NE(load_index(believing, image_, IndexPlace::kRepository).blobs.manifest.digest, first.digest);
}

TEST_F(BelievedIndexTest, SignedTakesNothingUnsigned) {
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

TEST_F(BelievedIndexTest, TakesTheLatestGenerationOfTheNewestTool) {
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

TEST_F(BelievedIndexTest, RefusesGenerationsThatCannotBe) {
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

}  // namespace
}  // namespace varve::index
