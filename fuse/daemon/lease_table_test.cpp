#include "fuse/daemon/lease_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;

class LeaseTableTest : public ::testing::Test {
 protected:
  std::vector<std::filesystem::path> ended_;
  LeaseTable leases_{[this](const std::filesystem::path& mount) { ended_.push_back(mount); }};
};

TEST_F(LeaseTableTest, AMountIsInUseUntilItsLastLeaseEnds) {
  {
    const auto first = leases_.add("/run/a", std::nullopt);
    {
      auto second = leases_.add("/run/a", std::nullopt);
      const auto moved = std::move(second);
      EXPECT_EQ(moved.mount(), "/run/a");
      EXPECT_TRUE(leases_.any("/run/a"));
      EXPECT_FALSE(leases_.any("/run/b"));
    }
    EXPECT_THAT(ended_, ElementsAre("/run/a")) << "once, though it was moved";
    EXPECT_TRUE(leases_.any("/run/a"));
  }
  EXPECT_THAT(ended_, ElementsAre("/run/a", "/run/a"));
  EXPECT_FALSE(leases_.any("/run/a"));
}

TEST_F(LeaseTableTest, NobodyIsToldOfLeasesThatEndAfterAll) {
  const auto lease = leases_.add("/run/a", std::nullopt);
  leases_.clear();
  EXPECT_FALSE(leases_.any("/run/a"));
  { const auto last = std::optional(leases_.add("/run/b", std::nullopt)); }
  EXPECT_THAT(ended_, ElementsAre("/run/b"));
}

TEST_F(LeaseTableTest, TheRecordNamesThoseWhoseHolderIsKnown) {
  const auto holder = find_process(::getpid());
  ASSERT_TRUE(holder);
  const auto known = leases_.add("/run/a", holder);
  const auto unknown = leases_.add("/run/b", std::nullopt);
  Handover record;
  leases_.write_to(record);
  ASSERT_EQ(record.leases.size(), 1u);
  EXPECT_EQ(record.leases[0].mount, "/run/a");
  EXPECT_EQ(record.leases[0].holder, *holder);
}

TEST_F(LeaseTableTest, AMountIsInUseUntilItsLastNameIsReleased) {
  EXPECT_TRUE(leases_.hold("pod 1", "/run/a"));
  EXPECT_TRUE(leases_.hold("pod 2", "/run/a"));
  EXPECT_TRUE(leases_.hold("pod 3", "/run/b"));
  EXPECT_FALSE(leases_.hold("pod 1", "/run/b")) << "a name holds one mount";
  EXPECT_THAT(leases_.held_by("/run/a"), ElementsAre("pod 1", "pod 2"));
  EXPECT_EQ(leases_.held_at("pod 3"), "/run/b");
  EXPECT_TRUE(leases_.release("pod 1"));
  EXPECT_FALSE(leases_.release("pod 1"));
  EXPECT_TRUE(leases_.any("/run/a"));
  EXPECT_TRUE(leases_.release("pod 2"));
  EXPECT_FALSE(leases_.any("/run/a"));
  EXPECT_THAT(ended_, ElementsAre("/run/a", "/run/a"));
  EXPECT_TRUE(leases_.forget_hold("pod 3"));
  EXPECT_THAT(ended_, ElementsAre("/run/a", "/run/a")) << "nobody is told of what is forgotten";
  leases_.hold("pod 4", "/run/c");
  Handover record;
  leases_.write_to(record);
  ASSERT_EQ(record.holds.size(), 1u);
  EXPECT_EQ(record.holds[0].name, "pod 4");
  leases_.clear();
  EXPECT_FALSE(leases_.any("/run/c"));
}

TEST_F(LeaseTableTest, TellsWhoHoldsWhat) {
  const auto holder = find_process(::getpid());
  const auto known = leases_.add("/run/a", holder);
  const auto unknown = leases_.add("/run/a", std::nullopt);
  const auto other = leases_.add("/run/b", holder);
  EXPECT_THAT(leases_.holders("/run/a"), ElementsAre(holder, std::nullopt));
  EXPECT_THAT(leases_.holders("/run/c"), ElementsAre());
  EXPECT_THAT(leases_.holders(), ElementsAre(*holder, *holder));
}

TEST(LeaseTable, AProcessOfAnEarlierDaemonKeepsItsLeaseUntilItEnds) {
  const auto child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto holder = find_process(child);
  ASSERT_TRUE(holder);
  auto other = *holder;
  ++other.start_time;  // the number belonged to another process
  std::promise<std::filesystem::path> ended;
  LeaseTable leases([&](const std::filesystem::path& mount) { ended.set_value(mount); });
  leases.take_over({{.mount = "/run/a", .holder = *holder}, {.mount = "/run/b", .holder = other}});
  EXPECT_TRUE(leases.any("/run/a"));
  EXPECT_FALSE(leases.any("/run/b"));
  ::kill(child, SIGKILL);
  EXPECT_EQ(ended.get_future().get(), "/run/a");
  EXPECT_FALSE(leases.any("/run/a"));
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace varve::fuse
