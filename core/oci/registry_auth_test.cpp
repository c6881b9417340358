#include <thread>

#include "core/oci/internal/authenticator.h"
#include "core/oci/internal/credential_providers.h"
#include "testing/registry_fixture.h"

namespace varve::oci {
namespace {

using test::refusal_of;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kRight = "dXNlcjpwYXNzOndvcmQ=";  // user:pass:word
constexpr const char* kWrong = "dXNlcjp3cm9uZw==";      // user:wrong

class RegistryAuthTest : public RegistryFixture {
 protected:
  void use_tokens(bool anonymous = false) {
    registry_.set([&](Switches& s) { s.auth = Auth::kToken, s.anonymous_tokens = anonymous; });
  }
  std::vector<test::FakeRegistry::Record> records_of(Kind kind) {
    auto records = registry_.records();
    std::erase_if(records, [&](const auto& record) { return record.kind != kind; });
    return records;
  }
  const Bytes content_ = pattern(100'000);
  const Descriptor blob_ = add_blob(content_);
  const ByteRange range_{.offset = 10, .length = 100};
};

TEST_F(RegistryAuthTest, BasicCredentialsAreSentOnceTheyAreAskedFor) {
  registry_.set([](Switches& s) { s.auth = Auth::kBasic; });
  log_in(kRight);
  const auto repository = open();
  read(*repository, blob_, range_);
  read(*repository, blob_, range_);
  const auto records = records_of(Kind::kBlob);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].status, 401);
  EXPECT_EQ(records[0].request.header("authorization"), "");
  EXPECT_EQ(records[2].status, 206);
}

TEST_F(RegistryAuthTest, RefusedCredentialsAreAFinalErrorWithoutSecrets) {
  registry_.set([](Switches& s) { s.auth = Auth::kBasic; });
  EXPECT_THAT(refusal_of<std::exception>([&] { open()->manifest("latest"); }), HasSubstr("no credentials"));
  log_in(kWrong);
  EXPECT_THAT(refusal_of<std::exception>([&] { open()->manifest("latest"); }),
              AllOf(HasSubstr("refused"), Not(HasSubstr("wrong")), Not(HasSubstr(kWrong))));
  use_tokens();
  EXPECT_THAT(refusal_of<std::exception>([&] { open()->manifest("latest"); }),
              AllOf(HasSubstr("refused"), Not(HasSubstr("wrong")), Not(HasSubstr(kWrong))));
  log_in("");
  EXPECT_THAT(refusal_of<std::exception>([&] { open()->manifest("latest"); }), HasSubstr("no credentials"));
}

TEST_F(RegistryAuthTest, TokensComeFromTheRealmWithServiceAndScope) {
  use_tokens();
  log_in(kRight);
  const auto repository = open();
  EXPECT_EQ(read(*repository, blob_, range_), cut(content_, range_));
  read(*repository, blob_, range_);
  const auto tokens = records_of(Kind::kToken);
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_EQ(tokens[0].request.query.at("service"), "fake");
  EXPECT_EQ(tokens[0].request.query.at("scope"), "repository:team/app:pull");
  EXPECT_EQ(tokens[0].request.header("authorization"), std::string("Basic ") + kRight);
  EXPECT_EQ(registry_.count(Kind::kBlob), 3u);
  EXPECT_EQ(repository->stats().tokens, 1u);
}

TEST_F(RegistryAuthTest, AnonymousTokensNeedNoCredentials) {
  use_tokens(true);
  EXPECT_EQ(read(*open(), blob_, range_), cut(content_, range_));
  EXPECT_EQ(records_of(Kind::kToken)[0].request.header("authorization"), "");
}

TEST_F(RegistryAuthTest, TokensAreRenewedBeforeTheyEnd) {
  use_tokens(true);
  registry_.set([](Switches& s) { s.token_expires_in = 100; });
  const auto repository = open();
  read(*repository, blob_, range_);
  clock_.advance(std::chrono::seconds(79));
  read(*repository, blob_, range_);
  EXPECT_EQ(registry_.count(Kind::kToken), 1u);
  clock_.advance(std::chrono::seconds(2));
  read(*repository, blob_, range_);
  EXPECT_EQ(registry_.count(Kind::kToken), 2u);
  for (const auto& record : records_of(Kind::kBlob))
    EXPECT_TRUE(record.status == 206 || record.request.header("authorization").empty());
}

TEST_F(RegistryAuthTest, TokensThatEndTooEarlyAreRenewedInMidSession) {
  use_tokens(true);
  registry_.set([](Switches& s) { s.token_uses = 1; });
  const auto repository = open();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(read(*repository, blob_, range_), cut(content_, range_));
  EXPECT_EQ(registry_.count(Kind::kToken), 4u);
}

TEST_F(RegistryAuthTest, BrokenTransferGoesOnWithANewToken) {
  use_tokens(true);
  registry_.set(
      [](Switches& s) { s.token_uses = 1, s.breaks = Break::kClose, s.break_after = 40'000, s.break_count = 2; });
  EXPECT_EQ(read(*open(), blob_, {0, blob_.size}), content_);
  EXPECT_EQ(registry_.count(Kind::kToken), 3u);
}

TEST_F(RegistryAuthTest, ManyReadersShareOneToken) {
  use_tokens(true);
  const auto repository = open();
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < 8; ++i)
      readers.emplace_back([&] { EXPECT_EQ(read(*repository, blob_, range_), cut(content_, range_)); });
  }
  EXPECT_EQ(registry_.count(Kind::kToken), 1u);
}

TEST_F(RegistryAuthTest, TokenServerInTroubleIsAskedAgain) {
  use_tokens(true);
  registry_.fail_next(503, 2, Kind::kToken);
  EXPECT_EQ(read(*open(), blob_, range_), cut(content_, range_));
  registry_.fail_next(503, -1, Kind::kToken);
  EXPECT_THROW(read(*open(), blob_, range_), TemporaryError);
}

TEST_F(RegistryAuthTest, IdentityTokensGoByPostOnly) {
  use_tokens();
  registry_.set([](Switches& s) { s.identity_token = "identity"; });
  write_file_atomically(options_.authfile,
                        as_bytes("{\"auths\":{\"" + registry_.host() + "\":{\"identitytoken\":\"identity\"}}}"));
  EXPECT_EQ(read(*open(), blob_, range_), cut(content_, range_));
  const auto tokens = records_of(Kind::kToken);
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_EQ(tokens[0].request.method, "POST");
  EXPECT_TRUE(tokens[0].request.query.empty());
}

TEST_F(RegistryAuthTest, CredentialsThatChangeWhileWeRunAreFound) {
  registry_.set([](Switches& s) { s.auth = Auth::kBasic; });
  log_in(kRight);
  const auto repository = open();
  read(*repository, blob_, range_);
  registry_.set([](Switches& s) { s.password = "new"; });
  EXPECT_THROW(read(*repository, blob_, range_), Error);
  log_in("dXNlcjpuZXc=");  // user:new
  EXPECT_EQ(read(*repository, blob_, range_), cut(content_, range_));
}

TEST_F(RegistryAuthTest, A403IsAskedAgainIfThereAreOtherCredentialsByNow) {
  registry_.set([](Switches& s) { s.auth = Auth::kBasic; });
  log_in(kRight);
  const auto repository = open();
  read(*repository, blob_, range_);
  registry_.fail_next(403, 1, Kind::kBlob);
  EXPECT_THROW(read(*repository, blob_, range_), Error);
  EXPECT_EQ(registry_.count(Kind::kBlob), 3u);
  clock_.advance(std::chrono::seconds(6));
  registry_.set([](Switches& s) { s.password = "new"; });
  log_in("dXNlcjpuZXc=");  // user:new
  registry_.fail_next(403, 1, Kind::kBlob);
  EXPECT_EQ(read(*repository, blob_, range_), cut(content_, range_));
  EXPECT_EQ(registry_.count(Kind::kBlob), 5u);
}

TEST_F(RegistryAuthTest, PluginsAreAskedForPasswordsThatHaveEnded) {
  registry_.set([](Switches& s) { s.auth = Auth::kBasic; });
  const auto say = [&](const std::string& password) {
    write_file_atomically(
        dir_ / "plugin",
        as_bytes("#!/bin/sh\ncat > /dev/null\necho '{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":"
                 "\"credentialprovider.kubelet.k8s.io/v1\",\"cacheKeyType\":\"Registry\",\"auth\":{\"" +
                 registry_.host() + "\":{\"username\":\"user\",\"password\":\"" + password + "\"}}}'\n"),
        0755);
  };
  write_file_atomically(
      dir_ / "plugins.json",
      as_bytes(
          "{\"kind\":\"CredentialProviderConfig\",\"apiVersion\":\"kubelet.config.k8s.io/v1\",\"providers\":[{\"name\":"
          "\"plugin\",\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\"matchImages\":[\"" +
          registry_.host() + "\"],\"defaultCacheDuration\":\"12h\"}]}"));
  options_.credential_providers = std::make_shared<internal::CredentialProviders>(
      CredentialProviderSettings{.config = dir_ / "plugins.json", .bin_dir = dir_.path()}, clock_,
      std::chrono::seconds(10));
  say("pass:word");
  const auto repository = open();
  EXPECT_EQ(read(*repository, blob_, range_), cut(content_, range_));
  registry_.set([](Switches& s) { s.password = "second"; });
  say("second");
  clock_.advance(std::chrono::seconds(2));
  EXPECT_EQ(read(*repository, blob_, range_), cut(content_, range_));
}

TEST_F(RegistryAuthTest, ImagesOfOneRepositoryShareTokensAndConnections) {
  use_tokens();
  log_in(kRight);
  options_.known_hosts = std::make_shared<KnownHosts>();
  const auto first = open();
  read(*first, blob_, range_);
  const auto connections = registry_.connections();
  registry_.forget_records();
  const auto second = open();
  second->expect_reads();
  while (registry_.connections() < connections + 3) std::this_thread::yield();
  EXPECT_EQ(read(*second, blob_, range_), cut(content_, range_));
  ASSERT_EQ(records_of(Kind::kBlob).size(), 1u);
  EXPECT_EQ(records_of(Kind::kBlob)[0].status, 206);
  EXPECT_EQ(registry_.count(Kind::kToken), 0u);
  EXPECT_EQ(second->stats().tokens, 0u);
  EXPECT_EQ(registry_.connections(), connections + 3) << "one of four was there";

  registry_.add_blob("team/other", content_);
  EXPECT_EQ(read(*open("team/other"), blob_, range_), cut(content_, range_));
  EXPECT_EQ(registry_.count(Kind::kToken), 1u) << "what is for one repository is for no other";
}

TEST_F(RegistryAuthTest, TokensEndWithTheLastImageThatUsesThem) {
  use_tokens();
  log_in(kRight);
  options_.known_hosts = std::make_shared<KnownHosts>();
  for (int image = 0; image < 2; ++image) read(*open(), blob_, range_);
  EXPECT_EQ(registry_.count(Kind::kToken), 2u);
}

TEST_F(RegistryAuthTest, WhoHasOtherCredentialsGetsNothingOfWhatOthersGot) {
  use_tokens();
  log_in(kRight);
  options_.known_hosts = std::make_shared<KnownHosts>();
  const auto logged_in = open();
  read(*logged_in, blob_, range_);
  log_in("");
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, range_); }), HasSubstr("no credentials"));
  log_in(kWrong);
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, range_); }), HasSubstr("refused"));
  const auto right = options_.authfile;
  options_.authfile = dir_ / "another.json";
  write_file_atomically(options_.authfile, as_bytes("{}"));
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, range_); }), HasSubstr("no credentials"));
  EXPECT_EQ(read(*logged_in, blob_, range_), cut(content_, range_)) << "its token lasts";
  options_.authfile = right;
  log_in(kRight);
  read(*open(), blob_, range_);
}

TEST_F(RegistryAuthTest, WhoTrustsARegistryLessDoesNotSendItWhatOthersGot) {
  use_tokens();
  log_in(kRight);
  options_.known_hosts = std::make_shared<KnownHosts>();
  const auto plain = open();
  read(*plain, blob_, range_);
  options_.plain_http = false;
  registry_.forget_records();
  read(*open(), blob_, range_);
  EXPECT_EQ(records_of(Kind::kBlob).front().request.header("authorization"), "");
  EXPECT_EQ(registry_.count(Kind::kToken), 1u);
}

TEST_F(RegistryAuthTest, WhoIsCancelledLeavesTheTokenToThoseWhoWaitForIt) {
  CancelFlag cancel;
  std::atomic<int> asked = 0;
  test::FakeHttpServer server([&](const auto&) {
    test::FakeHttpResponse response;
    response.set_body(R"({"token":"theirs"})");
    if (asked++ == 0) response.breaks = Break::kStall;
    return response;
  });
  internal::HttpHeaders unauthorized;
  unauthorized.add_line("WWW-Authenticate: Bearer realm=\"http://" + server.host() + "/token\"");
  const auto state = std::make_shared<internal::AuthState>();
  const auto options = [&](const CancelFlag* flag) {
    return internal::AuthenticatorOptions{.host = server.host(),
                                          .repository = "team/app",
                                          .places = {.required = options_.authfile, .files = {}},
                                          .plain_http = true,
                                          .cancel = flag,
                                          .state = state};
  };
  internal::HttpClient ending({.cancel = &cancel}), staying({});
  internal::Authenticator first(ending, clock_, options(&cancel)), second(staying, clock_, options(nullptr));
  std::jthread cancelled([&] { EXPECT_THROW(first.renew("repository:team/app:pull", unauthorized, ""), Cancelled); });
  while (asked == 0) std::this_thread::yield();
  std::jthread waiting([&] { EXPECT_EQ(second.authorization("repository:team/app:pull"), "Bearer theirs"); });
  cancel.cancel();
}

TEST_F(RegistryAuthTest, UnknownSchemesAndBadTokensAreNamed) {
  use_tokens(true);
  registry_.set([](Switches& s) {
    s.failure = {.kind = Kind::kToken, .status = 200, .count = -1, .body = "{\"token\":\"a b\"}"};
  });
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, range_); }), HasSubstr("cannot be sent"));
  registry_.set([](Switches& s) { s.failure = {.kind = Kind::kToken, .status = 200, .count = -1, .body = "<html>"}; });
  EXPECT_THROW(read(*open(), blob_, range_), CorruptData);
  registry_.set([](Switches& s) { s.failure = {.kind = Kind::kBlob, .status = 401, .count = -1, .body = ""}; });
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, range_); }), HasSubstr("no way to log in"));
}

TEST_F(RegistryAuthTest, CredentialsAreNotSentToATokenServerWithoutTls) {
  internal::HttpClient http({});
  internal::Authenticator authenticator(
      http, clock_,
      {.host = registry_.host(), .repository = "team/app", .places = {.required = options_.authfile, .files = {}}});
  internal::HttpHeaders unauthorized;
  unauthorized.add_line("WWW-Authenticate: Bearer realm=\"http://" + registry_.storage_host() +
                        "/token?secret=1\",service=\"fake\"");
  EXPECT_THAT(refusal_of<std::exception>([&] { authenticator.renew("repository:team/app:pull", unauthorized, ""); }),
              AllOf(HasSubstr("without TLS"), Not(HasSubstr("secret"))));
  EXPECT_EQ(registry_.count(Kind::kToken), 0u);
}

TEST_F(RegistryAuthTest, WithoutTlsTheTokenServerMustBeOnTheRegistrysMachine) {
  internal::HttpClient http({});
  const auto message_for = [&](const std::string& registry, const std::string& realm) {
    internal::Authenticator authenticator(http, clock_,
                                          {.host = registry,
                                           .repository = "a",
                                           .places = {.required = options_.authfile, .files = {}},
                                           .plain_http = true});
    internal::HttpHeaders unauthorized;
    unauthorized.add_line("WWW-Authenticate: Bearer realm=\"" + realm + "\",service=\"fake\"");
    return refusal_of<std::exception>([&] { authenticator.renew("repository:a:pull", unauthorized, ""); });
  };
  const auto here = "http://" + registry_.storage_host() + "/token";
  EXPECT_THAT(message_for("registry.example:5000", here), HasSubstr("without TLS"));
  EXPECT_THAT(message_for("127.0.0.2.example", here), HasSubstr("without TLS"));
  EXPECT_EQ(registry_.count(Kind::kToken), 0u);
  EXPECT_THAT(message_for("localhost:5000", here), Not(HasSubstr("without TLS")));
}

}  // namespace
}  // namespace varve::oci
