#include "fuse/session/executable.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

class FindCommandTest : public ::testing::Test {
 protected:
  void add(const std::string& path, fs::perms mode = fs::perms(0755), std::string_view content = "x") {
    fs::create_directories((folder_ / path).parent_path());
    write_file_atomically(folder_ / path, as_bytes(content));
    fs::permissions(folder_ / path, mode);
  }
  // "missing", "forbidden" or the path.
  std::string find(const std::string& name, const std::string& path, const std::string& working_dir = "/work") {
    const auto found = find_command(Rootfs::open(folder_), {name, {"OTHER=x", "PATH=" + path}, working_dir});
    if (found.is == Executable::kFound) return found.path;
    EXPECT_EQ(found.path, "");
    return found.is == Executable::kForbidden ? "forbidden" : "missing";
  }

  test::TempDir temp_;
  const fs::path folder_ = temp_.path();
};

TEST_F(FindCommandTest, AsExecvpDoes) {
  add("bin/tool");
  add("opt/bin/tool");
  add("opt/bin/other");
  add("work/here");
  EXPECT_EQ(find("tool", "/bin:/opt/bin"), "/bin/tool");
  EXPECT_EQ(find("tool", "/nowhere:/opt/bin:/bin"), "/opt/bin/tool");
  EXPECT_EQ(find("other", "/bin:/opt/bin"), "/opt/bin/other");
  EXPECT_EQ(find("none", "/bin:/opt/bin"), "missing");
  EXPECT_EQ(find("here", "/bin:"), "/work//here") << "an empty folder is the working directory";
  EXPECT_EQ(find("tool", "../bin"), "/work/../bin/tool");
  EXPECT_EQ(find("./here", "/bin"), "/work/./here");
  EXPECT_EQ(find("/opt/bin/other", ""), "/opt/bin/other");
  EXPECT_EQ(find("bin/tool", "/opt"), "missing") << "no name with a slash is searched for";
}

TEST_F(FindCommandTest, WhatMayNotBeExecutedIsPassedOverAndSaid) {
  add("bin/tool", fs::perms(0644));
  fs::create_directories(folder_ / "sbin/tool");
  EXPECT_EQ(find("tool", "/bin"), "forbidden");
  EXPECT_EQ(find("tool", "/sbin"), "forbidden");
  EXPECT_EQ(find("tool", "/bin:/nowhere"), "forbidden");
  ASSERT_EQ(::mkfifo((folder_ / "bin/pipe").c_str(), 0755), 0);
  EXPECT_EQ(find("pipe", "/bin"), "forbidden");
  add("opt/tool");
  EXPECT_EQ(find("tool", "/bin:/sbin:/opt"), "/opt/tool");
}

TEST_F(FindCommandTest, LinksStayInside) {
  add("opt/app/tool");
  fs::create_directories(folder_ / "bin");
  fs::create_symlink("/../../opt/app/tool", folder_ / "bin/tool");
  fs::create_symlink("/proc/self/exe", folder_ / "bin/outside");
  fs::create_symlink("loop", folder_ / "bin/loop");
  EXPECT_EQ(find("tool", "/bin"), "/bin/tool");
  EXPECT_EQ(find("outside", "/bin"), "missing");
}

TEST_F(FindCommandTest, HeadsOfScriptsThatRunEachOtherAreReadOnlySoFar) {
  add("bin/a", fs::perms(0755), "#!/bin/b\n");
  add("bin/b", fs::perms(0755), "#! /bin/env -S X=1 a");
  add("bin/env", fs::perms(0755), "#!/bin/env env\n");
  add("bin/empty", fs::perms(0755), "");
  add("bin/bare", fs::perms(0755), "#!");
  add("bin/spaces", fs::perms(0755), "#!" + std::string(400, ' '));
  add("bin/unreadable", fs::perms(0755), std::string("#!\0/bin/a\xff\n", 11));
  for (const auto* name : {"a", "b", "env", "empty", "bare", "spaces", "unreadable", "none", ""})
    EXPECT_NO_THROW(read_heads(Rootfs::open(folder_), {name, {"PATH=/bin"}, "/"})) << name;
}

}  // namespace
}  // namespace varve::fuse
