#include "core/oci/image.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::oci {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr std::string_view kLayerType = "application/vnd.oci.image.layer.v1.tar+gzip";

class ImageTest : public testing::Test {
 protected:
  json entry_of(const Descriptor& blob) {
    return {{"mediaType", blob.media_type}, {"digest", blob.digest.to_string()}, {"size", blob.size}};
  }

  // An image of one layer; `platform` as in "linux/arm/v7".
  Descriptor put_image(const std::string& platform, const std::string& tag, std::string_view layer_type = kLayerType,
                       int diff_ids = 1) {
    const auto parsed = Platform::parse(platform);
    json config = {{"os", parsed.os},
                   {"architecture", parsed.architecture},
                   {"rootfs", {{"type", "layers"}, {"diff_ids", json::array()}}}};
    if (!parsed.variant.empty()) config["variant"] = parsed.variant;
    for (int i = 0; i < diff_ids; ++i) config["rootfs"]["diff_ids"].push_back(digest_of("tar").to_string());
    const auto config_blob =
        put_bytes(*repository_, as_bytes(config.dump()), "application/vnd.oci.image.config.v1+json");
    const auto layer = put_bytes(*repository_, as_bytes("layer"), layer_type);
    const json manifest = {{"schemaVersion", 2},
                           {"mediaType", kOciManifestType},
                           {"config", entry_of(config_blob)},
                           {"layers", {entry_of(layer)}}};
    return repository_->put_manifest(as_bytes(manifest.dump()), kOciManifestType, tag);
  }
  json platform_entry(const Descriptor& image, const std::string& platform) {
    auto entry = entry_of(image);
    const auto slash = platform.find('/');
    entry["platform"] = {{"os", platform.substr(0, slash)}, {"architecture", platform.substr(slash + 1)}};
    return entry;
  }
  Descriptor put_index(const json& entries, const std::string& tag) {
    const json index = {{"schemaVersion", 2}, {"mediaType", kOciIndexType}, {"manifests", entries}};
    return repository_->put_manifest(as_bytes(index.dump()), kOciIndexType, tag);
  }
  Digest open(const std::string& selector, const std::string& platform) {
    return open_image(repository_, selector, Platform::parse(platform)).digest();
  }

  test::TempDir dir_;
  std::shared_ptr<Repository> repository_ = create_layout(dir_.path());
};

TEST_F(ImageTest, OpensAPlainImage) {
  const auto put = put_image("linux/amd64", "latest");
  const auto image = open_image({.reference = Reference::parse("oci:" + dir_.path().string()),
                                 .platform = Platform::parse("linux/amd64"),
                                 .registry = {}});
  EXPECT_EQ(image.digest(), put.digest);
  EXPECT_EQ(image.config.platform.to_string(), "linux/amd64");
  EXPECT_EQ(digest_of(image.config_json), image.manifest.config.digest);
}

TEST_F(ImageTest, ChoosesThePlatformThroughNestedIndexes) {
  const auto amd64 = put_image("linux/amd64", "");
  const auto arm64 = put_image("linux/arm64", "");
  const auto v6 = put_image("linux/arm/v6", "");
  auto attestation = platform_entry(put_image("linux/riscv64", ""), "unknown/unknown");
  attestation["annotations"] = {{"vnd.docker.reference.type", "attestation-manifest"}};
  const auto inner = put_index({platform_entry(arm64, "linux/arm64"), entry_of(v6)}, "");
  put_index({attestation,
             {{"mediaType", "application/x-odd"}, {"digest", digest_of("odd").to_string()}, {"size", 3}},
             entry_of(inner),
             platform_entry(amd64, "linux/x86_64")},
            "list");
  EXPECT_EQ(open("list", "linux/amd64"), amd64.digest);
  EXPECT_EQ(open("list", "linux/arm64"), arm64.digest);
  EXPECT_EQ(open("list", "linux/arm/v7"), v6.digest);  // the platform is in its config only
  EXPECT_EQ(open("", "linux/amd64"), amd64.digest);    // the index is the only image
  try {
    open("list", "linux/s390x");
    FAIL() << "no such platform";
  } catch (const NotFound& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(HasSubstr("linux/s390x"), HasSubstr("linux/arm64"), HasSubstr("linux/amd64")));
  }
}

TEST_F(ImageTest, TakesPlatformsListedInIndexJsonItself) {
  const auto amd64 = put_image("linux/amd64", "");
  const auto arm64 = put_image("linux/arm64", "");
  const json index = {{"schemaVersion", 2},
                      {"manifests", {platform_entry(amd64, "linux/amd64"), platform_entry(arm64, "linux/arm64")}}};
  write_file_atomically(dir_ / "index.json", as_bytes(index.dump()));
  EXPECT_EQ(open("", "linux/arm64"), arm64.digest);
  EXPECT_EQ(open("", "linux/amd64"), amd64.digest);
}

TEST_F(ImageTest, RefusesLayersItCannotRead) {
  put_image("linux/amd64", "count", kLayerType, 2);
  EXPECT_THROW(open("count", "linux/amd64"), CorruptData);
  put_image("linux/amd64", "foreign", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip");
  EXPECT_THROW(open("foreign", "linux/amd64"), Unsupported);
  put_image("linux/amd64", "odd", "application/vnd.in-toto+json");
  EXPECT_THROW(open("odd", "linux/amd64"), Unsupported);
}

TEST_F(ImageTest, RefusesAnArtifact) {
  ArtifactManifest artifact;
  artifact.artifact_type = "application/vnd.chart";
  artifact.layers = {empty_json_descriptor()};
  repository_->put_manifest(artifact.to_json(), kOciManifestType, "chart");
  EXPECT_THROW(open("chart", "linux/amd64"), Unsupported);
}

TEST_F(ImageTest, APlatformThatIsAskedForMustFitAnImageWithoutAListToo) {
  put_image("linux/arm64", "v1");
  const auto open_for = [&](const std::string& platform) {
    return open_image(ImageRequest::parse(repository_->name() + ":v1", platform, {}));
  };
  EXPECT_EQ(open_for("linux/arm64").config.platform.architecture, "arm64");
  EXPECT_NO_THROW(open_for("")) << "whoever asks for nothing gets what there is";
  try {
    open_for("linux/amd64");
    FAIL();
  } catch (const NotFound& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(repository_->name() + ":v1"), HasSubstr("is for linux/arm64"),
                                             HasSubstr("not for linux/amd64")));
  }
  EXPECT_THROW(open_for("foo"), UsageError);
}

TEST_F(ImageTest, DoesMeanwhileWhatNeedsNoConfig) {
  const auto image = put_image("linux/amd64", "v1");
  const auto request = ImageRequest::parse(repository_->name() + ":v1", "linux/amd64", {});
  int calls = 0;
  const auto look = [&](const Image& known) {
    ++calls;
    EXPECT_EQ(known.digest(), image.digest);
    EXPECT_EQ(known.manifest.layers.size(), 1u);
    EXPECT_EQ(known.typed(), repository_->name() + ":v1");
    EXPECT_TRUE(known.config.diff_ids.empty());
  };
  EXPECT_EQ(open_image(request, {.meanwhile = look}).config.diff_ids.size(), 1u);
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(open_image(request, {.meanwhile = [](const Image&) { throw NotFound("no index"); }}), NotFound);
  const auto odd = put_image("linux/amd64", "odd", kLayerType, 2);
  EXPECT_THROW(open_image(ImageRequest::parse(repository_->name() + ":odd", "", {}),
                          {.meanwhile = [](const Image&) { throw NotFound("no index"); }}),
               CorruptData)
      << "what is no image has no index either";
}

TEST_F(ImageTest, AConfigThatIsKeptIsNotAskedForUnlessItIsBroken) {
  put_image("linux/amd64", "v1");
  const auto request = ImageRequest::parse(repository_->name() + ":v1", "linux/amd64", {});
  const auto image = open_image(request);
  const test::TempDir here;
  const auto kept = create_layout(here.path());
  put_bytes(*kept, image.config_json, image.manifest.config.media_type);
  const auto there = dir_ / "blobs/sha256" / image.manifest.config.digest.hex();
  std::filesystem::rename(there, dir_ / "away");
  EXPECT_THROW(open_image(request), NotFound);
  EXPECT_EQ(open_image(request, {.kept = kept.get()}).config_json, image.config_json);
  auto broken = image.config_json;
  broken.front() = std::byte('?');
  write_file_atomically(here / "blobs/sha256" / image.manifest.config.digest.hex(), broken);
  EXPECT_THROW(open_image(request, {.kept = kept.get()}), NotFound);
  std::filesystem::rename(dir_ / "away", there);
  EXPECT_EQ(open_image(request, {.kept = kept.get()}).config_json, image.config_json);
}

}  // namespace
}  // namespace varve::oci
