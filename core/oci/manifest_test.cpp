#include "core/oci/manifest.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"

namespace varve::oci {
namespace {

using nlohmann::json;

json descriptor(std::string_view type, std::string_view content) {
  return {{"mediaType", type}, {"digest", digest_of(content).to_string()}, {"size", content.size()}};
}

json manifest_json() {
  return {{"schemaVersion", 2},
          {"mediaType", kOciManifestType},
          {"config", descriptor("application/vnd.oci.image.config.v1+json", "config")},
          {"layers", {descriptor("application/vnd.oci.image.layer.v1.tar+gzip", "layer")}}};
}

Manifest parse(const json& document, std::string_view type = kOciManifestType) {
  return Manifest::parse(as_bytes(document.dump()), type, "test manifest");
}

TEST(ManifestTest, ReadsOciAndDockerManifests) {
  auto document = manifest_json();
  document["annotations"] = {{"k", "v"}};
  document["subject"] = descriptor(kOciManifestType, "subject");
  document["artifactType"] = "application/x";
  const auto manifest = parse(document);
  EXPECT_EQ(manifest.config.size, 6u);
  ASSERT_EQ(manifest.layers.size(), 1u);
  EXPECT_EQ(manifest.layers[0].digest, digest_of("layer"));
  EXPECT_EQ(manifest.subject->digest, digest_of("subject"));
  EXPECT_EQ(manifest.artifact_type, "application/x");
  EXPECT_EQ(manifest.annotations.at("k"), "v");

  auto docker = manifest_json();
  docker["mediaType"] = kDockerManifestType;
  EXPECT_EQ(parse(docker, kDockerManifestType).media_type, kDockerManifestType);
  auto untyped = manifest_json();
  untyped.erase("mediaType");
  EXPECT_EQ(parse(untyped, "").media_type, kOciManifestType);
}

TEST(ManifestTest, RefusesSchemaOne) {
  EXPECT_THROW(parse({{"schemaVersion", 1}, {"fsLayers", json::array()}}), Unsupported);
  EXPECT_THROW(parse(manifest_json(), "application/vnd.docker.distribution.manifest.v1+prettyjws"), Unsupported);
}

TEST(ManifestTest, RefusesTwoMeaningsUnderOneDigest) {
  EXPECT_THROW(parse(manifest_json(), kDockerManifestType), CorruptData);
  auto both = manifest_json();
  both["manifests"] = json::array();
  EXPECT_THROW(parse(both), CorruptData);
  EXPECT_THROW(ImageIndex::parse(as_bytes(both.dump()), "x"), CorruptData);
}

TEST(ManifestTest, RefusesWrongTypesSizesAndDigests) {
  const auto broken = [](auto change) {
    auto document = manifest_json();
    change(document);
    return document;
  };
  for (const auto& document :
       {broken([](json& d) { d["layers"] = "x"; }), broken([](json& d) { d["layers"][0]["size"] = -1; }),
        broken([](json& d) { d["layers"][0]["size"] = 1.5; }), broken([](json& d) { d["layers"][0].erase("size"); }),
        broken([](json& d) { d["layers"][0]["digest"] = "sha256:12"; }), broken([](json& d) { d["layers"][0] = 7; }),
        broken([](json& d) { d.erase("config"); }), broken([](json& d) { d.erase("schemaVersion"); }),
        broken([](json& d) {
          d["annotations"] = {{"k", 1}};
        }),
        broken([](json& d) { d["layers"][0]["urls"] = {1}; })})
    EXPECT_THROW(parse(document), CorruptData) << document;
  for (const std::string text : {"", "[]", "{", "{\"a\":}", "null", "{\"schemaVersion\":2}trailing"})
    EXPECT_THROW(Manifest::parse(as_bytes(text), kOciManifestType, "x"), CorruptData) << text;
}

TEST(ManifestTest, HasLimits) {
  auto many = manifest_json();
  for (std::size_t i = 0; i <= kMaxLayers; ++i) many["layers"].push_back(many["layers"][0]);
  EXPECT_THROW(parse(many), Unsupported);
  const std::string deep = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_THROW(Manifest::parse(as_bytes(deep), kOciManifestType, "x"), Unsupported);
  EXPECT_THROW(Manifest::parse(as_bytes(std::string(kMaxManifestBytes + 1, ' ')), kOciManifestType, "x"), Unsupported);
  std::string wide = "{\"a\":[0";
  while (wide.size() < 3'000'000) wide += ",[]";
  EXPECT_THROW(Manifest::parse(as_bytes(wide + "]}"), kOciManifestType, "x"), Unsupported);
}

TEST(ImageIndexTest, KeepsUnknownMediaTypesAndSkipsForeignDigests) {
  auto entry = descriptor("application/x-odd", "odd");
  entry["platform"] = {{"os", "linux"}, {"architecture", "arm"}, {"variant", "v7"}};
  const json document = {
      {"schemaVersion", 2},
      {"manifests",
       {entry, {{"mediaType", kOciManifestType}, {"digest", "sha512:" + std::string(128, '0')}, {"size", 3}}}}};
  const auto index = ImageIndex::parse(as_bytes(document.dump()), "test index");
  ASSERT_EQ(index.manifests.size(), 1u);
  EXPECT_EQ(index.manifests[0].platform->to_string(), "linux/arm/v7");
}

TEST(ImageConfigTest, ReadsWhatASessionNeeds) {
  const json document = {{"os", "linux"},
                         {"architecture", "amd64"},
                         {"rootfs", {{"type", "layers"}, {"diff_ids", {digest_of("tar").to_string()}}}},
                         {"config",
                          {{"Env", {"A=1", "B=2"}},
                           {"Entrypoint", {"/init"}},
                           {"Cmd", nullptr},
                           {"User", "1000:100"},
                           {"WorkingDir", "/w"},
                           {"StopSignal", "SIGINT"},
                           {"Volumes", {{"/data", json::object()}}},
                           {"Labels", {{"l", "v"}}},
                           {"Healthcheck", {{"Test", {"x"}}}}}}};
  const auto config = ImageConfig::parse(as_bytes(document.dump()), "test config");
  EXPECT_EQ(config.platform.to_string(), "linux/amd64");
  EXPECT_THAT(config.diff_ids, testing::ElementsAre(digest_of("tar")));
  EXPECT_THAT(config.env, testing::ElementsAre("A=1", "B=2"));
  EXPECT_THAT(config.entrypoint, testing::ElementsAre("/init"));
  EXPECT_TRUE(config.cmd.empty());
  EXPECT_EQ(config.user, "1000:100");
  EXPECT_THAT(config.volumes, testing::ElementsAre("/data"));
  EXPECT_THROW(ImageConfig::parse(as_bytes("{}"), "x"), CorruptData);
}

TEST(ImageConfigTest, TellsWhichStepMadeEachLayer) {
  const auto creators = [](std::string_view history) {
    const auto text = fmt::format(
        R"({{"os":"linux","architecture":"amd64","rootfs":{{"type":"layers","diff_ids":["{}","{}"]}},"history":{}}})",
        digest_of("a").to_string(), digest_of("b").to_string(), history);
    return ImageConfig::parse(as_bytes(text), "config").created_by;
  };
  EXPECT_THAT(
      creators(
          R"([{"created_by":"ADD rootfs"},{"created_by":"ENV A=1","empty_layer":true},{"created_by":"RUN make"}])"),
      testing::ElementsAre("ADD rootfs", "RUN make"));
  EXPECT_THAT(creators(R"([{"created_by":7},{}])"), testing::ElementsAre("", ""));
  EXPECT_THAT(creators(R"([{"created_by":"only one"}])"), testing::ElementsAre("", ""));
  EXPECT_THAT(creators(R"({"created_by":"no list"})"), testing::ElementsAre("", ""));
}

TEST(ArtifactManifestTest, IsCanonical) {
  ArtifactManifest artifact;
  artifact.artifact_type = "application/vnd.test";
  artifact.annotations = {{"b", "2"}, {"a", "1"}};
  Descriptor layer;
  layer.media_type = "application/x";
  layer.digest = digest_of("x");
  layer.size = 1;
  artifact.layers = {layer};
  artifact.subject = layer;
  artifact.subject->annotations = {{"seen", "somewhere"}};
  const auto bytes = artifact.to_json();
  EXPECT_EQ(as_text(bytes),
            R"({"annotations":{"a":"1","b":"2"},"artifactType":"application/vnd.test",)"
            R"("config":{"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",)"
            R"("mediaType":"application/vnd.oci.empty.v1+json","size":2},)"
            R"("layers":[{"digest":"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",)"
            R"("mediaType":"application/x","size":1}],)"
            R"("mediaType":"application/vnd.oci.image.manifest.v1+json","schemaVersion":2,)"
            R"("subject":{"digest":"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",)"
            R"("mediaType":"application/x","size":1}})");
  const auto read = Manifest::parse(bytes, kOciManifestType, "artifact");
  EXPECT_EQ(read.artifact_type, "application/vnd.test");
  EXPECT_EQ(read.subject->digest, layer.digest);
}

TEST(LayerMediaTypeTest, KnowsOciAndDockerTypes) {
  EXPECT_EQ(parse_layer_media_type("application/vnd.oci.image.layer.v1.tar")->compression, LayerCompression::kNone);
  EXPECT_EQ(parse_layer_media_type("application/vnd.oci.image.layer.v1.tar+gzip")->compression,
            LayerCompression::kGzip);
  EXPECT_EQ(parse_layer_media_type("application/vnd.docker.image.rootfs.diff.tar.gzip")->compression,
            LayerCompression::kGzip);
  EXPECT_EQ(parse_layer_media_type("application/vnd.docker.image.rootfs.diff.tar.zstd")->compression,
            LayerCompression::kZstd);
  EXPECT_TRUE(parse_layer_media_type("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")->nondistributable);
  EXPECT_TRUE(parse_layer_media_type("application/vnd.oci.image.layer.nondistributable.v1.tar+zstd")->nondistributable);
  EXPECT_FALSE(parse_layer_media_type("application/vnd.oci.image.layer.v1.tar+gzip+encrypted").has_value());
  EXPECT_FALSE(parse_layer_media_type("application/vnd.in-toto+json").has_value());
}

}  // namespace
}  // namespace varve::oci
