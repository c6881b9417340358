#include <nlohmann/json.hpp>

#include "core/oci/internal/referrers.h"
#include "testing/registry_fixture.h"

namespace varve::oci {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

class RegistryPushTest : public RegistryFixture {
 protected:
  Descriptor describe(ByteView content) {
    Descriptor blob;
    blob.media_type = "application/octet-stream";
    blob.digest = digest_of(content);
    blob.size = content.size();
    return blob;
  }
  // Pushes from memory; `pushed_bytes_` counts what was asked of the source.
  void push(Repository& repository, const Bytes& content) {
    repository.put_blob(describe(content), [&](ByteRange range, const ByteSink& sink) {
      pushed_bytes_ += range.length;
      sink(ByteView(content).subspan(range.offset, range.length));
    });
  }
  std::vector<std::string> upload_methods() {
    std::vector<std::string> methods;
    for (const auto& record : registry_.records())
      if (record.kind == Kind::kUpload) methods.push_back(record.request.method);
    return methods;
  }
  Descriptor subject() {
    const std::string manifest =
        R"({"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":")" +
        digest_of("c").to_string() + R"(","size":1},"layers":[]})";
    Descriptor image;
    image.media_type = kOciManifestType;
    image.digest = registry_.add_manifest("team/app", as_bytes(manifest), std::string(kOciManifestType), "latest");
    image.size = manifest.size();
    return image;
  }
  Bytes artifact(const Descriptor& of, const std::string& type, const std::string& value = "1") {
    ArtifactManifest manifest;
    manifest.artifact_type = type;
    manifest.subject = of;
    manifest.annotations = {{"value", value}};
    manifest.layers = {empty_json_descriptor()};
    return manifest.to_json();
  }
  static std::vector<Digest> digests(const std::vector<Descriptor>& descriptors) {
    std::vector<Digest> list;
    for (const auto& descriptor : descriptors) list.push_back(descriptor.digest);
    return list;
  }

  const Bytes content_ = pattern(2'500'000);
  std::uint64_t pushed_bytes_ = 0;
};

TEST_F(RegistryPushTest, PushesInOneRequestAndOnlyOnce) {
  const auto repository = open();
  push(*repository, content_);
  EXPECT_EQ(registry_.blob("team/app", digest_of(content_)), content_);
  EXPECT_THAT(upload_methods(), ElementsAre("POST", "PUT"));
  EXPECT_EQ(pushed_bytes_, content_.size());
  push(*repository, content_);
  EXPECT_THAT(upload_methods(), SizeIs(2));
  EXPECT_EQ(pushed_bytes_, content_.size());
}

TEST_F(RegistryPushTest, PushesAnEmptyBlob) {
  push(*open(), {});
  EXPECT_EQ(registry_.blob("team/app", digest_of("")), Bytes());
}

TEST_F(RegistryPushTest, PushesInChunksOfAtLeastWhatTheRegistryAsksFor) {
  options_.upload_chunk_bytes = 100'000;
  registry_.set([](Switches& s) { s.min_chunk_bytes = 1'000'000, s.relative_locations = false; });
  push(*open(), content_);
  EXPECT_EQ(registry_.blob("team/app", digest_of(content_)), content_);
  EXPECT_THAT(upload_methods(), ElementsAre("POST", "PATCH", "PATCH", "PATCH", "PUT"));
}

TEST_F(RegistryPushTest, LostChunkGoesOnWhereTheRegistryStands) {
  options_.upload_chunk_bytes = 1'000'000;
  registry_.set([](Switches& s) { s.lose_chunks = 2; });
  push(*open(), content_);
  EXPECT_EQ(registry_.blob("team/app", digest_of(content_)), content_);
  const auto methods = upload_methods();
  EXPECT_EQ(std::count(methods.begin(), methods.end(), "GET"), 2);
  EXPECT_EQ(std::count(methods.begin(), methods.end(), "POST"), 1);
}

TEST_F(RegistryPushTest, LostUploadBeginsAnew) {
  registry_.set([](Switches& s) { s.lose_uploads = 1; });
  push(*open(), content_);
  EXPECT_EQ(registry_.blob("team/app", digest_of(content_)), content_);
  EXPECT_THAT(upload_methods(), ElementsAre("POST", "PUT", "POST", "PUT"));
  options_.upload_chunk_bytes = 1'000'000;
  const auto other = pattern(2'000'001);
  registry_.set([](Switches& s) { s.lose_uploads = 1; });
  push(*open(), other);
  EXPECT_EQ(registry_.blob("team/app", digest_of(other)), other);
}

TEST_F(RegistryPushTest, TooLargeForOneRequestIsSentInChunks) {
  registry_.set([](Switches& s) { s.max_request_bytes = 20'000'000; });
  const auto large = pattern(40'000'000);
  push(*open(), large);
  EXPECT_EQ(registry_.blob("team/app", digest_of(large)), large);
}

TEST_F(RegistryPushTest, TemporaryStatusesAndBasicAuthDoNotStopAPush) {
  registry_.set([](Switches& s) { s.auth = Auth::kToken, s.token_uses = 2; });
  log_in("dXNlcjpwYXNzOndvcmQ=");
  registry_.fail_next(503, 3, Kind::kUpload);
  push(*open(), content_);
  EXPECT_EQ(registry_.blob("team/app", digest_of(content_)), content_);
}

TEST_F(RegistryPushTest, MountsFromAnotherRepositoryWithoutSendingBytes) {
  registry_.set([](Switches& s) { s.auth = Auth::kToken; });
  log_in("dXNlcjpwYXNzOndvcmQ=");
  registry_.add_blob("team/base", content_);
  const auto repository = open();
  repository->set_mount_source("team/base");
  push(*repository, content_);
  EXPECT_EQ(registry_.blob("team/app", digest_of(content_)), content_);
  EXPECT_EQ(pushed_bytes_, 0u);
  const auto records = registry_.records();
  const auto token =
      std::find_if(records.rbegin(), records.rend(), [](const auto& record) { return record.kind == Kind::kToken; });
  EXPECT_THAT(token->request.query.at("scope"),
              testing::AllOf(HasSubstr("repository:team/app:pull,push"), HasSubstr("repository:team/base:pull")));

  registry_.set([](Switches& s) { s.allow_mount = false; });
  const auto other = pattern(1000);
  registry_.add_blob("team/base", other);
  push(*repository, other);
  EXPECT_EQ(registry_.blob("team/app", digest_of(other)), other);
  EXPECT_EQ(pushed_bytes_, other.size());
}

TEST_F(RegistryPushTest, WrongContentIsNeverCompleted) {
  auto wrong = describe(content_);
  wrong.digest = digest_of("other");
  for (const std::uint64_t chunk : {0, 1'000'000}) {
    options_.upload_chunk_bytes = chunk;
    const auto repository = open();
    EXPECT_THROW(repository->put_blob(wrong,
                                      [&](ByteRange range, const ByteSink& sink) {
                                        sink(ByteView(content_).subspan(range.offset, range.length));
                                      }),
                 CorruptData);
    EXPECT_THROW(repository->put_blob(wrong, [&](ByteRange, const ByteSink& sink) { sink(as_bytes("short")); }),
                 CorruptData);
    EXPECT_THROW(repository->put_blob(wrong, [&](ByteRange, const ByteSink&) { throw Cancelled("stop"); }), Cancelled);
    EXPECT_FALSE(repository->has_blob(wrong));
  }
}

TEST_F(RegistryPushTest, DeniedPushIsFinal) {
  registry_.fail_next(403, -1, Kind::kUpload);
  EXPECT_THAT(test::refusal_of<std::exception>([&] { push(*open(), content_); }), HasSubstr("access denied"));
  EXPECT_EQ(registry_.count(Kind::kUpload), 1u);
}

TEST_F(RegistryPushTest, ManifestsAreFoundByTagAndDigest) {
  const auto image = subject();
  const auto bytes = *registry_.manifest("team/app", "latest");
  const auto repository = open("team/other");
  EXPECT_EQ(repository->put_manifest(bytes, kOciManifestType, "v1").digest, image.digest);
  EXPECT_EQ(repository->manifest("v1").bytes, bytes);
  repository->put_manifest(bytes, kOciManifestType, "");
  EXPECT_EQ(repository->manifest(image.digest.to_string()).bytes, bytes);
  EXPECT_THROW(repository->put_manifest(as_bytes("{}"), kOciManifestType, "v2"), CorruptData);
}

TEST_F(RegistryPushTest, ReferrersAreListedByTheRegistry) {
  const auto image = subject();
  registry_.set([](Switches& s) { s.referrers_page = 2; });
  const auto repository = open();
  std::vector<Digest> pushed;
  for (const auto* value : {"1", "2", "3", "4", "5"})
    pushed.push_back(
        repository->put_manifest(artifact(image, "application/vnd.a", value), kOciManifestType, "").digest);
  repository->put_manifest(artifact(image, "application/vnd.b"), kOciManifestType, "");
  const auto found = repository->referrers(image.digest, "application/vnd.a");
  EXPECT_THAT(digests(found), testing::UnorderedElementsAreArray(pushed));
  EXPECT_EQ(found[0].artifact_type, "application/vnd.a");
  EXPECT_EQ(registry_.manifest("team/app", internal::referrers_tag(image.digest)), std::nullopt);
  EXPECT_THAT(repository->referrers(digest_of("none"), "application/vnd.a"), IsEmpty());
}

TEST_F(RegistryPushTest, ReferrersGoUnderATagWhereTheApiIsMissing) {
  registry_.set([](Switches& s) { s.referrers_api = false; });
  const auto image = subject();
  const auto repository = open();
  const auto first = repository->put_manifest(artifact(image, "application/vnd.a"), kOciManifestType, "").digest;
  const auto second = repository->put_manifest(artifact(image, "application/vnd.b"), kOciManifestType, "").digest;
  repository->put_manifest(artifact(image, "application/vnd.b"), kOciManifestType, "");
  const auto index = json::parse(as_text(*registry_.manifest("team/app", internal::referrers_tag(image.digest))));
  EXPECT_THAT(index["manifests"], SizeIs(2));
  EXPECT_EQ(index["manifests"][0]["artifactType"], "application/vnd.a");
  EXPECT_EQ(index["manifests"][0]["annotations"]["value"], "1");
  for (const int status : {400, 403, 404, 405, 500, 501}) {
    registry_.set([&](Switches& s) { s.referrers_status = status; });
    EXPECT_THAT(digests(open()->referrers(image.digest, "application/vnd.a")), ElementsAre(first)) << status;
  }
  registry_.set([](Switches& s) { s.referrers_body = "<html>log in</html>"; });
  EXPECT_THAT(digests(open()->referrers(image.digest, "")), UnorderedElementsAre(first, second));
}

// An image of eighty layers must not get eighty tags.
TEST_F(RegistryPushTest, ReferrersOfLayersGoUnderTheTagOfTheirImage) {
  registry_.set([](Switches& s) { s.referrers_api = false; });
  const auto image = subject();
  const auto layer = add_blob(pattern(10));
  const auto other = add_blob(pattern(20));
  const auto repository = open();
  const auto of_image = repository->put_manifest(artifact(image, "application/vnd.a"), kOciManifestType, "").digest;
  const auto of_layer =
      repository->put_part_manifest(artifact(layer, "application/vnd.l"), kOciManifestType, image.digest).digest;
  const auto of_other =
      repository->put_part_manifest(artifact(other, "application/vnd.l"), kOciManifestType, image.digest).digest;
  EXPECT_EQ(registry_.manifest("team/app", internal::referrers_tag(layer.digest)), std::nullopt);
  const auto parts = [&](const Descriptor& part) {
    return digests(open()->part_referrers(part.digest, image.digest, "application/vnd.l"));
  };
  EXPECT_THAT(parts(layer), ElementsAre(of_layer));
  EXPECT_THAT(parts(other), ElementsAre(of_other));
  EXPECT_THAT(digests(repository->referrers(image.digest, "")), ElementsAre(of_image)) << "those of parts are not its";
  // What earlier versions have put under a tag of the layer's own.
  const auto old = repository->put_manifest(artifact(layer, "application/vnd.l", "old"), kOciManifestType, "").digest;
  EXPECT_THAT(parts(layer), UnorderedElementsAre(old, of_layer));
  EXPECT_THAT(digests(repository->referrers(layer.digest, "application/vnd.l")), ElementsAre(old));
}

TEST_F(RegistryPushTest, WhereTheRegistryListsReferrersThoseOfLayersAreTheLayers) {
  const auto image = subject();
  const auto layer = add_blob(pattern(10));
  const auto repository = open();
  const auto pushed =
      repository->put_part_manifest(artifact(layer, "application/vnd.l"), kOciManifestType, image.digest).digest;
  EXPECT_THAT(digests(repository->referrers(layer.digest, "application/vnd.l")), ElementsAre(pushed));
  EXPECT_THAT(digests(repository->part_referrers(layer.digest, image.digest, "application/vnd.l")),
              ElementsAre(pushed));
  EXPECT_EQ(registry_.manifest("team/app", internal::referrers_tag(image.digest)), std::nullopt);
}

TEST_F(RegistryPushTest, RegistryInTroubleIsNotTakenForOneWithoutReferrers) {
  const auto image = subject();
  registry_.fail_next(503, -1, Kind::kReferrers);
  EXPECT_THROW(open()->referrers(image.digest, "application/vnd.a"), TemporaryError);
}

TEST_F(RegistryPushTest, LostUpdateOfTheTagIsRepeated) {
  registry_.set([](Switches& s) { s.referrers_api = false, s.lose_tag_updates = 2; });
  const auto image = subject();
  const auto repository = open();
  const auto pushed = repository->put_manifest(artifact(image, "application/vnd.a"), kOciManifestType, "").digest;
  EXPECT_THAT(digests(repository->referrers(image.digest, "application/vnd.a")), ElementsAre(pushed));
  registry_.set([](Switches& s) { s.lose_tag_updates = -1; });
  EXPECT_THROW(repository->put_manifest(artifact(image, "application/vnd.a", "2"), kOciManifestType, ""),
               TemporaryError);
}

TEST_F(RegistryPushTest, TheApiCanBeLeftAlone) {
  options_.referrers_api = false;
  const auto image = subject();
  const auto repository = open();
  const auto pushed = repository->put_manifest(artifact(image, "application/vnd.a"), kOciManifestType, "").digest;
  EXPECT_THAT(digests(repository->referrers(image.digest, "application/vnd.a")), ElementsAre(pushed));
  EXPECT_EQ(registry_.count(Kind::kReferrers), 0u);
  EXPECT_NE(registry_.manifest("team/app", internal::referrers_tag(image.digest)), std::nullopt);
}

}  // namespace
}  // namespace varve::oci
