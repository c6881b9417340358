#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <numeric>

#include <nlohmann/json.hpp>

#include "analyzer/packages/folder_source.h"
#include "analyzer/packages/image_source.h"
#include "analyzer/packages/inventory.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/codec/span_decoder.h"
#include "core/index/opened_image.h"
#include "core/oci/layout.h"
#include "indexer/index_image.h"
#include "testing/codec_support.h"
#include "testing/tar_support.h"
#include "testing/temp_dir.h"

namespace varve::packages {
namespace {

using codec::test::TarBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string text_of(const index::FileSource& source, const std::string& path, std::uint64_t limit = 1 << 20) {
  std::string text = "not given";
  source.read({path}, limit, [&](const std::string& given, std::optional<Bytes> content) {
    EXPECT_EQ(given, path);
    text = content ? std::string(as_text(*content)) : "none";
  });
  return text;
}

class FolderSourceTest : public ::testing::Test {
 protected:
  void write(const std::string& path, std::string_view content) {
    const auto full = dir_.path() / path;
    std::filesystem::create_directories(full.parent_path());
    write_file_atomically(full, as_bytes(content));
  }
  test::TempDir dir_;
};

TEST_F(FolderSourceTest, ListsAndReadsWithoutFollowingLinks) {
  write("a/b", "content");
  std::filesystem::create_symlink("/etc/passwd", dir_.path() / "out");
  std::filesystem::create_directory_symlink("a", dir_.path() / "in");
  std::filesystem::create_hard_link(dir_.path() / "a/b", dir_.path() / "z");
  ASSERT_EQ(::mkfifo((dir_.path() / "fifo").c_str(), 0600), 0);
  const auto source = open_folder(dir_.path(), "amd64");
  std::vector<std::string> paths;
  for (const auto& [path, file] : source->tree().entries)
    if (!path.empty()) paths.push_back(path);
  EXPECT_THAT(paths, ElementsAre("a", "a/b", "fifo", "in", "out", "z"));
  EXPECT_EQ(source->tree().entries.at("out").symlink_target, "/etc/passwd");
  EXPECT_TRUE(source->tree().entries.at("a/b").is_first_name());
  EXPECT_FALSE(source->tree().entries.at("z").is_first_name());
  EXPECT_EQ(text_of(*source, "a/b"), "content");
  for (const auto* path : {"out", "in/b", "fifo", "a", "none", "../x", ""})
    EXPECT_EQ(text_of(*source, path), "none") << path;
  EXPECT_EQ(text_of(*source, "a/b", 6), "none");
}

TEST_F(FolderSourceTest, IsNotFooledByAFileThatBecameALink) {
  write("a/b", "content");
  const auto source = open_folder(dir_.path(), "amd64");
  std::filesystem::remove_all(dir_.path() / "a");
  std::filesystem::create_directory_symlink("/etc", dir_.path() / "a");
  std::filesystem::create_symlink("/etc/passwd", dir_.path() / "b");
  EXPECT_EQ(text_of(*source, "a/b"), "none");
}

TEST_F(FolderSourceTest, ReadsInPlaces) {
  write("a", "0123456789");
  const auto source = open_folder(dir_.path(), "amd64");
  source->read_ranges("a", [](const index::RangeReader& read_at) {
    EXPECT_EQ(as_text(read_at({.offset = 3, .length = 4})), "3456");
    EXPECT_THROW(read_at({.offset = 8, .length = 3}), CorruptData);
  });
  EXPECT_THROW(source->read_ranges("none", [](const index::RangeReader&) {}), NotFound);
}

TEST_F(FolderSourceTest, NamesAFolderThatIsNotThere) {
  EXPECT_THROW(open_folder(dir_.path() / "none", "amd64"), std::system_error);
}

// Images made here, in a layout folder.
class ImageSourceTest : public ::testing::Test {
 protected:
  oci::Image make_image(const std::vector<Bytes>& blobs, const std::vector<Bytes>& streams) {
    const auto layout = oci::create_layout(dir_.path() / "oci");
    nlohmann::json config{{"os", "linux"},
                          {"architecture", "arm64"},
                          {"config", {{"Env", {"A=1", "A=2", "broken"}}}},
                          {"rootfs", {{"type", "layers"}, {"diff_ids", nlohmann::json::array()}}}};
    nlohmann::json manifest{
        {"schemaVersion", 2}, {"mediaType", oci::kOciManifestType}, {"layers", nlohmann::json::array()}};
    const auto descriptor = [](const oci::Descriptor& blob, std::string_view type) {
      return nlohmann::json{{"mediaType", type}, {"digest", blob.digest.to_string()}, {"size", blob.size}};
    };
    for (std::size_t i = 0; i < blobs.size(); ++i) {
      const auto type = "application/vnd.oci.image.layer.v1.tar+gzip";
      manifest["layers"].push_back(descriptor(oci::put_bytes(*layout, blobs[i], type), type));
      config["rootfs"]["diff_ids"].push_back(digest_of(streams[i]).to_string());
    }
    const auto type = "application/vnd.oci.image.config.v1+json";
    manifest["config"] = descriptor(oci::put_bytes(*layout, as_bytes(config.dump()), type), type);
    layout->put_manifest(as_bytes(manifest.dump()), oci::kOciManifestType, "test");
    return oci::open_image(layout, "test", {.os = "linux", .architecture = "arm64", .variant = ""});
  }

  test::TempDir dir_;
  Progress progress_;
  CancelFlag cancel_;
};

Bytes base_tar() {
  TarBuilder tar;
  tar.file("./usr/bin/tool", "old")
      .file("s/foo-1.0.dist-info/METADATA", "Name: foo\nVersion: 1.0\n")
      .file("s/foo-1.0.dist-info/RECORD", "foo.py,,4\n");
  tar.file("s/foo.py", "x=1\n").file("data/large", std::string(200'000, 'x')).end();
  return to_bytes(tar.bytes());
}

Bytes upper_tar() {
  TarBuilder tar;
  tar.file("usr/bin/tool", "new").file("data/.wh.large", "").end();
  return to_bytes(tar.bytes());
}

TEST_F(ImageSourceTest, ReadsLayersOfAllKindsWithoutAnIndex) {
  const auto base = base_tar();
  const auto upper = upper_tar();
  for (const auto& [first, second] : {std::pair(codec::test::gzip(base), codec::compress_zstd(upper, 3)),
                                      std::pair(base, codec::test::gzip(upper))}) {
    const auto image = make_image({first, second}, {base, upper});
    const auto source = read_image(image, {progress_, cancel_});
    EXPECT_EQ(text_of(*source, "usr/bin/tool"), "new");
    EXPECT_EQ(text_of(*source, "s/foo-1.0.dist-info/METADATA"), "Name: foo\nVersion: 1.0\n");
    EXPECT_EQ(text_of(*source, "data/large"), "none");
    EXPECT_EQ(source->tree().entries.at("usr/bin/tool").layer, 1u);
    EXPECT_EQ(source->facts().environment, (std::map<std::string, std::string>{{"A", "2"}}));
    EXPECT_EQ(source->facts().architecture, "arm64");
    ASSERT_EQ(source->facts().layers.size(), 2u);
    EXPECT_EQ(source->facts().layers[0].stream_bytes, base.size());
    ASSERT_EQ(source->tree().hidden.size(), 2u);
    EXPECT_EQ(source->fetched().bytes,
              first.size() + second.size() + second.size());  // once, and again for what was not kept
    EXPECT_THROW(source->read_ranges("usr/bin/tool", [](const index::RangeReader&) {}), Unsupported);

    std::uint64_t shares = 0;
    for (const auto& [path, file] : source->tree().entries) shares += file.compressed_bytes;
    for (const auto& hidden : source->tree().hidden) shares += hidden.compressed_bytes;
    EXPECT_LE(shares, first.size() + second.size());

    const auto inventory = read_inventory(*source);
    ASSERT_EQ(inventory.distributions.size(), 1u);
    ASSERT_EQ(inventory.distributions[0].layer_bytes.size(), inventory.distributions[0].layers.size());
    EXPECT_EQ(std::accumulate(inventory.distributions[0].layer_bytes.begin(),
                              inventory.distributions[0].layer_bytes.end(), std::uint64_t(0)),
              inventory.distributions[0].compressed_bytes);
    EXPECT_GT(inventory.distributions[0].compressed_bytes, 0u);
    EXPECT_EQ(inventory.distributions[0].name, "foo");
    EXPECT_THAT(inventory.distributions[0].layers, ElementsAre(0u));
    ASSERT_EQ(inventory.waste.size(), 2u);
    EXPECT_EQ(inventory.waste[0].why, Waste::Why::kDeleted);
    EXPECT_EQ(inventory.waste[0].bytes, 200'000u);
  }
}

TEST_F(ImageSourceTest, WithAnIndexFetchesOnlyTheSpansThatHoldWhatIsRead) {
  TarBuilder tar;
  tar.file("usr/bin/tool", "old").file("s/foo-1.0.dist-info/METADATA", "Name: foo\nVersion: 1.0\n");
  const auto noise = codec::test::random_bytes(8 << 20);
  tar.file("data/noise", as_text(noise))
      .file("s/foo-1.0.dist-info/RECORD", "foo.py,,4\n")
      .file("s/foo.py", "x=1\n")
      .end();
  const auto base = to_bytes(tar.bytes());
  const auto upper = upper_tar();
  for (const auto& blob : {codec::test::gzip(base), codec::compress_zstd(base, 3), base}) {
    const auto image = make_image({blob, codec::test::gzip(upper)}, {base, upper});
    index::LocalIndex local(dir_.path() / digest_of(blob).hex());
    indexer::index_image(image, local.repository(), local, {}, {progress_, cancel_});
    const auto source = std::make_unique<index::OpenedImage>(local, image);
    const auto streamed = read_image(image, {progress_, cancel_});
    ASSERT_EQ(source->tree().entries.size(), streamed->tree().entries.size());
    EXPECT_EQ(source->tree().hidden.size(), 1u);
    const auto inventory = read_inventory(*source);
    ASSERT_EQ(inventory.distributions.size(), 1u);
    EXPECT_EQ(inventory.distributions[0].name, "foo");
    const bool single_frame =
        blob.size() < base.size() && source->index().maps[0]->format == index::LayerFormat::kZstdSingle;
    if (!single_frame) {
      EXPECT_LT(source->fetched().bytes, blob.size() / 2);
    }
    EXPECT_EQ(text_of(*source, "data/noise", 16 << 20), as_text(noise));
    EXPECT_EQ(text_of(*source, "data/noise", 100), "none");
    EXPECT_EQ(text_of(*source, "s"), "none");
    source->read_ranges("data/noise", [&](const index::RangeReader& read_at) {
      for (const std::uint64_t offset : {0u, 1u, 4'000'000u, 8'388'000u}) {
        const auto part = read_at({.offset = offset, .length = 600});
        EXPECT_TRUE(std::ranges::equal(part, ByteView(noise).subspan(offset, 600))) << offset;
      }
      EXPECT_THROW(read_at({.offset = noise.size(), .length = 1}), CorruptData);
    });
    EXPECT_THROW(source->read_ranges("s/none", [](const index::RangeReader&) {}), NotFound);
  }
}

TEST_F(ImageSourceTest, NamesTheLayerThatIsBroken) {
  const auto base = base_tar();
  auto blob = codec::test::gzip(base);
  blob.resize(blob.size() - 20);
  const auto image = make_image({blob}, {base});
  EXPECT_THAT(
      [&] {
        read_image(image, {progress_, cancel_});
      },
      ThrowsMessage<CorruptData>(HasSubstr("layer " + digest_of(blob).to_string())));
}

TEST_F(ImageSourceTest, StopsWhenTold) {
  const auto base = base_tar();
  const auto image = make_image({base}, {base});
  cancel_.cancel();
  EXPECT_THROW(read_image(image, {progress_, cancel_}), Cancelled);
}

}  // namespace
}  // namespace varve::packages
