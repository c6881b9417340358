#include "core/oci/image_view.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/oci/image.h"
#include "testing/refusal.h"
#include "testing/tar_support.h"
#include "testing/temp_dir.h"

namespace varve::oci {
namespace {

using codec::test::TarBuilder;
using nlohmann::json;
using test::refusal_of;
using testing::HasSubstr;

class ImageViewTest : public testing::Test {
 protected:
  static std::string tar_of(const std::string& text) {
    TarBuilder tar;
    tar.file("etc/motd", text).end();
    return std::string(as_text(tar.bytes()));
  }
  static std::string config_of(const std::vector<std::string>& layers) {
    json config = {
        {"os", "linux"}, {"architecture", "amd64"}, {"rootfs", {{"type", "layers"}, {"diff_ids", json::array()}}}};
    for (const auto& layer : layers) config["rootfs"]["diff_ids"].push_back(digest_of(layer).to_string());
    return config.dump();
  }
  // As Docker writes it: the layer that is there twice is a link.
  std::string write_archive(const std::string& second_layer) {
    TarBuilder tar;
    tar.file("1/layer.tar", first_).file("2/layer.tar", second_layer);
    tar.header({.name = "3/layer.tar", .typeflag = '2', .link_name = "../1/layer.tar"});
    tar.file("config.json", config_of({first_, second_layer, first_}));
    tar.file("other.json", config_of({first_}));
    tar.file("manifest.json", json({{{"Config", "config.json"},
                                     {"RepoTags", {"team/app:v1", "team/app:latest"}},
                                     {"Layers", {"1/layer.tar", "2/layer.tar", "3/layer.tar"}}},
                                    {{"Config", "other.json"}, {"RepoTags", nullptr}, {"Layers", {"1/layer.tar"}}}})
                                  .dump());
    tar.end();
    write_file_atomically(dir_ / "image.tar", tar.bytes());
    return "docker-archive:" + (dir_ / "image.tar").string();
  }
  static Image open(const std::string& reference) { return open_image(ImageRequest::parse(reference, "", {})); }

  const std::string first_ = tar_of("hello");
  const std::string second_ = tar_of("a layer of its own");
  test::TempDir dir_;
};

TEST_F(ImageViewTest, ADockerArchiveIsReadInPlace) {
  const auto archive = write_archive(second_);
  const auto image = open(archive + ":team/app:v1");
  ASSERT_EQ(image.manifest.layers.size(), 3u);
  EXPECT_EQ(image.manifest.layers[1].digest, digest_of(second_)) << "a plain tar is named by its diff_id";
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(as_text(read_whole_blob(*image.repository, image.manifest.layers[i], 1 << 20)),
              i == 1 ? second_ : first_);
  Bytes part;
  image.repository->read_blob(image.manifest.layers[1], {512, 18}, [&](ByteView bytes) { append(part, bytes); });
  EXPECT_EQ(as_text(part), "a layer of its own");
  // The same by every name, by digest, and in every run.
  EXPECT_EQ(open(archive + ":team/app").digest(), image.digest());
  EXPECT_EQ(open(archive + ":docker.io/team/app:v1").digest(), image.digest());
  const auto by_digest = Reference::parse(archive + "@" + image.digest().to_string());
  EXPECT_EQ(Reference::parse(by_digest.to_string()).digest, image.digest());
  EXPECT_EQ(open(by_digest.to_string()).digest(), image.digest());
  EXPECT_THAT(refusal_of<std::exception>([&] { open(archive); }), HasSubstr("docker.io/team/app:v1"));
  EXPECT_THAT(refusal_of<std::exception>([&] { open(archive + ":team/app:v2"); }), HasSubstr("docker.io/team/app:v1"));
}

TEST_F(ImageViewTest, WhoeverReadsKeepsTheArchiveThatWasOpened) {
  const auto archive = write_archive(second_);
  const auto image = open(archive + ":team/app:v1");
  write_archive(tar_of("another"));
  EXPECT_EQ(as_text(read_whole_blob(*image.repository, image.manifest.layers[1], 1 << 20)), second_);
  EXPECT_NE(open(archive + ":team/app:v1").digest(), image.digest());
}

TEST_F(ImageViewTest, ALayerThatIsNotWhatTheConfigSaysIsRefusedWhenItIsRead) {
  TarBuilder tar;
  tar.file("l.tar", first_).file("c.json", config_of({second_}));
  tar.file("manifest.json", R"([{"Config":"c.json","Layers":["l.tar"]}])").end();
  write_file_atomically(dir_ / "lie.tar", tar.bytes());
  const auto image = open("docker-archive:" + (dir_ / "lie.tar").string());
  EXPECT_THROW(read_whole_blob(*image.repository, image.manifest.layers[0], 1 << 20), CorruptData);
}

TEST_F(ImageViewTest, NothingIsWrittenAndWhatIsNoArchiveIsNamed) {
  const auto image = open(write_archive(second_) + ":team/app:v1");
  EXPECT_TRUE(image.repository->is_read_only());
  EXPECT_THROW(put_bytes(*image.repository, as_bytes("x"), "a/b"), Unsupported);
  EXPECT_THROW(image.repository->put_manifest(image.document.bytes, kOciManifestType, ""), Unsupported);
  const auto refusal = [&](const std::string& name, ByteView bytes) {
    write_file_atomically(dir_ / name, bytes);
    return refusal_of<std::exception>([&] { open("docker-archive:" + (dir_ / name).string()); });
  };
  EXPECT_THAT(refusal_of<std::exception>([&] { open("docker-archive:/none.tar"); }),
              HasSubstr("docker-archive:/none.tar"));
  EXPECT_THAT(refusal("a.tgz", as_bytes("\x1f\x8b\x08 compressed")), HasSubstr("gzip -d"));
  EXPECT_THAT(refusal("b.tar", as_bytes(second_)), HasSubstr("manifest.json is missing"));
  TarBuilder missing;
  missing.file("manifest.json", R"([{"Config":"c.json","Layers":[]}])").end();
  EXPECT_THAT(refusal("c.tar", missing.bytes()), HasSubstr("c.json, which is missing"));
  TarBuilder compressed;
  compressed.file("l.tar", "\x1f\x8b\x08 compressed").file("c.json", config_of({second_}));
  compressed.file("manifest.json", R"([{"Config":"c.json","Layers":["l.tar"]}])").end();
  EXPECT_THAT(refusal("d.tar", compressed.bytes()), HasSubstr("l.tar is compressed"));
}

TEST_F(ImageViewTest, AFolderOfSkopeoIsReadInPlace) {
  const auto folder = dir_ / "folder";
  std::filesystem::create_directories(folder);
  const auto config = config_of({first_});
  const auto put = [&](const std::string& content) {
    write_file_atomically(folder / digest_of(content).hex(), as_bytes(content));
    return json{{"mediaType", "application/vnd.docker.image.rootfs.diff.tar"},
                {"digest", digest_of(content).to_string()},
                {"size", content.size()}};
  };
  const json manifest = {
      {"schemaVersion", 2}, {"mediaType", kDockerManifestType}, {"config", put(config)}, {"layers", {put(first_)}}};
  const auto reference = "dir:" + folder.string();
  EXPECT_THAT(refusal_of<std::exception>([&] { open(reference); }), HasSubstr("manifest.json is missing"));
  write_file_atomically(folder / "version", as_bytes("Directory Transport Version: 1.1\n"));
  write_file_atomically(folder / "manifest.json", as_bytes(manifest.dump()));
  const auto image = open(reference + "/");
  EXPECT_EQ(image.repository->name(), reference);
  EXPECT_EQ(image.digest(), digest_of(manifest.dump()));
  EXPECT_EQ(as_text(read_whole_blob(*image.repository, image.manifest.layers[0], 1 << 20)), first_);
  EXPECT_EQ(open(reference + "@" + image.digest().to_string()).digest(), image.digest());
  std::filesystem::remove(folder / digest_of(first_).hex());
  EXPECT_THROW(read_whole_blob(*open(reference).repository, image.manifest.layers[0], 1 << 20), NotFound);
}

}  // namespace
}  // namespace varve::oci
