#include "core/base/process/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/clock.h"
#include "core/base/files/unique_fd.h"
#include "testing/temp_dir.h"

namespace varve {
namespace {

using ::testing::HasSubstr;

ChildResult shell(const std::string& script, std::chrono::milliseconds limit = std::chrono::seconds(60),
                  bool end_descendants = false, std::string_view input = "") {
  ChildProgram program;
  program.words = {"sh", "-c", script};
  program.limit = limit;
  program.end_descendants = end_descendants;
  program.input = input;
  return run_child(program, CancelFlag());
}

// Ended, whether or not somebody has waited for it.
bool is_gone(const std::string& pid) {
  std::ifstream stat("/proc/" + std::to_string(std::stoi(pid)) + "/stat");
  std::string line;
  return !std::getline(stat, line) || line.find(") Z") != line.npos || line.find(") X") != line.npos;
}

TEST(ChildProcessTest, GivesStatusAndBothOutputs) {
  const auto result = shell("cat; echo err >&2; exit 7", std::chrono::seconds(60), false, "in");
  EXPECT_EQ(result.exit_status, 7);
  EXPECT_EQ(result.out, "in");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(shell("kill -SEGV $$").exit_status, 139);
}

TEST(ChildProcessTest, TakesNoMoreMemoryThanItMay) {
  ChildProgram program;
  program.words = {"sh", "-c", "read go; exec dd if=/dev/zero of=/dev/null bs=512M count=1"};
  program.input = "go\n";
  EXPECT_EQ(run_child(program, CancelFlag()).exit_status, 0);
  program.max_memory_bytes = 256u << 20;
  EXPECT_EQ(run_child(program, CancelFlag()).exit_status, 1);
}

TEST(ChildProcessTest, AProgramThatIsNotThereIs127AndOneThatMayNotBeExecuted126) {
  ChildProgram program;
  program.words = {"/nowhere/program"};
  EXPECT_EQ(run_child(program, CancelFlag()).exit_status, 127);
  EXPECT_THAT(run_child(program, CancelFlag()).err, HasSubstr("/nowhere/program: No such file"));
  program.words = {"/etc/passwd"};
  EXPECT_EQ(run_child(program, CancelFlag()).exit_status, 126);
}

TEST(ChildProcessTest, TheEnvironmentIsOwnOrGiven) {
  ChildProgram program;
  program.words = {"/usr/bin/env"};
  program.environment = std::vector<std::string>{"ONLY=this"};
  EXPECT_EQ(run_child(program, CancelFlag()).out, "ONLY=this\n");
}

TEST(ChildProcessTest, ADescriptorIsPassedAsTheThirdAndWhatIsShownIsNotGathered) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  ChildProgram program;
  program.words = {"sh", "-c", "echo passed >&3; echo shown >&2; echo out"};
  program.passed_fd = ends[1];
  program.shows_errors = true;
  const auto result = run_child(program, CancelFlag());
  ::close(ends[1]);
  std::array<char, 16> said{};
  EXPECT_EQ(::read(read_end.get(), said.data(), said.size()), 7);
  EXPECT_STREQ(said.data(), "passed\n");
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "");
}

TEST(ChildProcessTest, OneInTheForegroundStaysInThisGroup) {
  ChildProgram program;
  program.words = {"sh", "-c", "test $(ps -o pgid= -p $$) = $1", "sh", std::to_string(::getpgrp())};
  program.in_foreground = true;
  EXPECT_EQ(run_child(program, CancelFlag()).exit_status, 0);
  program.in_foreground = false;
  EXPECT_EQ(run_child(program, CancelFlag()).exit_status, 1);
}

TEST(ChildProcessTest, OneThatKeepsAnOutputOpenHoldsNobodyUp) {
  const Stopwatch watch;
  const auto result = shell("echo said; sleep 1000 & exit 3");
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_EQ(result.out, "said\n");
  EXPECT_LT(watch.seconds(), 100);
}

TEST(ChildProcessTest, AllThatWasSaidBeforeTheEndIsRead) {
  EXPECT_EQ(shell("head -c 3000000 /dev/zero; sleep 1000 &").out.size(), 3'000'000u);
}

TEST(ChildProcessTest, AtTheLimitItsWholeGroupIsKilled) {
  const auto result = shell("sleep 1000 & echo $!; exec sleep 1000", std::chrono::seconds(1));
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_status, 137);
  for (int i = 0; i < 1000 && !is_gone(result.out); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(is_gone(result.out));
}

TEST(ChildProcessTest, OneThatClosesItsOutputsAndStaysIsEndedAtTheLimit) {
  EXPECT_TRUE(shell("exec >&- 2>&-; exec sleep 1000", std::chrono::seconds(1)).timed_out);
}

TEST(ChildProcessTest, DescendantsThatWentTheirOwnWayAreEndedWhereThatIsAskedFor) {
  // Two sessions of their own, the second of a child of the first.
  const auto script = "setsid sh -c 'setsid sleep 1000 & echo $!; sleep 1000' & echo $!; sleep 0.5";
  for (const auto limit : {std::chrono::milliseconds(60'000), std::chrono::milliseconds(400)}) {
    const auto result = shell(script, limit, true);
    EXPECT_EQ(result.timed_out, limit.count() == 400);
    std::istringstream pids(result.out);
    int found = 0;
    for (std::string pid; pids >> pid; ++found) EXPECT_TRUE(is_gone(pid)) << pid;
    EXPECT_EQ(found, 2);
  }
}

TEST(ChildProcessTest, CancellingEndsIt) {
  CancelFlag cancel;
  cancel.cancel();
  ChildProgram program;
  program.words = {"sleep", "1000"};
  EXPECT_THROW(run_child(program, cancel), Cancelled);
}

// A program that the kernel looks for some milliseconds: a script whose interpreter is found by long ways over links.
std::filesystem::path hard_to_find_program(const std::filesystem::path& folder) {
  constexpr int kLinks = 12;  // of 40 that it follows, in three attempts where somebody else renames something
  std::filesystem::create_directory(folder / "x");
  std::string way;
  while (way.size() < 4000) way += "x/../";
  for (int link = 0; link < kLinks; ++link)
    std::filesystem::create_symlink(way + std::to_string(link + 1), folder / std::to_string(link));
  std::filesystem::create_symlink("/bin/true", folder / std::to_string(kLinks));
  const auto script = folder / "script";
  std::ofstream(script) << "#!" << (folder / "0").string() << "\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  return script;
}

TEST(ChildProcessTest, ThreadsStartUntilAnotherProgramHasTakenThePlace) {
  const test::TempDir temp;
  const auto program = hard_to_find_program(temp.path());
  for (int round = 0; round < 20; ++round) {
    const auto child = ::fork();
    if (child == 0) {
      std::thread([] {
        try {
          while (true) std::thread([] {}).join();
        } catch (const std::system_error&) {
          ::_exit(1);
        }
      }).detach();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      try {
        execute_in_place({program});
      } catch (const std::system_error&) {
        ::_exit(2);
      }
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "round " << round;
  }
}

TEST(ChildProcessTest, WhatCannotTakeThePlaceIsNamed) {
  try {
    execute_in_place({"/nonexistent/program"});
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/program"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace varve
