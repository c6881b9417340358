#include "fuse/daemon/kept_images.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/oci/layout.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

class KeptImagesTest : public ::testing::Test {
 protected:
  // An image of one layer, at a tag of the folder that the reference names.
  oci::Image make(const std::string& entrypoint) {
    const auto repository = oci::create_layout(dir_ / "images");
    const auto layer = digest_of("layer").to_string();
    const auto config = oci::put_bytes(
        *repository,
        as_bytes(fmt::format(
            R"({{"architecture":"amd64","os":"linux","config":{{"Entrypoint":["{}"]}},"rootfs":{{"type":"layers",)"
            R"("diff_ids":["{}"]}}}})",
            entrypoint, layer)),
        "application/vnd.oci.image.config.v1+json");
    const auto manifest =
        fmt::format(R"({{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",)"
                    R"("config":{{"mediaType":"{}","digest":"{}","size":{}}},)"
                    R"("layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{}","size":10}}]}})",
                    config.media_type, config.digest.to_string(), config.size, layer);
    repository->put_manifest(as_bytes(manifest), "application/vnd.oci.image.manifest.v1+json", "tag");
    return oci::open_image(repository, "tag", oci::Platform::parse("linux/amd64"));
  }

  test::TempDir dir_;
  const ImageSpec spec_{.reference = "oci:" + (dir_ / "images").string() + ":tag", .platform = "", .registry = {}};
  std::shared_ptr<index::LocalIndex> local_ =
      std::make_shared<index::LocalIndex>(dir_ / "root", trust::TrustSettings(), std::chrono::hours(1));
};

TEST_F(KeptImagesTest, AReferenceMeansWhatItMeantLast) {
  EXPECT_FALSE(find_kept_image(local_, spec_));
  const auto first = make("/bin/first");
  keep_image(*local_, spec_, first);
  const auto second = make("/bin/second");
  ASSERT_NE(first.digest(), second.digest());
  keep_image(*local_, spec_, second);
  keep_image(*local_, spec_, second);
  local_ = std::make_shared<index::LocalIndex>(dir_ / "root");
  const auto found = find_kept_image(local_, spec_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->digest(), second.digest());
  EXPECT_EQ(found->config_json, second.config_json);
  EXPECT_EQ(found->selector, "tag");
  EXPECT_EQ(found->repository->name(), second.repository->name());
  auto other = spec_;
  other.platform = "linux/arm64";
  EXPECT_FALSE(find_kept_image(local_, other));
  // What is mounted since before is still known by its digest.
  EXPECT_EQ(open_kept_image(local_, spec_, first.digest()).config_json, first.config_json);
  EXPECT_THROW(open_kept_image(local_, spec_, digest_of("never opened")), NotFound);
}

// For a daemon that follows one that died before the disk had it.
TEST_F(KeptImagesTest, ADigestFindsItBeforeItIsListed) {
  const auto image = make("/bin/tool");
  keep_image(*local_, spec_, image);
  const auto next = std::make_shared<index::LocalIndex>(dir_ / "root");
  EXPECT_EQ(open_kept_image(next, spec_, image.digest()).config_json, image.config_json);
  EXPECT_FALSE(find_kept_image(next, spec_));
  EXPECT_EQ(find_kept_image(local_, spec_)->digest(), image.digest()) << "who is asked has waited for it";
  EXPECT_EQ(find_kept_image(next, spec_)->digest(), image.digest());
}

TEST_F(KeptImagesTest, NeitherRegistryNorFolderIsNeeded) {
  const auto image = make("/bin/tool");
  keep_image(*local_, spec_, image);
  std::filesystem::remove_all(dir_ / "images");
  const auto kept = open_kept_image(local_, spec_, image.digest());
  EXPECT_EQ(kept.document.bytes, image.document.bytes);
  EXPECT_EQ(kept.repository->name(), image.repository->name());
  EXPECT_THROW(oci::read_whole_blob(*kept.repository, image.manifest.layers[0], 100), NotFound);
}

TEST_F(KeptImagesTest, WhatIsDamagedIsAsGoodAsNone) {
  const auto image = make("/bin/tool");
  keep_image(*local_, spec_, image);
  const auto blob = dir_ / "root/index/blobs/sha256" / image.manifest.config.digest.hex();
  auto bytes = read_file(blob);
  bytes[3] ^= std::byte{1};
  write_file_atomically(blob, bytes);
  EXPECT_FALSE(find_kept_image(local_, spec_));
  EXPECT_THROW(open_kept_image(local_, spec_, image.digest()), CorruptData);
}

}  // namespace
}  // namespace varve::fuse
