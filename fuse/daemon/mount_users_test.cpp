#include "fuse/daemon/mount_users.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "core/base/files/file.h"
#include "fuse/mount/mount_table.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A process that does `prepare`, says so, and waits.
class Child {
 public:
  template <typename Prepare>
  explicit Child(Prepare prepare) {
    int ends[2];
    if (::pipe(ends) != 0) fail_errno("make a pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      const bool ready = prepare();
      if (::write(ends[1], ready ? "y" : "n", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    char word = 'n';
    if (::read(ends[0], &word, 1) != 1 || word != 'y') ADD_FAILURE() << "the child is not ready";
    ::close(ends[0]);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  // How it ended, as waitpid(2) says; killed if it has not.
  int end() {
    if (pid_ == 0) return status_;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), &status_, 0);
    return status_;
  }

 private:
  pid_t pid_ = 0;
  int status_ = 0;
};

std::vector<pid_t> pids_of(const std::vector<ProcessName>& processes) {
  std::vector<pid_t> pids;
  for (const auto& process : processes) pids.push_back(pid_t(process.pid));
  return pids;
}

TEST(MountUsers, AreThoseThatAreInItOrHaveItOpen) {
  const test::TempDir dir;
  for (const auto* name : {"m", "m2"}) std::filesystem::create_directory(dir / name);
  write_file_atomically(dir / "m/file", {});
  write_file_atomically(dir / "m2/file", {});
  const Child outside([&] { return ::open((dir / "m2/file").c_str(), O_RDONLY) >= 0; });
  EXPECT_THAT(find_users(dir / "m"), IsEmpty()) << "a name that begins alike is another folder";
  {
    const Child within([&] { return ::chdir((dir / "m").c_str()) == 0; });
    EXPECT_THAT(pids_of(find_users(dir / "m")), ElementsAre(within.pid()));
    EXPECT_FALSE(name_of_process(within.pid()).name.empty());
  }
  const Child opened([&] { return ::open((dir / "m/file").c_str(), O_RDONLY) >= 0; });
  EXPECT_THAT(pids_of(find_users(dir / "m")), ElementsAre(opened.pid()));
}

TEST(MountUsers, AMountIsBusyWhileItIsUsedAndIsNotTakenAwayByAsking) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may mount";
  const test::TempDir dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, nullptr) != 0) GTEST_SKIP() << "no mounts here";
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(is_busy(dir.path()));
  write_file_atomically(dir / "file", {});
  {
    const auto file = open_file(dir / "file", O_RDONLY);
    EXPECT_TRUE(is_busy(dir.path()));
  }
  EXPECT_FALSE(is_busy(dir.path()));
  EXPECT_TRUE(std::filesystem::exists(dir / "file")) << "still mounted";
  EXPECT_EQ(::umount2(dir.path().c_str(), 0), 0);
  EXPECT_FALSE(is_busy(dir.path())) << "nothing is mounted there";
}

TEST(MountUsers, AnOverlayAboveAMountKeepsItBusyAlsoByALinkToIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may mount";
  const test::TempDir dir;
  const auto lower = std::filesystem::canonical(dir.path()) / "lower";
  for (const auto* name : {"lower", "work", "links", "merged"}) std::filesystem::create_directories(dir / name);
  if (::mount("tmpfs", (dir / "work").c_str(), "tmpfs", 0, nullptr) != 0) GTEST_SKIP() << "no mounts here";
  for (const auto* name : {"work/upper", "work/work"}) std::filesystem::create_directories(dir / name);
  ASSERT_EQ(::mount("tmpfs", lower.c_str(), "tmpfs", 0, nullptr), 0);
  std::filesystem::create_symlink("../lower", dir / "links/AB");
  EXPECT_FALSE(is_busy(lower));
  const auto options = "lowerdir=" + (dir / "links/AB").string() + ",upperdir=" + (dir / "work/upper").string() +
                       ",workdir=" + (dir / "work/work").string();
  ASSERT_EQ(::mount("overlay", (dir / "merged").c_str(), "overlay", 0, options.c_str()), 0);
  EXPECT_TRUE(is_busy(lower));
  EXPECT_EQ(find_overlays_on(lower).size(), 1u);
  EXPECT_EQ(::umount2((dir / "merged").c_str(), 0), 0);
  EXPECT_FALSE(is_busy(lower));
  for (const auto& mount : {lower, dir / "work"}) EXPECT_EQ(::umount2(mount.c_str(), 0), 0);
}

TEST(MountUsers, AreAskedToEndThenKilledAndNobodyElseIs) {
  Child polite([] { return true; });
  Child deaf([] { return ::signal(SIGTERM, SIG_IGN) != SIG_ERR; });
  Child other([] { return true; });
  auto reused = find_process(other.pid()).value();
  ++reused.start_time;  // its number belonged to another process
  end_processes({find_process(polite.pid()).value(), find_process(deaf.pid()).value(), reused},
                std::chrono::milliseconds(100));
  EXPECT_TRUE(find_process(other.pid())) << "still runs";
  EXPECT_EQ(WTERMSIG(polite.end()), SIGTERM);
  EXPECT_EQ(WTERMSIG(deaf.end()), SIGKILL);
}

}  // namespace
}  // namespace varve::fuse
