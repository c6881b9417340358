#include "cli/doctor/secret_filter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace varve::cli {
namespace {

std::string filtered(std::string_view text) { return SecretFilter().text(text); }

TEST(SecretFilterTest, MasksWhatUrlsCarry) {
  EXPECT_EQ(filtered("get https://anna:hunter2@registry.example:5000/v2/: 401"),
            "get https://***@registry.example:5000/v2/: 401");
  EXPECT_EQ(filtered("postgresql://u:a/b@c@db.example/usage"), "postgresql://***@db.example/usage");
  EXPECT_EQ(filtered("<https://store.example/blob?X-Sig=abcdef&Expires=5>"), "<https://store.example/blob?***>");
  EXPECT_EQ(filtered("anna:hunter2@registry.example"), "***@registry.example");
}

TEST(SecretFilterTest, MasksWhatIsBehindATellingName) {
  EXPECT_EQ(filtered("host=db user=anna password=hunter2 dbname=usage"), "host=db user=anna password=*** dbname=usage");
  EXPECT_EQ(filtered(R"({"identitytoken": "abc def", "auth":"YTpi", "x": 1})"),
            R"({"identitytoken": "***", "auth":"***", "x": 1})");
  EXPECT_EQ(filtered("Authorization: Basic YW5uYTpodW50ZXIy\nnext"), "Authorization: ***\nnext");
  EXPECT_EQ(filtered("varve-tool --client-secret s3cr3t go"), "varve-tool --client-secret *** go");
  EXPECT_EQ(filtered("HF_TOKEN='x y', B=1"), "HF_TOKEN='***', B=1");
  EXPECT_EQ(filtered("AWS_SECRET_ACCESS_KEY=abcd"), "AWS_SECRET_ACCESS_KEY=***");
}

TEST(SecretFilterTest, MasksTokensByTheirLooks) {
  EXPECT_EQ(filtered("sent Bearer abcdefgh.ijkl to it"), "sent Bearer *** to it");
  EXPECT_EQ(filtered("as ghp_0123456789abcdefABCDEF, refused"), "as ***, refused");
  EXPECT_EQ(filtered("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"), "***");
  EXPECT_EQ(filtered("-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\n"),
            "-----BEGIN EC PRIVATE KEY-----***-----END EC PRIVATE KEY-----\n");
}

TEST(SecretFilterTest, LeavesWhatABugReportNeeds) {
  for (
      const std::string text :
      {"registry.example:5000/team/notebook:v1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
       "docker://registry.example/team/notebook@sha256:0123456789abcdef", "oci:/srv/image:v1",
       "read /var/lib/varve/store/x at 4096: Input/output error", "trust.keys = keys/ci.pub",
       "no token was asked for, and basic authentication failed", "https://registry.example:5000/v2/team/x@y"})
    EXPECT_EQ(filtered(text), text);
}

TEST(SecretFilterTest, MasksKnownSecretsWhereverTheyStand) {
  SecretFilter filter;
  filter.add("correct horse");
  filter.add("abcd");
  filter.add("abcdefgh");
  filter.add("x");
  EXPECT_EQ(filter.text("it said correct horse; zabcdefghz abcd, abcde x"), "it said ***; z***z ***, abcde x");
  const auto document = filter.document({{"abcdefgh", {"correct horse", 5}}, {"password", "p"}, {"tokens", 7}});
  EXPECT_EQ(document.dump(), R"({"***":["***",5],"password":"***","tokens":7})");
}

TEST(SecretFilterTest, TakesAnyBytes) {
  SecretFilter filter;
  filter.add("secret-of-mine");
  for (const std::string_view text : {"", "@", "://", "password=", "password:\"", "://@?", "a:@", "Basic ",
                                      "-----BEGIN ", "\xff\xfe password=\xff", "--password"})
    EXPECT_LE(filter.text(text).size(), text.size() + 3 * kMasked.size()) << text;
}

}  // namespace
}  // namespace varve::cli
