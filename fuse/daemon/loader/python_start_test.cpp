#include "fuse/daemon/loader/python_start.h"

#include <gmock/gmock.h>

#include "testing/trees.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PythonStartTest : public ::testing::Test {
 protected:
  void add(const std::string& path) {
    test::put(tree_, path,
              test::make_file(100, {{.layer = 0, .run = {.file_offset = 0, .stream_offset = next_, .length = 100}}}));
    next_ += 4096;
  }
  std::vector<std::string> read(const std::string& folder, unsigned minor) {
    tree_.layers = 1;
    written_ = index::write_erofs(tree_, {std::string(64, 'a')}, {next_});
    const index::ErofsReader reader(written_.bytes, "the test's tree");
    std::vector<std::string> paths;
    for (const auto& file : read_by_python(reader, folder, minor)) {
      paths.push_back(file.folder + "/" + file.name);
      EXPECT_EQ(reader.resolve(paths.back(), true), file.file);
    }
    return paths;
  }

  index::Tree tree_;
  std::uint64_t next_ = 4096;
  index::ErofsImage written_;
};

TEST_F(PythonStartTest, VersionsAreInTheProgramsName) {
  EXPECT_EQ(python_minor_of("python3.11"), 11u);
  EXPECT_EQ(python_minor_of("python3.9"), 9u);
  for (const auto* name : {"python3", "python3.", "python3.11-config", "python3.11d", "python2.7",
                           "python3.99999999999", "python3.-1", "xpython3.11", ""})
    EXPECT_EQ(python_minor_of(name), 0u) << name;
}

TEST_F(PythonStartTest, AsDebianHasIt) {
  const std::string library = "usr/lib/python3.11/", encodings = library + "encodings/__pycache__/";
  const std::vector<std::string> read_in_order{"usr/lib/locale/C.utf8/LC_CTYPE",
                                               "usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache",
                                               "etc/localtime",
                                               encodings + "__init__.cpython-311.pyc",
                                               encodings + "aliases.cpython-311.pyc",
                                               encodings + "utf_8.cpython-311.pyc",
                                               "usr/local/lib/python3.11/dist-packages/a.pth",
                                               "usr/local/lib/python3.11/dist-packages/b.pth",
                                               "usr/lib/python3/dist-packages/c.pth",
                                               library + "__pycache__/sitecustomize.cpython-311.pyc"};
  for (const auto& path : read_in_order)
    if (path != "etc/localtime") add(path);
  add("usr/share/zoneinfo/Etc/UTC");
  test::put(tree_, "etc/localtime", test::make_symlink("/usr/share/zoneinfo/Etc/UTC"));
  for (const auto* path :
       {"usr/lib/python3.11/__pycache__/site.cpython-311.pyc", "usr/lib/python3/dist-packages/.hidden.pth",
        "usr/lib/python3/dist-packages/six.py", "usr/lib/python3.9/encodings/__pycache__/__init__.cpython-39.pyc"})
    add(path);
  EXPECT_EQ(read("usr/bin", 11), read_in_order);
}

TEST_F(PythonStartTest, OlderOnesHaveLessInTheProgram) {
  const std::string library = "opt/conda/lib/python3.9/";
  add(library + "encodings/__pycache__/__init__.cpython-39.pyc");
  add(library + "__pycache__/io.cpython-39.pyc");
  add(library + "__pycache__/site.cpython-39.pyc");
  add("opt/conda/pyvenv.cfg");
  EXPECT_THAT(
      read("opt/conda/bin", 9),
      ElementsAre(library + "encodings/__pycache__/__init__.cpython-39.pyc", library + "__pycache__/io.cpython-39.pyc",
                  library + "__pycache__/site.cpython-39.pyc", "opt/conda/pyvenv.cfg"));
}

TEST_F(PythonStartTest, WhatIsNoFileIsLeftOut) {
  add("lib/python3.12/encodings/__pycache__/__init__.cpython-312.pyc/x");
  test::put(tree_, "lib/python3.12/encodings/__pycache__/aliases.cpython-312.pyc",
            test::make_symlink("aliases.cpython-312.pyc"));
  add("lib/python3.12/site-packages");
  add("lib/python3/dist-packages/a.pth/x");
  EXPECT_THAT(read("bin", 12), IsEmpty());
}

TEST_F(PythonStartTest, OfMoreSettingsThanAnybodyHasSomeAreLeftOut) {
  for (int i = 0; i < 300; ++i) add("usr/lib/python3.12/site-packages/" + std::to_string(i) + ".pth");
  EXPECT_THAT(read("usr/bin", 12), SizeIs(256));
}

}  // namespace
}  // namespace varve::fuse
