#include <gtest/gtest.h>

#include "analyzer/recorder/install.h"
#include "testing/temp_dir.h"

namespace varve::recorder {
namespace {

namespace fs = std::filesystem;
using Folders = std::vector<std::string>;

class SiteFoldersTest : public testing::Test {
 protected:
  void make(const std::string& path) { fs::create_directories(root_ / path); }
  Folders find(const std::map<std::string, std::string>& environment = {}) {
    const RootFolder folder(root_.path());
    return site_folders([&](const std::string& path) { return folder.list(path); }, environment);
  }
  test::TempDir root_;
};

TEST(IsSiteFolderTest, KnowsTheShapesOfPythonsTheRecorderWorksIn) {
  for (const auto* path : {"usr/lib/python3/dist-packages", "/usr/local/lib/python3.11/dist-packages",
                           "opt/conda/lib/python3.8/site-packages", "/venv/lib64/python3.14/site-packages",
                           "usr/lib/python3.13t/site-packages", "python3.12/site-packages"})
    EXPECT_TRUE(is_site_folder(path)) << path;
  for (const auto* path : {"usr/lib/python2.7/dist-packages", "usr/lib/python3.7/site-packages",
                           "usr/lib/python3/site-packages", "site-packages", "usr/lib/python3.x/site-packages",
                           "usr/lib/python3./site-packages", "usr/lib/python3.11/lib-dynload", ""})
    EXPECT_FALSE(is_site_folder(path)) << path;
}

TEST_F(SiteFoldersTest, FindsDebianCondaPyenvAndVirtualEnvironments) {
  for (const auto* path : {"usr/lib/python3/dist-packages", "usr/local/lib/python3.11/dist-packages",
                           "opt/conda/lib/python3.10/site-packages", "opt/conda/envs/old/lib/python3.8/site-packages",
                           "root/.pyenv/versions/3.12.1/lib/python3.12/site-packages",
                           "usr/lib/python2.7/dist-packages", "app/.venv/lib/python3.11/site-packages"})
    make(path);
  EXPECT_EQ(find(), (Folders{"app/.venv/lib/python3.11/site-packages", "opt/conda/envs/old/lib/python3.8/site-packages",
                             "opt/conda/lib/python3.10/site-packages",
                             "root/.pyenv/versions/3.12.1/lib/python3.12/site-packages",
                             "usr/lib/python3/dist-packages", "usr/local/lib/python3.11/dist-packages"}));
}

TEST_F(SiteFoldersTest, FollowsTheEnvironmentOfTheImage) {
  make("srv/tool/lib/python3.11/site-packages");
  EXPECT_EQ(find(), Folders{});
  EXPECT_EQ(find({{"PATH", "/usr/bin:/srv/tool/bin"}}), Folders{"srv/tool/lib/python3.11/site-packages"});
  EXPECT_EQ(find({{"VIRTUAL_ENV", "/srv/tool/"}}), Folders{"srv/tool/lib/python3.11/site-packages"});
  EXPECT_EQ(find({{"PATH", "srv/tool/bin"}}), Folders{}) << "a relative entry names no folder of the image";
}

TEST_F(SiteFoldersTest, NamesAFolderOnceThoughLinksLeadToIt) {
  make("usr/lib/python3.11/site-packages");
  fs::create_directory_symlink("usr/lib", root_ / "lib");
  fs::create_directory_symlink("lib", root_ / "usr/lib64");
  EXPECT_EQ(find().size(), 1u);
}

TEST_F(SiteFoldersTest, StaysInsideTheRootWhateverLinksSay) {
  test::TempDir outside;
  fs::create_directories(outside / "lib/python3.11/site-packages");
  make("usr");
  fs::create_directory_symlink(outside / "lib", root_ / "usr/lib");
  EXPECT_EQ(find(), Folders{}) << "an absolute link is one from the root of the tree";
  fs::remove(root_ / "usr/lib");
  fs::create_directory_symlink("../../../../../.." + (outside / "lib").string(), root_ / "usr/lib");
  EXPECT_EQ(find(), Folders{}) << "above the root is the root";
  fs::create_directory_symlink("loop", root_ / "loop");
  EXPECT_FALSE(RootFolder(root_.path()).locate("loop/x"));
}

TEST_F(SiteFoldersTest, TakesFoldersOfTheUserSchemeOnlyWhereNothingElseIs) {
  make("root/.local/lib/python3.11/site-packages");
  EXPECT_EQ(find(), Folders{"root/.local/lib/python3.11/site-packages"});
  make("usr/local/lib/python3.11/site-packages");
  EXPECT_EQ(find(), Folders{"usr/local/lib/python3.11/site-packages"});
}

}  // namespace
}  // namespace varve::recorder
