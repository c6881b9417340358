// Root's sessions in user namespaces of their own: each runtime of this machine, asked from inside and looked at from
// outside.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/session_store.h"
#include "tests/run/session_process.h"
#include "tests/run/shared_root_test.h"
#include "tests/run/tiny_root.h"

namespace varve::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::uint32_t kFirst = 1'900'000'000;

struct stat status_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status;
}

class SessionUsernsTest : public SharedRootTest<std::string> {
 protected:
  static void SetUpTestSuite() {
    share([](const fs::path& shared) {
      const auto lower = shared / "lower";
      make_tiny_root(lower);
      fs::copy_file(lower / "bin/id", lower / "bin/setuid-id");
      ::chmod((lower / "bin/setuid-id").c_str(), 04755);
      std::ofstream(lower / "etc/of-nb") << "nb's\n";
      ::lchown((lower / "etc/of-nb").c_str(), 1000, 100);
    });
  }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "skipped: plain users' sessions have a user namespace anyway";
    if (!has_user_namespaces(0))
      GTEST_SKIP() << "skipped: there are no user namespaces here (a chroot, or a setting of the kernel)";
    if (GetParam() != "none" && fuse::find_program(GetParam()).empty()) GTEST_SKIP() << "skipped: no " << GetParam();
    fs::create_directories(dir_ / "root");
    fs::create_directories(dir_ / "share");
    ASSERT_EQ(::mkfifo((dir_ / "share/up").c_str(), 0600), 0);
    ASSERT_EQ(::mkfifo((dir_ / "share/go").c_str(), 0600), 0);
    up_ = open_file(dir_ / "share/up", O_RDWR | O_NONBLOCK);
    ::chmod((dir_ / "share").c_str(), 0700);
  }

  // The command is a shell script; /share is a volume that only root may enter.
  fuse::SessionRequest request(const std::string& script) const {
    auto request = script_request(dir_ / "root", *shared_ / "lower", script, GetParam());
    request.options.volumes = {{.source = dir_ / "share", .destination = "/share", .read_only = false}};
    request.ids = fuse::IdPool{.uids = {{.inside = 0, .outside = kFirst, .count = 2 * fuse::kOwnIds}},
                               .gids = {{.inside = 0, .outside = kFirst, .count = 2 * fuse::kOwnIds}}};
    return request;
  }
  SessionOutcome run(const fuse::SessionRequest& request) const { return SessionProcess(dir_.path(), request).wait(); }
  SessionOutcome run(const std::string& script) const { return run(request(script)); }
  fs::path upper() const { return fuse::SessionStore(dir_ / "root").list().front().folder.upper(); }

  UniqueFd up_;
};

// The owners of the processes of this machine whose command line holds `word`.
std::vector<uid_t> owners_of_processes(const std::string& word) {
  std::vector<uid_t> owners;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto bytes = read_file_if_there(entry.path() / "cmdline", 1 << 16);
    if (bytes && as_text(*bytes).find(word) != std::string_view::npos) owners.push_back(status_of(entry.path()).st_uid);
  }
  return owners;
}

TEST_P(SessionUsernsTest, ItsRootIsNobodyOnTheMachine) {
  const auto word = fmt::format("word-{}-{}", ::getpid(), GetParam());
  SessionProcess process(dir_.path(), request("cat /proc/self/uid_map /proc/self/gid_map; echo " + word +
                                              " > /share/up; read line < /share/go"));
  ASSERT_EQ(next_line(up_, process), word);
  EXPECT_THAT(owners_of_processes(word), ::testing::ElementsAre(kFirst));
  std::ofstream(dir_ / "share/go") << "go\n";
  const auto outcome = process.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex("( +0 +1900000000 +65536\n){2}"));
}

TEST_P(SessionUsernsTest, FilesOfTheImageAndOfTheSessionHaveTheirOwners) {
  const auto outcome =
      run("set -e; ls -ln /etc/of-nb | { read mode links uid gid rest; echo $uid $gid; }; echo more >> /etc/of-nb; "
          "touch /mine /his; chown 1000:100 /his; ls -ln /mine /his /etc/of-nb | while read mode links uid gid rest; "
          "do echo $uid $gid; done");
  EXPECT_EQ(outcome.out, "1000 100\n1000 100\n1000 100\n0 0\n") << outcome.err;
  EXPECT_EQ(status_of(upper() / "mine").st_uid, kFirst);
  EXPECT_EQ(status_of(upper() / "his").st_uid, kFirst + 1000);
  EXPECT_EQ(status_of(upper() / "his").st_gid, kFirst + 100);
  EXPECT_EQ(status_of(*shared_ / "lower/etc/of-nb").st_uid, 1000u);
}

TEST_P(SessionUsernsTest, VolumesKeepTheirOwnersOnTheMachine) {
  const auto outcome =
      run("set -e; echo word > /share/of-root; touch /share/of-nb; chown 1000:100 /share/of-nb; ls -lnd /share | { "
          "read mode links uid rest; echo $uid; }");
  EXPECT_EQ(outcome.out, "0\n") << outcome.err;
  EXPECT_EQ(status_of(dir_ / "share/of-root").st_uid, 0u);
  EXPECT_EQ(status_of(dir_ / "share/of-nb").st_uid, 1000u);
  EXPECT_EQ(status_of(dir_ / "share/of-nb").st_gid, 100u);
}

TEST_P(SessionUsernsTest, SetuidProgramsWorkInside) {
  auto wanted = request("setuid-id -u; id -u; echo > /etc/of-root 2> /dev/null || echo forbidden");
  wanted.options.user = "nb";
  wanted.options.volumes.clear();
  EXPECT_EQ(run(wanted).out, "0\n1000\nforbidden\n");
}

TEST_P(SessionUsernsTest, AFileOfTheMachinesRootIsNotWritable) {
  std::ofstream(dir_ / "driver") << "of the machine\n";
  auto wanted = request(
      "cat /usr/lib/driver; echo more >> /usr/lib/driver || echo forbidden; touch /sys/kernel/x /proc/sys/x 2> "
      "/dev/null; chmod 0777 /usr/lib/driver 2> /dev/null || echo forbidden");
  wanted.devices.mounts = {
      {.host_path = dir_ / "driver", .container_path = "/usr/lib/driver", .options = {"rw", "bind"}}};
  const auto outcome = run(wanted);
  EXPECT_EQ(outcome.out, "of the machine\nforbidden\nforbidden\n") << outcome.err;
  EXPECT_EQ(status_of(dir_ / "driver").st_mode & 0777, 0644u);
}

TEST_P(SessionUsernsTest, DevicesAreGivenAndNoOthersWork) {
  auto wanted = request(
      "echo x > /dev/given; mknod /disk b 7 0 2> /dev/null; cat /disk 2> /dev/null || echo no disk; echo x > /dev/null "
      "&& echo null");
  wanted.devices.devices = {{.path = "/dev/given", .host_path = "/dev/full", .permissions = ""}};
  const auto outcome = run(wanted);
  EXPECT_EQ(outcome.out, "no disk\nnull\n");
  EXPECT_THAT(outcome.err, HasSubstr("I/O error")) << "as the device says that it is full";
  EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("given: ")));
}

TEST_P(SessionUsernsTest, ATerminalAndNoNetworkAreAsEver) {
  auto wanted = request("tty; cat /proc/net/dev; read line; exit 5");
  wanted.terminal = true;
  wanted.options.network = false;
  SessionProcess::Options how;
  how.terminal = true;
  SessionProcess process(dir_.path(), wanted, how);
  process.type("over\n");
  const auto outcome = process.wait();
  EXPECT_EQ(outcome.status, 5) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, ::testing::ContainsRegex("/dev/(pts/[0-9]+|console)\r"));
  EXPECT_THAT(outcome.out, HasSubstr("lo:"));
}

TEST_P(SessionUsernsTest, WhoeverIsNotMappedIsRefused) {
  auto wanted = request("id");
  wanted.options.user = "65536";
  const auto outcome = run(wanted);
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.err, HasSubstr("65536"));
}

TEST_P(SessionUsernsTest, AFolderThatOthersMayNotEnterIsNamed) {
  ::chmod((dir_ / "root").c_str(), 0700);
  const auto outcome = run("id");
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.err, HasSubstr((dir_ / "root").string() + " may not be entered by others"));
}

TEST_P(SessionUsernsTest, NothingIsLeft) {
  auto wanted = request("touch /mine");
  wanted.remove_at_exit = true;
  EXPECT_EQ(run(wanted).status, 0);
  EXPECT_THAT(fuse::SessionStore(dir_ / "root").list(), ::testing::IsEmpty());
  EXPECT_TRUE(fs::is_empty(dir_ / "root/stage"));
  const auto mounts = read_file("/proc/self/mounts");
  EXPECT_THAT(std::string(as_text(mounts)), ::testing::Not(HasSubstr(dir_.path().string())));
}

INSTANTIATE_TEST_SUITE_P(Runtimes, SessionUsernsTest, ::testing::Values("runc", "crun", "none"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace varve::test
