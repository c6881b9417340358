#include "webhook/receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "testing/manual_clock.h"
#include "testing/temp_dir.h"

namespace varve::webhook {
namespace {

using ::testing::HasSubstr;

class ReceiverTest : public ::testing::Test {
 protected:
  ReceiverTest() {
    settings_.registry = "registry.example";
    settings_.listen = ListenAddress::parse("0.0.0.0:8085");
    settings_.secret = "s3cret";
    settings_.rules.push_back(
        {.repositories = {"team/*"}, .tags = {}, .platforms = {}, .key = {}, .passphrase_file = {}});
  }

  static std::string event(const std::string& repository, int number) {
    return R"({"events": [{"action": "push", "target": {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": ")" +
           digest_of(as_bytes(std::to_string(number))).to_string() + R"(", "repository": ")" + repository +
           R"(", "tag": "v1"}}]})";
  }
  HttpResponse post(const std::string& body, const std::string& authorization = "Bearer s3cret",
                    const std::string& peer = "192.0.2.1") {
    return receiver_.answer({.method = "POST",
                             .path = "/events",
                             .body = body,
                             .headers = {{"authorization", authorization}},
                             .peer = peer});
  }
  HttpResponse get(const std::string& path, const std::string& authorization = "") {
    return receiver_.answer({.method = "GET", .path = path, .body = {}, .headers = {{"authorization", authorization}}});
  }
  QueueCounts counts() const { return WorkQueue(queue_).counts(); }

  const test::TempDir dir_;
  const std::string queue_ = (dir_ / "queue.db").string();
  Settings settings_;
  WebhookMetrics metrics_;
  int rung_ = 0;
  test::ManualClock clock_;
  Receiver receiver_{settings_, queue_, metrics_, [this] { ++rung_; }, clock_};
};

TEST_F(ReceiverTest, QueuesWhatARuleHasOnce) {
  EXPECT_EQ(post(event("team/app", 1)).status, 200);
  EXPECT_EQ(post(event("team/app", 1)).status, 200);
  EXPECT_EQ(post(event("other/app", 2)).status, 200);
  EXPECT_EQ(counts().queued, 1u);
  EXPECT_EQ(rung_, 1);
  const auto text = get("/metrics", "s3cret").body;
  for (const auto* line :
       {"{outcome=\"queued\"} 1", "{outcome=\"known\"} 1", "{outcome=\"ignored\"} 1", "{state=\"queued\"} 1"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST_F(ReceiverTest, TakesOrdersFromNobodyWithoutTheSecret) {
  for (const auto* wrong : {"", "s3cre", "s3cret ", "Bearer", "Bearer s3cret2", "Basic s3cret", "S3CRET"})
    EXPECT_EQ(post(event("team/app", 1), wrong).status, 401) << wrong;
  EXPECT_EQ(get("/metrics").status, 401);
  EXPECT_EQ(get("/healthz").status, 200);
  EXPECT_EQ(counts().queued, 0u);
  EXPECT_EQ(post(event("team/app", 1), "s3cret").status, 200);
}

// Registries send again what was refused, for ever, and nothing behind it.
TEST_F(ReceiverTest, SaysYesToWhatCannotBeRead) {
  for (const auto* poison : {"", "{", "[]", R"({"events": [{"action": "pull"}]})", R"({"events": [7]})"})
    EXPECT_EQ(post(poison).status, 200) << poison;
  EXPECT_EQ(counts().queued, 0u);
  EXPECT_THAT(get("/metrics", "s3cret").body, HasSubstr("varve_webhook_events_total{outcome=\"bad\"} 4"));
}

TEST_F(ReceiverTest, AsksToBeToldAgainWhileTheQueueIsFull) {
  settings_.max_queued = 1;
  EXPECT_EQ(post(event("team/app", 1)).status, 200);
  const auto refused = post(event("team/app", 2));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at(0).first, "Retry-After");
  EXPECT_EQ(post(event("team/app", 1)).status, 200) << "that is known";
}

TEST_F(ReceiverTest, OneAddressCannotFillTheQueueForOthers) {
  settings_.address_images = 2;
  const auto from = [&](const std::string& peer, int number) {
    return post(event("team/app", number), "s3cret", peer).status;
  };
  EXPECT_EQ(from("192.0.2.1", 1), 200);
  EXPECT_EQ(from("192.0.2.1", 2), 200);
  EXPECT_EQ(from("192.0.2.1", 3), 429);
  EXPECT_EQ(from("192.0.2.1", 1), 200) << "that is known";
  EXPECT_EQ(post(event("other/app", 4)).status, 200) << "and that is nobody's order";
  EXPECT_EQ(from("192.0.2.2", 5), 200);
  EXPECT_EQ(counts().queued, 3u);
  clock_.advance(std::chrono::minutes(1));
  EXPECT_EQ(from("192.0.2.1", 3), 200) << "sent again, as it was told";
  for (int number = 10; number < 20; ++number) EXPECT_EQ(from("", number), 200) << "a unix socket is a proxy's";
  settings_.address_images = 0;
  for (int number = 20; number < 30; ++number) EXPECT_EQ(from("192.0.2.1", number), 200);
}

TEST_F(ReceiverTest, OtherPathsAndMethodsAreRefused) {
  EXPECT_EQ(get("/").status, 405);
  EXPECT_EQ(get("/etc/passwd").status, 404);
  EXPECT_EQ(receiver_.answer({.method = "DELETE", .path = "/metrics", .body = {}, .headers = {}}).status, 405);
}

TEST_F(ReceiverTest, AQueueThatDoesNotAnswerIsNoHealth) {
  const std::string nowhere = (dir_ / "none/queue.db").string();
  WebhookMetrics metrics;
  Receiver receiver(settings_, nowhere, metrics, [] {});
  EXPECT_EQ(receiver.answer({.method = "GET", .path = "/healthz", .body = {}, .headers = {}}).status, 503);
  EXPECT_THROW(
      receiver.answer(
          {.method = "POST", .path = "/", .body = event("team/app", 1), .headers = {{"authorization", "s3cret"}}}),
      std::exception);
}

}  // namespace
}  // namespace varve::webhook
