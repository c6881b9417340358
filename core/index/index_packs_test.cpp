// Start-up packs as a part of what an index says: published, found, believed, proved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/codec/span_decoder.h"
#include "core/index/index_sources.h"
#include "core/index/prove_index.h"
#include "core/index/this_index.h"
#include "testing/indexed_image_fixture.h"
#include "testing/refusal.h"

namespace varve::index {
namespace {

using ::testing::HasSubstr;

class IndexPacksTest : public test::IndexedImageFixture {
 protected:
  IndexPacksTest() {
    for (std::uint64_t i = 0; i < kStreamBytes; ++i) stream_.push_back(std::byte(i * 7 / 5));
  }

  // One group of the layer "a", whose bytes are stream_.
  StartPacks packs() const {
    StartGroup group{.kind = StartGroup::Kind::kImport, .name = "numpy", .trigger = {0, {512, 512}}, .pack = {}};
    auto stream = to_bytes(ByteView(stream_).subspan(512, 4096));
    append(stream, ByteView(stream_).first(100));
    const auto blob = as_bytes(std::string_view("a frame"));
    group.pack = {.blob = digest_of(blob),
                  .stream_digest = digest_of(stream),
                  .frames = {{.compressed_bytes = blob.size(),
                              .compressed_digest = digest_of(blob),
                              .stream_digest = digest_of(stream)}},
                  .ranges = {{0, {512, 4096}}, {0, {0, 100}}},
                  .literals = {{0, 200, to_bytes(ByteView(stream_).subspan(200, 8))}}};
    return {.layers = {image_.manifest.layers[0].digest}, .groups = {std::move(group)}};
  }
  ImageIndexBlobs attach(const StartPacks& packs) {
    oci::put_bytes(local_.repository(), as_bytes(std::string_view("a frame")), kPackMediaType);
    return publish_packs(image_, load_index(local_, image_, IndexPlace::kRepository), packs, local_, *repository_,
                         CancelFlag());
  }
  oci::Descriptor add_list(ByteView bytes, std::string_view media_type = kStartPacksMediaType) {
    auto blob = repository_->add_blob(bytes);
    blob.media_type = media_type;
    return blob;
  }
  // Of an index that has that list.
  std::string refusal_of_list(ByteView bytes) {
    auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
    blobs.start_packs = add_list(bytes);
    blobs.generation = ++generation_;
    publish(blobs);
    return test::refusal_of<Error>([&] { load_index(local_, image_); });
  }
  std::string disproved(const StartPacks& packs) {
    auto index = load_index(local_, image_);
    index.packs = packs;
    for (std::size_t layer = 0; layer < index.maps.size(); ++layer) {
      auto map = map_of(layer);
      map.digests[0].stream = digest_of(disk_is_bad_ ? ByteView() : ByteView(stream_));
      index.maps[layer] = std::make_shared<const LayerMap>(std::move(map));
    }
    return disprove_packs(index, [&](std::size_t layer) -> ReadStream {
      return {.read =
                  [&](std::uint64_t offset, std::span<std::byte> into) {
                    std::ranges::copy(ByteView(stream_).subspan(offset, into.size()), into.begin());
                  },
              .digest_of_span = [&index, layer](std::size_t span) { return index.maps[layer]->digests[span].stream; }};
    });
  }

  Bytes stream_;
  bool disk_is_bad_ = false;
  std::uint64_t generation_ = 0;
  LocalIndex local_{dir_.path() / "root"};
};

TEST_F(IndexPacksTest, ComeWithAnIndexOfTheirOwn) {
  const auto before = publish();
  const auto blobs = attach(packs());
  EXPECT_NE(blobs.manifest.digest, before.digest);
  EXPECT_EQ(blobs.generation, 1u);
  ASSERT_EQ(blobs.packs.size(), 1u);
  EXPECT_TRUE(repository_->has_blob(blobs.packs[0]));
  LocalIndex other(dir_ / "other");
  EXPECT_EQ(load_index(other, image_).packs, packs());
  EXPECT_EQ(attach(packs()).manifest.digest, blobs.manifest.digest) << "nothing new";
  attach({});
  EXPECT_TRUE(load_index(other, image_, IndexPlace::kRepository).packs.empty());
}

TEST_F(IndexPacksTest, AListOfEarlierVersionsIsReadAndStaysWhatItIs) {
  auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  blobs.start_packs = add_list(packs().encode(), kPlainStartPacksMediaType);
  blobs.packs = {repository_->add_blob(to_bytes(as_bytes(std::string_view("a frame"))))};
  publish(blobs);
  const auto loaded = load_index(local_, image_);
  EXPECT_EQ(loaded.packs, packs());
  const auto noted = publish_profile(image_, loaded, {}, local_, *repository_, CancelFlag());
  EXPECT_EQ(noted.start_packs->media_type, kPlainStartPacksMediaType);
  LocalIndex other(dir_ / "other");
  EXPECT_EQ(load_index(other, image_).packs, packs());
}

TEST_F(IndexPacksTest, AListThatIsNoneOrUnpacksToMoreThanAListMayHaveIsRefusedByName) {
  EXPECT_THAT(refusal_of_list(packs().encode()), HasSubstr("index blob sha256:"));
  const Bytes many(kMaxStartPacksBlobBytes + 1);
  EXPECT_THAT(refusal_of_list(codec::compress_zstd(many, 1)), HasSubstr("exceed the limit"));
}

TEST_F(IndexPacksTest, AreNamedByTheIndexesThatAreHereAndWhole) {
  publish();
  EXPECT_TRUE(packs_named(local_, image_.digest()).empty());
  const auto blobs = attach(packs());
  EXPECT_EQ(packs_named(local_, image_.digest()), std::set<Digest>{blobs.packs[0].digest});
  const auto file = dir_.path() / "root/index/blobs/sha256" / blobs.manifest.digest.hex();
  ASSERT_TRUE(std::filesystem::exists(file));
  auto bytes = read_file(file);
  bytes[bytes.size() / 2] ^= std::byte(1);
  write_file_atomically(file, bytes);
  EXPECT_TRUE(packs_named(local_, image_.digest()).empty());
}

TEST_F(IndexPacksTest, MustBeNamedByTheManifest) {
  auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  blobs.start_packs = add_list(pack_start_packs(packs()));
  publish(blobs);
  try {
    load_index(local_, image_);
    FAIL();
  } catch (const CorruptData& error) {
    EXPECT_THAT(error.what(), HasSubstr("is not what the manifest of the index names"));
  }
}

// Another's profile may only cost time; packs are bytes that programs read.
TEST_F(IndexPacksTest, OfAnIndexThatNobodyVouchesForAreNotTaken) {
  const auto ours = publish();
  load_index(local_, image_);
  local_.origins().note_built_here(ours.digest);
  auto theirs = blobs_of({map_of(0), map_of(1), map_of(2)});
  theirs.generation = 5;
  theirs.start_packs = add_list(pack_start_packs(packs()));
  theirs.packs = {repository_->add_blob(to_bytes(as_bytes(std::string_view("a frame"))))};
  publish(theirs);
  const auto loaded = load_index(local_, image_, IndexPlace::kRepository);
  EXPECT_EQ(loaded.blobs.manifest.digest, ours.digest);
  EXPECT_TRUE(loaded.packs.empty());
}

TEST_F(IndexPacksTest, AreProvedByTheBytesOfTheLayers) {
  publish();
  EXPECT_EQ(disproved(packs()), "");
  auto false_frame = packs();
  false_frame.groups[0].pack.frames[0].stream_digest = digest_of("other bytes");
  auto moved = packs();
  moved.groups[0].pack.ranges[0].stream_range.offset += 1;
  auto false_literal = packs();
  false_literal.groups[0].pack.literals[0].bytes[3] ^= std::byte(1);
  for (const auto& lie : {false_frame, moved, false_literal}) EXPECT_THAT(disproved(lie), HasSubstr("numpy"));
  disk_is_bad_ = true;
  EXPECT_THROW(disproved(moved), DamagedStream) << "that says nothing of the pack";
}

}  // namespace
}  // namespace varve::index
