// The gates' way to sessions, with a stand-in for `varve run`.
#include "cli/session/child_sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "testing/temp_dir.h"

namespace varve::cli {
namespace {

using ::testing::HasSubstr;

class ChildSessionsTest : public ::testing::Test {
 protected:
  ChildSessionsTest() {
    context_.global.root = dir_ / "state";
    sessions_.add(image_, "oci:image@sha256:1");
  }

  prune::ProgramResult run(const std::string& script, std::string_view input = "",
                           std::chrono::seconds limit = std::chrono::seconds(60)) {
    const auto program = dir_ / "program";
    std::ofstream(program) << "#!/bin/sh\n" << script << '\n';
    ::chmod(program.c_str(), 0755);
    context_.program = program.string();
    return sessions_.run(image_, {"python3", "-c", "code"}, input, limit);
  }

  const test::TempDir dir_;
  std::ostringstream out_, err_;
  Context context_{.out = out_, .err = err_, .global = {}, .cancel = {}, .exit_status = 0, .program = {}, .tail = {}};
  ChildSessions sessions_{context_};
  const Digest image_ = digest_of(as_bytes("image"));
};

TEST_F(ChildSessionsTest, ASessionHasNoNetworkAndLeavesNothing) {
  const auto words = run("echo \"$@\"").out;
  EXPECT_THAT(words, ::testing::StartsWith("run --rm --network none --no-record --entrypoint "));
  EXPECT_THAT(words, HasSubstr(" --gpus none "));
  EXPECT_THAT(words, ::testing::EndsWith(" oci:image@sha256:1 -- python3 -c code\n"));
}

TEST_F(ChildSessionsTest, StatusAndBothOutputsAreThePrograms) {
  const auto result = run("echo out; echo err >&2; exit 7");
  EXPECT_EQ(result.exit_status, 7);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_FALSE(result.timed_out);
}

TEST_F(ChildSessionsTest, ALotGoesInAndOutAtTheSameTime) {
  const std::string input(3 << 20, 'x');
  EXPECT_EQ(run("exec cat", input).out.size(), input.size());
}

TEST_F(ChildSessionsTest, AProgramThatDoesNotReadEndsAllTheSame) {
  EXPECT_EQ(run("exec 0<&-; exit 3", std::string(3 << 20, 'x')).exit_status, 3);
}

TEST_F(ChildSessionsTest, OutputBeyondTheLimitIsDropped) {
  EXPECT_EQ(run("head -c 70000000 /dev/zero").out.size(), prune::kMaxProgramOutput);
}

TEST_F(ChildSessionsTest, OneThatTakesTooLongIsKilled) {
  const auto result = run("echo $$; exec sleep 1000", "", std::chrono::seconds(1));
  EXPECT_TRUE(result.timed_out);
  const auto pid = std::stoi(result.out);
  EXPECT_NE(::kill(pid, 0), 0) << "it is still there";
}

TEST_F(ChildSessionsTest, WhatKeepsASessionFromBeingMadeIsToldInItsOwnWords) {
  try {
    run("echo first >&2; echo 'varve: error: no daemon' >&2; exit 125");
    FAIL();
  } catch (const prune::CouldNotRun& error) {
    EXPECT_THAT(error.what(), HasSubstr("oci:image@sha256:1: varve: error: no daemon"));
  }
  EXPECT_THROW(sessions_.run(digest_of(as_bytes("another")), {"x"}, "", std::chrono::seconds(1)), prune::CouldNotRun);
}

TEST_F(ChildSessionsTest, CancellingEndsIt) {
  context_.cancel.cancel();
  EXPECT_THROW(run("exec sleep 1000"), Cancelled);
}

}  // namespace
}  // namespace varve::cli
