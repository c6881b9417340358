// Runtimes that fail, played by shell scripts in a PATH of the test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "fuse/session_store.h"
#include "tests/run/session_process.h"
#include "tests/run/tiny_root.h"
#include "tests/support/temp_dir.h"

namespace varve::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a script finds: $LOG is the log file, $BUNDLE the bundle.
constexpr const char* kPrelude =
    "#!/bin/sh\n"
    "while [ $# -gt 0 ]; do case $1 in --log) LOG=${2#file:};; --bundle) BUNDLE=$2;; esac; shift; done\n"
    "ready() { fifo=$(sed -n 's/.*\"\\(\\/.*\\/ready\\)\".*/\\1/p' $BUNDLE/config.json); echo ready > $fifo; }\n";

class RuntimeFallbackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "skipped: needs root";
    make_tiny_root(dir_ / "lower");
    std::filesystem::create_directories(dir_ / "bin");
    fake("runc", "exit 1");
    fake("crun", "exit 1");
    fake("bwrap", "exit 1");
  }
  void fake(const std::string& name, const std::string& script) {
    std::ofstream(dir_ / "bin" / name) << kPrelude << script << '\n';
    ::chmod((dir_ / "bin" / name).c_str(), 0755);
  }
  SessionOutcome run(const std::string& runtime, const std::string& script) {
    fuse::SessionRequest request;
    request.root = dir_ / "root";
    request.lower = dir_ / "lower";
    request.options.command = {"sh", "-c", script};
    request.runtime = runtime;
    const auto path = (dir_ / "bin").string() + ":/usr/bin:/bin";
    return SessionProcess(dir_.path(), request, {.before = [path] { ::setenv("PATH", path.c_str(), 1); }}).wait();
  }
  TempDir dir_;
};

TEST_F(RuntimeFallbackTest, TheNextOneIsTriedAndTheReasonTold) {
  fake("runc", "echo '{\"level\":\"error\",\"msg\":\"no cgroups today\"}' > $LOG; exit 1");
  const auto outcome = run("auto", "echo ran; exit 4");
  EXPECT_EQ(outcome.status, 4) << outcome.err;
  EXPECT_EQ(outcome.out, "ran\n");
  EXPECT_THAT(outcome.err, HasSubstr("runc did not start the command (no cgroups today)"));
  EXPECT_THAT(outcome.err, HasSubstr("crun did not start the command"));
  EXPECT_THAT(outcome.err, HasSubstr("bwrap did not start the command"));
}

TEST_F(RuntimeFallbackTest, ACommandThatFailsIsNotRunAgain) {
  fake("runc", "ready; exit 1");
  const auto outcome = run("auto", "echo ran");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, Not(HasSubstr("trying another")));
}

TEST_F(RuntimeFallbackTest, ARuntimeThatBlamesTheCommandIsBelieved) {
  fake("runc", "echo '{\"level\":\"error\",\"msg\":\"exec: \\\"x\\\": executable file not found in $PATH\"}' > $LOG; exit 1");
  EXPECT_EQ(run("auto", "echo ran").status, 127);
  fake("runc", "echo '{\"level\":\"error\",\"msg\":\"exec: \\\"x\\\": permission denied\"}' > $LOG; exit 1");
  EXPECT_EQ(run("auto", "echo ran").status, 126);
}

TEST_F(RuntimeFallbackTest, WhenAllFailEachReasonIsGiven) {
  fake("runc", "echo '{\"level\":\"error\",\"msg\":\"broken\"}' > $LOG; exit 1");
  const auto outcome = run("runc", "echo ran");
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.err, HasSubstr("no runtime could start the command: runc: broken"));
}

TEST_F(RuntimeFallbackTest, ARuntimeKilledInTheMiddleGivesItsSignal) {
  fake("runc", "ready; kill -9 $$");
  EXPECT_EQ(run("runc", "x").status, 128 + 9);
}

TEST_F(RuntimeFallbackTest, AWordThatIsNoRuntimeIsNamed) {
  const auto outcome = run("docker", "x");
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.err, HasSubstr("the runtime 'docker' is not known"));
}

TEST_F(RuntimeFallbackTest, TheRuntimeIsWrittenDown) {
  run("auto", "exit 0");
  const auto sessions = fuse::SessionStore(dir_ / "root").list();
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].record.runtime, "none");
}

}  // namespace
}  // namespace varve::test
