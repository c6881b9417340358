#include "core/oci/internal/http_headers.h"

#include <gmock/gmock.h>

#include "core/oci/internal/url.h"

namespace varve::oci::internal {
namespace {

using testing::Optional;

TEST(HttpHeadersTest, NamesCompareWithoutCase) {
  HttpHeaders headers;
  headers.add_line("Content-TYPE:  text/html \r\n");
  headers.add_line("X: 1");
  headers.add_line("x:2");
  headers.add_line("no colon");
  EXPECT_EQ(headers.find("content-type"), "text/html");
  EXPECT_THAT(headers.all("X"), testing::ElementsAre("1", "2"));
  EXPECT_EQ(headers.find("none"), std::nullopt);
}

TEST(ChallengeTest, ReadsSeveralWithCommasInQuotes) {
  const auto challenges =
      parse_challenges(R"(Basic realm="a, \"b\"", BEARER Realm="https://auth.example/token",service=registry.example,)"
                       R"(scope="repository:a:pull,push",Negotiate)");
  ASSERT_EQ(challenges.size(), 3u);
  EXPECT_EQ(challenges[0].scheme, "basic");
  EXPECT_EQ(challenges[0].parameters.at("realm"), "a, \"b\"");
  EXPECT_EQ(challenges[1].scheme, "bearer");
  EXPECT_EQ(challenges[1].parameters.at("realm"), "https://auth.example/token");
  EXPECT_EQ(challenges[1].parameters.at("service"), "registry.example");
  EXPECT_EQ(challenges[1].parameters.at("scope"), "repository:a:pull,push");
  EXPECT_EQ(challenges[2].scheme, "negotiate");
}

TEST(ChallengeTest, SurvivesNonsense) {
  for (const auto* text :
       {"", ",,,", "=", "a=b", "Bearer realm=\"never ends", "Bearer realm=", "\"x\"", "Basic \x01", "Bearer a==="})
    for (const auto& challenge : parse_challenges(text)) EXPECT_FALSE(challenge.scheme.empty()) << text;
}

TEST(ContentRangeTest, ReadsWhatIsRightAndNothingElse) {
  const auto range = parse_content_range("bytes 5-9/100");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 5u);
  EXPECT_EQ(range->last, 9u);
  EXPECT_EQ(range->total, 100u);
  EXPECT_FALSE(parse_content_range("bytes 0-0/*")->total.has_value());
  for (const auto* text : {"", "bytes", "bytes 5-4/100", "bytes 5-100/100", "bytes 5-/100", "bytes -5/100", "5-9/100",
                           "bytes 5-9", "bytes 5-9/", "bytes 18446744073709551616-9/10",
                           "bytes 0-18446744073709551615/18446744073709551616", "bytes a-b/c", "bytes */9"})
    EXPECT_FALSE(parse_content_range(text).has_value()) << text;
  EXPECT_THAT(parse_unsatisfied_range("bytes */42"), Optional(42u));
  EXPECT_FALSE(parse_unsatisfied_range("bytes */").has_value());
  EXPECT_THAT(parse_upload_range("0-1023"), Optional(1023u));
  EXPECT_THAT(parse_upload_range("bytes=0-7"), Optional(7u));
  EXPECT_FALSE(parse_upload_range("1-7").has_value());
}

TEST(LinkTest, FindsTheNextPage) {
  EXPECT_THAT(parse_next_link(R"(</v2/a?last=b>; rel="next")"), Optional(std::string("/v2/a?last=b")));
  EXPECT_THAT(parse_next_link(R"(</first>; rel=first, </second> ; title="a;b" ; REL=Next)"),
              Optional(std::string("/second")));
  for (const auto* text :
       {"", "<", "</a>", R"(</a>; rel="prev")", "</a; rel=next", "a; rel=next", R"(</a>; rel="next)"})
    EXPECT_FALSE(parse_next_link(text).has_value()) << text;
}

TEST(RetryAfterTest, ReadsSecondsAndDates) {
  using std::chrono::seconds;
  const auto now = std::chrono::system_clock::from_time_t(1'700'000'000);  // Tue, 14 Nov 2023 22:13:20 GMT
  EXPECT_EQ(parse_retry_after("7", now), seconds(7));
  EXPECT_EQ(parse_retry_after("Tue, 14 Nov 2023 22:13:50 GMT", now), seconds(30));
  EXPECT_EQ(parse_retry_after("Tue, 14 Nov 2023 22:00:00 GMT", now), seconds(0));
  EXPECT_EQ(parse_retry_after("soon", now), std::nullopt);
  EXPECT_EQ(parse_retry_after("-1", now), std::nullopt);
  EXPECT_EQ(parse_retry_after("18446744073709551615", now), seconds(365 * 24 * 3600));
}

TEST(UrlTest, KnowsOriginsAndHidesSecrets) {
  const auto url = Url::parse("https://Registry.Example/v2/a?token=secret#x");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->shown(), "https://registry.example/v2/a");
  EXPECT_EQ(url->port, "443");
  EXPECT_EQ(url->resolve("/other?b=c")->text, "https://Registry.Example/other?b=c");
  EXPECT_EQ(url->resolve("//storage.example/x")->host, "storage.example");
  EXPECT_TRUE(url->same_origin(*Url::parse("https://registry.example:443/else")));
  EXPECT_FALSE(url->same_origin(*Url::parse("https://registry.example:444/v2/a")));
  EXPECT_FALSE(url->same_origin(*Url::parse("http://registry.example/v2/a")));
  for (const auto* text : {"", "ftp://host/", "file:///etc/passwd", "https://user:pass@host/", "https://", "host/path",
                           "https://host/\nX: y"})
    EXPECT_FALSE(Url::parse(text).has_value()) << text;
  EXPECT_EQ(with_query(with_query("https://h/p", "a", "b:c d"), "e", "f"), "https://h/p?a=b%3Ac%20d&e=f");
  EXPECT_THAT(query_parameter("https://h/p?x=1&y=a%20b", "y"), Optional(std::string("a b")));
}

}  // namespace
}  // namespace varve::oci::internal
