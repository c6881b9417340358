#include "core/base/files/private_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "core/base/errors.h"
#include "testing/temp_dir.h"

namespace varve {
namespace {

namespace fs = std::filesystem;

fs::perms mode_of(const fs::path& path) { return fs::status(path).permissions() & fs::perms::mask; }

TEST(PrivateFolder, IsMadeWithTheFoldersAboveItAndClosed) {
  const test::TempDir dir;
  const auto mask = ::umask(0);
  make_private_folder(dir.path() / "a" / "b");
  ::umask(mask);
  EXPECT_EQ(mode_of(dir.path() / "a" / "b"), fs::perms::owner_all);
}

TEST(PrivateFolder, OneThatWasOpenIsClosed) {
  const test::TempDir dir;
  fs::create_directory(dir.path() / "open");
  fs::permissions(dir.path() / "open", fs::perms(0755));
  make_private_folder(dir.path() / "open");
  EXPECT_EQ(mode_of(dir.path() / "open"), fs::perms::owner_all);
}

TEST(PrivateFolder, OnlyAnOwnLinkIsFollowed) {
  const test::TempDir dir;
  const auto elsewhere = dir.path() / "elsewhere";
  fs::create_directory(elsewhere);
  fs::permissions(elsewhere, fs::perms(0755));
  fs::create_directory_symlink(elsewhere, dir.path() / "store");
  if (::geteuid() == 0) {
    ASSERT_EQ(::lchown((dir.path() / "store").c_str(), 65534, 65534), 0);
    EXPECT_THROW(make_private_folder(dir.path() / "store"), UsageError);
    EXPECT_EQ(mode_of(elsewhere), fs::perms(0755));
    ASSERT_EQ(::lchown((dir.path() / "store").c_str(), 0, 0), 0);
  }
  make_private_folder(dir.path() / "store");
  EXPECT_EQ(mode_of(elsewhere), fs::perms::owner_all);
}

TEST(PrivateFolder, AFileInItsPlaceIsNamed) {
  const test::TempDir dir;
  std::ofstream(dir.path() / "store") << "no folder";
  EXPECT_THROW(make_private_folder(dir.path() / "store"), UsageError);
}

}  // namespace
}  // namespace varve
