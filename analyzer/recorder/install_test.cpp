#include "analyzer/recorder/install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::recorder {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class InstallTest : public testing::Test {
 protected:
  InstallTest() { fs::create_directories(site_); }
  void put(const fs::path& path, std::string_view content) { write_file_atomically(path, as_bytes(content)); }
  std::string content(const fs::path& path) {
    const auto bytes = read_file(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::size_t files() { return std::size_t(std::distance(fs::directory_iterator(site_), fs::directory_iterator())); }

  test::TempDir root_;
  fs::path site_ = root_ / "usr/lib/python3.11/site-packages";
};

TEST_F(InstallTest, PutsAllFilesThereForEveryoneToRead) {
  const auto sites = install(find_target(root_.path()));
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].path, "usr/lib/python3.11/site-packages");
  EXPECT_TRUE(sites[0].changed);
  EXPECT_EQ(files(), recorder_files().size());
  for (const auto& file : recorder_files()) {
    EXPECT_EQ(content(site_ / file.name), file.content);
    struct stat status {};
    ASSERT_EQ(::stat((site_ / file.name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0644u);
  }
}

TEST_F(InstallTest, DoesNothingTheSecondTime) {
  install(find_target(root_.path()));
  const auto before = fs::last_write_time(site_ / "varve_recorder.py");
  const auto sites = install(find_target(root_.path()));
  EXPECT_FALSE(sites[0].changed);
  EXPECT_EQ(fs::last_write_time(site_ / "varve_recorder.py"), before);
}

TEST_F(InstallTest, ReplacesAnOlderVersionAndWhatWasCompiledFromIt) {
  put(site_ / "varve_recorder.py", "# Varve usage recorder 0: older\n");
  fs::create_directory(site_ / "__pycache__");
  put(site_ / "__pycache__/varve_recorder.cpython-311.pyc", "old");
  put(site_ / "__pycache__/six.cpython-311.pyc", "not ours");
  EXPECT_EQ(status(find_target(root_.path()))[0].state, FileState::kOther);
  EXPECT_TRUE(install(find_target(root_.path()))[0].changed);
  EXPECT_EQ(status(find_target(root_.path()))[0].state, FileState::kCurrent);
  EXPECT_FALSE(fs::exists(site_ / "__pycache__/varve_recorder.cpython-311.pyc"));
  EXPECT_TRUE(fs::exists(site_ / "__pycache__/six.cpython-311.pyc"));
}

TEST_F(InstallTest, LeavesForeignFilesOfItsNamesAlone) {
  put(site_ / "varve_recorder.pth", "import somebody_else\n");
  EXPECT_THROW(install(find_target(root_.path())), Unsupported);
  EXPECT_EQ(files(), 1u) << "nothing is installed by halves";
  const auto sites = uninstall(find_target(root_.path()));
  EXPECT_FALSE(sites[0].changed);
  EXPECT_EQ(sites[0].foreign, std::vector<std::string>{"varve_recorder.pth"});
  EXPECT_EQ(content(site_ / "varve_recorder.pth"), "import somebody_else\n");
}

TEST_F(InstallTest, DoesNotWriteThroughALinkOfItsName) {
  test::TempDir outside;
  put(outside / "precious", "mine");
  fs::create_symlink(outside / "precious", site_ / "varve_recorder.py");
  EXPECT_THROW(install(find_target(root_.path())), Unsupported);
  EXPECT_EQ(content(outside / "precious"), "mine");
}

TEST_F(InstallTest, GoesWithoutATrace) {
  put(site_ / "six.py", "x = 1\n");
  install(find_target(root_.path()));
  EXPECT_TRUE(uninstall(find_target(root_.path()))[0].changed);
  EXPECT_EQ(files(), 1u);
  EXPECT_FALSE(uninstall(find_target(root_.path()))[0].changed);
}

TEST_F(InstallTest, TakesASiteFolderOrAVirtualEnvironmentAsWell) {
  EXPECT_TRUE(install(find_target(site_))[0].changed);
  EXPECT_TRUE(fs::exists(site_ / "varve_recorder.start"));
  const auto environment = root_ / "work/env";
  fs::create_directories(environment / "lib/python3.12/site-packages");
  EXPECT_TRUE(install(find_target(environment.string() + "/"))[0].changed);
  EXPECT_TRUE(fs::exists(environment / "lib/python3.12/site-packages/varve_recorder.pth"));
}

TEST_F(InstallTest, RefusesAFolderWithoutPythonAndSaysWhatItWants) {
  test::TempDir empty;
  try {
    find_target(empty.path());
    FAIL() << "an empty folder was taken";
  } catch (const NotFound& error) {
    EXPECT_THAT(error.what(), HasSubstr("no Python 3.8 or later"));
  }
  EXPECT_THROW(find_target(empty / "absent"), std::system_error);
  put(empty / "file", "x");
  EXPECT_THROW(find_target(empty / "file"), std::system_error);
}

TEST_F(InstallTest, SeesTheSwitchOfAnImage) {
  EXPECT_FALSE(find_target(root_.path()).switched_off);
  fs::create_directories(root_ / "etc/varve");
  put(root_ / kSwitchFile, "");
  EXPECT_TRUE(find_target(root_.path()).switched_off);
}

TEST(RecorderFilesTest, StartWithTheMarkAndTheOneThatStartsThemComesLast) {
  ASSERT_GE(recorder_files().size(), 3u);
  for (const auto& file : recorder_files())
    EXPECT_TRUE(file.content.starts_with("# Varve usage recorder ")) << file.name;
  EXPECT_EQ(recorder_files().rbegin()[2].name, "varve_recorder.py");
  EXPECT_EQ(recorder_files().rbegin()[1].name, "varve_recorder.pth");
  EXPECT_EQ(recorder_files().rbegin()[0].name, "varve_recorder.start");
}

}  // namespace
}  // namespace varve::recorder
