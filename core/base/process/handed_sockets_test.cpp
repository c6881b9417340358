#include "core/base/process/handed_sockets.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/base/errors.h"

namespace varve {
namespace {

class HandedSockets : public testing::Test {
 protected:
  ~HandedSockets() override { forget_handed_fds(); }
  static void hand(const std::string& count, pid_t to = ::getpid()) {
    ::setenv("LISTEN_PID", std::to_string(to).c_str(), 1);
    ::setenv("LISTEN_FDS", count.c_str(), 1);
    ::setenv("LISTEN_FDNAMES", "a:b", 1);
  }
};

TEST_F(HandedSockets, AreCountedForThisProcessAlone) {
  EXPECT_EQ(count_handed_fds(), 0);
  hand("2");
  EXPECT_EQ(count_handed_fds(), 2);
  hand("2", ::getppid());
  EXPECT_EQ(count_handed_fds(), 0);
}

TEST_F(HandedSockets, WhatIsNoNumberOfDescriptorsIsRefused) {
  for (const auto* count : {"", "-1", "2x", "x", "99999999999", "2000000000", " 2"}) {
    hand(count);
    EXPECT_THROW(count_handed_fds(), UsageError) << count;
  }
}

TEST_F(HandedSockets, AreNotToldToProgramsThatFollow) {
  hand("2");
  forget_handed_fds();
  for (const auto* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) EXPECT_EQ(std::getenv(name), nullptr) << name;
}

}  // namespace
}  // namespace varve
