#include "core/trust/containers_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/base64.h"
#include "core/trust/private_key.h"
#include "testing/temp_dir.h"

namespace varve::trust {
namespace {

using Kind = PolicyRequirement::Kind;
using Match = SignedIdentity::Match;
using testing::ElementsAre;
using testing::HasSubstr;

ContainersPolicy parse(const std::string& text) { return ContainersPolicy::parse(as_bytes(text), "policy.json"); }
std::string with_scope(const std::string& transport, const std::string& scope, const std::string& requirement) {
  return R"({"default":[{"type":"insecureAcceptAnything"}],"transports":{")" + transport + R"(":{")" + scope +
         R"(":[)" + requirement + "]}}}";
}
PolicyRequirement only_requirement(const std::string& requirement) {
  return parse(with_scope("docker", "r.example", requirement))
      .requirements_for("docker", "r.example/a:v1")
      .requirements.at(0);
}

const std::string kAccept = R"({"type":"insecureAcceptAnything"})";
const std::string kReject = R"({"type":"reject"})";
const std::string kKeyData = base64_encode(PrivateKey::generate().public_key().pem());

TEST(ContainersPolicy, LooksForTheMostSpecificScopeFirst) {
  EXPECT_THAT(policy_scopes("docker", "sub.example.org:5000/ns/team/app:v1"),
              ElementsAre("sub.example.org:5000/ns/team/app:v1", "sub.example.org:5000/ns/team/app",
                          "sub.example.org:5000/ns/team", "sub.example.org:5000/ns", "sub.example.org:5000",
                          "*.example.org", "*.org"));
  EXPECT_THAT(policy_scopes("docker", "busybox"),
              ElementsAre("docker.io/library/busybox", "docker.io/library", "docker.io", "*.io"));
  const auto digest = digest_of("x").to_string();
  EXPECT_THAT(policy_scopes("docker", "localhost/app@" + digest),
              ElementsAre("localhost/app@" + digest, "localhost/app", "localhost"));
  EXPECT_THAT(policy_scopes("oci", "/srv/images:v1"), ElementsAre("/srv/images:v1", "/srv/images", "/srv"));
  EXPECT_THAT(policy_scopes("oci", "/srv/images"), ElementsAre("/srv/images", "/srv"));
}

TEST(ContainersPolicy, TakesTheFirstScopeThatIsThereAndNoOther) {
  const auto policy = parse(
      R"({"default":[{"type":"reject"}],"transports":{"docker":{"":[{"type":"insecureAcceptAnything"}],
          "r.example/team":[{"type":"reject"}],
    "r.example/team/app":[{"type":"insecureAcceptAnything"}],"*.example":[{"type":"reject"},{"type":"reject"}]}}})");
  const auto kinds = [&](std::string_view transport, std::string_view image) {
    std::vector<Kind> found;
    for (const auto& one : policy.requirements_for(transport, image).requirements) found.push_back(one.kind);
    return found;
  };
  EXPECT_THAT(kinds("docker", "r.example/team/app:v1"), ElementsAre(Kind::kAcceptAnything));
  EXPECT_THAT(kinds("docker", "r.example/team/application:v1"), ElementsAre(Kind::kReject));
  EXPECT_THAT(kinds("docker", "r.example/other:v1"), ElementsAre(Kind::kReject, Kind::kReject));
  EXPECT_THAT(kinds("docker", "docker.io/library/x:v1"), ElementsAre(Kind::kAcceptAnything));
  EXPECT_THAT(kinds("oci", "/srv/x"), ElementsAre(Kind::kReject));
  EXPECT_THAT(policy.requirements_for("docker", "r.example/team/x:v1").place, HasSubstr("\"r.example/team\""));
}

TEST(ContainersPolicy, ReadsKeysInAllFourForms) {
  const test::TempDir dir;
  const auto one = PrivateKey::generate().public_key(), two = PrivateKey::generate().public_key();
  write_file_atomically(dir / "one.pub", as_bytes(one.pem()));
  write_file_atomically(dir / "two.pub", as_bytes(two.pem()));
  const auto path = [&](const char* name) { return '"' + (dir / name).string() + '"'; };
  const auto data = [](const PublicKey& key) { return '"' + base64_encode(key.pem()) + '"'; };
  const auto keys = [&](const std::string& member, const std::string& value) {
    return only_requirement(R"({"type":"sigstoreSigned",")" + member + "\":" + value + "}").keys;
  };
  EXPECT_THAT(keys("keyPath", path("one.pub")), ElementsAre(one));
  EXPECT_THAT(keys("keyPaths", "[" + path("one.pub") + "," + path("two.pub") + "]"), ElementsAre(one, two));
  EXPECT_THAT(keys("keyData", data(two)), ElementsAre(two));
  EXPECT_THAT(keys("keyDatas", "[" + data(two) + "," + data(one) + "]"), ElementsAre(two, one));
}

TEST(ContainersPolicy, OneBadKeyFailsTheRequirementAndNotTheFile) {
  const auto requirement = only_requirement(R"({"type":"sigstoreSigned","keyPaths":["/nowhere/at.pub"]})");
  EXPECT_EQ(requirement.kind, Kind::kSigned);
  EXPECT_TRUE(requirement.keys.empty());
  EXPECT_THAT(requirement.why, HasSubstr("/nowhere/at.pub"));
  EXPECT_TRUE(only_requirement(R"({"type":"sigstoreSigned","keyDatas":[")" + kKeyData + R"(","AAAA"]})").keys.empty());
}

TEST(ContainersPolicy, NamesWhatItCannotCheck) {
  for (const auto& [requirement, named] : {
           std::pair<std::string, std::string>(R"({"type":"signedBy","keyType":"GPGKeys","keyPath":"/x"})", "GPG"),
           {R"({"type":"sigstoreSigned","fulcio":{}})", "fulcio"},
           {R"({"type":"sigstoreSigned","pki":{}})", "pki"},
           {R"({"type":"sigstoreSigned","keyData":")" + kKeyData + R"(","rekorPublicKeyPath":"/x"})",
            "rekorPublicKeyPath"},
           {R"({"type":"signedBaseLayer","baseLayerIdentity":{}})", "base layer"},
       }) {
    const auto parsed = only_requirement(requirement);
    EXPECT_EQ(parsed.kind, Kind::kUncheckable) << requirement;
    EXPECT_THAT(parsed.why, HasSubstr(named));
  }
}

TEST(ContainersPolicy, RefusesTheFileForAnythingThatPodmanWouldRefuse) {
  for (const auto& text : {
           std::string(),
           std::string("[]"),
           std::string("{}"),
           std::string(R"({"default":[]})"),
           std::string(R"({"default":{}})"),
           R"({"default":[)" + kAccept + R"(],"more":1})",
           R"({"default":[)" + kAccept + R"(],"default":[)" + kReject + "]}",
           R"({"default":[{"type":"trustMe"}]})" + std::string(),
           R"({"default":[{"type":"reject","x":1}]})" + std::string(),
           R"({"default":[{}]})" + std::string(),
           with_scope("docker", "", R"({"type":"sigstoreSigned"})"),
           with_scope("docker", "", R"({"type":"sigstoreSigned","keyPath":"/a","keyData":")" + kKeyData + "\"}"),
           with_scope("docker", "", R"({"type":"sigstoreSigned","keyPath":"/a","signedIdentity":{"type":"matchAll"}})"),
           with_scope("docker", "",
                      R"({"type":"sigstoreSigned","keyPath":"/a","signedIdentity":{"type":"exactReference",)"
                      R"("dockerReference":"r.example/a"}})"),
           with_scope(
               "docker", "",
               R"({"type":"sigstoreSigned","keyPath":"/a","signedIdentity":{"type":"remapIdentity","prefix":"a"}})"),
           with_scope("docker", "", R"({"type":"sigstoreSigned","keyPaths":[]})"),
           with_scope("docker", "", R"({"type":"signedBy"})"),
           with_scope("oci", "not/absolute", kReject),
           std::string(R"({"default":[{"type":"reject"}],"transports":[]})"),
       })
    EXPECT_THROW(parse(text), Error) << text;
}

struct IdentityCase {
  Match match;
  std::string intended, reference;
  bool accepted;
};

TEST(SignedIdentityTest, AcceptsWhatContainersImageAccepts) {
  const auto digest = "@" + digest_of("x").to_string(), other = "@" + digest_of("y").to_string();
  const std::string app = "r.example/team/app";
  for (const auto& one : {
           IdentityCase{Match::kRepoDigestOrExact, app + ":v1", app + ":v1", true},
           {Match::kRepoDigestOrExact, app + ":v1", app + ":v2", false},
           {Match::kRepoDigestOrExact, app + ":v1", app + digest, false},
           {Match::kRepoDigestOrExact, app + ":v1", app, false},
           {Match::kRepoDigestOrExact, app + digest, app + ":v1", true},
           {Match::kRepoDigestOrExact, app + digest, app + other, true},
           {Match::kRepoDigestOrExact, app + digest, app, false},
           {Match::kRepoDigestOrExact, app + digest, app + "2:v1", false},
           {Match::kExact, app + digest, app + digest, true},
           {Match::kExact, app + digest, app + other, false},
           {Match::kExact, app + ":v1", app + ":v1", true},
           {Match::kExact, app, app, false},
           {Match::kRepository, app + ":v1", app, true},
           {Match::kRepository, app + ":v1", app + digest, true},
           {Match::kRepository, app + ":v1", "r.example/team/other:v1", false},
           {Match::kRepository, "busybox:v1", "docker.io/library/busybox", true},
           {Match::kRepository, "", app, false},
           {Match::kRepository, app + ":v1", "../" + app, false},
           {Match::kRepository, app + ":v1", "", false},
       }) {
    SignedIdentity identity;
    identity.match = one.match;
    EXPECT_EQ(identity.accepts(one.intended, one.reference), one.accepted)
        << one.intended << " against " << one.reference;
  }
}

TEST(SignedIdentityTest, KnowsFixedAndRemappedNames) {
  SignedIdentity exact{.match = Match::kExactReference, .name = "r.example/a:v1", .prefix = {}, .signed_prefix = {}};
  EXPECT_TRUE(exact.accepts("", "r.example/a:v1"));
  EXPECT_FALSE(exact.accepts("", "r.example/a:v2"));
  SignedIdentity repository{.match = Match::kExactRepository, .name = "r.example/a", .prefix = {}, .signed_prefix = {}};
  EXPECT_TRUE(repository.accepts("mirror.example/b:v1", "r.example/a"));
  EXPECT_FALSE(repository.accepts("mirror.example/b:v1", "mirror.example/b"));
  SignedIdentity remap{
      .match = Match::kRemap, .name = {}, .prefix = "mirror.example/vendor", .signed_prefix = "vendor.example"};
  EXPECT_TRUE(remap.accepts("mirror.example/vendor/app:v1", "vendor.example/app:v1"));
  EXPECT_FALSE(remap.accepts("mirror.example/vendor/app:v1", "mirror.example/vendor/app:v1"));
  EXPECT_FALSE(remap.accepts("mirror.example/vendors/app:v1", "vendor.example/app:v1"));
  EXPECT_TRUE(remap.accepts("other.example/app:v1", "other.example/app:v1"));
}

TEST(ContainersPolicy, IsTheFirstFileThatIsThere) {
  const test::TempDir dir;
  EXPECT_FALSE(ContainersPolicy::find({dir / "a", dir / "b"}));
  write_file_atomically(dir / "b", as_bytes(R"({"default":[{"type":"reject"}]})"));
  EXPECT_EQ(ContainersPolicy::find({dir / "a", dir / "b"})->file(), (dir / "b").string());
  write_file_atomically(dir / "a", as_bytes("broken"));
  EXPECT_THROW(ContainersPolicy::find({dir / "a", dir / "b"}), CorruptData);
}

}  // namespace
}  // namespace varve::trust
