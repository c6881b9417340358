#include "fuse/session/image_user.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "core/base/errors.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

constexpr const char* kPasswd =
    "root:x:0:0:root:/root:/bin/bash\n"
    "daemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n"
    "jovyan:x:1000:100:,,,:/home/jovyan:/bin/bash\n"
    "1000:x:2000:2000::/home/odd:/bin/sh\n";
constexpr const char* kGroup =
    "root:x:0:\nusers:x:100:\nvideo:x:44:jovyan,other\nrender:x:106:other,jovyan\nsudo:x:27:jovyan2\n";

ImageUser find(std::string_view spec) { return find_image_user(kPasswd, kGroup, spec); }

TEST(ImageUserTest, NothingNamedIsRoot) {
  EXPECT_EQ(find(""), (ImageUser{.uid = 0, .gid = 0, .groups = {}, .name = "root", .home = "/root"}));
  EXPECT_EQ(find_image_user("", "", ""), (ImageUser{.uid = 0, .gid = 0, .groups = {}, .name = "", .home = "/root"}));
}

TEST(ImageUserTest, ANameBringsItsGroupsAndHome) {
  EXPECT_EQ(find("jovyan"),
            (ImageUser{.uid = 1000, .gid = 100, .groups = {44, 106}, .name = "jovyan", .home = "/home/jovyan"}));
}

TEST(ImageUserTest, ANumberIsLookedUpToo) { EXPECT_EQ(find("1").home, "/usr/sbin"); }

TEST(ImageUserTest, ANameOfDigitsComesBeforeTheNumber) { EXPECT_EQ(find("1000").uid, 2000u); }

TEST(ImageUserTest, ANumberNeedsNoEntry) {
  EXPECT_EQ(find("4711"), (ImageUser{.uid = 4711, .gid = 0, .groups = {}, .name = "", .home = "/"}));
}

TEST(ImageUserTest, ANamedGroupReplacesTheOwnOnes) {
  EXPECT_EQ(find("jovyan:video"),
            (ImageUser{.uid = 1000, .gid = 44, .groups = {}, .name = "jovyan", .home = "/home/jovyan"}));
  EXPECT_EQ(find("4711:4712").gid, 4712u);
  EXPECT_EQ(find(":users").gid, 100u);
}

TEST(ImageUserTest, NamesThatAreNotThereAreAnError) {
  EXPECT_THROW(find("nobody"), NotFound);
  EXPECT_THROW(find("jovyan:nobody"), NotFound);
  EXPECT_THROW(find("-1"), NotFound);
  EXPECT_THROW(find("4294967296"), UsageError);
  EXPECT_THROW(find("2147483648"), UsageError);
  EXPECT_THROW(find("1:99999999999999999999"), UsageError);
}

TEST(ImageUserTest, LinesThatCannotBeRightAreSkipped) {
  const std::string passwd =
      "eve\neve:\n:x:5:5::/:\neve:x:-5:5::/bad:\neve:x:5::/bad:\neve:x:4294967295:0::/bad:\neve:x:0x5:5::/bad:\n" +
      std::string("eve\0:x:6:6::/bad:\n", 18) + "eve:x:7:7::relative:/bin/sh\neve:x:8:8::/late:\n";
  const auto user = find_image_user(passwd, "", "eve");
  EXPECT_EQ(user.uid, 7u);
  EXPECT_EQ(user.home, "/");  // a home that is no path is none
}

TEST(ImageUserTest, AFileWithoutALastNewlineIsReadToItsEnd) {
  EXPECT_EQ(find_image_user("eve:x:9:9::/e:", "", "eve").uid, 9u);
}

TEST(ImageUserTest, GroupsAreBoundedAndNamedOnce) {
  std::string group;
  for (int i = 0; i < 5000; ++i) group += "g" + std::to_string(i) + ":x:" + std::to_string(i % 3000) + ":root\n";
  const auto user = find_image_user(kPasswd, group, "root");
  EXPECT_EQ(user.groups.size(), kMaxSupplementaryGroups);
  EXPECT_EQ(std::set<std::uint32_t>(user.groups.begin(), user.groups.end()).size(), user.groups.size());
}

class ImageUserFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(dir_ / "root/etc");
    std::ofstream(dir_ / "passwd") << "secret:x:42:42::/:\n";
  }
  ImageUser find(std::string_view spec) const { return find_image_user(Rootfs::open(dir_ / "root"), spec); }
  test::TempDir dir_;
};

TEST_F(ImageUserFilesTest, ReadsTheImagesFiles) {
  std::ofstream(dir_ / "root/etc/passwd") << kPasswd;
  std::ofstream(dir_ / "root/etc/group") << kGroup;
  EXPECT_EQ(find("jovyan").groups.size(), 2u);
}

TEST_F(ImageUserFilesTest, SymlinksStayInside) {
  std::filesystem::create_symlink((dir_ / "passwd").string(), dir_ / "root/etc/passwd");
  EXPECT_THROW(find("secret"), NotFound);
  std::filesystem::remove(dir_ / "root/etc/passwd");
  std::filesystem::create_symlink("../../../../../../../../../.." + (dir_ / "passwd").string(),
                                  dir_ / "root/etc/passwd");
  EXPECT_THROW(find("secret"), NotFound);
  std::filesystem::remove(dir_ / "root/etc/passwd");
  std::filesystem::create_symlink("/usr/share/passwd", dir_ / "root/etc/passwd");
  std::filesystem::create_directories(dir_ / "root/usr/share");
  std::ofstream(dir_ / "root/usr/share/passwd") << kPasswd;
  EXPECT_EQ(find("jovyan").uid, 1000u);
}

TEST_F(ImageUserFilesTest, AFifoOrAFolderIsNoFileAndNobodyWaits) {
  ASSERT_EQ(::mkfifo((dir_ / "root/etc/passwd").c_str(), 0666), 0);
  std::filesystem::create_directory(dir_ / "root/etc/group");
  EXPECT_THROW(find("jovyan"), NotFound);
  EXPECT_EQ(find("5").uid, 5u);
}

TEST_F(ImageUserFilesTest, AFileThatIsTooLargeIsRefused) {
  std::ofstream(dir_ / "root/etc/passwd") << kPasswd;
  std::filesystem::resize_file(dir_ / "root/etc/passwd", kMaxAccountFileBytes + 1);
  EXPECT_THROW(find("jovyan"), Unsupported);
}

}  // namespace
}  // namespace varve::fuse
