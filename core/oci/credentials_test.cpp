#include "core/oci/internal/credentials.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/base64.h"
#include "testing/temp_dir.h"

namespace varve::oci::internal {
namespace {

using testing::HasSubstr;
using testing::Not;

// Sets a variable for the time of a test.
class Environment {
 public:
  void set(const char* name, const std::string& value) {
    const char* old = std::getenv(name);
    saved_.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    if (value.empty())
      ::unsetenv(name);
    else
      ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    for (auto item = saved_.rbegin(); item != saved_.rend(); ++item) {
      if (item->second)
        ::setenv(item->first, item->second->c_str(), 1);
      else
        ::unsetenv(item->first);
    }
  }

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> saved_;
};

class CredentialsTest : public testing::Test {
 protected:
  void write(const std::filesystem::path& path, const std::string& content) {
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, as_bytes(content));
  }
  // A credential helper on the PATH that runs `script`.
  void add_helper(const std::string& name, const std::string& script) {
    const auto path = dir_ / "bin" / ("docker-credential-" + name);
    write(path, "#!/bin/sh\n" + script);
    ::chmod(path.c_str(), 0755);
    environment_.set("PATH", (dir_ / "bin").string() + ":/usr/bin:/bin");
  }
  std::optional<Credential> find(const std::string& json, const std::string& host = "registry.example",
                                 const std::string& repository = "team/app") {
    write(dir_ / "auth.json", json);
    return find_credential({.required = dir_ / "auth.json", .files = {}}, host, repository);
  }
  static Credential user(const std::string& name, const std::string& password) {
    return {.username = name, .password = password, .identity_token = {}};
  }
  static std::string auth(const std::string& key, const std::string& text) {
    return "\"" + key + "\":{\"auth\":\"" + base64_encode(text) + "\"}";
  }

  test::TempDir dir_;
  Environment environment_;
};

TEST_F(CredentialsTest, PasswordsMayHoldColons) {
  EXPECT_EQ(find("{\"auths\":{" + auth("registry.example", "me:a:b") + "}}"), user("me", "a:b"));
  EXPECT_EQ(find("{\"auths\":{\"registry.example\":{\"auth\":\"bWU6YQAA\"}}}"), user("me", "a"));  // NULs at the end
  EXPECT_EQ(find("{\"auths\":{\"registry.example\":{\"username\":\"me\",\"password\":\"p\"}}}"), user("me", "p"));
}

TEST_F(CredentialsTest, LongestPathWinsAndSchemesDoNotMatter) {
  const auto json = "{\"auths\":{" + auth("registry.example", "host:1") + "," +
                    auth("registry.example/team", "team:2") + "," + auth("registry.example/team/app", "app:3") + "," +
                    auth("https://other.example/v1/", "other:4") + "}}";
  EXPECT_EQ(find(json), user("app", "3"));
  EXPECT_EQ(find(json, "registry.example", "team/tool"), user("team", "2"));
  EXPECT_EQ(find(json, "registry.example", "x"), user("host", "1"));
  EXPECT_EQ(find(json, "registry.example", "teams/app"), user("host", "1"));
  EXPECT_EQ(find(json, "other.example"), user("other", "4"));
  EXPECT_EQ(find(json, "none.example"), std::nullopt);
}

TEST_F(CredentialsTest, DockerHubHasAnotherName) {
  EXPECT_EQ(find("{\"auths\":{" + auth("https://index.docker.io/v1/", "hub:1") + "}}", "docker.io", "library/debian"),
            user("hub", "1"));
  EXPECT_EQ(find("{\"auths\":{" + auth("docker.io", "hub:2") + "}}", "docker.io", "library/debian"), user("hub", "2"));
}

TEST_F(CredentialsTest, EmptyEntriesSayNothing) {
  EXPECT_EQ(find(R"({"auths":{"registry.example":{}}})"), std::nullopt);
  EXPECT_EQ(find("{}"), std::nullopt);
}

TEST_F(CredentialsTest, BrokenFilesAreNamedWithoutTheirContent) {
  for (const auto* json :
       {"{", R"({"auths":[]})", R"({"auths":{"registry.example":{"auth":"c2VjcmV0"}}})",
        R"({"auths":{"registry.example":{"auth":"sec!"}}})", R"({"auths":{"registry.example":5}})"}) {
    try {
      find(json);
      ADD_FAILURE() << json;
    } catch (const CorruptData& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("auth.json"), Not(HasSubstr("sec"))));
    }
  }
  EXPECT_THROW(find_credential({.required = dir_ / "none.json", .files = {}}, "h", "r"), UsageError);
  EXPECT_EQ(find_credential({.required = {}, .files = {dir_ / "none.json"}}, "h", "r"), std::nullopt);
}

TEST_F(CredentialsTest, HelpersAreAskedBeforeTheFile) {
  add_helper("mine",
             "read server; [ $1 = get ] && echo "
             "\"{\\\"ServerURL\\\":\\\"$server\\\",\\\"Username\\\":\\\"$server\\\",\\\"Secret\\\":\\\"s\\\"}\"\n");
  const auto auths = ",\"auths\":{" + auth("registry.example", "file:1") + "," + auth("other.example", "file:2") + "}}";
  EXPECT_EQ(find("{\"credHelpers\":{\"registry.example\":\"mine\"}" + auths), user("registry.example", "s"));
  EXPECT_EQ(find("{\"credHelpers\":{\"registry.example\":\"mine\"}" + auths, "other.example"), user("file", "2"));
  EXPECT_EQ(find("{\"credsStore\":\"mine\"" + auths, "docker.io", "library/x"),
            user("https://index.docker.io/v1/", "s"));
}

TEST_F(CredentialsTest, HelpersMayKnowNothingOrAnIdentityToken) {
  add_helper("empty", "echo 'credentials not found in native keychain'; exit 1\n");
  EXPECT_EQ(find("{\"credsStore\":\"empty\",\"auths\":{" + auth("registry.example", "file:1") + "}}"),
            user("file", "1"));
  add_helper("token", "echo '{\"Username\":\"<token>\",\"Secret\":\"t\"}'\n");
  const auto found = find(R"({"credsStore":"token"})");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->identity_token, "t");
  EXPECT_EQ(found->username, "");
}

TEST_F(CredentialsTest, HelpersThatFailAreErrorsWithoutTheirOutput) {
  add_helper("bad", "echo secret; exit 3\n");
  for (const auto* name : {"bad", "missing", "../bad", ""}) {
    try {
      ask_credential_helper(name, "registry.example");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr("secret")));
    }
  }
}

TEST_F(CredentialsTest, UsualPlacesComeInOrder) {
  environment_.set("REGISTRY_AUTH_FILE", "");
  environment_.set("XDG_RUNTIME_DIR", "/run/me");
  environment_.set("HOME", "/home/me");
  environment_.set("DOCKER_CONFIG", "");
  EXPECT_THAT(usual_credential_places("").files,
              testing::ElementsAre("/run/me/containers/auth.json", "/home/me/.config/containers/auth.json",
                                   "/home/me/.docker/config.json"));
  environment_.set("DOCKER_CONFIG", "/etc/docker");
  EXPECT_EQ(usual_credential_places("").files.back(), "/etc/docker/config.json");
  environment_.set("REGISTRY_AUTH_FILE", "/else.json");
  EXPECT_THAT(usual_credential_places("").files, testing::ElementsAre("/else.json"));
  EXPECT_EQ(usual_credential_places("/given.json").required, "/given.json");
}

TEST(Base64Test, EncodesAndDecodes) {
  for (const std::string text : {"", "a", "ab", "abc", "abcd", "user:pass:word"})
    EXPECT_EQ(base64_decode(base64_encode(text)), text);
  EXPECT_EQ(base64_encode("user:pass:word"), "dXNlcjpwYXNzOndvcmQ=");
  EXPECT_FALSE(base64_decode("abc").has_value());
  EXPECT_FALSE(base64_decode("ab!=").has_value());
}

}  // namespace
}  // namespace varve::oci::internal
