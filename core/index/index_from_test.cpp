// Indexes that lie elsewhere than beside their image.
#include <gtest/gtest.h>

#include "core/index/index_sources.h"
#include "testing/fake_registry.h"
#include "testing/indexed_image_fixture.h"

namespace varve::index {
namespace {

class IndexFromTest : public test::IndexedImageFixture {
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
    map.digests[0].stream = digest_of("other bytes");
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

TEST_F(IndexFromTest, WindowsComeFromTheRegistryOfTheIndexWithTheCredentialsThatTheImageIsOpenedWith) {
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
  map.digests.push_back(map.digests[0]);
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

}  // namespace
}  // namespace varve::index
