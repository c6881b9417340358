#include "analyzer/packages/record_files.h"

#include <gtest/gtest.h>

#include "analyzer/packages/file_table.h"
#include "testing/memory_source.h"

namespace varve::packages {
namespace {

TEST(RecordFilesTest, KnowsWhatTheInventoryReadsByItsName) {
  const auto kind = [](std::string_view path) { return record_file(path); };
  EXPECT_EQ(kind("usr/lib/python3/dist-packages/numpy-1.0.dist-info/METADATA"), RecordFile::kMetadata);
  EXPECT_EQ(kind("a.egg-info/PKG-INFO"), RecordFile::kMetadata);
  EXPECT_EQ(kind("x/foo-1.0-py3.9.egg/EGG-INFO/requires.txt"), RecordFile::kRequires);
  EXPECT_EQ(kind("x/foo-1.0.egg-info"), RecordFile::kSingleEggInfo);
  EXPECT_EQ(kind("opt/conda/conda-meta/numpy-1.0-0.json"), RecordFile::kConda);
  EXPECT_EQ(kind("opt/conda/conda-meta/history"), std::nullopt);
  EXPECT_EQ(kind("var/lib/dpkg/status"), RecordFile::kDpkgStatus);
  EXPECT_EQ(kind("var/lib/dpkg/status.d/base-files"), RecordFile::kDpkgStatusD);
  EXPECT_EQ(kind("var/lib/dpkg/status.d/base-files.md5sums"), RecordFile::kDpkgMd5Sums);
  EXPECT_EQ(kind("var/lib/dpkg/info/libc6:amd64.list"), RecordFile::kDpkgList);
  EXPECT_EQ(kind("var/lib/dpkg/info/libc6:amd64.postinst"), std::nullopt);
  EXPECT_EQ(kind("srv/var/lib/dpkg/status"), std::nullopt);
  EXPECT_EQ(kind("lib/python3.11/site-packages/easy-install.pth"), RecordFile::kPathFile);
  EXPECT_EQ(kind("home/me/model.pth"), std::nullopt);
  EXPECT_EQ(kind("lib/python3.11/site-packages/google/cloud/__init__.py"), RecordFile::kPackageInit);
  EXPECT_EQ(kind("lib/python3.11/site-packages/a/b/c/d/__init__.py"), std::nullopt);
  EXPECT_EQ(kind("lib/python3.11/site-packages/__editable___foo_1_0_finder.py"), RecordFile::kFinder);
  EXPECT_EQ(kind("opt/venv/pyvenv.cfg"), RecordFile::kVenv);
  EXPECT_EQ(kind("usr/include/python3.11/patchlevel.h"), RecordFile::kPatchLevel);
  for (const auto* path : {"", "/", "a", ".dist-info", "x.dist-info/licenses/LICENSE", "numpy/core.py"})
    EXPECT_EQ(kind(path), std::nullopt) << path;
}

TEST(FileTableTest, FollowsLinksInsideTheRootOnly) {
  test::MemorySource source;
  source.add("usr/lib/a.so")
      .link("lib", "usr/lib")
      .link("opt/up", "../../../usr/lib")
      .link("abs", "/usr")
      .link("loop1", "loop2")
      .link("loop2", "loop1");
  source.link("usr/lib/b.so", "a.so").link("dangling", "nowhere");
  const FileTable table(source);
  const auto at = [&](std::string_view path, bool follow = true) {
    const auto id = table.resolve(path, follow);
    return id ? std::string(table.path(*id)) : "none";
  };
  EXPECT_EQ(at("lib/a.so"), "usr/lib/a.so");
  EXPECT_EQ(at("abs/lib/a.so"), "usr/lib/a.so");
  EXPECT_EQ(at("opt/up/a.so"), "usr/lib/a.so");
  EXPECT_EQ(at("lib/b.so"), "usr/lib/a.so");
  EXPECT_EQ(at("lib/b.so", false), "usr/lib/b.so");
  EXPECT_EQ(at("opt/../lib/a.so"), "usr/lib/a.so");
  EXPECT_EQ(at("loop1/x"), "none");
  EXPECT_EQ(at("dangling"), "none");
  EXPECT_EQ(at("dangling", false), "dangling");
  EXPECT_EQ(at("usr/lib/a.so/x"), "none");
  EXPECT_EQ(at(""), "none");
  EXPECT_EQ(table.real_folder("lib"), "usr/lib");
  EXPECT_EQ(table.real_folder(""), "");
  EXPECT_EQ(table.real_folder("usr/lib/a.so"), std::nullopt);
}

TEST(FileTableTest, ListsChildrenThoughNamesSortBetweenAFolderAndItsContent) {
  test::MemorySource source;
  source.add("a/x").add("a-b/y").add("a.c").add("a/y/z").add("b");
  const FileTable table(source);
  const auto children = [&](std::string_view folder) {
    std::string names;
    table.children(folder, [&](FileId, std::string_view name) { names += std::string(name) + ' '; });
    return names;
  };
  EXPECT_EQ(children(""), "a a-b a.c b ");
  EXPECT_EQ(children("a"), "x y ");
  EXPECT_EQ(children("a/y"), "z ");
  EXPECT_EQ(children("b"), "");
  EXPECT_EQ(children("none"), "");
}

}  // namespace
}  // namespace varve::packages
