#include "webhook/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "core/base/threads/guarded.h"
#include "testing/private_postgres.h"
#include "testing/temp_dir.h"

namespace varve::webhook {
namespace {

using std::chrono::seconds;
using Added = WorkQueue::Added;

Pushed image(int number) {
  return {.repository = "team/app",
          .tag = "v" + std::to_string(number),
          .digest = digest_of(as_bytes(std::to_string(number)))};
}

// The same on both databases.
class WorkQueueTest : public ::testing::TestWithParam<const char*> {
 protected:
  static void TearDownTestSuite() { server().reset(); }
  static std::unique_ptr<test::PrivatePostgres>& server() {
    static std::unique_ptr<test::PrivatePostgres> one;
    return one;
  }
  void SetUp() override {
    if (std::string(GetParam()) == "sqlite") {
      where_ = (dir_ / "queue.db").string();
      return;
    }
    if (!server()) server() = test::PrivatePostgres::start();
    if (!server()) GTEST_SKIP() << "PostgreSQL is not installed";
    where_ = server()->new_database();
  }

  const test::TempDir dir_;
  std::string where_;
};

TEST_P(WorkQueueTest, HasAnImageOnceHoweverOftenItIsToldOf) {
  WorkQueue queue(where_);
  EXPECT_EQ(queue.add(image(1), 10), Added::kNew);
  EXPECT_EQ(queue.add(image(1), 10), Added::kKnown);
  const auto job = queue.take("me", seconds(60));
  ASSERT_TRUE(job);
  EXPECT_EQ(job->image, image(1));
  EXPECT_EQ(job->attempts, 1u);
  EXPECT_EQ(queue.add(image(1), 10), Added::kKnown) << "while it is done";
  EXPECT_FALSE(queue.take("other", seconds(60)));
  queue.finish(*job, "me", JobState::kDone, "");
  EXPECT_EQ(queue.add(image(1), 10), Added::kKnown) << "afterwards";
  EXPECT_EQ(queue.counts().done, 1u);
}

TEST_P(WorkQueueTest, TakesNoMoreThanItMayHold) {
  WorkQueue queue(where_);
  EXPECT_EQ(queue.add(image(1), 1), Added::kNew);
  EXPECT_EQ(queue.add(image(2), 1), Added::kFull);
  EXPECT_EQ(queue.add(image(1), 1), Added::kKnown);
  queue.finish(*queue.take("me", seconds(60)), "me", JobState::kDone, "");
  EXPECT_EQ(queue.add(image(2), 1), Added::kNew);
}

TEST_P(WorkQueueTest, WhatAWorkerLeftIsAnothersWhenItsLeaseIsOver) {
  WorkQueue queue(where_);
  queue.add(image(1), 10);
  const auto lost = queue.take("dead", seconds(0));
  const auto job = queue.take("next", seconds(60));
  ASSERT_TRUE(job);
  EXPECT_EQ(job->attempts, 2u);
  EXPECT_FALSE(queue.renew(*lost, "dead", seconds(60)));
  queue.finish(*lost, "dead", JobState::kFailed, "it thinks it still has it");
  queue.forget(*lost, "dead");
  EXPECT_EQ(queue.counts().taken, 1u);
  EXPECT_TRUE(queue.renew(*job, "next", seconds(60)));
  queue.finish(*job, "next", JobState::kDone, "");
  EXPECT_EQ(queue.counts().done, 1u);
}

TEST_P(WorkQueueTest, WhatMustWaitIsNotTakenBefore) {
  WorkQueue queue(where_);
  queue.add(image(1), 10);
  auto job = queue.take("me", seconds(60));
  queue.put_back(*job, "me", seconds(1000), "the registry is away");
  EXPECT_FALSE(queue.take("me", seconds(60)));
  const auto listed = queue.list(10);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].reason, "the registry is away");
  EXPECT_EQ(listed[0].state, JobState::kQueued);
}

TEST_P(WorkQueueTest, WhatFailedIsTriedAgainWhenItIsAskedForOrToldOfAnew) {
  WorkQueue queue(where_);
  for (const int number : {1, 2, 3}) queue.add(image(number), 10);
  while (const auto job = queue.take("me", seconds(60))) queue.finish(*job, "me", JobState::kFailed, "broken");
  EXPECT_EQ(queue.counts().failed, 3u);
  EXPECT_EQ(queue.add(image(1), 10), Added::kNew);
  EXPECT_EQ(queue.take("me", seconds(60))->attempts, 1u);
  EXPECT_EQ(queue.retry("other/app", ""), 0u);
  EXPECT_EQ(queue.retry("team/app", "v2"), 1u);
  EXPECT_EQ(queue.retry("", ""), 1u);
  EXPECT_EQ(queue.counts().failed, 0u);
}

TEST_P(WorkQueueTest, RemembersWhatIsDoneInPartAndForgetsWhatIsOld) {
  WorkQueue queue(where_);
  queue.add(image(1), 10);
  const auto job = queue.take("me", seconds(60));
  queue.note_indexed(*job, "me");
  queue.give_up(*job, "me");
  const auto again = queue.take("me", seconds(60));
  EXPECT_TRUE(again->indexed);
  EXPECT_EQ(again->attempts, 1u);
  queue.finish(*again, "me", JobState::kDone, "");
  queue.forget_done(seconds(1000));
  EXPECT_EQ(queue.counts().done, 1u);
  queue.forget_done(seconds(-1));
  EXPECT_EQ(queue.counts().done, 0u);
}

TEST_P(WorkQueueTest, OneSweepsForAll) {
  WorkQueue queue(where_), other(where_);
  EXPECT_TRUE(queue.begin_sweep(seconds(1000)));
  EXPECT_FALSE(other.begin_sweep(seconds(1000)));
  EXPECT_TRUE(other.begin_sweep(seconds(0)));
}

TEST_P(WorkQueueTest, ManyWorkersTakeEachOnce) {
  constexpr int kImages = 60;
  {
    WorkQueue queue(where_);
    for (int i = 0; i < kImages; ++i) queue.add(image(i), 1000);
  }
  Guarded<std::multiset<std::int64_t>> taken;
  {
    std::vector<std::jthread> workers;
    for (int w = 0; w < 4; ++w)
      workers.emplace_back([&, name = "worker " + std::to_string(w)] {
        WorkQueue queue(where_);
        while (const auto job = queue.take(name, seconds(60))) {
          taken.with([&](auto& all) { all.insert(job->number); });
          queue.finish(*job, name, JobState::kDone, "");
        }
      });
  }
  taken.with([](const auto& all) {
    EXPECT_EQ(all.size(), std::size_t(kImages));
    EXPECT_EQ(std::set<std::int64_t>(all.begin(), all.end()).size(), all.size());
  });
}

INSTANTIATE_TEST_SUITE_P(Both, WorkQueueTest, ::testing::Values("sqlite", "postgres"));

}  // namespace
}  // namespace varve::webhook
