#include "core/index/forget_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/index/prefix_tree.h"
#include "testing/artifact_repository.h"
#include "testing/temp_dir.h"

namespace varve::index {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kLayerType = "application/vnd.oci.image.layer.v1.tar+gzip";

class ForgetImageTest : public ::testing::Test {
 protected:
  // As one that was opened, of layers of these names.
  oci::Image open(const std::string& name, const std::vector<std::string>& layers) {
    json config{{"os", "linux"},
                {"architecture", "amd64"},
                {"name", name},
                {"rootfs", {{"type", "layers"}, {"diff_ids", json::array()}}}};
    json manifest{{"schemaVersion", 2}, {"mediaType", oci::kOciManifestType}, {"layers", json::array()}};
    for (const auto& layer : layers) {
      config["rootfs"]["diff_ids"].push_back(digest_of("stream " + layer).to_string());
      manifest["layers"].push_back(
          {{"mediaType", kLayerType}, {"digest", digest_of("layer " + layer).to_string()}, {"size", 1000}});
    }
    const auto put = put_text(config.dump(), "application/vnd.oci.image.config.v1+json");
    manifest["config"] = {{"mediaType", put.media_type}, {"digest", put.digest.to_string()}, {"size", put.size}};
    oci::Image image;
    image.repository = elsewhere_;
    image.document.bytes = to_bytes(as_bytes(manifest.dump()));
    image.document.descriptor =
        local_.repository().put_manifest(image.document.bytes, oci::kOciManifestType, "opened-" + name);
    image.manifest = oci::Manifest::parse(image.document.bytes, oci::kOciManifestType, name);
    image.config = oci::ImageConfig::parse(as_bytes(config.dump()), name);
    return image;
  }

  // With its tree, unpacked, and trees of its lowest layers.
  ImageIndexBlobs add_index(const oci::Image& image) {
    ImageIndexBlobs blobs;
    blobs.tool = "varve test";
    blobs.tree = put_text("tree of " + image.digest().hex(), kTreeMediaType);
    blobs.tree_bytes = 512;
    for (const auto& layer : image.manifest.layers)
      blobs.layers.push_back({.layer_digest = layer.digest,
                              .map = put_text("map of " + layer.digest.hex(), kLayerMapMediaType),
                              .windows = std::nullopt,
                              .entries = put_text("entries of " + layer.digest.hex(), kEntriesMediaType)});
    put_text("{}", oci::empty_json_descriptor().media_type);
    blobs.manifest =
        local_.repository().put_manifest(make_index_manifest(image, blobs).to_json(), oci::kOciManifestType, "");
    write_file_atomically(tree_of(blobs), as_bytes("a tree"));
    for (const auto& name : prefix_names(image, blobs)) write_file_atomically(prefix(name), as_bytes("a tree"));
    return blobs;
  }
  oci::Descriptor add_signature(const oci::Descriptor& subject) {
    const oci::ArtifactManifest manifest{.artifact_type = "application/vnd.example.signature",
                                         .layers = {put_text("signature", "text/plain")},
                                         .subject = subject,
                                         .annotations = {}};
    return local_.repository().put_manifest(manifest.to_json(), oci::kOciManifestType, "");
  }
  oci::Descriptor put_text(const std::string& text, std::string_view media_type) {
    return oci::put_bytes(local_.repository(), as_bytes(text), media_type);
  }

  // As if all of it had come long ago.
  void age() {
    for (const auto& entry : fs::recursive_directory_iterator(dir_.path() / "root")) {
      const timespec then{.tv_sec = std::time(nullptr) - 2 * kForgetGraceSeconds, .tv_nsec = 0};
      const timespec times[2] = {then, then};
      if (entry.is_regular_file()) ::utimensat(AT_FDCWD, entry.path().c_str(), times, 0);
    }
  }
  bool is_here(const oci::Descriptor& blob) { return local_.repository().has_blob(blob); }
  fs::path prefix(const std::string& name) const { return local_.trees_dir() / (name + ".erofs"); }
  fs::path tree_of(const ImageIndexBlobs& index) const { return prefix(index.tree.digest.hex()); }
  void expect_whole(const oci::Image& image, const ImageIndexBlobs& index) {
    ASSERT_TRUE(local_.find_index(image)) << "it counts";
    EXPECT_TRUE(is_here(index.tree) && is_here(image.manifest.config) && fs::exists(tree_of(index)));
    for (const auto& layer : index.layers) EXPECT_TRUE(is_here(layer.map) && is_here(layer.entries));
    for (const auto& name : prefix_names(image, index)) EXPECT_TRUE(fs::exists(prefix(name)));
  }

  test::TempDir dir_;
  LocalIndex local_{dir_ / "root"};
  std::shared_ptr<oci::Repository> elsewhere_ = std::make_shared<test::ArtifactRepository>();
};

TEST_F(ForgetImageTest, WhatNoOtherImageNeedsGoes) {
  const auto one = open("one", {"base", "middle", "one"}), two = open("two", {"base", "two"});
  const auto first = add_index(one), second = add_index(two);
  const auto signature = add_signature(first.manifest);
  for (const auto* index : {&first, &second}) local_.origins().note_proved(index->manifest.digest);
  age();
  EXPECT_GT(forget_image(local_, one.digest(), {}), 0u);
  expect_whole(two, second);
  for (const auto& blob : {one.document.descriptor, one.manifest.config, first.manifest, first.tree,
                           first.layers[1].map, first.layers[2].entries, signature})
    EXPECT_FALSE(is_here(blob));
  EXPECT_FALSE(fs::exists(tree_of(first)));
  std::set<std::string> left;
  for (const auto& name : prefix_names(one, first))
    if (fs::exists(prefix(name))) left.insert(name);
  EXPECT_EQ(left.size(), 1u) << "the tree of the layer that both have";
  EXPECT_TRUE(local_.repository().referrers(one.digest(), "").empty());
  EXPECT_EQ(forget_image(local_, one.digest(), {}), 0u);
}

TEST_F(ForgetImageTest, WhatCameJustNowGoesWithALaterCall) {
  const auto one = open("one", {"one"}), two = open("two", {"two"});
  const auto first = add_index(one);
  age();
  const auto young = first.layers[0].map;
  ::utimensat(AT_FDCWD, (local_.layout_dir() / "blobs/sha256" / young.digest.hex()).c_str(), nullptr, 0);
  forget_image(local_, one.digest(), {});
  EXPECT_TRUE(is_here(young) && is_here(first.manifest) && is_here(first.tree));
  EXPECT_FALSE(is_here(one.document.descriptor));
  age();
  EXPECT_GT(forget_image(local_, two.digest(), {}), 0u);
  EXPECT_FALSE(is_here(young) || is_here(first.manifest) || is_here(first.tree) || fs::exists(tree_of(first)));
}

TEST_F(ForgetImageTest, WhatWasIndexedHereStays) {
  const auto one = open("one", {"one"});
  const auto index = add_index(one);
  local_.origins().note_built_here(index.manifest.digest);
  age();
  forget_image(local_, one.digest(), {});
  EXPECT_FALSE(is_here(one.document.descriptor));
  EXPECT_TRUE(is_here(index.manifest) && is_here(index.tree) && is_here(index.layers[0].map));
  EXPECT_TRUE(fs::exists(tree_of(index)));
  EXPECT_TRUE(local_.find_index(one)) << "who opens it again has it";
}

TEST_F(ForgetImageTest, WhatIsInUseStays) {
  const auto one = open("one", {"one"}), two = open("two", {"two"});
  const auto first = add_index(one), second = add_index(two);
  age();
  forget_image(local_, one.digest(), {first.manifest.digest});
  EXPECT_TRUE(is_here(first.manifest) && is_here(first.tree) && fs::exists(tree_of(first)));
  forget_image(local_, two.digest(), {second.layers[0].map.digest});
  EXPECT_TRUE(is_here(second.layers[0].map)) << "the store is verified by it";
  EXPECT_FALSE(is_here(second.tree));
}

TEST_F(ForgetImageTest, NothingGoesWhereADocumentCannotBeRead) {
  const auto one = open("one", {"one"}), two = open("two", {"two"});
  const auto first = add_index(one), second = add_index(two);
  local_.origins().note_proved(first.manifest.digest);
  age();
  const auto file = local_.layout_dir() / "blobs/sha256" / second.manifest.digest.hex();
  auto bytes = read_file(file);
  bytes[bytes.size() / 2] ^= std::byte(1);
  write_file_atomically(file, bytes);
  EXPECT_THROW(forget_image(local_, one.digest(), {}), CorruptData);
  fs::remove(file);
  EXPECT_THROW(forget_image(local_, one.digest(), {}), CorruptData);
  expect_whole(one, first);
}

TEST_F(ForgetImageTest, WhatSpeaksOfNothingStays) {
  const auto one = open("one", {"one"});
  const oci::ArtifactManifest manifest{.artifact_type = std::string(kIndexArtifactType),
                                       .layers = {put_text("whatever", kTreeMediaType)},
                                       .subject = std::nullopt,
                                       .annotations = {}};
  const auto odd = local_.repository().put_manifest(manifest.to_json(), oci::kOciManifestType, "");
  age();
  forget_image(local_, one.digest(), {});
  EXPECT_TRUE(is_here(odd));
}

TEST_F(ForgetImageTest, FilesOfOthersInTheFolderOfTreesStay) {
  const auto one = open("one", {"one"});
  write_file_atomically(local_.trees_dir() / "notes.txt", as_bytes("mine"));
  age();
  forget_image(local_, one.digest(), {});
  EXPECT_TRUE(fs::exists(local_.trees_dir() / "notes.txt"));
}

}  // namespace
}  // namespace varve::index
