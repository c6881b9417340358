#include "core/oci/internal/credential_providers.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/manual_clock.h"
#include "testing/temp_dir.h"

namespace varve::oci::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kApi = "credentialprovider.kubelet.k8s.io/v1";

std::string answer_of(const std::string& auth, const std::string& key = "Registry", const std::string& more = "") {
  return fmt::format(R"({{"kind":"CredentialProviderResponse","apiVersion":"{}","cacheKeyType":"{}"{},"auth":{}}})",
                     kApi, key, more, auth);
}

class CredentialProvidersTest : public testing::Test {
 protected:
  CredentialProvidersTest() { std::filesystem::create_directories(dir_ / "bin"); }
  // Counts its calls, and keeps what it is asked.
  void add_plugin(const std::string& name, const std::string& script) const {
    const auto path = dir_ / "bin" / name;
    write_file_atomically(path,
                          as_bytes("#!/bin/sh\ncat > " + (dir_ / "asked").string() + "\necho >> " +
                                   (dir_ / (name + ".calls")).string() + "\n" + script),
                          0755);
  }
  void add_answer(const std::string& name, const std::string& answer) const {
    add_plugin(name, "cat <<'END'\n" + answer + "\nEND\n");
  }
  std::size_t calls(const std::string& name) const {
    const auto log = read_file_if_there(dir_ / (name + ".calls"));
    return log ? log->size() : 0;
  }
  static std::string entry(const std::string& name, const std::string& match, const std::string& more = "") {
    return fmt::format(R"({{"name":"{}","apiVersion":"{}","matchImages":["{}"],"defaultCacheDuration":"10m"{}}})", name,
                       kApi, match, more);
  }
  void configure(const std::string& entries) const {
    write_file_atomically(
        settings_.config,
        as_bytes(R"({"kind":"CredentialProviderConfig","apiVersion":"kubelet.config.k8s.io/v1","providers":[)" +
                 entries + "]}"));
  }
  std::optional<Credential> find(const std::string& image, bool anew = false) {
    return providers_.find(image, anew, nullptr);
  }
  static Credential user(const std::string& name, const std::string& password) {
    return {.username = name, .password = password, .identity_token = {}};
  }

  test::TempDir dir_;
  test::ManualClock clock_;
  const CredentialProviderSettings settings_{.config = dir_ / "config.json", .bin_dir = dir_ / "bin"};
  static constexpr milliseconds kPatience{60'000};  // a busy machine may need a second to start a program
  CredentialProviders providers_{settings_, clock_, kPatience};
};

TEST_F(CredentialProvidersTest, PatternsMatchAsTheKubeletMatchesThem) {
  const auto image = "registry.example.com:5000/team/app";
  for (const auto* pattern :
       {"registry.example.com:5000", "*.example.com:5000", "registry.*.com:5000", "reg*.example.com:5000", "*.*.*:5000",
        "registry.example.com:5000/team", "registry.example.com:5000/te", "https://registry.example.com:5000/team/app",
        "registry.example.com:5000/v1/"})
    EXPECT_TRUE(image_matches(pattern, image)) << pattern;
  for (const auto* pattern :
       {"registry.example.com", "*:5000", "*.com:5000", "registry.example.com:5001", "example.com:5000",
        "*.registry.example.com:5000", "registry.example.com:5000/other", "", "*"})
    EXPECT_FALSE(image_matches(pattern, image)) << pattern;
  EXPECT_TRUE(image_matches("*.dkr.ecr.*.amazonaws.com", "123.dkr.ecr.eu-1.amazonaws.com/app"));
  EXPECT_FALSE(image_matches("*.dkr.ecr.*.amazonaws.com", "123.dkr.ecr.eu-1.amazonaws.com.evil.example/app"));
}

TEST_F(CredentialProvidersTest, DurationsAreThoseOfGo) {
  EXPECT_EQ(parse_go_duration("12h"), milliseconds(43'200'000));
  EXPECT_EQ(parse_go_duration("1h30m"), milliseconds(5'400'000));
  EXPECT_EQ(parse_go_duration("1.5s"), milliseconds(1'500));
  EXPECT_EQ(parse_go_duration("300ms"), milliseconds(300));
  EXPECT_EQ(parse_go_duration("0"), milliseconds(0));
  EXPECT_EQ(parse_go_duration("0s"), milliseconds(0));
  EXPECT_TRUE(parse_go_duration("99999999999999999999h"));
  for (const auto* text : {"", "5", "h", "-1s", "1d", "1h-1m", "1 h", "1..5s", "nans"})
    EXPECT_FALSE(parse_go_duration(text)) << text;
}

TEST_F(CredentialProvidersTest, TheConfigurationIsJsonOrYaml) {
  const auto providers = parse_credential_providers(R"(# of a node
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: ecr-credential-provider
    matchImages: ["*.dkr.ecr.*.amazonaws.com"]
    defaultCacheDuration: "12h"
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    args: [get-credentials]
    env:
      - name: AWS_PROFILE
        value: node
  - name: pods
    matchImages: ["registry.example"]
    defaultCacheDuration: 0s
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    tokenAttributes:
      requireServiceAccount: true
)",
                                                    "config.yaml");
  ASSERT_EQ(providers.size(), 2u);
  EXPECT_EQ(providers[0].name, "ecr-credential-provider");
  EXPECT_EQ(providers[0].default_cache_duration, std::chrono::hours(12));
  EXPECT_EQ(providers[0].args, std::vector<std::string>{"get-credentials"});
  EXPECT_EQ(providers[0].env, std::vector<std::string>{"AWS_PROFILE=node"});
  EXPECT_FALSE(providers[0].needs_service_account);
  EXPECT_TRUE(providers[1].needs_service_account);
}

TEST_F(CredentialProvidersTest, ConfigurationsThatAreNoneAreRefused) {
  const std::string head =
      R"({"kind":"CredentialProviderConfig","apiVersion":"kubelet.config.k8s.io/v1","providers":[)";
  for (const auto& text :
       {std::string("{"), std::string("[]"), std::string("a: ["), std::string(),
        std::string(R"({"kind":"Other","apiVersion":"kubelet.config.k8s.io/v1","providers":[]})"),
        head + entry("../../bin/sh", "h") + "]}", head + entry("..", "h") + "]}", head + entry("", "h") + "]}",
        head + R"({"name":"a","apiVersion":"v1","matchImages":["h"]}]})",
        head + R"({"name":"a","apiVersion":"credentialprovider.kubelet.k8s.io/v1","matchImages":[]}]})",
        head + entry("a", "h", R"(,"env":[{"name":"A=B","value":"c"}])") + "]}",
        head + entry("a", "h", R"(,"args":["\u0000"])") + "]}"})
    EXPECT_THROW(parse_credential_providers(text, "config"), Error) << text;
}

TEST_F(CredentialProvidersTest, APluginIsAskedWithTheImageItsArgumentsAndItsEnvironment) {
  configure(entry("mine", "*.example", R"(,"args":["get"],"env":[{"name":"WHO","value":"node"}])"));
  add_plugin(
      "mine",
      R"(echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","auth":{"*.example":{"username":"'$1'","password":"'$WHO'"}}}')");
  EXPECT_EQ(find("registry.example/team/app"), user("get", "node"));
  const auto asked = std::string(as_text(read_file(dir_ / "asked")));
  EXPECT_THAT(asked, HasSubstr(R"("image":"registry.example/team/app")"));
  EXPECT_THAT(asked, HasSubstr(R"("kind":"CredentialProviderRequest")"));
  EXPECT_THAT(asked, HasSubstr(kApi));
  EXPECT_EQ(find("registry.other/app"), std::nullopt);
  EXPECT_EQ(calls("mine"), 1u);
}

TEST_F(CredentialProvidersTest, AnswersHoldForWhatAndAsLongAsTheySay) {
  const auto auth = R"({"*.example":{"username":"u","password":"p"}})";
  configure(entry("mine", "*.example"));
  add_answer("mine", answer_of(auth, "Image", R"(,"cacheDuration":"1m")"));
  find("a.example/one");
  find("a.example/one");
  EXPECT_EQ(calls("mine"), 1u);
  find("a.example/two");
  EXPECT_EQ(calls("mine"), 2u);
  clock_.advance(seconds(61));
  add_answer("mine", answer_of(auth, "Registry"));  // as long as the configuration says
  find("a.example/one");
  find("a.example/two");
  EXPECT_EQ(calls("mine"), 3u);
  find("b.example/one");
  EXPECT_EQ(calls("mine"), 4u);
  clock_.advance(seconds(601));
  add_answer("mine", answer_of(auth, "Global", R"(,"cacheDuration":"0s")"));
  find("a.example/one");
  find("b.example/one");  // a moment is held in any case
  EXPECT_EQ(calls("mine"), 5u);
  clock_.advance(seconds(2));
  find("b.example/one");
  EXPECT_EQ(calls("mine"), 6u);
}

TEST_F(CredentialProvidersTest, WhatWasRefusedIsAskedForAgain) {
  configure(entry("mine", "*.example"));
  add_answer("mine", answer_of(R"({"a.example":{"username":"u","password":"old"}})"));
  EXPECT_EQ(find("a.example/one"), user("u", "old"));
  add_answer("mine", answer_of(R"({"a.example":{"username":"u","password":"new"}})"));
  EXPECT_EQ(find("a.example/one"), user("u", "old"));
  EXPECT_EQ(find("a.example/one", true), user("u", "old"));  // said a moment ago
  clock_.advance(seconds(2));
  EXPECT_EQ(find("a.example/one", true), user("u", "new"));
  EXPECT_EQ(calls("mine"), 2u);
}

TEST_F(CredentialProvidersTest, OneThatFailsIsNamedWithoutItsWordsAndTheNextIsAsked) {
  const std::string_view kSilent = "sleep 90";
  const std::pair<std::string_view, const char*> kBad[] = {
      {"echo secret; echo secret >&2; exit 3", "status 3"},
      {"echo '{\"secret\":'", "its answer"},
      {kSilent, "no answer within 3 s"},
      {"head -c 10000000 /dev/zero", "more than"},
      {"echo '{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"other\",\"cacheKeyType\":\"Image\",\"auth\":null}'",
       "apiVersion"},
      {"echo '{\"kind\":\"Secret\",\"apiVersion\":\"x\"}'", "its answer"}};
  add_answer("good", answer_of(R"({"a.example":{"username":"u","password":"p"}})"));
  for (const auto& [script, why] : kBad) {
    configure(entry("bad", "*.example") + "," + entry("good", "*.example"));
    add_plugin("bad", std::string(script));
    CredentialProviders providers(settings_, clock_, script == kSilent ? milliseconds(3000) : kPatience);
    testing::internal::CaptureStderr();
    EXPECT_EQ(providers.find("a.example/app", false, nullptr), user("u", "p")) << script;
    const auto said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("bad"));
    EXPECT_THAT(said, HasSubstr(why));
    EXPECT_THAT(said, Not(HasSubstr("secret")));
  }
  configure(entry("missing", "*.example"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(find("a.example/app"), std::nullopt);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no such program"));
}

TEST_F(CredentialProvidersTest, OneThatFailsRestsAWhile) {
  configure(entry("bad", "*.example"));
  add_plugin("bad", "exit 1");
  find("a.example/app");
  find("a.example/app", true);
  EXPECT_EQ(calls("bad"), 1u);
  clock_.advance(seconds(11));
  find("a.example/app");
  EXPECT_EQ(calls("bad"), 2u);
}

TEST_F(CredentialProvidersTest, NobodysCredentialsAreNoFailure) {
  configure(entry("one", "*.example") + "," + entry("two", "*.example"));
  add_answer("one", answer_of("null"));
  add_answer("two", answer_of(R"({"b.example":{"username":"u","password":"p"}})"));
  EXPECT_EQ(find("a.example/app"), std::nullopt);
  EXPECT_EQ(calls("two"), 1u);
}

TEST_F(CredentialProvidersTest, TheLongestPatternOfAnAnswerCounts) {
  configure(entry("mine", "*.example"));
  add_answer(
      "mine",
      answer_of(
          R"({"a.example":{"username":"all","password":"p"},"a.example/team":{"username":"team","password":"p"}})",
          "Image"));
  EXPECT_EQ(find("a.example/team/app"), user("team", "p"));
  EXPECT_EQ(find("a.example/other"), user("all", "p"));
}

TEST_F(CredentialProvidersTest, ReadersThatWantTheSameShareACall) {
  configure(entry("mine", "*.example"));
  add_answer("mine", answer_of(R"({"a.example":{"username":"u","password":"p"}})"));
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < 8; ++i) readers.emplace_back([&] { EXPECT_EQ(find("a.example/app", true), user("u", "p")); });
  }
  EXPECT_EQ(calls("mine"), 1u);
}

TEST_F(CredentialProvidersTest, AConfigurationThatCannotBeReadIsToldOnce) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(find("a.example/app"), std::nullopt);
  EXPECT_EQ(find("a.example/app"), std::nullopt);
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("config.json"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1);
}

TEST_F(CredentialProvidersTest, FilesComeBeforePluginsAndTheMachinesOwnIsTheLastOfThem) {
  configure(entry("mine", "*.example"));
  add_answer("mine", answer_of(R"({"*.example":{"username":"plugin","password":"p"}})"));
  const auto auth = [](const std::string& host) {
    return fmt::format(R"({{"auths":{{"{}":{{"username":"{}","password":"p"}}}}}})", host, host);
  };
  write_file_atomically(dir_ / "user.json", as_bytes(auth("a.example")));
  write_file_atomically(dir_ / "machine.json", as_bytes(auth("b.example")));
  CredentialPlaces places;
  places.files = {dir_ / "user.json"};
  places.machine = dir_ / "machine.json";
  places.providers = std::make_shared<CredentialProviders>(settings_, clock_, milliseconds(300));
  EXPECT_EQ(find_credential(places, "a.example", "app")->username, "a.example");
  EXPECT_EQ(find_credential(places, "b.example", "app")->username, "b.example");
  EXPECT_EQ(calls("mine"), 0u);
  EXPECT_EQ(find_credential(places, "c.example", "app")->username, "plugin");
  EXPECT_EQ(find_credential(places, "c.other", "app"), std::nullopt);
}

}  // namespace
}  // namespace varve::oci::internal
