#include "core/base/process/delay_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/base/errors.h"

extern "C" {
struct Pair {
  long first;
  double second;
};
long found_integers(long, long, long, long, long, long, long, long);
double found_reals(double, double, double, double, double, double, double, double, double);
double found_any(int count, ...);
Pair found_pair(long first, double second);
long missing_integers(long, long, long, long, long, long, long, long);
double missing_any(int count, ...);
}

namespace varve {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFound = "libdelayed_found.so";

bool is_loaded() {
  void* const handle = ::dlopen(kFound, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

// What a child of this process says, in which nothing has been called yet.
template <typename Operation>
std::string said_by_child(Operation&& operation) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string text;
    try {
      text = operation();
    } catch (const std::exception& error) {
      text = error.what();
    }
    ::_exit(::write(ends[1], text.data(), text.size()) == ssize_t(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text(4096, '\0');
  const auto length = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  int status = -1;
  if (::waitpid(child, &status, 0) != child || status != 0) return "the child failed";
  text.resize(std::size_t(length < 0 ? 0 : length));
  return text;
}

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// First: of what follows everything loads it.
TEST(DelayLoadTest, TheFirstCallLoads) {
  const auto said = said_by_child([] {
    std::string text = is_loaded() ? "before " : "not before ";
    text += std::to_string(found_integers(1, 1, 1, 1, 1, 1, 1, 1));
    return text + (is_loaded() ? " after" : " not after");
  });
  EXPECT_EQ(said, "not before 36 after");
}

TEST(DelayLoadTest, AnotherRootHasNoLibraryOfOurs) {
  const auto said = said_by_child([]() -> std::string {
    if (::geteuid() != 0 && ::unshare(CLONE_NEWUSER) != 0) return "skipped";
    if (::chroot("/proc") != 0) return "no root";
    return error_of([] { found_integers(1, 1, 1, 1, 1, 1, 1, 1); });
  });
  if (said == "skipped") GTEST_SKIP() << "no user namespaces here";
  EXPECT_THAT(said, HasSubstr("libdelayed_found.so is not loaded from another root"));
}

TEST(DelayLoadTest, WhatIsLoadedIsUsedInAnotherRoot) {
  const auto said = said_by_child([]() -> std::string {
    found_integers(1, 1, 1, 1, 1, 1, 1, 1);
    if (::geteuid() != 0 && ::unshare(CLONE_NEWUSER) != 0) return "skipped";
    if (::chroot("/proc") != 0) return "no root";
    return std::to_string(found_integers(1, 1, 1, 1, 1, 1, 1, 2));
  });
  if (said == "skipped") GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(said, "44");
}

TEST(DelayLoadTest, AllArgumentsArriveTheFirstTimeAndAgain) {
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(found_integers(1, 2, 3, 4, 5, 6, 7, 8), 204);
    EXPECT_EQ(found_reals(1, 2, 3, 4, 5, 6, 7, 8, 9), 285);
    EXPECT_EQ(found_any(10, 1L, .5, 2L, .25, 3L, .125, 4L, 8., 5L, 16.), 39.875);
    const auto pair = found_pair(7, .5);
    EXPECT_EQ(pair.first, 7);
    EXPECT_EQ(pair.second, .5);
  }
}

TEST(DelayLoadTest, ALibraryThatIsNotThereIsNamedToEachCaller) {
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_THAT(error_of([] { missing_integers(1, 1, 1, 1, 1, 1, 1, 1); }),
                HasSubstr("libdelayed_missing.so: it cannot be loaded"));
    EXPECT_THAT(error_of([] { missing_any(2, 1L, .5); }), HasSubstr("libdelayed_missing.so"));
  }
}

TEST(DelayLoadTest, ManyThreadsCallAtOnce) {
  const auto said = said_by_child([] {
    std::atomic<int> right = 0;
    std::atomic<bool> go = false;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        while (!go) std::this_thread::yield();
        if (found_any(2, 1L, .5) == 1.5 && found_integers(1, 1, 1, 1, 1, 1, 1, 1) == 36) ++right;
      });
    go = true;
    threads.clear();
    return std::to_string(right);
  });
  EXPECT_EQ(said, "8");
}

}  // namespace
}  // namespace varve
