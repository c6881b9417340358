// Sessions for real: each runtime of this machine, as root and as a plain user, over a small root folder.
#include <fcntl.h>
#include <poll.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/session_store.h"
#include "fuse/session/user_namespace.h"
#include "tests/run/session_process.h"
#include "tests/run/shared_root_test.h"
#include "tests/run/tiny_root.h"

namespace varve::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

std::string name_of(const Way& way) { return way.runtime + (way.uid == 0 ? "_as_root" : "_as_plain_user"); }

std::string text_of(const fs::path& file) { return std::string(as_text(read_file(file))); }

class SessionRunTest : public SharedRootTest<Way> {
 protected:
  static void SetUpTestSuite() {
    share([](const fs::path& shared) {
      make_tiny_root(shared / "lower0");
      std::ofstream(shared / "lower0/etc/motd") << "of the image\n";
      copy_for_plain_user(shared);
    });
  }

  void SetUp() override {
    if (const auto why = why_skipped(GetParam()); !why.empty()) GTEST_SKIP() << why;
    fs::create_directories(dir_ / "root");
    fs::create_directories(dir_ / "share");
    ASSERT_EQ(::mkfifo((dir_ / "share/fifo").c_str(), 0666), 0);
    ASSERT_EQ(::mkfifo((dir_ / "share/go").c_str(), 0666), 0);
    lines_ = open_file(dir_ / "share/fifo", O_RDWR | O_NONBLOCK);  // for writing too, so that it never reads as ended
    give(dir_.path(), GetParam().uid);
  }

  // The command is a shell script; /share is a volume.
  fuse::SessionRequest request(const std::string& script) const {
    auto request = script_request(dir_ / "root", lower(), script, GetParam().runtime);
    request.options.volumes = {{.source = dir_ / "share", .destination = "/share", .read_only = false}};
    return request;
  }
  SessionProcess::Options options() const { return {.uid = GetParam().uid}; }
  SessionOutcome run(const fuse::SessionRequest& request) const {
    return SessionProcess(dir_.path(), request, options()).wait();
  }
  SessionOutcome run(const std::string& script) const { return run(request(script)); }
  fs::path lower() const { return *shared_ / ("lower" + std::to_string(GetParam().uid)); }

  // Waits until the session's script writes a line to /share/fifo.
  std::string next_line(SessionProcess& session) const { return test::next_line(lines_, session); }
  fuse::SessionStore store() const { return fuse::SessionStore(dir_ / "root"); }
  // Returns when no process of the session is left that would clean up.
  static void wait_for_lock(const UniqueFd& lock) {
    ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
    ::flock(lock.get(), LOCK_UN);
  }

  // Sessions that were removed are known by what the test noted; kept ones by their folders.
  std::vector<std::string> ids_seen() const {
    auto ids = noted_ids_;
    for (const auto& session : store().list()) ids.push_back(session.record.id);
    return ids;
  }
  void expect_nothing_left() const {
    EXPECT_THAT(text_of("/proc/self/mounts"), Not(HasSubstr(dir_.path().string())));
    for (const auto& controller : fs::directory_iterator("/sys/fs/cgroup")) {
      if (!controller.is_directory()) continue;
      for (const auto& session : ids_seen())
        EXPECT_FALSE(fs::exists(controller.path() / ("varve-" + session)))
            << "a cgroup is left in " << controller.path();
    }
  }

  UniqueFd lines_;
  std::vector<std::string> noted_ids_;
};

TEST_P(SessionRunTest, WithoutNetworkThereIsOnlyALoopback) {
  auto without = request(
      "while read name rest; do case $name in *:*) echo device $name;; esac; done < /proc/net/dev; cat "
      "/proc/net/fib_trie; ls /etc/resolv.conf");
  without.options.network = false;
  const auto outcome = run(without);
  EXPECT_THAT(outcome.out, ::testing::StartsWith("device lo:"));
  EXPECT_EQ(outcome.out.find("device", 1), std::string::npos) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("127.0.0.1"));  // no address is local before the device is up
  EXPECT_NE(outcome.status, 0) << "names of a network that is not there";
}

TEST_P(SessionRunTest, TheStatusAndTheOutputAreTheCommands) {
  const auto outcome = run("echo out; echo err >&2; exit 7");
  EXPECT_EQ(outcome.status, 7) << outcome.err;
  EXPECT_EQ(outcome.out, "out\n");
  EXPECT_THAT(outcome.err, HasSubstr("[ready]\n"));
  EXPECT_THAT(outcome.err, HasSubstr("err\n"));
  expect_nothing_left();
}

TEST_P(SessionRunTest, ACommandThatASignalEndsGivesItsNumber) { EXPECT_EQ(run("kill -9 $$").status, 128 + 9); }

TEST_P(SessionRunTest, TheCommandFindsWhatTheImageSays) {
  auto wanted = request("echo $PWD $HOME $A $B; id -u; hostname; cat /etc/shared");
  wanted.config.env = {"A=image", "B=image"};
  wanted.config.working_dir = "/made/for/this";
  wanted.options.env = {"B=user"};
  const auto outcome = run(wanted);
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  EXPECT_EQ(outcome.out, "/made/for/this /root image user\n0\n" + std::string(host) + "\nof the image\n")
      << outcome.err;
}

TEST_P(SessionRunTest, TheUserIsLookedUpInTheImage) {
  if (GetParam().runtime != "none" && GetParam().uid != 0) GTEST_SKIP() << "skipped: one id is mapped";
  auto wanted = request("id -u; id -g; echo $HOME; touch /tmp/mine && echo written; touch /etc/shared && echo bad");
  wanted.config.user = "nb";
  const auto outcome = run(wanted);
  // A plain user's one id is shown under the image's number, so root's files are then his too.
  EXPECT_THAT(outcome.out, HasSubstr("1000\n100\n/home/nb\nwritten\n")) << outcome.err;
  if (GetParam().uid == 0) {
    EXPECT_THAT(outcome.out, Not(HasSubstr("bad")));
  }
}

TEST_P(SessionRunTest, WritesStayInTheSession) {
  const auto before = text_of(lower() / "etc/shared");
  auto wanted = request("echo mine > /etc/shared; rm /etc/group; mkdir /new; echo x > /new/file; cat /etc/shared");
  wanted.name = "kept";
  EXPECT_EQ(run(wanted).out, "mine\n");
  EXPECT_EQ(text_of(lower() / "etc/shared"), before);
  EXPECT_TRUE(fs::exists(lower() / "etc/group"));
  EXPECT_FALSE(fs::exists(lower() / "new"));
  const auto session = store().find("kept");
  ASSERT_TRUE(session.has_value());
  EXPECT_EQ(session->record.exit_status, 0);
  EXPECT_EQ(session->record.runtime, GetParam().runtime);
  EXPECT_GT(session->record.upper_bytes, 0u);
  EXPECT_EQ(text_of(session->folder.upper() / "etc/shared"), "mine\n");
  EXPECT_FALSE(fs::exists(session->folder.bundle()));
  store().remove(*session);
  EXPECT_TRUE(store().list().empty());
}

TEST_P(SessionRunTest, TwoSessionsOfOneImageNeverSeeEachOthersWrites) {
  // Each writes, says so, waits until both have, and then looks.
  const std::string script =
      "echo $WHO > /etc/shared; touch /etc/by-$WHO; echo $WHO > /share/fifo; read go < /share/go; cat /etc/shared; "
      "ls /etc";
  auto first_request = request(script);
  auto second_request = first_request;
  first_request.options.env = {"WHO=first"};
  second_request.options.env = {"WHO=second"};
  SessionProcess first(dir_.path(), first_request, options());
  ASSERT_EQ(next_line(first), "first");
  SessionProcess second(dir_.path(), second_request, options());
  ASSERT_EQ(next_line(second), "second");
  EXPECT_EQ(store().list().size(), 2u);
  const UniqueFd go(::open((dir_ / "share/go").c_str(), O_RDWR | O_CLOEXEC));  // one line for each reader
  write_all(go.get(), as_bytes("go\ngo\n"), "go");
  const auto a = first.wait();
  const auto b = second.wait();
  EXPECT_THAT(a.out, ::testing::StartsWith("first\n")) << a.err;
  EXPECT_THAT(a.out, HasSubstr("by-first"));
  EXPECT_THAT(a.out, Not(HasSubstr("by-second")));
  EXPECT_THAT(b.out, ::testing::StartsWith("second\n")) << b.err;
  EXPECT_THAT(b.out, Not(HasSubstr("by-first")));
  EXPECT_EQ(text_of(lower() / "etc/shared"), "of the image\n");
}

TEST_P(SessionRunTest, TheImagesTreeCannotBeReachedFromInside) {
  // Not through the overlay's lower folder, not through process 1, and not by making /proc/sys or /sys writable.
  const auto outcome = run(
      "ls -d " + lower().string() + " 2>/dev/null; ls /proc/1/root/" + lower().string() +
      " 2>/dev/null; echo x > /proc/sys/kernel/domainname; echo x > /sys/kernel/uevent_seqnum; touch /sys/x; echo end");
  EXPECT_EQ(outcome.out, "end\n") << outcome.err;
}

TEST_P(SessionRunTest, AReadOnlyVolumeIsReadOnly) {
  auto wanted = request("cat /data/file; echo x > /data/file || echo refused; echo y > /share/new && cat /share/new");
  fs::create_directories(dir_ / "data");
  std::ofstream(dir_ / "data/file") << "kept\n";
  give(dir_ / "data", GetParam().uid);
  wanted.options.volumes.push_back({.source = dir_ / "data", .destination = "/data", .read_only = true});
  EXPECT_EQ(run(wanted).out, "kept\nrefused\ny\n");
  EXPECT_EQ(text_of(dir_ / "share/new"), "y\n");
  EXPECT_EQ(text_of(dir_ / "data/file"), "kept\n");
}

TEST_P(SessionRunTest, AVolumeMayBeAFile) {
  auto wanted = request("cat /opt/settings/file");
  std::ofstream(dir_ / "file") << "a file\n";
  wanted.options.volumes.push_back({.source = dir_ / "file", .destination = "/opt/settings/file", .read_only = false});
  EXPECT_EQ(run(wanted).out, "a file\n");
}

TEST_P(SessionRunTest, SignalsReachTheCommand) {
  SessionProcess process(
      dir_.path(), request("trap 'exit 42' TERM; echo up > /share/fifo; while :; do sleep 0.01; done"), options());
  ASSERT_EQ(next_line(process), "up");
  ::kill(process.pid(), SIGTERM);
  EXPECT_EQ(process.wait().status, 42);
  expect_nothing_left();
}

TEST_P(SessionRunTest, ASignalWithoutAHandlerEndsTheCommand) {
  SessionProcess process(dir_.path(), request("echo up > /share/fifo; exec sleep 1000"), options());
  ASSERT_EQ(next_line(process), "up");
  ::kill(process.pid(), SIGINT);
  EXPECT_EQ(process.wait().status, 128 + SIGINT);
}

TEST_P(SessionRunTest, NothingIsLeftWhenTheProgramIsKilled) {
  auto wanted = request("sleep 1000 & echo up > /share/fifo; exec sleep 1000 9> /share/go");
  wanted.remove_at_exit = true;
  SessionProcess process(dir_.path(), wanted, options());
  // Held open by the session's processes alone: it reads as ended when the last of them is gone.
  const UniqueFd alive(::open((dir_ / "share/go").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_EQ(next_line(process), "up");
  const auto sessions = store().list();
  ASSERT_EQ(sessions.size(), 1u);
  noted_ids_.push_back(sessions[0].record.id);
  const auto lock = open_file(sessions[0].folder.lock(), O_RDWR);
  ::kill(process.pid(), SIGKILL);
  EXPECT_EQ(process.wait().status, 128 + SIGKILL);
  wait_for_lock(lock);
  char byte = 0;
  EXPECT_EQ(::read(alive.get(), &byte, 1), 0) << "a process of the session is still there";
  EXPECT_FALSE(fs::exists(sessions[0].folder.dir));
  expect_nothing_left();
}

TEST_P(SessionRunTest, TheNextRunSweepsUpAfterASessionWhoseSupervisorWasKilledToo) {
  auto wanted = request("echo x > /new; echo up > /share/fifo; exec sleep 1000");
  wanted.remove_at_exit = true;
  SessionProcess process(dir_.path(), wanted, options());
  ASSERT_EQ(next_line(process), "up");
  const auto sessions = store().list();
  ASSERT_EQ(sessions.size(), 1u);
  noted_ids_.push_back(sessions[0].record.id);
  const auto lock = open_file(sessions[0].folder.lock(), O_RDWR);
  const auto supervisor = process.supervisor();
  ASSERT_GT(supervisor, 0);
  ::kill(process.pid(), SIGSTOP);  // so that it cannot clean up either
  ::kill(supervisor, SIGKILL);
  ::kill(process.pid(), SIGKILL);
  process.wait();
  wait_for_lock(lock);
  EXPECT_TRUE(fs::exists(sessions[0].folder.dir));
  EXPECT_EQ(run("exit 0").status, 0);
  EXPECT_FALSE(fs::exists(sessions[0].folder.dir));
  expect_nothing_left();
}

TEST_P(SessionRunTest, OrphansOfTheCommandEndWithIt) {
  const UniqueFd alive(::open((dir_ / "share/go").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto outcome = run("(sleep 1000 9> /share/go &) ; exit 3");
  EXPECT_EQ(outcome.status, 3);
  char byte = 0;
  EXPECT_EQ(::read(alive.get(), &byte, 1), 0);
}

TEST_P(SessionRunTest, RemovedAtTheEndIfWanted) {
  auto wanted = request("echo x > /new");
  wanted.remove_at_exit = true;
  EXPECT_EQ(run(wanted).status, 0);
  EXPECT_TRUE(store().list().empty());
  for (const auto& entry : fs::directory_iterator(dir_ / "root/sessions")) EXPECT_EQ(entry.path().filename(), ".lock");
}

TEST_P(SessionRunTest, ACommandThatIsNotThereIs127AndOneThatMayNotRunIs126) {
  for (const bool with_volume : {false, true}) {  // a volume might hold the command, so the runtime is asked
    auto missing = request("");
    auto forbidden = request("");
    missing.options.command = {"no-such-command"};
    forbidden.options.command = {"/etc/passwd"};
    if (!with_volume) missing.options.volumes = forbidden.options.volumes = {};
    EXPECT_EQ(run(missing).status, 127) << with_volume;
    EXPECT_EQ(run(forbidden).status, 126) << with_volume;
  }
}

TEST_P(SessionRunTest, FailuresOfOurOwnAre125AndNamed) {
  auto nobody = request("true");
  nobody.config.user = "nobody-here";
  auto outcome = run(nobody);
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.err, HasSubstr("no user 'nobody-here'"));
  auto nowhere = request("true");
  nowhere.lower = dir_ / "nowhere";
  outcome = run(nowhere);
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.err, HasSubstr("nowhere"));
  expect_nothing_left();
}

// What was told, a line each, after the session's own errors.
fuse::AccessWatch::Tell print_access() {
  return [](const std::string& path, bool executed) {
    std::fprintf(stderr, "[%s] %s\n", executed ? "exec" : "open", path.c_str());
    return true;
  };
}

int count_of(const std::string& text, const std::string& line) {
  int count = 0;
  for (auto at = text.find(line + "\n"); at != text.npos; at = text.find(line + "\n", at + 1)) ++count;
  return count;
}

TEST_P(SessionRunTest, FilesOfTheImageThatAreOpenedOrExecutedAreToldOnce) {
  auto wanted = request(
      "cat /etc/motd /etc/motd >/dev/null; cat /etc/motd >/dev/null; echo own >/own; cat /own; "
      "cp /etc/passwd /tmp/copy; echo more >>/tmp/copy; mv /tmp/copy /etc/passwd; cat /etc/passwd >/share/seen");
  wanted.on_access = print_access();
  const auto outcome = run(wanted);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  if (GetParam().uid != 0) {
    EXPECT_THAT(outcome.err, HasSubstr("[unwatched] ask the kernel for file accesses"));
    return;
  }
  const auto cat = fs::relative(fs::canonical(lower() / "bin/cat"), lower()).string();
  EXPECT_EQ(count_of(outcome.err, "[exec] " + cat), 1) << outcome.err;
  EXPECT_EQ(count_of(outcome.err, "[open] etc/motd"), 1) << outcome.err;
  EXPECT_EQ(count_of(outcome.err, "[open] etc/passwd"), 1)
      << "copied from; its replacement is the session's: " << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("] own\n")));
  EXPECT_THAT(outcome.err, Not(HasSubstr(dir_.path().string()))) << "paths are the session's, not the machine's";
  EXPECT_THAT(outcome.err, Not(HasSubstr("share/seen"))) << "a volume is not the image";
  expect_nothing_left();
}

TEST_P(SessionRunTest, AFileThatReplacesOneOfTheImageIsNotTheImages) {
  auto wanted = request("rm /etc/motd; echo other >/etc/motd; cat /etc/motd");
  wanted.on_access = print_access();
  const auto outcome = run(wanted);
  EXPECT_EQ(outcome.out, "other\n");
  EXPECT_EQ(count_of(outcome.err, "[open] etc/motd"), 0) << outcome.err;
}

TEST_P(SessionRunTest, WhoHeardEnoughIsToldNoMore) {
  if (GetParam().uid != 0) GTEST_SKIP() << "skipped: only root watches";
  auto wanted = request("for i in 1 2 3 4 5 6 7 8 9; do cat /etc/group /etc/passwd; done");
  wanted.on_access = [](const std::string&, bool) {
    std::fprintf(stderr, "[told]\n");
    return false;
  };
  const auto outcome = run(wanted);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(count_of(outcome.err, "[told]"), 1);
}

TEST_P(SessionRunTest, WhatIsAddedToASessionNeverKeepsItFromRunning) {
  fs::create_directories(dir_ / "added");
  std::ofstream(dir_ / "added/word") << "added\n";
  give(dir_.path(), GetParam().uid);
  auto wanted = request("cat /run/added/word; test ! -e /share/in-the-way && touch /run/added/word || echo read-only");
  wanted.own_volumes = {{.source = dir_ / "added", .destination = "/run/added", .read_only = true},
                        {.source = dir_ / "added/word", .destination = "/share/in-the-way", .read_only = true}};
  const auto outcome = run(wanted);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "added\nread-only\n");
  EXPECT_THAT(outcome.err,
              HasSubstr("[say] /share/in-the-way is not mounted in the session: another mount is in the way"));
  EXPECT_FALSE(fs::exists(dir_ / "share/in-the-way")) << "nothing is made in the user's volume";
}

TEST_P(SessionRunTest, TheEndIsToldWhenTheLastProcessIsGoneWithRightsOverItsFiles) {
  auto wanted = request("chown 1000:100 /share/of-user 2>/dev/null; (sleep 1000 &) ; echo done");
  std::ofstream(dir_ / "share/of-user") << "secret";
  give(dir_ / "share", GetParam().uid);
  const auto file = dir_ / "share/of-user";
  wanted.at_end = [file] {
    if (::lchown(file.c_str(), 0, 0) == 0) std::ofstream(file.string() + ".mine") << "yes";
  };
  EXPECT_EQ(run(wanted).out, "done\n");
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, GetParam().uid);
  EXPECT_TRUE(fs::exists(file.string() + ".mine"));
}

TEST_P(SessionRunTest, ATerminalIsPassedThrough) {
  auto wanted = request("tty; stty size; read line; echo got $line; read line; exit 5");
  wanted.terminal = true;
  auto how = options();
  how.terminal = true;
  SessionProcess process(dir_.path(), wanted, how);
  process.type("hello\n");
  process.wait_to_see("got hello");
  process.type("\n");
  const auto outcome = process.wait();
  EXPECT_EQ(outcome.status, 5) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("got hello"));
  EXPECT_THAT(outcome.out, ::testing::ContainsRegex("/dev/(pts/[0-9]+|console)\r"));
  EXPECT_THAT(outcome.out, HasSubstr("0 0"));
}

TEST_P(SessionRunTest, TheInterruptKeyEndsTheCommand) {
  auto wanted = request("echo up > /share/fifo; exec sleep 1000");
  wanted.terminal = true;
  auto how = options();
  how.terminal = true;
  SessionProcess process(dir_.path(), wanted, how);
  ASSERT_EQ(next_line(process), "up");
  process.press('\x03');
  EXPECT_EQ(process.wait().status, 128 + SIGINT);
  expect_nothing_left();
}

TEST_P(SessionRunTest, ATerminalThatIsGoneEndsTheCommand) {
  auto wanted = request("echo up > /share/fifo; sleep 1000");
  wanted.terminal = true;
  auto how = options();
  how.terminal = true;
  SessionProcess process(dir_.path(), wanted, how);
  ASSERT_EQ(next_line(process), "up");
  process.hang_up();
  EXPECT_NE(process.wait().status, 0);  // crun tells its own of the lost terminal
  for (const auto& session : store().list()) EXPECT_FALSE(session.running);
}

TEST_P(SessionRunTest, TheTerminalGrowsWithTheCallers) {
  if (GetParam().runtime == "crun") GTEST_SKIP() << "skipped: crun misses a change while it starts";
  auto wanted = request("echo up > /share/fifo; until [ \"$(stty size)\" = '40 101' ]; do sleep 0.05; done; exit 3");
  wanted.terminal = true;
  auto how = options();
  how.terminal = true;
  SessionProcess process(dir_.path(), wanted, how);
  ASSERT_EQ(next_line(process), "up");
  process.resize(40, 101);
  const auto outcome = process.wait();
  EXPECT_EQ(outcome.status, 3) << outcome.out << outcome.err;
}

TEST_P(SessionRunTest, AllThatIsSaidAtATerminalComesThrough) {
  auto wanted = request("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i + 1)); done");
  wanted.terminal = true;
  auto how = options();
  how.terminal = true;
  const auto out = SessionProcess(dir_.path(), wanted, how).wait().out;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 20000);
  EXPECT_THAT(out, HasSubstr("line 19999\r"));
}

TEST_P(SessionRunTest, JobsAreTheSessionsOwn) {
  // The key stops what runs there, and its shell goes on: the terminal is that of its session.
  auto wanted =
      request("sh -m -c 'sh -c \"echo up > /share/fifo; exec sleep 1000\"; echo stopped: $?'; tty; read line; exit 4");
  wanted.terminal = true;
  auto how = options();
  how.terminal = true;
  SessionProcess process(dir_.path(), wanted, how);
  ASSERT_EQ(next_line(process), "up");
  process.press('\x1a');
  process.wait_to_see("/dev/pts/");
  process.type("\n");
  const auto outcome = process.wait();
  EXPECT_EQ(outcome.status, 4) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("stopped: 148"));
}

INSTANTIATE_TEST_SUITE_P(Runtimes, SessionRunTest,
                         ::testing::Values(Way{"runc", 0}, Way{"crun", 0}, Way{"none", 0}, Way{"runc", kPlainUser},
                                           Way{"none", kPlainUser}),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace varve::test
