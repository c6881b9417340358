// Runtimes that fail, played by shell scripts in a PATH of the test's own.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/base/errors.h"
#include "core/base/files/unique_fd.h"
#include "fuse/session/runtimes/early_trial.h"
#include "fuse/session/session_store.h"
#include "testing/temp_dir.h"
#include "tests/run/session_process.h"
#include "tests/run/tiny_root.h"

namespace varve::test {
namespace {

using ::testing::HasSubstr;

// What a script finds: $LOG is the log file, $BUNDLE the bundle.
constexpr const char* kPrelude =
    "#!/bin/sh\n"
    "while [ $# -gt 0 ]; do case $1 in --log) LOG=${2#file:};; --bundle) BUNDLE=$2;; esac; shift; done\n"
    "ready() { fifo=$(sed -n 's/.*\"\\(\\/.*\\/ready\\)\".*/\\1/p' $BUNDLE/config.json); echo ready > $fifo; }\n"
    "refuse() { echo \"{\\\"level\\\":\\\"error\\\",\\\"msg\\\":\\\"$1\\\"}\" > $LOG; exit 1; }\n"
    "is_trial() { grep -q there-is-no-such-command $BUNDLE/config.json; }\n"
    "pass_trial() { is_trial && echo trial >> $0.trials && refuse 'exec: executable file not found in $PATH'; }\n";

class RuntimeChoiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "skipped: needs root";
    ::chmod(dir_.path().c_str(), 0755);
    make_tiny_root(dir_ / "lower");
    std::filesystem::create_directories(dir_ / "bin");
    std::filesystem::create_directories(dir_ / "root");
    ::chmod((dir_ / "root").c_str(), 0777);
    fake("runc", "refuse 'no cgroups today'");
    fake("crun", "refuse 'not today'");
  }
  void fake(const std::string& name, const std::string& script) {
    std::ofstream(dir_ / "bin" / name) << kPrelude << script << '\n';
    ::chmod((dir_ / "bin" / name).c_str(), 0755);
  }
  SessionOutcome run(const std::string& runtime, const std::string& script, uid_t uid = 0) {
    fuse::SessionRequest request;
    request.root = dir_ / "root";
    request.lower = dir_ / "lower";
    request.options.command = {"sh", "-c", script};
    request.runtime = runtime;
    const auto path = (dir_ / "bin").string() + ":/usr/bin:/bin";
    return SessionProcess(dir_.path(), request, {.uid = uid, .before = [path] { ::setenv("PATH", path.c_str(), 1); }})
        .wait();
  }
  std::size_t trials_of(const std::string& name) const {
    std::ifstream file(dir_ / "bin" / (name + ".trials"));
    return std::size_t(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
  }
  TempDir dir_;
};

TEST_F(RuntimeChoiceTest, TheFirstThatPassesItsTrialIsTakenAndTheReasonTold) {
  fake("crun", "pass_trial; ready; exit 4");
  const auto outcome = run("auto", "x");
  EXPECT_EQ(outcome.status, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[say] not using runc: no cgroups today"));
  const auto sessions = fuse::SessionStore(dir_ / "root").list();
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].record.runtime, "crun");
}

TEST_F(RuntimeChoiceTest, ATrialIsMadeOnce) {
  fake("runc", "pass_trial; ready; exit 4");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run("auto", "x").status, 4);
  EXPECT_EQ(trials_of("runc"), 1u);
  fake("runc", "pass_trial; ready; exit 5 # another program");
  EXPECT_EQ(run("auto", "x").status, 5);
  EXPECT_EQ(trials_of("runc"), 2u);
}

// With the test's own runtimes first in the PATH.
class EarlyTrialTest : public RuntimeChoiceTest {
 protected:
  void SetUp() override {
    RuntimeChoiceTest::SetUp();
    const auto* path = std::getenv("PATH");
    path_ = path == nullptr ? "" : path;
    ::setenv("PATH", ((dir_ / "bin").string() + ":" + path_).c_str(), 1);
  }
  void TearDown() override { ::setenv("PATH", path_.c_str(), 1); }
  void try_early(const std::string& runtime = "auto") {
    fuse::EarlyTrial trial(dir_ / "root", runtime);
    trial.wait(cancel_);
  }

  CancelFlag cancel_;
  std::string path_;
};

TEST_F(EarlyTrialTest, SessionsFindItsAnswer) {
  fake("runc", "pass_trial; ready; exit 4");
  try_early("crun");
  EXPECT_EQ(trials_of("runc"), 0u);
  try_early();
  EXPECT_EQ(trials_of("runc"), 1u);
  EXPECT_TRUE(fuse::SessionStore(dir_ / "root").list().empty());
  EXPECT_EQ(run("auto", "x").status, 4);
  try_early();
  EXPECT_EQ(trials_of("runc"), 1u);
}

TEST_F(EarlyTrialTest, OneAfterTheOtherIsTried) {
  fake("crun", "pass_trial; ready; exit 4");
  try_early();
  EXPECT_EQ(trials_of("crun"), 1u);
  const auto outcome = run("auto", "x");
  EXPECT_EQ(outcome.status, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[say] not using runc: no cgroups today"));
  EXPECT_EQ(trials_of("crun"), 1u);
}

TEST_F(EarlyTrialTest, WhoCancelsWaitsForNone) {
  const auto fifo = dir_ / "held";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  fake("runc", "echo on >> $0.trials; read -r line < " + fifo.string());
  {
    fuse::EarlyTrial trial(dir_ / "root", "auto");
    while (trials_of("runc") == 0) ::usleep(1000);
    cancel_.cancel();
    EXPECT_THROW(trial.wait(cancel_), Cancelled);
  }
  // Nobody holds the fifo any more: what waits in it has ended.
  while (UniqueFd(::open(fifo.c_str(), O_WRONLY | O_NONBLOCK))) ::usleep(1000);
  EXPECT_EQ(errno, ENXIO);
  fake("runc", "pass_trial; ready; exit 4");
  EXPECT_EQ(run("auto", "x").status, 4);
  EXPECT_EQ(fuse::SessionStore(dir_ / "root").list().size(), 1u);
}

TEST_F(RuntimeChoiceTest, WhatARuntimeRefusesOfAnImageNoOtherIsAskedFor) {
  fake("runc", "pass_trial; refuse 'this image is odd'");
  fake("crun", "pass_trial; ready; exit 0");
  const auto outcome = run("auto", "echo ran");
  EXPECT_EQ(outcome.status, 125);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("[failure] runc did not start the command: this image is odd"));
  EXPECT_EQ(trials_of("crun"), 0u);
}

TEST_F(RuntimeChoiceTest, AFailureIsNoReasonToKeepTheTrial) {
  fake("runc", "pass_trial; refuse 'no cgroups any more'");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(run("auto", "x").status, 125);
  EXPECT_EQ(trials_of("runc"), 2u);
}

TEST_F(RuntimeChoiceTest, RootNeverGoesWithoutARuntimeUnasked) {
  auto outcome = run("auto", "echo ran");
  EXPECT_EQ(outcome.status, 125);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("runc: no cgroups today; crun: not today"));
  EXPECT_THAT(outcome.err, HasSubstr("--runtime none"));
  outcome = run("none", "echo ran");
  EXPECT_EQ(outcome.out, "ran\n") << outcome.err;
}

TEST_F(RuntimeChoiceTest, APlainUserWithOneIdGoesWithoutARuntime) {
  if (!has_user_namespaces(kPlainUser)) GTEST_SKIP() << "skipped: plain users get no user namespaces here";
  fake("runc", "pass_trial; ready; exit 4");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_ / "lower"))
    ::lchown(entry.path().c_str(), kPlainUser, kPlainUser);
  const auto outcome = run("auto", "echo ran", kPlainUser);
  EXPECT_EQ(outcome.out, "ran\n") << outcome.err;
  EXPECT_EQ(trials_of("runc"), 0u);
}

TEST_F(RuntimeChoiceTest, ARuntimeThatBlamesTheCommandIsBelieved) {
  fake("runc", "refuse 'exec: \\\\\"x\\\\\": executable file not found in $PATH'");
  EXPECT_EQ(run("runc", "echo ran").status, 127);
  fake("runc", "refuse 'exec: \\\\\"x\\\\\": permission denied'");
  EXPECT_EQ(run("runc", "echo ran").status, 126);
}

TEST_F(RuntimeChoiceTest, ACommandThatFailsIsNotRunAgain) {
  fake("runc", "pass_trial; ready; exit 1");
  const auto outcome = run("auto", "echo ran");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
}

TEST_F(RuntimeChoiceTest, ARuntimeKilledInTheMiddleGivesItsSignal) {
  fake("runc", "ready; kill -9 $$");
  EXPECT_EQ(run("runc", "x").status, 128 + 9);
}

TEST_F(RuntimeChoiceTest, AWordThatIsNoRuntimeIsNamed) {
  for (const std::string word : {"docker", "bwrap"}) {
    const auto outcome = run(word, "x");
    EXPECT_EQ(outcome.status, 125);
    EXPECT_THAT(outcome.err,
                HasSubstr("the runtime '" + word + "' is not known: auto, runc, crun, none and nvidia are"));
  }
}

TEST_F(RuntimeChoiceTest, ARuntimeThatIsNotInstalledIsNotReplaced) {
  std::filesystem::remove(dir_ / "bin/runc");
  const auto outcome = run("nvidia", "x");
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.err, HasSubstr("nvidia cannot run this session: it is not installed"));
}

}  // namespace
}  // namespace varve::test
