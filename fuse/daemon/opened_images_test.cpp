#include "fuse/daemon/opened_images.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "fuse/stream/layer_stream.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

const Digest kMap = digest_of("map");

class OpenedImagesTest : public ::testing::Test {
 protected:
  // A manifest with these layers, kept as that of an image which was opened.
  Digest keep(const std::vector<std::string>& layers) {
    std::string list;
    for (const auto& layer : layers)
      list += fmt::format(R"({}{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{}","size":10}})",
                          list.empty() ? "" : ",", digest_of(layer).to_string());
    const auto manifest = fmt::format(
        R"({{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":)"
        R"("application/vnd.oci.image.config.v1+json","digest":"{}","size":2}},"layers":[{}]}})",
        digest_of("{}").to_string(), list);
    return local_.repository()
        .put_manifest(as_bytes(manifest), "application/vnd.oci.image.manifest.v1+json", "")
        .digest;
  }

  void open(const std::string& reference, const Digest& image) const {
    opened_.note({.reference = reference, .platform = "", .registry = {}}, image);
  }

  void store(const std::string& layer) const {
    const auto folder = folder_in_store(paths_.store_dir(), {.layer = digest_of(layer), .map = kMap});
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "presence") << "here";
    std::ofstream(folder / "data") << std::string(100'000, 'x');
  }

  test::TempDir dir_;
  const DaemonPaths paths_{.root = dir_ / "root", .run_dir = dir_ / "run"};
  index::LocalIndex local_{paths_.root};
  const OpenedImages opened_{paths_.root};
};

TEST_F(OpenedImagesTest, TheNameOfAnImageIsCurrentUntilItMeansAnother) {
  EXPECT_TRUE(opened_.list().empty());
  const auto first = keep({"a"});
  const auto second = keep({"b"});
  open("oci:/images:tag", first);
  for (const auto& file : std::filesystem::directory_iterator(paths_.root / "opened"))
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  open("oci:/images:tag", second);
  auto list = opened_.list();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].image, second);
  EXPECT_TRUE(list[0].current);
  EXPECT_FALSE(list[1].current);
  open("oci:/images:tag", first);  // put back
  list = opened_.list();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].image, first);
  opened_.forget(first);
  list = opened_.list();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_TRUE(list[0].current);
}

TEST_F(OpenedImagesTest, ANameThatAPowerLossHasTornIsWrittenAgain) {
  const auto image = keep({"a"});
  open("oci:/images:tag", image);
  for (const auto& file : std::filesystem::directory_iterator(paths_.root / "opened"))
    write_file_atomically(file.path(), Bytes(file.file_size()));
  EXPECT_TRUE(opened_.list().empty());
  open("oci:/images:tag", image);
  ASSERT_EQ(opened_.list().size(), 1u);
  EXPECT_EQ(opened_.list()[0].image, image);
}

TEST_F(OpenedImagesTest, WhatIsOnDiskIsOfTheImagesThatHaveTheLayers) {
  const auto first = keep({"base", "a"});
  const auto second = keep({"base", "b"});
  const auto elsewhere = keep({"c"});
  open("oci:/images:1", first);
  open("oci:/images:2", second);
  open("oci:/images:also-1", first);
  open("oci:/images:gone", elsewhere);
  open("oci:/images:unknown", digest_of("no manifest of it is here"));
  for (const auto* layer : {"base", "a", "of nobody"}) store(layer);
  const auto stored = find_stored_images(paths_, local_);
  ASSERT_EQ(stored.images.size(), 2u) << "nothing of the others is here";
  const auto& one = stored.images[stored.images[0].image == first ? 0 : 1];
  const auto& other = stored.images[stored.images[0].image == first ? 1 : 0];
  EXPECT_EQ(one.names.size(), 2u);
  EXPECT_GE(other.disk_bytes, 100'000u);
  EXPECT_EQ(one.disk_bytes, 2 * other.disk_bytes);
  EXPECT_EQ(one.own_bytes, other.disk_bytes);
  EXPECT_EQ(other.own_bytes, 0u);
  EXPECT_EQ(stored.other_bytes, other.disk_bytes);
  EXPECT_FALSE(one.image_stream_bytes) << "no map says how large the layers are";
  EXPECT_EQ(layers_of_its_own(opened_, local_, first), std::vector{digest_of("a")});
  opened_.forget(second);
  EXPECT_EQ(layers_of_its_own(opened_, local_, first).size(), 2u);
  EXPECT_THROW(layers_of_its_own(opened_, local_, digest_of("no manifest of it is here")), NotFound);
}

TEST_F(OpenedImagesTest, ADamagedRecordIsNone) {
  open("oci:/images:1", keep({"a"}));
  std::ofstream(paths_.root / "opened" / "damaged.json") << "{\"reference\": 1";
  std::ofstream(paths_.root / "opened" / "other.json")
      << "{\"reference\": \"x\", \"platform\": \"\", \"image\": \"y\"}";
  EXPECT_EQ(opened_.list().size(), 1u);
}

}  // namespace
}  // namespace varve::fuse
