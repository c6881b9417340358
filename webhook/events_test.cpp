#include "webhook/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::webhook {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Digest kDigest = digest_of(as_bytes("image"));

std::string replaced(std::string text) {
  const std::string word = "DIGEST";
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at))
    text.replace(at, word.size(), kDigest.to_string());
  return text;
}

std::string distribution_event(const std::string& target, const std::string& action = "push") {
  return replaced(R"({"action": ")" + action + R"(", "target": )" + target +
                  R"(, "request": {"host": "evil.example"}})");
}

const std::string kTarget =
    R"({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "DIGEST", "repository": "team/app", "tag": "v1"})";

TEST(EventsTest, ReadsWhatDistributionSends) {
  const auto untagged =
      R"({"mediaType": "application/vnd.docker.distribution.manifest.list.v2+json", "digest": "DIGEST", "repository": "a"})";
  const auto blob = R"({"mediaType": "application/octet-stream", "digest": "DIGEST", "repository": "a"})";
  const auto found =
      parse_notification(R"({"events": [)" + distribution_event(kTarget) + "," + distribution_event(untagged) + "," +
                         distribution_event(blob) + "," + distribution_event(kTarget, "pull") + "]}");
  EXPECT_EQ(found.pushed, (std::vector<Pushed>{{"team/app", "v1", kDigest}, {"a", "", kDigest}}));
  EXPECT_EQ(found.others, 2u);
  EXPECT_THAT(found.bad, IsEmpty());
}

TEST(EventsTest, ReadsBothFormsOfHarbor) {
  const std::string data =
      R"({"resources": [{"digest": "DIGEST", "tag": "v1", "resource_url": "evil.example/team/app:v1"},
      {"digest": "DIGEST", "tag": "DIGEST"}], "repository": {"name": "app", "repo_full_name": "team/app"}})";
  const std::vector<Pushed> both{{"team/app", "v1", kDigest}, {"team/app", "", kDigest}};
  EXPECT_EQ(parse_notification(replaced(R"({"type": "PUSH_ARTIFACT", "event_data": )" + data + "}")).pushed, both);
  EXPECT_EQ(
      parse_notification(replaced(R"({"specversion": "1.0", "type": "harbor.artifact.pushed", "data": )" + data + "}"))
          .pushed,
      both);
  const auto deleted = parse_notification(replaced(R"({"type": "DELETE_ARTIFACT", "event_data": )" + data + "}"));
  EXPECT_THAT(deleted.pushed, IsEmpty());
  EXPECT_EQ(deleted.others, 2u);
}

TEST(EventsTest, LeavesOutWhatOurOwnPushesPutBesideImages) {
  const auto tag = "sha256-" + kDigest.hex();
  for (const auto* end : {"", ".sig", ".att", ".sbom"}) EXPECT_TRUE(is_tag_beside_image(tag + end)) << end;
  for (const auto* text : {"v1", "sha256-", "sha256-abc"}) EXPECT_FALSE(is_tag_beside_image(text)) << text;
  EXPECT_FALSE(is_tag_beside_image(tag + ".x"));
  auto target = kTarget;
  target.replace(target.find("v1\""), 2, tag);
  const auto found = parse_notification(R"({"events": [)" + distribution_event(target) + "]}");
  EXPECT_THAT(found.pushed, IsEmpty());
  EXPECT_EQ(found.others, 1u);
}

TEST(EventsTest, OneThatIsWrongKeepsNobodyFromReadingTheOthers) {
  auto wrong = kTarget;
  wrong.replace(wrong.find("DIGEST"), 6, "sha256:12");
  const auto found =
      parse_notification(R"({"events": [)" + distribution_event(wrong) + "," + distribution_event(kTarget) + ", 7]}");
  EXPECT_EQ(found.pushed, (std::vector<Pushed>{{"team/app", "v1", kDigest}}));
  EXPECT_THAT(found.bad, SizeIs(2));
  EXPECT_THAT(found.bad[0], HasSubstr("digest"));
}

// A name must not become another host, another image or a path.
TEST(EventsTest, RefusesNamesThatNoRepositoryHas) {
  for (const auto* name :
       {"", "../x", "a/../b", "/a", "a:b", "a@DIGEST", "A", "a b", "a//b", "host:5000/a/", "a\\u0000"}) {
    auto target = kTarget;
    target.replace(target.find("team/app"), 8, name);
    const auto found = parse_notification(R"({"events": [)" + distribution_event(target) + "]}");
    EXPECT_THAT(found.pushed, IsEmpty()) << name;
    EXPECT_THAT(found.bad, SizeIs(1)) << name;
  }
  for (const auto* tag : {"a/b", "a@b", "-a", "a b", ".."}) {
    auto target = kTarget;
    target.replace(target.find("v1\""), 2, tag);
    EXPECT_THAT(parse_notification(R"({"events": [)" + distribution_event(target) + "]}").pushed, IsEmpty()) << tag;
  }
}

TEST(EventsTest, RefusesWhatIsNoNotification) {
  for (const auto* text : {"", "[]", "7", "{", R"({"hello": 1})", R"({"events": 7})", R"({"event_data": []})"})
    EXPECT_THROW(parse_notification(text), Error) << text;
  EXPECT_THROW(parse_notification(std::string(kMaxNotificationBytes + 1, ' ')), Unsupported);
  std::string many = R"({"events": [)";
  for (std::size_t i = 0; i <= kMaxEvents; ++i) many += "{},";
  EXPECT_THROW(parse_notification(many + "{}]}"), Error);
}

}  // namespace
}  // namespace varve::webhook
