#include "core/base/process/inherited.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

namespace varve {
namespace {

// In a child, as the test itself has descriptors that it needs.
template <typename Body>
int status_of(Body body) {
  const auto child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Inherited, AllButTheKeptIsClosed) {
  EXPECT_EQ(status_of([] {
              std::array<int, 6> fds{};
              for (int& fd : fds) fd = ::dup(STDERR_FILENO);
              const std::array keep = {fds[4], fds[1]};
              close_all_but(keep);
              for (std::size_t i = 0; i < fds.size(); ++i)
                if ((::fcntl(fds[i], F_GETFD) >= 0) != (i == 1 || i == 4)) return 10 + int(i);
              return ::fcntl(STDERR_FILENO, F_GETFD) >= 0 ? 0 : 1;
            }),
            0);
}

TEST(Inherited, TheNextProgramGetsOnlyTheKept) {
  EXPECT_EQ(status_of([] {
              if (::dup2(STDERR_FILENO, 7) != 7 || ::dup2(STDERR_FILENO, 8) != 8) return 100;
              const std::array keep = {8};
              close_at_exec_but(keep);
              ::execl("/bin/sh", "sh", "-c",
                      "test ! -e /proc/$$/fd/7 && test -e /proc/$$/fd/8 && test -e /proc/$$/fd/2", nullptr);
              return 101;
            }),
            0);
}

TEST(Inherited, WhatLeadsNowhereIsOpenInTheNextProgram) {
  for (const bool closed : {false, true})
    EXPECT_EQ(status_of([&] {
                if (closed) ::close(STDIN_FILENO);
                const std::array fds = {STDIN_FILENO, 7};
                if (!lead_nowhere(fds)) return 100;
                ::execl("/bin/sh", "sh", "-c", "test /proc/$$/fd/0 -ef /dev/null && test /proc/$$/fd/7 -ef /dev/null",
                        nullptr);
                return 101;
              }),
              0)
        << closed;
}

TEST(Inherited, ThereIsRoomForWhatIsGoingToBeOpen) {
  EXPECT_EQ(status_of([] {
              const auto room = [] {
                std::ifstream status("/proc/self/status");
                std::string word;
                while (status >> word && word != "FDSize:") {
                }
                int count = 0;
                status >> count;
                return count;
              };
              if (room() >= 1000) return 1;
              make_room_for_open(1000);
              if (room() < 1000) return 2;
              return ::fcntl(999, F_GETFD) < 0 ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace varve
