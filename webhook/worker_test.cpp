#include "webhook/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/strings.h"
#include "core/oci/manifest.h"
#include "testing/fake_registry.h"
#include "testing/temp_dir.h"

namespace varve::webhook {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kConfigType = "application/vnd.oci.image.config.v1+json";

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() {
    settings_.registry = registry_.host();
    settings_.rules.push_back(
        {.repositories = {"team/*"}, .tags = {}, .platforms = {}, .key = {}, .passphrase_file = {}});
    options_.plain_http = true;
    options_.max_attempts = 1;
    options_.authfile = dir_ / "auth.json";
    write_file_atomically(options_.authfile, as_bytes("{}"));
    // What programs would do: `answers_` by their first word, else they do well.
    tools_.run = [this](const ChildProgram& program, const CancelFlag& cancel) {
      cancel.throw_if_cancelled();
      const auto image = program.words.at(program.words[0] == "index" ? 2 : 3);
      ran_.push_back(program.words[0] + " " + image.substr(image.find('@') + 1));
      words_ = program.words;
      ChildResult result;
      result.out = R"({"vouched": false, "signers": []})";
      result.exit_status = program.words[0] == "trust" ? 3 : 0;
      if (program.words[0] == "trust" && vouched_.contains(ran_.back().substr(6))) {
        result.out = R"({"vouched": true, "signers": ["ci"]})";
        result.exit_status = 0;
      }
      if (const auto said = answers_.find(program.words[0]); said != answers_.end()) result = said->second;
      return result;
    };
  }

  Digest add_image(const std::string& architecture = "amd64", const std::string& more = "",
                   const std::string& config_type = kConfigType) {
    const auto config =
        "{\"os\":\"linux\",\"architecture\":\"" + architecture + "\",\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[]}}";
    const auto blob = registry_.add_blob("team/app", as_bytes(config));
    return registry_.add_manifest(
        "team/app",
        as_bytes(R"({"schemaVersion":2,"mediaType":")" + std::string(oci::kOciManifestType) +
                 R"(","config":{"mediaType":")" + config_type + R"(","digest":")" + blob.to_string() + R"(","size":)" +
                 std::to_string(config.size()) + R"(},"layers":[])" + more + "}"),
        std::string(oci::kOciManifestType));
  }
  Digest add_list(const std::vector<std::pair<Digest, std::string>>& images) {
    std::vector<std::string> entries;
    for (const auto& [digest, architecture] : images)
      entries.push_back(R"({"mediaType":")" + std::string(oci::kOciManifestType) + R"(","digest":")" +
                        digest.to_string() + R"(","size":10,"platform":{"os":")" +
                        (architecture == "unknown" ? "unknown" : "linux") + R"(","architecture":")" + architecture +
                        R"("}})");
    return registry_.add_manifest("team/app",
                                  as_bytes(R"({"schemaVersion":2,"mediaType":")" + std::string(oci::kOciIndexType) +
                                           R"(","manifests":[)" + joined(entries, ",") + "]}"),
                                  std::string(oci::kOciIndexType));
  }
  void push(const Digest& digest) { EXPECT_EQ(queue_.add({"team/app", "v1", digest}, 100), WorkQueue::Added::kNew); }
  void work() {
    Worker worker(settings_, tools_, options_, metrics_, "me", where_);
    EXPECT_TRUE(worker.work(stop_));
  }
  static ChildResult ended(int status, const std::string& said = "", const std::string& out = "") {
    ChildResult result;
    result.exit_status = status;
    result.err = said;
    result.out = out;
    return result;
  }

  const test::TempDir dir_;
  const std::string where_ = (dir_ / "queue.db").string();
  test::FakeRegistry registry_;
  Settings settings_;
  oci::RegistryOptions options_;
  Tools tools_;
  WebhookMetrics metrics_;
  CancelFlag stop_;
  WorkQueue queue_{where_};
  std::map<std::string, ChildResult> answers_;
  std::set<std::string> vouched_;  // digests
  std::vector<std::string> ran_, words_;
};

TEST_F(WorkerTest, IndexesAndSignsAnImage) {
  settings_.rules[0].key = "/keys/ci.key";
  settings_.rules[0].passphrase_file = "/keys/passphrase";
  const auto digest = add_image();
  push(digest);
  work();
  EXPECT_THAT(ran_, ElementsAre("trust " + digest.to_string(), "index " + digest.to_string()));
  EXPECT_THAT(words_, ElementsAre("index", "--json", "docker://" + registry_.host() + "/team/app@" + digest.to_string(),
                                  "--sign", "/keys/ci.key", "--passphrase-file", "/keys/passphrase"));
  EXPECT_EQ(queue_.counts().done, 1u);
}

TEST_F(WorkerTest, TakesOfAListThePlatformsOfTheRule) {
  const auto amd = add_image("amd64"), arm = add_image("arm64");
  push(add_list({{amd, "amd64"}, {arm, "arm64"}, {digest_of(as_bytes("x")), "unknown"}}));
  work();
  EXPECT_THAT(ran_, ElementsAre("trust " + amd.to_string(), "index " + amd.to_string(), "trust " + arm.to_string(),
                                "index " + arm.to_string()));
  ran_.clear();
  settings_.rules[0].platforms = {oci::Platform::parse("linux/arm64")};
  push(add_list({{amd, "amd64"}, {arm, "arm64"}}));
  work();
  EXPECT_THAT(ran_, ElementsAre("trust " + arm.to_string(), "index " + arm.to_string()));
  ran_.clear();
  push(amd);
  work();
  EXPECT_THAT(ran_, IsEmpty());
}

TEST_F(WorkerTest, LeavesOutWhatIsNoImage) {
  const auto subject = R"(,"subject":{"mediaType":"a/b","digest":")" + add_image().to_string() + R"(","size":3})";
  push(add_image("amd64", subject));
  push(add_image("amd64", R"(,"artifactType":"application/vnd.varve.index")"));
  push(add_image("amd64", "", "application/vnd.oci.empty.v1+json"));
  push(digest_of(as_bytes("gone meanwhile")));
  push(add_list({}));
  for (int i = 0; i < 5; ++i) work();
  EXPECT_THAT(ran_, IsEmpty());
  const auto counts = queue_.counts();
  EXPECT_EQ(counts.done + counts.failed + counts.queued + counts.taken, 0u);
}

TEST_F(WorkerTest, DoesNotIndexAgainWhatSomebodyWhoCountsHasSigned) {
  settings_.rules[0].key = "/keys/ci.key";
  answers_["trust"] = ended(0, "", R"({"vouched": true, "signers": ["0123"]})");
  push(add_image());
  work();
  EXPECT_EQ(ran_.size(), 1u);
  EXPECT_EQ(queue_.counts().done, 1u);
  // Made here and not signed: a worker died in between.
  answers_["trust"] = ended(0, "", R"({"vouched": true, "signers": []})");
  push(add_image("arm64"));
  work();
  EXPECT_EQ(ran_.size(), 3u);
}

TEST_F(WorkerTest, TriesAgainWhatMayPassAndSaysWhyItDoesNot) {
  settings_.attempts = 3;
  settings_.first_wait = std::chrono::seconds(0);
  answers_["index"] = ended(75, "noise\nvarve: error: registry.example: status 503\n");
  push(add_image());
  work();
  auto listed = queue_.list(10);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].state, JobState::kQueued);
  EXPECT_EQ(listed[0].reason, "index: registry.example: status 503");
  answers_["index"] = ended(137);
  work();
  EXPECT_THAT(queue_.list(10)[0].reason, HasSubstr("signal 9"));
  work();
  EXPECT_EQ(queue_.list(10)[0].state, JobState::kFailed);
}

TEST_F(WorkerTest, GivesUpWhatCannotBeIndexed) {
  answers_["index"] = ended(1, "varve: error: layer sha256:12: it is no gzip\n");
  push(add_image());
  work();
  const auto listed = queue_.list(10);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].state, JobState::kFailed);
  EXPECT_EQ(listed[0].reason, "index: layer sha256:12: it is no gzip");
}

TEST_F(WorkerTest, WaitsForARegistryThatIsAway) {
  push(add_image());
  registry_.fail_next(503, -1);
  work();
  EXPECT_EQ(queue_.counts().queued, 1u);
  EXPECT_THAT(ran_, IsEmpty());
}

TEST_F(WorkerTest, LearnsWhereARuleSaysSoAndOnlyThatTheSecondTime) {
  settings_.rules[0].learn = true;
  settings_.first_wait = std::chrono::seconds(0);
  const auto digest = add_image();
  push(digest);
  answers_["profile"] = ended(75, "varve: error: busy");
  work();
  EXPECT_THAT(
      ran_, ElementsAre("trust " + digest.to_string(), "index " + digest.to_string(), "profile " + digest.to_string()));
  ran_.clear();
  answers_["profile"] = ended(77, "varve: error: this machine has no /dev/fuse");
  work();
  EXPECT_THAT(ran_, ElementsAre("profile " + digest.to_string()));
  EXPECT_EQ(queue_.counts().done, 1u) << "machines can do without packs";
}

TEST_F(WorkerTest, NamesTheImageBeforeWhereARuleSaysSo) {
  settings_.rules[0].previous = true;
  const auto first = add_image("amd64", R"(,"annotations":{"release":"1"})");
  const auto second = add_image("amd64", R"(,"annotations":{"release":"2"})");
  const auto third = add_image("amd64", R"(,"annotations":{"release":"3"})");
  const auto pushed = [&](const Digest& digest) {
    ran_.clear();
    push(digest);
    work();
  };
  pushed(first);
  EXPECT_THAT(words_, ::testing::SizeIs(3)) << "there is none";
  pushed(second);
  EXPECT_THAT(ran_,
              ElementsAre("trust " + second.to_string(), "trust " + first.to_string(), "index " + second.to_string()));
  EXPECT_THAT(words_, ::testing::SizeIs(3)) << "nobody vouches for it";
  vouched_.insert(second.to_string());
  pushed(third);
  EXPECT_THAT(words_, ElementsAre("index", "--json", "docker://" + registry_.host() + "/team/app@" + third.to_string(),
                                  "--previous", "docker://" + registry_.host() + "/team/app@" + second.to_string()));
}

TEST_F(WorkerTest, WhatIsCancelledIsAsIfItHadNotBeenTaken) {
  push(add_image());
  Worker worker(settings_, tools_, options_, metrics_, "me", where_);
  tools_.run = [this](const ChildProgram&, const CancelFlag& cancel) -> ChildResult {
    stop_.cancel();
    cancel.throw_if_cancelled();
    return {};
  };
  EXPECT_TRUE(worker.work(stop_));
  const auto listed = queue_.list(10);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].state, JobState::kQueued);
  EXPECT_EQ(listed[0].attempts, 0u);
}

}  // namespace
}  // namespace varve::webhook
