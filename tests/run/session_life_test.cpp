// Sessions that are entered, ended, gone on with and held to limits: each runtime of this machine, as root and as a
// plain user.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/own_root.h"
#include "fuse/session/session_control.h"
#include "fuse/session/session_exec.h"
#include "fuse/session/session_log.h"
#include "fuse/session/signal_inbox.h"
#include "fuse/session/supervisor.h"
#include "fuse/session/user_namespace.h"
#include "tests/run/session_process.h"
#include "tests/run/shared_root_test.h"
#include "tests/run/tiny_root.h"

namespace varve::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const char* const kUntilAsked = "echo up > /share/fifo; while :; do sleep 0.01; done";

fuse::ExecRequest exec_request(std::vector<std::string> command) {
  fuse::ExecRequest request;
  request.command = std::move(command);
  return request;
}

class SessionLifeTest : public SharedRootTest<Way> {
 protected:
  static void SetUpTestSuite() {
    share([](const fs::path& shared) {
      make_tiny_root(shared / "lower0");
      fs::create_directories(shared / "lower0/var");
      fs::create_symlink("var", shared / "lower0/link");
      copy_for_plain_user(shared);
    });
  }
  void SetUp() override {
    if (const auto why = why_skipped(GetParam()); !why.empty()) GTEST_SKIP() << why;
    for (const auto* name : {"root", "share"}) fs::create_directories(dir_ / name);
    ASSERT_EQ(::mkfifo((dir_ / "share/fifo").c_str(), 0666), 0);
    ::chmod((dir_ / "share/fifo").c_str(), 0666);
    lines_ = open_file(dir_ / "share/fifo", O_RDWR | O_NONBLOCK);
    give(dir_.path(), GetParam().uid);
  }

  fuse::SessionRequest request(const std::string& script) const {
    auto request = script_request(dir_ / "root", *shared_ / ("lower" + std::to_string(GetParam().uid)), script,
                                  GetParam().runtime);
    request.name = "lab";
    request.options.volumes = {{.source = dir_ / "share", .destination = "/share", .read_only = false}};
    return request;
  }
  SessionProcess::Options options() const { return {.uid = GetParam().uid}; }
  SessionOutcome run(const fuse::SessionRequest& request) const {
    return SessionProcess(dir_.path(), request, options()).wait();
  }
  std::string next_line(SessionProcess& session) const { return test::next_line(lines_, session); }
  fuse::SessionStore store() const { return fuse::SessionStore(dir_ / "root"); }
  fuse::SessionStore::Listed lab() const { return store().find("lab").value(); }
  // The session's control groups are made by OCI runtimes that root runs.
  bool can_hold() const { return GetParam().uid == 0 && GetParam().runtime != "none"; }

  // A further command in the session named lab, run in a process of its own as its user.
  SessionOutcome exec(fuse::ExecRequest request, const std::function<void()>& before = {}) const {
    std::fflush(nullptr);
    const auto child = ::fork();
    if (child == 0) {
      ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
      ::dup2(::open((dir_ / "exec-out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
      ::dup2(::open((dir_ / "exec-err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
      ::_exit(exec_here(request, before));
    }
    SessionOutcome outcome;
    outcome.status = fuse::shell_status(fuse::wait_for(child));
    outcome.out = std::string(as_text(read_file(dir_ / "exec-out")));
    outcome.err = std::string(as_text(read_file(dir_ / "exec-err")));
    return outcome;
  }
  SessionOutcome exec(const std::string& script) const { return exec(exec_request({"sh", "-c", script})); }

  int exec_here(const fuse::ExecRequest& request, const std::function<void()>& before) const {
    try {
      if (before) before();
      if (const auto uid = GetParam().uid; uid != 0 && (::setgid(uid) != 0 || ::setuid(uid) != 0)) return 99;
      const auto result = fuse::exec_in_session(store(), lab(), request);
      if (!result.failure.empty()) std::fprintf(stderr, "[failure] %s\n", result.failure.c_str());
      std::fflush(nullptr);
      return result.exit_status;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "[thrown] %s\n", error.what());
      return 125;
    }
  }

  UniqueFd lines_;
};

TEST_P(SessionLifeTest, StopAsksFirst) {
  SessionProcess process(dir_.path(), request(std::string("trap 'exit 9' TERM; ") + kUntilAsked), options());
  ASSERT_EQ(next_line(process), "up");
  const auto running = fuse::running_sessions(store());
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].name, "lab");
  EXPECT_EQ(running[0].pid, process.supervisor());
  fuse::stop_session(store(), lab(), std::chrono::seconds(60));
  EXPECT_THAT(fuse::running_sessions(store()), IsEmpty());
  EXPECT_EQ(lab().record.exit_status, 9);
  EXPECT_EQ(process.wait().status, 9);
  fuse::stop_session(store(), lab(), milliseconds(0));  // has ended: nothing to do
}

TEST_P(SessionLifeTest, StopAsksAsTheImageWishes) {
  auto wanted = request(std::string("trap 'exit 7' INT; trap 'exit 9' TERM; ") + kUntilAsked);
  wanted.config.stop_signal = "SIGINT";
  SessionProcess process(dir_.path(), wanted, options());
  ASSERT_EQ(next_line(process), "up");
  fuse::stop_session(store(), lab(), std::chrono::seconds(60));
  EXPECT_EQ(process.wait().status, 7);
}

TEST_P(SessionLifeTest, WhatNeverStartedIsNotKept) {
  auto wanted = request("");
  wanted.options.volumes.clear();
  wanted.options.command = {"/no/such/command"};
  EXPECT_EQ(run(wanted).status, 127);
  EXPECT_THAT(store().list(), IsEmpty());
  ASSERT_EQ(run(request("echo mine > /etc/mine")).status, 0);
  wanted.again = lab().record.id;  // what is kept stays, whatever is tried with it
  EXPECT_EQ(run(wanted).status, 127);
  EXPECT_EQ(as_text(read_file(lab().folder.upper() / "etc/mine")), "mine\n");
}

TEST_P(SessionLifeTest, StopKillsWhoDoesNotGo) {
  SessionProcess process(dir_.path(), request(std::string("trap '' TERM; ") + kUntilAsked), options());
  ASSERT_EQ(next_line(process), "up");
  fuse::stop_session(store(), lab(), milliseconds(100));
  EXPECT_FALSE(lab().running);
  EXPECT_FALSE(lab().record.exit_status);
  EXPECT_EQ(process.wait().status, 128 + 9);
  EXPECT_THAT(std::string(as_text(read_file("/proc/self/mounts"))), Not(HasSubstr(dir_.path().string())));
}

TEST_P(SessionLifeTest, AKeptSessionGoesOnWithItsFiles) {
  ASSERT_EQ(run(request("echo mine > /etc/mine; chmod 711 /; ls / > /dev/null; exit 3")).status, 3);
  auto again = request("cat /etc/mine /etc/shared; echo more >> /etc/mine; ls -ld /");
  again.again = lab().record.id;
  const auto outcome = run(again);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("mine\nof the image\n"));
  EXPECT_THAT(outcome.out, HasSubstr("drwx--x--x"));
  ASSERT_EQ(store().list().size(), 1u);
  EXPECT_EQ(lab().record.exit_status, 0);
  EXPECT_GE(lab().record.started_seconds, lab().record.created_seconds);
}

TEST_P(SessionLifeTest, ASessionThatWasKilledWithAllThatHeldItGoesOn) {
  {
    SessionProcess process(dir_.path(), request(std::string("echo mine > /etc/mine; ") + kUntilAsked), options());
    ASSERT_EQ(next_line(process), "up");
    ::kill(process.pid(), SIGSTOP);  // it shall not tidy up
    ::kill(process.supervisor(), SIGKILL);
    ::kill(process.pid(), SIGKILL);
  }
  fuse::stop_session(store(), lab(), milliseconds(0));
  EXPECT_FALSE(lab().running);
  EXPECT_FALSE(lab().supervisor);
  auto again = request("cat /etc/mine");
  again.again = lab().record.id;
  EXPECT_EQ(run(again).out, "mine\n");
}

// At any moment of its start: nothing of it runs on, so that its image can be unmounted.
TEST_P(SessionLifeTest, ASessionWhoseStarterIsKilledEnds) {
  for (int moment = 0; moment < 24; ++moment) {
    auto wanted = request("exec sleep 1000");
    wanted.name = "lab" + std::to_string(moment);
    {
      SessionProcess process(dir_.path(), wanted, options());
      ::usleep(useconds_t(moment) * 6'000);
      ::kill(process.pid(), SIGKILL);
      process.wait();
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::ranges::any_of(store().list(), &fuse::SessionStore::Listed::running)) {
      ASSERT_LT(std::chrono::steady_clock::now(), limit) << "killed after " << 6 * moment << " ms";
      ::usleep(5'000);
    }
  }
}

TEST_P(SessionLifeTest, ASessionThatRunsIsNotStartedTwice) {
  SessionProcess process(dir_.path(), request(kUntilAsked), options());
  ASSERT_EQ(next_line(process), "up");
  auto again = request("echo twice");
  again.again = lab().record.id;
  const auto outcome = run(again);
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.err, HasSubstr("the session lab is running"));
  EXPECT_TRUE(lab().running);
  fuse::stop_session(store(), lab(), milliseconds(0));
}

TEST_P(SessionLifeTest, AFurtherCommandIsInTheSameSession) {
  if (GetParam().runtime != "none" && !fuse::path_of_own_root().empty())
    GTEST_SKIP() << "skipped: runtimes enter no session in a chroot";
  auto wanted = request(
      "for n in mnt pid ipc uts net user; do ls -l /proc/self/ns/$n; done > /share/first; rights() { while read "
      "name value; do case $name in Cap*|Seccomp:|NoNewPrivs:|Uid:|Gid:) echo $name $value;; esac; done; }; rights < "
      "/proc/self/status > /share/caps; echo of the layer > /etc/mine; " +
      std::string(kUntilAsked));
  wanted.options.env = {"MINE=1"};
  wanted.options.working_dir = "/tmp";
  SessionProcess process(dir_.path(), wanted, options());
  ASSERT_EQ(next_line(process), "up");
  const auto text = [&](const char* name) { return std::string(as_text(read_file(dir_ / name))); };
  const auto names = [](const std::string& listing) {
    std::string names;
    for (auto at = listing.find("-> "); at != listing.npos; at = listing.find("-> ", at + 1))
      names += listing.substr(at + 3, listing.find('\n', at) - at - 3) + "\n";
    return names;
  };
  auto outcome = exec("for n in mnt pid ipc uts net user; do ls -l /proc/self/ns/$n; done");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(names(outcome.out), names(text("share/first")));
  outcome = exec(
      "while read name value; do case $name in Cap*|Seccomp:|NoNewPrivs:|Uid:|Gid:) echo $name $value;; esac; done < "
      "/proc/self/status");
  EXPECT_EQ(outcome.out, text("share/caps")) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Seccomp: 2\n"));
  EXPECT_EQ(exec("cat /etc/mine; echo $MINE; echo $PWD; exit 7").out, "of the layer\n1\n/tmp\n");
  EXPECT_EQ(exec("exit 7").status, 7);
  auto elsewhere = exec_request({"sh", "-c", "echo $MINE $MORE; pwd"});
  elsewhere.env = {"MINE=2", "MORE=3"};
  elsewhere.working_dir = "/etc";
  EXPECT_EQ(exec(elsewhere).out, "2 3\n/etc\n");
  outcome = exec(exec_request({"/no/such/command"}));
  EXPECT_EQ(outcome.status, 127) << outcome.err;
  EXPECT_TRUE(lab().running);
  fuse::stop_session(store(), lab(), milliseconds(0));
  EXPECT_EQ(exec("true").status, 125);
}

TEST_P(SessionLifeTest, AFurtherCommandGetsNothingOfItsCallers) {
  if (GetParam().runtime != "none" && !fuse::path_of_own_root().empty())
    GTEST_SKIP() << "skipped: runtimes enter no session in a chroot";
  SessionProcess process(dir_.path(), request(kUntilAsked), options());
  ASSERT_EQ(next_line(process), "up");
  ::setenv("OF_THE_CALLER", "secret", 1);
  const auto outcome =
      exec(exec_request({"sh", "-c", "ls -l /proc/self/fd; cat <&9; cat /proc/*/environ; echo $OF_THE_CALLER"}),
           [] { ::dup2(::open("/etc/shadow", O_RDONLY), 9); });
  ::unsetenv("OF_THE_CALLER");
  EXPECT_THAT(outcome.out, Not(HasSubstr("shadow")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("secret")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("root:")));
  EXPECT_THAT(outcome.out, HasSubstr(" 0 -> "));
  EXPECT_THAT(outcome.out, Not(HasSubstr(" 9 -> ")));
  fuse::stop_session(store(), lab(), milliseconds(0));
}

TEST_P(SessionLifeTest, AFurtherCommandRunsAsTheUserThatIsWished) {
  if (GetParam().runtime != "none" && !fuse::path_of_own_root().empty())
    GTEST_SKIP() << "skipped: runtimes enter no session in a chroot";
  SessionProcess process(dir_.path(), request(kUntilAsked), options());
  ASSERT_EQ(next_line(process), "up");
  auto wished = exec_request({"sh", "-c", "id -u; echo $HOME"});
  wished.user = "nb";
  const auto outcome = exec(wished);
  if (GetParam().uid == 0) {
    EXPECT_EQ(outcome.out, "1000\n/home/nb\n") << outcome.err;
  } else {
    EXPECT_EQ(outcome.status == 0, outcome.out == "1000\n/home/nb\n") << outcome.err;
  }
  wished.user = "nobody-of-that-name";
  EXPECT_EQ(exec(wished).status, 125);
  fuse::stop_session(store(), lab(), milliseconds(0));
}

TEST_P(SessionLifeTest, WhatADetachedSessionSaysIsInItsLog) {
  auto wanted = request("echo out; echo err >&2; cat; exit 4");
  wanted.detached = true;
  const auto outcome = run(wanted);
  EXPECT_EQ(outcome.status, 4) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  std::string shown;
  fuse::read_log(lab().folder, {.follow = false, .running = {}, .show = [&](std::string_view text) { shown += text; }},
                 CancelFlag());
  // Runtimes copy both each for itself.
  EXPECT_TRUE(shown == "out\nerr\n" || shown == "err\nout\n") << shown;
  struct stat status {};
  ASSERT_EQ(::stat(lab().folder.output().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_P(SessionLifeTest, LimitsHoldOrTheRunEnds) {
  auto wanted = request(
      "cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null; cat "
      "/sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; cat "
      "/sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null; true");
  wanted.options.limits = {.memory_bytes = 64 << 20, .cpus = 0.5, .pids = 12, .must_hold = true};
  const auto why_not = fuse::why_not_held(wanted.options.limits, GetParam().runtime, GetParam().uid == 0);
  if (can_hold() && !why_not.empty()) GTEST_SKIP() << "skipped: " << why_not;
  auto outcome = run(wanted);
  if (can_hold()) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("12\n67108864\n"));
    wanted = request("i=0; while [ $i -lt 20 ]; do sleep 5 & i=$((i + 1)); done; echo all");
    wanted.name = "crowd";
    wanted.options.limits = {.memory_bytes = 0, .cpus = 0, .pids = 12, .must_hold = true};
    outcome = run(wanted);
    EXPECT_THAT(outcome.out, Not(HasSubstr("all"))) << outcome.err;
    return;
  }
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.err, HasSubstr("[failure] --memory: "));
  EXPECT_THAT(outcome.err, HasSubstr("--limits best-effort"));
  EXPECT_THAT(store().list(), IsEmpty());  // its name is free for who asks for less
  wanted.options.limits.must_hold = false;
  outcome = run(wanted);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[say] without limits: --memory: "));
}

TEST_P(SessionLifeTest, MountsNameAndRootAreAsWished) {
  auto wanted = request(
      "hostname; cat /etc/hostname; ls -ld /var/scratch; echo x > /var/scratch/file && echo written; "
      "echo x > /etc/mine "
      "|| echo closed; echo x > /share/mine && echo open; while read d m t o r; do case $m in "
      "/var/scratch|/dev/shm) echo $m "
      "$o;; esac; done < /proc/mounts");
  wanted.options.hostname = "lab.example";
  wanted.options.tmpfs = {fuse::Tmpfs::parse("/link/scratch:size=1m,mode=750")};
  wanted.options.shm_bytes = 2 << 20;
  wanted.options.read_only = true;
  const auto outcome = run(wanted);
  EXPECT_THAT(outcome.out, HasSubstr("lab.example\nlab.example\n")) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("drwxr-x---"));
  EXPECT_THAT(outcome.out, HasSubstr("written\n"));
  EXPECT_THAT(outcome.out, HasSubstr("closed\n"));
  EXPECT_THAT(outcome.out, HasSubstr("open\n"));
  EXPECT_THAT(outcome.out, HasSubstr("size=1024k"));
  EXPECT_THAT(outcome.out, HasSubstr("size=2048k"));
}

// Its starter was killed before it said that the session may begin.
TEST(UnstartedSessionTest, NothingIsLeftOfANewOne) {
  const TempDir dir;
  fuse::SessionStore store(dir / "root");
  auto session = store.create({.name = "lab", .image = "", .image_digest = "", .command = {"sh"}, .ids = {}});
  fuse::SupervisorJob job;
  job.store = &store;
  job.session = &session;
  session.is_new = false;  // kept, and to go on: it has files
  fuse::forget_unstarted(job);
  EXPECT_EQ(store.list().size(), 1u);
  session.is_new = true;
  fuse::forget_unstarted(job);
  EXPECT_TRUE(store.list().empty());
}

INSTANTIATE_TEST_SUITE_P(Runtimes, SessionLifeTest,
                         ::testing::Values(Way{"runc", 0}, Way{"crun", 0}, Way{"none", 0}, Way{"runc", kPlainUser},
                                           Way{"none", kPlainUser}),
                         [](const auto& info) {
                           return info.param.runtime + (info.param.uid == 0 ? "_as_root" : "_as_plain_user");
                         });

TEST(SessionLogTest, KeepsTheLastOfWhatWasSaid) {
  TempDir dir;
  const fuse::SessionFolder folder{dir.path()};
  fuse::SessionLog log(folder, 1000);
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    const auto line = "line " + std::to_string(i) + "\n";
    log.write(as_bytes(line));
    all += line;
  }
  EXPECT_LE(fs::file_size(folder.output()) + fs::file_size(folder.earlier_output()), 2000u);
  std::string shown;
  fuse::read_log(folder, {.follow = false, .running = {}, .show = [&](std::string_view text) { shown += text; }},
                 CancelFlag());
  EXPECT_GT(shown.size(), 1000u);
  EXPECT_TRUE(all.ends_with(shown));
  EXPECT_THROW(fuse::read_log({dir / "none"}, {.follow = false, .running = {}, .show = {}}, CancelFlag()), NotFound);
}

TEST(SessionLogTest, ItsLastLinesMayLieInBothFiles) {
  TempDir dir;
  const fuse::SessionFolder folder{dir.path()};
  const auto last = [&](std::uint64_t lines) {
    std::string shown;
    fuse::read_log(
        folder,
        {.follow = false, .last_lines = lines, .running = {}, .show = [&](std::string_view text) { shown += text; }},
        CancelFlag());
    return shown;
  };
  fuse::SessionLog log(folder, 8);
  log.write(as_bytes(std::string("a\nb\n")));
  EXPECT_EQ(last(0), "");
  EXPECT_EQ(last(1), "b\n");
  EXPECT_EQ(last(9), "a\nb\n");
  log.write(as_bytes(std::string("c\nd")));
  log.write(as_bytes(std::string("d\ne")));
  ASSERT_TRUE(fs::exists(folder.earlier_output()));
  EXPECT_EQ(last(0), "");
  EXPECT_EQ(last(1), "e");
  EXPECT_EQ(last(2), "dd\ne");
  EXPECT_EQ(last(3), "c\ndd\ne");
  EXPECT_EQ(last(100), "a\nb\nc\ndd\ne");
}

TEST(StopSignalTest, IsOneThatSessionsAreSent) {
  EXPECT_EQ(fuse::find_signal("SIGINT"), SIGINT);
  EXPECT_EQ(fuse::find_signal("QUIT"), SIGQUIT);
  EXPECT_EQ(fuse::find_signal("10"), SIGUSR1);
  EXPECT_EQ(fuse::find_signal("SIGRTMIN+3"), SIGRTMIN + 3);
  EXPECT_EQ(fuse::find_signal("KILL"), SIGKILL);
  for (const auto* none : {"", "SIG", "SIGSEGV", "0", "-1", "15x", "SIGRTMIN+", "RTMIN+99", "RTMAX--1", "sigint"})
    EXPECT_EQ(fuse::find_signal(none), std::nullopt) << none;
}

TEST(SessionLogTest, AFollowerSeesAllThatIsSaidWhileTheLogIsBegunAnew) {
  TempDir dir;
  const fuse::SessionFolder folder{dir.path()};
  fuse::SessionLog log(folder, 30);
  log.write(as_bytes(std::string("0 ")));
  std::string all = "0 ";
  std::string shown;
  int said = 0;
  fuse::read_log(folder,
                 {.follow = true,
                  .running =
                      [&] {
                        if (++said > 12) return false;
                        const auto word = "word-" + std::to_string(said) + " ";
                        log.write(as_bytes(word));
                        all += word;
                        return true;
                      },
                  .show = [&](std::string_view text) { shown += text; }},
                 CancelFlag());
  EXPECT_EQ(shown, all);
}

}  // namespace
}  // namespace varve::test
