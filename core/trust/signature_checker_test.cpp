#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/oci/manifest.h"
#include "core/trust/bundle.h"
#include "core/trust/judge.h"
#include "core/trust/private_key.h"
#include "core/trust/read_settings.h"
#include "core/trust/sign.h"
#include "testing/temp_dir.h"

namespace varve::trust {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kRepository = "registry.example/team/app";

// A repository (a folder that plays a registry's), the kept signatures of this machine, and an index in the repository.
class CheckerTest : public testing::Test {
 protected:
  CheckerTest() {
    write_file_atomically(dir_ / "policy.json", as_bytes(R"({"default":[{"type":"insecureAcceptAnything"}]})"));
    settings_.policy = dir_ / "policy.json";
    index_ = put("index");
    image_ = put("image");
  }

  oci::Document put(const std::string& name) {
    oci::ArtifactManifest manifest;
    manifest.artifact_type = "application/vnd.test." + name;
    oci::put_bytes(*place_, oci::empty_json(), oci::kEmptyJsonType);
    const auto descriptor = place_->put_manifest(manifest.to_json(), oci::kOciManifestType, "");
    return place_->manifest(descriptor.digest.to_string());
  }
  std::filesystem::path key_file(const std::string& name, const PrivateKey& key) {
    write_file_atomically(dir_ / name, as_bytes(key.public_key().pem()));
    return dir_ / name;
  }
  Request request(const std::string& selector = "v1") const {
    return {.repository = kRepository, .selector = selector, .image = image_.descriptor.digest};
  }
  SignatureFindings check(const std::string& repository = kRepository) const {
    Request asked = request();
    asked.repository = repository;
    return make_signature_checker(settings_)->check(asked,
                                                    {.manifest = index_, .place = place_.get(), .kept = kept_.get()});
  }
  ImageVerdict check_image(const std::string& selector = "v1") const {
    return make_signature_checker(settings_)->check_image(request(selector), *place_, kept_.get());
  }
  void sign(const PrivateKey& key, const std::string& repository = kRepository, bool bundle = false) {
    sign_manifest(*place_, index_.descriptor, repository + "@" + index_.descriptor.digest.to_string(),
                  {.key = key, .bundle = bundle});
  }
  void policy(const std::string& text) { write_file_atomically(dir_ / "policy.json", as_bytes(text)); }
  std::string signed_policy(const PrivateKey& key, const std::string& identity = "matchRepoDigestOrExact") {
    return R"({"default":[{"type":"reject"}],"transports":{"docker":{"registry.example":[{"type":"sigstoreSigned",)"
           R"("keyPath":")" +
           key_file("policy.pub", key).string() + R"(","signedIdentity":{"type":")" + identity + R"("}}]}}})";
  }

  test::TempDir dir_;
  std::shared_ptr<oci::Repository> place_ = oci::create_layout(dir_ / "place");
  std::shared_ptr<oci::Repository> kept_ = oci::create_layout(dir_ / "kept");
  TrustSettings settings_;
  oci::Document index_, image_;
};

TEST_F(CheckerTest, AsksForNothingWithoutKeys) { EXPECT_FALSE(make_signature_checker(settings_)->has_keys(request())); }

TEST_F(CheckerTest, FindsWhoSignedForTheRepositoryAndNoOther) {
  const auto key = PrivateKey::generate();
  settings_.keys = {key_file("ci.pub", key)};
  sign(PrivateKey::generate());
  EXPECT_THAT(check().signers, IsEmpty());
  EXPECT_EQ(check().seen, 1u);
  EXPECT_THAT(check().keys_tried, ElementsAre(key.public_key().id()));
  sign(key, "registry.example/other/app");
  EXPECT_THAT(check().signers, IsEmpty());
  EXPECT_THAT(check().trouble, HasSubstr("registry.example/other/app"));
  sign(key);
  EXPECT_THAT(check().signers, ElementsAre(key.public_key().id()));
}

TEST_F(CheckerTest, TakesABundleByItsKeyAlone) {
  const auto key = PrivateKey::generate();
  settings_.keys = {key_file("ci.pub", key)};
  put_bundle(*place_, index_.descriptor, Bundle::make(image_.descriptor.digest, key));
  EXPECT_THAT(check().signers, IsEmpty());
  put_bundle(*place_, index_.descriptor, Bundle::make(index_.descriptor.digest, key));
  EXPECT_THAT(check().signers, ElementsAre(key.public_key().id()));
}

TEST_F(CheckerTest, KeepsWhatCountsAndNothingElse) {
  const auto key = PrivateKey::generate();
  settings_.keys = {key_file("ci.pub", key)};
  sign(PrivateKey::generate());
  sign(key, kRepository, true);
  check();
  place_ = oci::create_layout(dir_ / "empty");  // the repository is gone
  EXPECT_EQ(check().seen, 1u);
  EXPECT_THAT(check().signers, ElementsAre(key.public_key().id()));
  settings_.keys = {key_file("other.pub", PrivateKey::generate())};
  EXPECT_THAT(check().signers, IsEmpty());
}

TEST_F(CheckerTest, KeepsBundlesToo) {
  const auto key = PrivateKey::generate();
  settings_.keys = {key_file("ci.pub", key)};
  put_bundle(*place_, index_.descriptor, Bundle::make(index_.descriptor.digest, key));
  check();
  place_ = oci::create_layout(dir_ / "empty");
  EXPECT_THAT(check().signers, ElementsAre(key.public_key().id()));
}

TEST_F(CheckerTest, TakesTheKeysOfTheMostSpecificScope) {
  const auto general = PrivateKey::generate(), team = PrivateKey::generate();
  settings_.keys = {key_file("general.pub", general)};
  settings_.scopes = {
      {.prefix = "registry.example/team", .keys = {key_file("team.pub", team)}, .index = std::nullopt, .place = "f:1"},
      {.prefix = "registry.example",
       .keys = {key_file("host.pub", PrivateKey::generate())},
       .index = std::nullopt,
       .place = "f:2"}};
  sign(general);
  EXPECT_THAT(check().signers, IsEmpty());
  sign(team);
  EXPECT_THAT(check().signers, ElementsAre(team.public_key().id()));
  sign(general, "elsewhere.example/app");
  EXPECT_THAT(check("elsewhere.example/app").signers, ElementsAre(general.public_key().id()));
}

TEST_F(CheckerTest, SaysWhichKeyFileCannotBeRead) {
  settings_.keys = {dir_ / "nowhere.pub"};
  EXPECT_THROW(make_signature_checker(settings_), UsageError);
}

TEST_F(CheckerTest, SignsNothingTwice) {
  const auto key = PrivateKey::generate();
  const auto reference = kRepository + "@" + index_.descriptor.digest.to_string();
  EXPECT_TRUE(sign_manifest(*place_, index_.descriptor, reference, {.key = key, .bundle = false}));
  EXPECT_FALSE(sign_manifest(*place_, index_.descriptor, reference, {.key = key, .bundle = false}));
  EXPECT_TRUE(sign_manifest(*place_, index_.descriptor, reference, {.key = key, .bundle = true}));
  EXPECT_FALSE(sign_manifest(*place_, index_.descriptor, reference, {.key = key, .bundle = true}));
  EXPECT_TRUE(sign_manifest(*place_, index_.descriptor, "other.example/x", {.key = key, .bundle = true}));
}

TEST_F(CheckerTest, ImageIsAcceptedOrRejectedAsThePolicySays) {
  EXPECT_TRUE(check_image().accepted);
  policy(R"({"default":[{"type":"reject"}]})");
  EXPECT_FALSE(check_image().accepted);
  policy(R"({"default":[{"type":"reject"}],)"
         R"("transports":{"docker":{"registry.example/team/app:v1":[{"type":"insecureAcceptAnything"}]}}})");
  EXPECT_TRUE(check_image().accepted);
  EXPECT_FALSE(check_image("v2").accepted);
  policy("not JSON");
  EXPECT_FALSE(check_image().accepted);
  EXPECT_THAT(check_image().refusal, HasSubstr("policy.json"));
}

TEST_F(CheckerTest, PolicyWantsImageAndIndexSigned) {
  const auto key = PrivateKey::generate();
  policy(signed_policy(key));
  EXPECT_THAT(make_signature_checker(settings_)->demand(request()), HasSubstr("registry.example"));
  EXPECT_FALSE(check_image().accepted);
  EXPECT_THAT(check_image().refusal, HasSubstr(key.public_key().id()));
  EXPECT_THAT(check().signers, IsEmpty());

  sign_manifest(*place_, image_.descriptor, kRepository + ":v1", {.key = key, .bundle = false});
  EXPECT_TRUE(check_image().accepted);
  EXPECT_FALSE(check_image("v2").accepted);  // the tag is signed
  EXPECT_TRUE(check_image(image_.descriptor.digest.to_string()).accepted);
  sign(key);
  EXPECT_THAT(check().signers, ElementsAre(key.public_key().id()));

  place_ = oci::create_layout(dir_ / "empty");  // offline
  EXPECT_TRUE(check_image().accepted);
  EXPECT_THAT(check().signers, ElementsAre(key.public_key().id()));
}

TEST_F(CheckerTest, PolicyTakesNoBundles) {
  const auto key = PrivateKey::generate();
  policy(signed_policy(key, "matchRepository"));
  put_bundle(*place_, index_.descriptor, Bundle::make(index_.descriptor.digest, key));
  EXPECT_THAT(check().signers, IsEmpty());
}

TEST_F(CheckerTest, DemandOfThePolicyHoldsForTheIndexUnlessASettingSaysOtherwise) {
  policy(signed_policy(PrivateKey::generate()));
  const auto judged = [&] {
    const Judge judge(settings_, make_signature_checker(settings_));
    return judge.judge(request(), {.manifest = index_, .offered_now = true, .place = place_.get(), .kept = kept_.get()},
                       std::nullopt);
  };
  EXPECT_FALSE(judged().trusted);
  settings_.index = IndexRule::kAny;
  EXPECT_TRUE(judged().trusted);
}

class SettingsTest : public testing::Test {
 protected:
  TrustSettings read(const std::string& text) {
    read_trust_settings(*parse_toml(text, "/etc/varve/varve.toml").find("trust"), "/etc/varve/varve.toml", settings_);
    return settings_;
  }
  TrustSettings settings_;
};

TEST_F(SettingsTest, AreReadWhole) {
  const auto denied = digest_of("x");
  const auto settings =
      read("[trust]\nindex = \"signed\"\nkeys = [\"ci.pub\", \"/keys/b.pub\"]\ndeny = [\"" + denied.to_string() +
           "\"]\nmin-tool = \"0.4.2\"\npolicy = \"p.json\"\n[[trust.scope]]\nprefix = \"registry.example/team/\"\n"
           "keys = \"team.pub\"\n"
           "[[trust.scope]]\nprefix = \"oci:/srv\"\nindex = \"any\"\n");
  EXPECT_EQ(settings.index, IndexRule::kSigned);
  EXPECT_EQ(settings.place, "/etc/varve/varve.toml:2");
  EXPECT_THAT(settings.keys, ElementsAre("/etc/varve/ci.pub", "/keys/b.pub"));
  EXPECT_THAT(settings.deny, ElementsAre(denied));
  EXPECT_EQ(settings.min_tool, "varve 0.4.2");
  EXPECT_EQ(settings.policy, "/etc/varve/p.json");
  ASSERT_EQ(settings.scopes.size(), 2u);
  EXPECT_EQ(settings.scopes[0].prefix, "registry.example/team");
  EXPECT_THAT(settings.scopes[0].keys, ElementsAre("/etc/varve/team.pub"));
  EXPECT_EQ(settings.scopes[1].index, IndexRule::kAny);
}

TEST_F(SettingsTest, OfTheStrongerFileReplaceKeyByKeyAndDenyAddsUp) {
  read("[trust]\nindex = \"signed\"\nkeys = [\"a.pub\"]\ndeny = [\"" + digest_of("x").to_string() + "\"]\n");
  const auto settings = read("[trust]\nkeys = [\"b.pub\"]\ndeny = [\"" + digest_of("y").to_string() + "\"]\n");
  EXPECT_EQ(settings.index, IndexRule::kSigned);
  EXPECT_THAT(settings.keys, ElementsAre("/etc/varve/b.pub"));
  EXPECT_EQ(settings.deny.size(), 2u);
}

TEST_F(SettingsTest, ThatAreNoneAreRefusedByFileAndLine) {
  for (const std::string text :
       {"indx = \"any\"", "index = \"all\"", "index = \"default\"", "index = 7", "keys = 7", "deny = [\"sha256:1\"]",
        "min-tool = \"new\"", "[[trust.scope]]\nkeys = [\"x\"]", "[[trust.scope]]\nprefix = \"r\"",
        "[[trust.scope]]\nprefix = \"docker://r\"\nindex = \"any\"",
        "[[trust.scope]]\nprefix = \"r/a@sha256:1\"\nindex = \"any\"",
        "[[trust.scope]]\nprefix = \"oci:srv\"\nindex = \"any\"",
        "[[trust.scope]]\nprefix = \"r\"\nindex = \"any\"\nmore = 1"}) {
    try {
      read("[trust]\n" + text + "\n");
      ADD_FAILURE() << text;
    } catch (const CorruptData& error) {
      EXPECT_THAT(error.what(), HasSubstr("/etc/varve/varve.toml:")) << text;
    }
  }
}

}  // namespace
}  // namespace varve::trust
