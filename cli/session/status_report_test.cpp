#include "cli/session/status_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

fuse::MountStatus mount_of(const std::string& reference, const std::string& dir, bool session) {
  fuse::MountStatus mount;
  mount.dir = dir;
  mount.session = session;
  mount.stats.image = digest_of(reference);
  mount.stats.reference = reference;
  mount.stats.image_stream_bytes = 200;
  mount.stats.present_bytes = 50;
  return mount;
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  for (const auto line : split(text, "\n")) longest = std::max(longest, line.size());
  return longest;
}

TEST(ShortReference, IsWhatPeopleCallAnImage) {
  const auto digest = digest_of("x").to_string();
  EXPECT_EQ(short_reference("registry.example:5000/team/notebook:v1"), "team/notebook:v1");
  EXPECT_EQ(short_reference("registry.example/team/notebook@" + digest), "team/notebook@" + digest.substr(0, 19));
  EXPECT_EQ(short_reference("oci:/srv/very/long/way/image:v1"), "oci:image:v1");
  EXPECT_EQ(short_reference("docker.io/library/python:3.12"), "python:3.12");
  EXPECT_EQ(short_reference("docker-archive:/srv/nb.tar:team/nb:2"), "docker-archive:nb.tar:team/nb:2");
  EXPECT_EQ(short_reference("dir:/srv/nb"), "dir:nb");
  EXPECT_EQ(short_reference("no reference at all"), "no reference at all");
}

TEST(StatusText, NamesSessionsAndStaysWithinAHundredColumns) {
  fuse::DaemonStatus status;
  const std::string far = "oci:/srv/" + std::string(150, 'd') + "/image:v1";
  status.mounts.push_back(mount_of(far, "/home/somebody/" + std::string(120, 'p') + "/end", false));
  status.mounts.push_back(
      mount_of("registry.example/team/notebook:v1", "/run/varve/images/" + std::string(64, 'a'), true));
  status.mounts.push_back(
      mount_of("registry.example/team/other:v1", "/run/varve/images/" + std::string(64, 'b'), true));
  status.mounts.back().holders = {17};
  const RunningSessions sessions{{status.mounts[1].stats.image.to_string(), {"lab", "exam"}}};
  const auto text = status_text(status, sessions);
  EXPECT_LE(longest_line(text), 100u) << text;
  EXPECT_THAT(text, HasSubstr("sessions lab, exam"));
  EXPECT_THAT(text, HasSubstr("process 17"));
  EXPECT_THAT(text, HasSubstr("/end"));
  EXPECT_THAT(text, HasSubstr("oci:image:v1"));
  EXPECT_THAT(text, HasSubstr("25 %"));
  EXPECT_THAT(text, Not(HasSubstr("images/aaa")));
  EXPECT_EQ(status_json(status, sessions)["mounts"][1]["sessions"], nlohmann::json({"lab", "exam"}));
}

TEST(StatusText, SaysWhoHoldsATreeAndHowMuchOfTheImageItShows) {
  fuse::DaemonStatus status;
  status.mounts = {mount_of("a.example/nb:v1", "/run/varve/images/a", true)};
  status.mounts[0].held_by = {"p1", "p2", "p3", "p4", "p5"};
  status.mounts[0].tree_layers = 2;
  auto text = status_text(status, {});
  EXPECT_THAT(text, HasSubstr("held by p1, p2, p3, 2 more"));
  EXPECT_THAT(text, HasSubstr("nb:v1 (first 2 layers)"));
  status.mounts[0].held_by = {"p1"};
  status.mounts[0].holders = {17};
  text = status_text(status, {});
  EXPECT_THAT(text, HasSubstr("held by p1; process 17"));
}

TEST(StatusText, ImagesThatAreCalledAlikeAreToldApart) {
  fuse::DaemonStatus status;
  status.mounts = {mount_of("a.example/nb:v1", "/a", false), mount_of("b.example/nb:v1", "/b", false)};
  const auto text = status_text(status, {});
  EXPECT_THAT(text, HasSubstr("a.example/nb:v1"));
  EXPECT_THAT(text, HasSubstr("b.example/nb:v1"));
}

TEST(StatusText, TellsOfSourcesWhereThereAreMirrors) {
  fuse::DaemonStatus status;
  status.mounts = {mount_of("a.example/nb:v1", "/a", false)};
  auto& sources = status.mounts[0].stats.sources;
  sources.push_back({.host = "a.example", .bytes = 5'000'000, .last_error = ""});
  EXPECT_THAT(status_text(status, {}), Not(HasSubstr("registry a.example")));
  sources.insert(sources.begin(), {.host = "cache.example:8081",
                                   .mirror = true,
                                   .state = "resting",
                                   .failures = 3,
                                   .wrong = 1,
                                   .last_error = "status 503\x1b[2J"});
  const auto text = status_text(status, {});
  EXPECT_THAT(text, HasSubstr("nb:v1: mirror cache.example:8081: resting, 0 B, wrong bytes 1 times, failed 3 times, "
                              "last: status 503\\x1b[2J\n"));
  EXPECT_THAT(text, HasSubstr("nb:v1: registry a.example: good, 5.00 MB\n"));
  EXPECT_EQ(status_json(status, {})["mounts"][0]["sources"][0]["host"], "cache.example:8081");
}

TEST(StatusText, SaysWhatTheLinkToARegistryCanDo) {
  fuse::DaemonStatus status;
  status.links = {{.host = "a.example:5000", .answer_seconds = 0.0214, .bytes_per_second = 24'900'000},
                  {.host = "b.example\x1b[2J", .answer_seconds = 0.0004}};
  const auto text = status_text(status, {});
  EXPECT_THAT(text, HasSubstr("link to a.example:5000: answers after 21.4 ms, 24.9 MB/s\n"));
  EXPECT_THAT(text, HasSubstr("link to b.example\\x1b[2J: answers after 0.4 ms\n"));
  EXPECT_EQ(status_json(status, {})["links"][0]["bytes_per_second"], 24'900'000);
}

TEST(StatusText, SaysWhatIsWaitedForSinceWhenAndHowFarAPullIs) {
  fuse::DaemonStatus status;
  status.mounts = {mount_of("a.example/nb:v1", "/a", false)};
  status.mounts[0].stats.waiting_for = "mirror.example:5000/nb";
  status.mounts[0].stats.waiting_seconds = 8.2;
  status.mounts[0].stats.last_error = "connection refused";
  auto& pull = status.pulls.emplace_back();
  pull.reference = "a.example/nb:v2";
  pull.done_bytes = 12'000'000;
  pull.total_bytes = 291'000'000;
  pull.fetched_bytes = 6'000'000;
  pull.seconds = 2;
  const auto text = status_text(status, {});
  EXPECT_THAT(text, HasSubstr("nb:v1: a reader is waiting for mirror.example:5000 since 8 s: connection refused\n"));
  EXPECT_THAT(text, HasSubstr("pull of nb:v2: 12.0 MB of 291.0 MB, 3.00 MB/s, since 2 s\n"));
  status.pulls[0].error = "away\x1b[2J";
  EXPECT_THAT(status_text(status, {}), HasSubstr("pull of nb:v2: failed: away\\x1b[2J; `varve pull` goes on with it"));
}

}  // namespace
}  // namespace varve::cli
