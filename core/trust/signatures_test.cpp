#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/base/text/base64.h"
#include "core/oci/layout.h"
#include "core/oci/manifest.h"
#include "core/trust/bundle.h"
#include "core/trust/private_key.h"
#include "core/trust/simple_signing.h"
#include "testing/forwarding_repository.h"
#include "testing/temp_dir.h"

namespace varve::trust {
namespace {

using nlohmann::json;

const Digest kManifest = digest_of("a manifest");
const std::string kReference = "registry.example/team/app@" + kManifest.to_string();

SignedPayload parse_payload(const std::string& text) { return SignedPayload::parse(as_bytes(text), "payload"); }
std::string payload_with(const std::string& optional) {
  return R"({"critical":{"identity":{"docker-reference":"r.example/a"},"image":{"docker-manifest-digest":")" +
         kManifest.to_string() + R"("},"type":"cosign container image signature"},"optional":)" + optional + "}";
}

TEST(SimpleSigning, ReadsWhatItWrites) {
  const SignedPayload payload{.docker_reference = kReference, .manifest = kManifest};
  const auto text = payload.to_json("varve 0.2.0", 1795317230);
  EXPECT_EQ(text, R"({"critical":{"identity":{"docker-reference":")" + kReference +
                      R"("},"image":{"docker-manifest-digest":")" + kManifest.to_string() +
                      R"("},"type":"cosign container image signature"},"optional":{"creator":"varve 0.2.0",)"
                      R"("timestamp":1795317230}})");
  EXPECT_EQ(parse_payload(text).docker_reference, kReference);
  EXPECT_EQ(parse_payload(text).manifest, kManifest);
}

TEST(SimpleSigning, TakesWhatCosignWritesBesideIt) {
  EXPECT_NO_THROW(parse_payload(payload_with("null")));
  EXPECT_NO_THROW(parse_payload(payload_with(R"({"dev.varve.not-after":"2030-01-01","x":[1,{}]})")));
}

TEST(SimpleSigning, IsAsStrictAsContainersImage) {
  const auto good = payload_with("null");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    auto text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const auto& text : {
           replaced("\"critical\"", "\"Critical\""),
           replaced("\"optional\":null", "\"more\":1,\"optional\":null"),
           replaced(",\"optional\":null", ""),
           replaced("cosign container", "atomic container"),
           replaced("\"identity\":{", "\"identity\":{\"x\":1,"),
           replaced("\"image\":{", "\"image\":{\"x\":1,"),
           replaced("\"r.example/a\"", "7"),
           replaced("sha256:", "sha512:"),
           replaced("\"type\":", "\"type\":\"cosign container image signature\",\"type\":"),
           payload_with("[]"),
           payload_with(R"({"creator":1})"),
           payload_with(R"({"timestamp":1.5})"),
           payload_with(R"({"timestamp":"1"})"),
           good + "x",
           std::string("[]"),
           std::string(),
       })
    EXPECT_THROW(parse_payload(text), Error) << text;
  EXPECT_THROW(parse_payload(payload_with('"' + std::string(kMaxPayloadBytes, 'x') + '"')), Unsupported);
}

TEST(SimpleSigning, LiesUnderATagThatLayoutFoldersKnow) {
  EXPECT_EQ(oci::tag_subject(signature_tag(kManifest)), kManifest);
  EXPECT_EQ(oci::tag_subject("sha256-" + kManifest.hex()), kManifest);
  for (const auto* tag : {"", "sha256-.sig", "sha256-", ".sig", "v1", "sha256-0123.sig", "sha256-.sig.sig"})
    EXPECT_FALSE(oci::tag_subject(tag)) << tag;
}

struct Layout {
  test::TempDir dir;
  std::shared_ptr<oci::Repository> repository = oci::create_layout(dir / "layout");
};

SimpleSignature signature_of(const PrivateKey& key) {
  const auto payload = SignedPayload{.docker_reference = kReference, .manifest = kManifest}.to_json("test", 1);
  return {.payload = to_bytes(as_bytes(payload)), .signature = key.sign(as_bytes(payload))};
}

TEST(SimpleSigning, KeepsTheSignaturesThatAreThere) {
  Layout layout;
  EXPECT_TRUE(find_simple_signatures(*layout.repository, kManifest).signatures.empty());
  const auto one = PrivateKey::generate(), other = PrivateKey::generate();
  const auto first = signature_of(one);
  add_simple_signature(*layout.repository, kManifest, first);
  add_simple_signature(*layout.repository, kManifest, signature_of(other));
  const auto again = add_simple_signature(*layout.repository, kManifest, first);
  const auto found = find_simple_signatures(*layout.repository, kManifest);
  ASSERT_EQ(found.signatures.size(), 2u);
  EXPECT_EQ(found.unreadable, 0u);
  EXPECT_TRUE(one.public_key().verify(found.signatures[0].payload, found.signatures[0].signature));
  EXPECT_TRUE(other.public_key().verify(found.signatures[1].payload, found.signatures[1].signature));
  EXPECT_EQ(layout.repository->manifest(signature_tag(kManifest)).descriptor.digest, again.digest);
}

TEST(SimpleSigning, PassesOverWhatCannotBeRead) {
  Layout layout;
  const auto key = PrivateKey::generate();
  add_simple_signature(*layout.repository, kManifest, signature_of(key));
  auto manifest = json::parse(as_text(layout.repository->manifest(signature_tag(kManifest)).bytes));
  auto good = manifest["layers"][0];
  auto no_base64 = good, missing = good, huge = good, foreign = good;
  no_base64["annotations"][std::string(kSignatureAnnotation)] = "%%%";
  missing["digest"] = digest_of("nowhere").to_string();
  huge["size"] = kMaxPayloadBytes + 1;
  foreign["mediaType"] = "application/json";
  manifest["layers"] = {no_base64, missing, huge, foreign, good};
  layout.repository->put_manifest(as_bytes(manifest.dump()), oci::kOciManifestType, signature_tag(kManifest));
  const auto found = find_simple_signatures(*layout.repository, kManifest);
  ASSERT_EQ(found.signatures.size(), 1u);
  EXPECT_EQ(found.unreadable, 4u);
  EXPECT_EQ(found.signatures[0].payload, signature_of(key).payload);
}

TEST(SimpleSigning, LooksAtSixtyFourAtMost) {
  Layout layout;
  const auto key = PrivateKey::generate();
  add_simple_signature(*layout.repository, kManifest, signature_of(key));
  auto manifest = json::parse(as_text(layout.repository->manifest(signature_tag(kManifest)).bytes));
  const auto good = manifest["layers"][0];
  for (int i = 0; i < 200; ++i) manifest["layers"].push_back(good);
  layout.repository->put_manifest(as_bytes(manifest.dump()), oci::kOciManifestType, signature_tag(kManifest));
  EXPECT_EQ(find_simple_signatures(*layout.repository, kManifest).signatures.size(), kMaxSignatures);
  EXPECT_THROW(add_simple_signature(*layout.repository, kManifest, signature_of(PrivateKey::generate())), Unsupported);
}

TEST(SimpleSigning, LeavesTheImageOfALayoutFolderTheOnlyOne) {
  Layout layout;
  const auto config = oci::put_bytes(*layout.repository, as_bytes("{}"), "application/vnd.oci.image.config.v1+json");
  const auto image =
      R"({"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":")" +
      config.digest.to_string() + R"(","size":2},"layers":[]})";
  const auto put = layout.repository->put_manifest(as_bytes(image), oci::kOciManifestType, "");
  add_simple_signature(*layout.repository, put.digest, signature_of(PrivateKey::generate()));
  EXPECT_EQ(layout.repository->manifest("").descriptor.digest, put.digest);
}

TEST(BundleTest, ReadsWhatItWritesAndVerifiesIt) {
  const auto key = PrivateKey::generate();
  const auto bundle = Bundle::make(kManifest, key);
  const auto again = Bundle::parse(as_bytes(bundle.to_json()), "bundle");
  EXPECT_EQ(again.hint, key.public_key().fingerprint());
  EXPECT_TRUE(again.vouches_for(kManifest, key.public_key()));
  EXPECT_FALSE(again.vouches_for(digest_of("another"), key.public_key()));
  EXPECT_FALSE(again.vouches_for(kManifest, PrivateKey::generate().public_key()));
  auto changed = again;
  changed.payload.back() ^= std::byte{1};
  EXPECT_FALSE(changed.vouches_for(kManifest, key.public_key()));
}

// A statement signed by the key, whatever it says.
Bundle signed_statement(const PrivateKey& key, const std::string& statement) {
  Bundle bundle;
  bundle.payload = to_bytes(as_bytes(statement));
  bundle.signature =
      key.sign(as_bytes(fmt::format("DSSEv1 28 application/vnd.in-toto+json {} {}", statement.size(), statement)));
  return bundle;
}

TEST(BundleTest, TakesNoStatementOfAnotherKindForASignature) {
  const auto key = PrivateKey::generate();
  const auto statement = [](const std::string& type, const std::string& predicate, const std::string& digest) {
    return R"({"_type":")" + type + R"(","subject":[{"digest":{"sha256":")" + digest +
           R"("},"name":"x"}],"predicateType":")" + predicate + R"(","predicate":{}})";
  };
  const std::string v1 = "https://in-toto.io/Statement/v1", old = "https://in-toto.io/Statement/v0.1",
                    sign(kSignPredicate);
  const auto vouches = [&](const std::string& text) {
    return signed_statement(key, text).vouches_for(kManifest, key.public_key());
  };
  EXPECT_TRUE(vouches(statement(v1, sign, kManifest.hex())));
  EXPECT_TRUE(vouches(statement(old, sign, kManifest.hex())));
  EXPECT_FALSE(vouches(statement(v1, "https://spdx.dev/Document", kManifest.hex())));
  EXPECT_FALSE(vouches(statement("https://in-toto.io/Statement/v9", sign, kManifest.hex())));
  EXPECT_FALSE(vouches(statement(v1, sign, kManifest.to_string())));
  EXPECT_FALSE(vouches("{}"));
  EXPECT_FALSE(vouches("no JSON"));
}

TEST(BundleTest, RefusesOtherContentAndOtherVersions) {
  const auto good = json::parse(Bundle::make(kManifest, PrivateKey::generate()).to_json());
  const auto is_refused = [](const json& document) {
    EXPECT_THROW(Bundle::parse(as_bytes(document.dump()), "bundle"), Error) << document.dump();
  };
  auto bad = good;
  bad["mediaType"] = "application/vnd.dev.sigstore.bundle+json;version=0.1";
  is_refused(bad);
  bad = good;
  bad["dsseEnvelope"]["signatures"].push_back(bad["dsseEnvelope"]["signatures"][0]);
  is_refused(bad);
  bad = good;
  bad["dsseEnvelope"]["signatures"] = json::array();
  is_refused(bad);
  bad = good;
  bad["dsseEnvelope"]["payloadType"] = "text/plain";
  is_refused(bad);
  bad = good;
  bad["dsseEnvelope"]["payload"] = "*";
  is_refused(bad);
  bad = good;
  bad.erase("dsseEnvelope");
  bad["messageSignature"] = json::object();
  is_refused(bad);
  bad = good;
  bad["verificationMaterial"] = 7;
  is_refused(bad);
  is_refused(json::array());
  bad = good;
  bad["verificationMaterial"]["tlogEntries"] = {{{"logIndex", "7"}}};
  EXPECT_NO_THROW(Bundle::parse(as_bytes(bad.dump()), "bundle"));
}

// A folder that plays a registry's repository.
class Registry final : public test::ForwardingRepository {
 public:
  using ForwardingRepository::ForwardingRepository;
  std::string name() const override { return "registry.example/app"; }
};

TEST(BundleTest, IsFoundBesideWhatItSignsWhateverTypeItIsListedUnder) {
  Layout layout;
  layout.repository = std::make_shared<Registry>(layout.repository);
  const auto key = PrivateKey::generate();
  oci::Descriptor subject;
  subject.media_type = oci::kOciManifestType;
  subject.digest = kManifest;
  subject.size = 10;
  put_bundle(*layout.repository, subject, Bundle::make(kManifest, key));
  // As cosign 2.5 lists it, and an artifact of another kind.
  oci::ArtifactManifest odd;
  odd.artifact_type = "application/vnd.example.other";
  odd.subject = subject;
  odd.layers.push_back(
      oci::put_bytes(*layout.repository, as_bytes(Bundle::make(kManifest, key).to_json()), kBundleType));
  layout.repository->put_manifest(odd.to_json(), oci::kOciManifestType, "");
  odd.layers = {oci::put_bytes(*layout.repository, as_bytes("sbom"), "text/plain")};
  layout.repository->put_manifest(odd.to_json(), oci::kOciManifestType, "");
  const auto found = find_bundles(*layout.repository, kManifest);
  ASSERT_EQ(found.bundles.size(), 2u);
  for (const auto& bundle : found.bundles) EXPECT_TRUE(bundle.vouches_for(kManifest, key.public_key()));
  EXPECT_EQ(found.unreadable, 0u);
}

TEST(BundleTest, IsNotHiddenByManyOthers) {
  Layout layout;
  layout.repository = std::make_shared<Registry>(layout.repository);
  const auto key = PrivateKey::generate();
  oci::Descriptor subject;
  subject.media_type = oci::kOciManifestType;
  subject.digest = kManifest;
  subject.size = 10;
  for (std::size_t i = 0; i < kMaxBundleCandidates + 10; ++i) {
    oci::ArtifactManifest other;
    other.artifact_type = "application/vnd.aaa";
    other.subject = subject;
    other.annotations["n"] = std::to_string(i);
    layout.repository->put_manifest(other.to_json(), oci::kOciManifestType, "");
  }
  put_bundle(*layout.repository, subject, Bundle::make(kManifest, key));
  EXPECT_EQ(find_bundles(*layout.repository, kManifest).bundles.size(), 1u);
}

}  // namespace
}  // namespace varve::trust
