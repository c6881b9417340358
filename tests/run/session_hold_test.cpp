// What a session must not reach, whatever its image and its program try: each runtime of this machine, as root and as a
// plain user.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "core/base/files/file.h"
#include "fuse/mount/user_ids.h"
#include "tests/run/session_process.h"
#include "tests/run/shared_root_test.h"
#include "tests/run/tiny_root.h"

namespace varve::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kCallersFd = 9;

class SessionHoldTest : public SharedRootTest<Way> {
 protected:
  static void SetUpTestSuite() {
    share([](const fs::path& shared) { make_tiny_root(shared / "root"); });
  }
  void SetUp() override {
    if (const auto why = why_skipped(GetParam()); !why.empty()) GTEST_SKIP() << why;
    for (const auto* name : {"state", "data", "elsewhere"}) fs::create_directories(dir_ / name);
    fs::copy(*shared_ / "root", lower(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
  fs::path lower() const { return dir_ / "lower"; }

  fuse::SessionRequest request(const std::string& script) const {
    return script_request(dir_ / "state", lower(), script, GetParam().runtime);
  }
  SessionProcess::Options options() const {
    return {.uid = GetParam().uid, .before = [] { ::dup2(::open("/etc", O_RDONLY), kCallersFd); }};
  }
  SessionOutcome run(const fuse::SessionRequest& request, SessionProcess::Options how) const {
    give(dir_.path(), GetParam().uid);
    return SessionProcess(dir_.path(), request, how).wait();
  }
  SessionOutcome run(const fuse::SessionRequest& request) const { return run(request, options()); }
  fuse::Volume volume(const std::string& name, const std::string& destination, bool read_only = false) const {
    return {.source = dir_ / name, .destination = destination, .read_only = read_only};
  }
};

TEST_P(SessionHoldTest, AWorkingDirectoryBehindTheSessionsOwnMountsIsRefused) {
  fs::create_symlink("/proc/self/fd", lower() / "door");
  fs::create_symlink("/dev", lower() / "devices");
  for (const std::string folder : {"/proc/self/fd/9", "/proc/self/cwd", "/door/9", "/tmp/../proc/1/root", "/dev/fd/9",
                                   "devices/fd/9", "/sys/fs"}) {
    auto wanted = request("cat ../etc/shadow hostname && echo out");
    wanted.config.working_dir = folder;
    const auto outcome = run(wanted);
    EXPECT_EQ(outcome.status, 125) << folder;
    EXPECT_EQ(outcome.out, "") << folder;
    EXPECT_THAT(outcome.err, HasSubstr("[failure] the working directory " + (folder[0] == '/' ? folder : "/" + folder) +
                                       " (WorkingDir"))
        << folder;
  }
}

TEST_P(SessionHoldTest, AWorkingDirectoryInAVolumeStaysInIt) {
  fs::create_directories(dir_ / "data/releases/3");
  fs::create_symlink("releases/3", dir_ / "data/current");
  fs::create_symlink("/proc/self/fd/9", dir_ / "data/door");
  fs::create_symlink("../elsewhere", dir_ / "data/up");
  for (const auto& [folder, real] : std::map<std::string, std::string>{{"/data/current", "/data/releases/3"},
                                                                       {"/data/new/one", "/data/new/one"},
                                                                       {"/dev/shm", "/dev/shm"},
                                                                       {"/proc", "/proc"}}) {
    auto wanted = request("pwd; touch here 2>/dev/null || true");
    wanted.options.volumes = {volume("data", "/data")};
    wanted.options.working_dir = folder;
    const auto outcome = run(wanted);
    EXPECT_EQ(outcome.out, real + "\n") << outcome.err;
  }
  EXPECT_TRUE(fs::exists(dir_ / "data/releases/3/here"));
  EXPECT_TRUE(fs::exists(dir_ / "data/new/one/here"));
  for (const std::string folder : {"/data/door", "/data/up", "/data/door/x"}) {
    auto wanted = request("cat hostname");
    wanted.options.volumes = {volume("data", "/data")};
    wanted.options.working_dir = folder;
    EXPECT_EQ(run(wanted).status, 125) << folder;
  }
}

TEST_P(SessionHoldTest, NothingThatTheCallerHasOpenIsInTheSession) {
  auto how = options();
  how.before = [] {
    ::dup2(::open("/etc", O_RDONLY), kCallersFd);
    ::dup2(::open("/etc/hostname", O_RDONLY), 77);
  };
  // The shell's own view, before it opens anything itself.
  const auto outcome = run(request("for fd in 3 4 5 6 7 8 9 10 11 12 77; do test -e /proc/$$/fd/$fd && echo open: $fd; "
                                   "done; ls /proc/1/fd/0/ /proc/1/cwd/ 2>/dev/null; cat < /proc/1/fd/0; echo end"),
                           how);
  EXPECT_EQ(outcome.out, "end\n") << outcome.err;
}

TEST_P(SessionHoldTest, DeviceNodesOfTheImageAndOfVolumesDoNothing) {
  if (GetParam().uid != 0) GTEST_SKIP() << "skipped: a user namespace has no devices";
  for (const auto& node : {lower() / "etc/node", dir_ / "data/node"})
    // null(4), which device cgroups allow. crun takes the flags of its root away, and has its cgroup alone: there
    // kmsg(4).
    ASSERT_EQ(::mknod(node.c_str(), S_IFCHR | 0666, ::makedev(1, GetParam().runtime == "crun" ? 11 : 3)), 0);
  auto wanted = request(
      "for node in /etc/node /data/node; do (: < $node) 2>/dev/null && echo opened $node; done; echo x > /dev/null && "
      "echo usual");
  wanted.options.volumes = {volume("data", "/data")};
  EXPECT_EQ(run(wanted).out, "usual\n");
}

TEST_P(SessionHoldTest, AnImageWithoutAProcOfItsOwnIsRefused) {
  for (const auto* name : {"proc", "sys", "dev"}) {
    fs::create_directories(lower() / "foo");
    fs::remove_all(lower() / name);
    fs::create_symlink("/foo", lower() / name);
    const auto outcome = run(request("echo core > /proc/sys/kernel/domainname && echo written"));
    EXPECT_EQ(outcome.status, 125) << name;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(std::string("the image's /") + name + " leads to /foo"));
    fs::remove(lower() / name);
  }
}

TEST_P(SessionHoldTest, NetworkFilesAreNotMountedBehindTheImagesLinks) {
  fs::create_symlink("/proc/self/attr/current", lower() / "etc/hosts");
  fs::create_symlink("/etc/real", lower() / "etc/hostname");
  const auto outcome = run(request("cat /etc/real"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("[say] the machine's hosts is not in the session"));
}

TEST_P(SessionHoldTest, VolumesInVolumesAreMadeInsideThem) {
  fs::create_symlink((dir_ / "elsewhere").string(), dir_ / "data/link");
  fs::create_symlink("/proc/sys", dir_ / "data/proc");
  fs::create_symlink("inner", dir_ / "data/short");
  fs::create_directories(dir_ / "data/inner");
  fs::create_directories(dir_ / "more");
  std::ofstream(dir_ / "more/word") << "in\n";
  for (const std::string place : {"/data/new/one", "/data/inner", "/data/short", "/data/inner/../other"}) {
    auto wanted = request("cat " + place + "/word");
    wanted.options.volumes = {volume("data", "/data"), volume("more", place)};
    const auto outcome = run(wanted);
    EXPECT_EQ(outcome.out, "in\n") << place << outcome.err;
  }
  for (const std::string place : {"/data/link/new", "/data/proc/kernel", "/data/link", "/data/../proc/sys"}) {
    auto wanted = request("echo ran");
    wanted.options.volumes = {volume("data", "/data"), volume("more", place)};
    const auto outcome = run(wanted);
    EXPECT_EQ(outcome.status, 125) << place;
    EXPECT_EQ(outcome.out, "") << place;
  }
  EXPECT_TRUE(fs::is_empty(dir_ / "elsewhere"));
}

TEST_P(SessionHoldTest, TheCallersUmaskIsNotTheSessions) {
  fs::permissions(lower(), fs::perms(0751));
  auto wanted = request("ls -ld / /made/for/this; umask; cat /etc/hostname >/dev/null && echo read");
  wanted.config.working_dir = "/made/for/this";
  if (GetParam().uid == 0) wanted.config.user = "nb";
  auto how = options();
  how.before = [] { ::umask(077); };
  const auto outcome = run(wanted, how);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ::testing::StartsWith("drwxr-x--x"));
  EXPECT_THAT(outcome.out, HasSubstr("\ndrwxr-xr-x"));
  EXPECT_THAT(outcome.out, HasSubstr("0022\nread\n"));
}

TEST_P(SessionHoldTest, TheRootFolderKeepsItsOwner) {
  if (GetParam().uid != 0) GTEST_SKIP() << "skipped: one id is mapped";
  auto wanted = request("ls -ldn /");
  give(dir_.path(), 0);
  ::chown(lower().c_str(), 1000, 100);
  EXPECT_THAT(SessionProcess(dir_.path(), wanted, options()).wait().out, ::testing::ContainsRegex(" 1000 +100 "));
}

TEST_P(SessionHoldTest, WordsWithAZeroByteAreRefused) {
  auto wanted = request("echo ran");
  wanted.config.env = {std::string("A=\0b", 4)};
  const auto outcome = run(wanted);
  EXPECT_EQ(outcome.status, 125);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("zero byte"));
}

// What is typed into this process's terminal and not yet read.
void print_typed() {
  ::fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
  char keys[256] = {};
  const auto got = ::read(STDOUT_FILENO, keys, sizeof keys - 1);
  std::fprintf(stderr, "[typed %zd] %s\n", got > 0 ? got : 0, keys);
}

TEST_P(SessionHoldTest, NothingIsTypedIntoTheCallersTerminal) {
  for (const bool terminal : {true, false}) {
    auto wanted = request("exec /probe");
    add_program(lower(), SESSION_PROBE, "probe");
    wanted.terminal = terminal;
    auto how = options();
    how.terminal = true;
    how.before = [terminal] {
      if (!terminal) ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
    };
    how.after = print_typed;
    const auto outcome = run(wanted, how);
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("[typed 0]")) << outcome.out;
    const auto said = outcome.out;
    EXPECT_THAT(said, Not(HasSubstr("type: allowed")));
    EXPECT_THAT(said, Not(HasSubstr("number: allowed")));
    EXPECT_THAT(said, Not(HasSubstr("paste: allowed")));
  }
}

TEST_P(SessionHoldTest, TheMachinesSystemCallsAreRefusedAndOthersNot) {
  add_program(lower(), SESSION_PROBE, "probe");
  const auto out = run(request("exec /probe")).out;
  for (const std::string what : {"user namespace", "mount namespace", "mount", "keyring", "bpf"})
    EXPECT_THAT(out, HasSubstr("\n" + what + ": Operation not permitted\n"));
  for (const std::string what : {"clone3", "a call of the future"})
    EXPECT_THAT(out, HasSubstr("\n" + what + ": " + std::strerror(ENOSYS) + "\n"));
  for (const std::string what : {"own file table", "fork"}) EXPECT_THAT(out, HasSubstr("\n" + what + ": allowed\n"));
}

TEST_P(SessionHoldTest, TheTerminalIsGivenBackAsItWas) {
  auto wanted = request("stty raw -echo; kill -9 $$");
  wanted.terminal = true;
  auto how = options();
  how.terminal = true;
  how.after = [] {
    termios state{};
    ::tcgetattr(STDIN_FILENO, &state);
    std::fprintf(stderr, "[%s]\n",
                 (state.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG) ? "as it was" : "changed");
  };
  const auto outcome = run(wanted, how);
  EXPECT_EQ(outcome.status, 128 + 9);
  EXPECT_THAT(outcome.err, HasSubstr("[as it was]"));
}

TEST_P(SessionHoldTest, AccountFilesThatAreNoFilesAreRefused) {
  const auto file = lower() / "etc/group";
  for (const std::string kind : {"fifo", "nowhere", "folder"}) {
    fs::remove_all(file);
    if (kind == "fifo") {
      ASSERT_EQ(::mkfifo(file.c_str(), 0644), 0);
    } else if (kind == "folder") {
      fs::create_directories(file);
    } else {
      fs::create_symlink("/dev/stdin", file);
    }
    const auto outcome = run(request("echo ran"));
    EXPECT_EQ(outcome.status, 125) << kind;
    EXPECT_THAT(outcome.err, HasSubstr("the image's /etc/group is no plain file"));
  }
  fs::remove_all(file);
  EXPECT_EQ(run(request("echo ran")).out, "ran\n");
}

INSTANTIATE_TEST_SUITE_P(Runtimes, SessionHoldTest,
                         ::testing::Values(Way{"runc", 0}, Way{"crun", 0}, Way{"none", 0}, Way{"runc", kPlainUser},
                                           Way{"none", kPlainUser}),
                         [](const auto& info) {
                           return info.param.runtime + (info.param.uid == 0 ? "_as_root" : "_as_plain_user");
                         });

}  // namespace
}  // namespace varve::test
