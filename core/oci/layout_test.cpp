#include "core/oci/layout.h"

#include <gtest/gtest.h>

#include <thread>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/oci/image.h"
#include "tests/support/temp_dir.h"

namespace varve::oci {
namespace {

class LayoutTest : public testing::Test {
 protected:
  // An image of one plain layer for a platform; returns its descriptor as put under the tag.
  Descriptor put_image(const std::string& tag, const std::string& content, const Platform& platform = Platform::parse("linux/amd64")) {
    const auto layer = put_bytes(*layout_, as_bytes(content), "application/vnd.oci.image.layer.v1.tar");
    const nlohmann::json config{{"os", platform.os}, {"architecture", platform.architecture},
                                {"config", {{"Env", {"A=1"}}}},
                                {"rootfs", {{"type", "layers"}, {"diff_ids", {layer.digest.to_string()}}}}};
    const auto config_blob = put_bytes(*layout_, as_bytes(config.dump()), "application/vnd.oci.image.config.v1+json");
    const auto entry = [](const Descriptor& blob) {
      return nlohmann::json{{"mediaType", blob.media_type}, {"digest", blob.digest.to_string()}, {"size", blob.size}};
    };
    const nlohmann::json manifest{{"schemaVersion", 2}, {"mediaType", kOciManifestType}, {"config", entry(config_blob)}, {"layers", {entry(layer)}}};
    return layout_->put_manifest(as_bytes(manifest.dump()), kOciManifestType, tag);
  }
  std::string message_of(const std::function<void()>& operation) {
    try {
      operation();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing thrown";
  }

  test::TempDir dir_;
  std::shared_ptr<LayoutRepository> layout_ = LayoutRepository::create(dir_ / "image");
};

TEST_F(LayoutTest, OpensAnImageByTagByDigestAndAlone) {
  const auto put = put_image("v1", "content");
  const auto platform = Platform::parse("linux/amd64");
  EXPECT_EQ(open_image(layout_, "v1", platform).digest(), put.digest);
  EXPECT_EQ(open_image(layout_, put.digest.to_string(), platform).digest(), put.digest);
  const auto image = open_image(layout_, "", platform);
  EXPECT_EQ(image.config.env, std::vector<std::string>{"A=1"});
  EXPECT_EQ(image.manifest.layers.size(), 1u);
}

TEST_F(LayoutTest, SaysWhatIsMissingInAFolderThatIsNoLayout) {
  EXPECT_NE(message_of([&] { LayoutRepository(dir_ / "none"); }).find("no such folder"), std::string::npos);
  std::filesystem::create_directory(dir_ / "empty");
  EXPECT_NE(message_of([&] { LayoutRepository(dir_ / "empty"); }).find("oci-layout"), std::string::npos);
  write_file_atomically(dir_ / "empty" / "oci-layout", as_bytes(R"({"imageLayoutVersion":"1.0.0"})"));
  EXPECT_NE(message_of([&] { LayoutRepository(dir_ / "empty"); }).find("index.json"), std::string::npos);
}

TEST_F(LayoutTest, ArtifactsDoNotMakeTheOnlyImageAmbiguous) {
  const auto image = put_image("v1", "content");
  ArtifactManifest artifact{.artifact_type = "application/vnd.example", .layers = {}, .subject = image, .annotations = {}};
  put_bytes(*layout_, empty_json(), kEmptyJsonType);
  layout_->put_manifest(artifact.to_json(), kOciManifestType, "");
  EXPECT_EQ(layout_->manifest("").descriptor.digest, image.digest);
  const auto found = layout_->referrers(image.digest, "application/vnd.example");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].digest, digest_of(artifact.to_json()));
  EXPECT_TRUE(layout_->referrers(image.digest, "application/vnd.other").empty());
  EXPECT_THROW(open_image(layout_, found[0].digest.to_string(), Platform::of_this_machine()), Unsupported);
}

TEST_F(LayoutTest, TwoImagesMustBeToldApart) {
  put_image("v1", "one");
  put_image("v2", "two");
  EXPECT_NE(message_of([&] { layout_->manifest(""); }).find(":v1, :v2"), std::string::npos);
  EXPECT_NE(message_of([&] { layout_->manifest("v3"); }).find("'v3'"), std::string::npos);
}

TEST_F(LayoutTest, ATagMovesToTheImagePutLast) {
  put_image("v1", "one");
  const auto second = put_image("v1", "two");
  EXPECT_EQ(layout_->manifest("v1").descriptor.digest, second.digest);
}

TEST_F(LayoutTest, ChoosesThePlatformThroughNestedIndexes) {
  const auto amd = put_image("", "amd");
  const auto arm = put_image("", "arm", Platform::parse("linux/arm64"));
  const auto entry = [](const Descriptor& blob) {
    return nlohmann::json{{"mediaType", blob.media_type}, {"digest", blob.digest.to_string()}, {"size", blob.size}};
  };
  const nlohmann::json inner{{"schemaVersion", 2}, {"mediaType", kOciIndexType}, {"manifests", {entry(arm), entry(amd)}}};
  const auto inner_blob = put_bytes(*layout_, as_bytes(inner.dump()), kOciIndexType);
  const nlohmann::json outer{{"schemaVersion", 2}, {"mediaType", kOciIndexType}, {"manifests", {entry(inner_blob)}}};
  layout_->put_manifest(as_bytes(outer.dump()), kOciIndexType, "all");
  EXPECT_EQ(open_image(layout_, "all", Platform::parse("linux/amd64")).digest(), amd.digest);
  EXPECT_EQ(open_image(layout_, "all", Platform::parse("linux/arm64")).digest(), arm.digest);
  EXPECT_NE(message_of([&] { open_image(layout_, "all", Platform::parse("linux/s390x")); }).find("linux/arm64, linux/amd64"), std::string::npos);
}

TEST_F(LayoutTest, ABlobThatDoesNotMatchItsDigestIsRefused) {
  const auto blob = put_bytes(*layout_, as_bytes("content"), "text/plain");
  const auto path = dir_ / "image" / "blobs" / "sha256" / blob.digest.hex();
  write_file_atomically(path, as_bytes("CONTENT"));
  EXPECT_THROW(read_whole_blob(*layout_, blob, 100), CorruptData);
  write_file_atomically(path, as_bytes("content and more"));
  EXPECT_THROW(read_whole_blob(*layout_, blob, 100), CorruptData);
  std::filesystem::remove(path);
  EXPECT_THROW(read_whole_blob(*layout_, blob, 100), NotFound);
}

TEST_F(LayoutTest, ReadsRangesAndRefusesThoseOutside) {
  const auto blob = put_bytes(*layout_, as_bytes("0123456789"), "text/plain");
  std::string got;
  layout_->read_blob(blob, {3, 4}, [&](ByteView bytes) { got += as_text(bytes); });
  EXPECT_EQ(got, "3456");
  EXPECT_THROW(layout_->read_blob(blob, {8, 4}, [](ByteView) {}), CorruptData);
  EXPECT_THROW(layout_->read_blob(blob, {~0ull, 2}, [](ByteView) {}), CorruptData);
}

TEST_F(LayoutTest, AWrongPushLeavesNothing) {
  Descriptor blob;
  blob.digest = digest_of("right");
  blob.size = 5;
  EXPECT_THROW(layout_->put_blob(blob, [](ByteRange, const ByteSink& sink) { sink(as_bytes("wrong")); }), CorruptData);
  EXPECT_FALSE(layout_->has_blob(blob));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "image" / "blobs" / "sha256"));
}

TEST_F(LayoutTest, ManyWritersLoseNoEntry) {
  std::vector<std::jthread> writers;
  for (int i = 0; i < 8; ++i)
    writers.emplace_back([this, i] { put_image("tag" + std::to_string(i), "content " + std::to_string(i)); });
  writers.clear();
  for (int i = 0; i < 8; ++i) EXPECT_NO_THROW(layout_->manifest("tag" + std::to_string(i))) << i;
}

TEST_F(LayoutTest, HostileManifestsAreRefusedByName) {
  const std::string deep(200, '[');
  for (const std::string& json : {std::string("{"), std::string("[]"), std::string(R"({"schemaVersion":1})"), std::string(R"({"schemaVersion":2,"config":7})"),
                                  R"({"schemaVersion":2,"x":)" + deep,
                                  std::string(R"({"schemaVersion":2,"config":{"mediaType":"a","digest":"sha256:00","size":1},"layers":[]})"),
                                  std::string(R"({"schemaVersion":2,"layers":[]})")})
    EXPECT_THROW(Manifest::parse(as_bytes(json), kOciManifestType, "hostile"), Error) << json;
  const auto negative = fmt::format(R"({{"schemaVersion":2,"config":{{"mediaType":"a","digest":"{}","size":-1}},"layers":[]}})", digest_of("").to_string());
  EXPECT_NE(message_of([&] { Manifest::parse(as_bytes(negative), kOciManifestType, "hostile"); }).find("hostile"), std::string::npos);
}

}  // namespace
}  // namespace varve::oci
