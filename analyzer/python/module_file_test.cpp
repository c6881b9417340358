#include "analyzer/python/module_file.h"

#include <gmock/gmock.h>

namespace varve::python {
namespace {

TEST(ModuleFileTest, NamesTheModuleOfAFile) {
  const struct {
    const char *path, *dotted;
    bool package, extension, bytecode;
  } kCases[] = {
      {"six.py", "six", false, false, false},
      {"google/cloud/storage/__init__.py", "google.cloud.storage", true, false, false},
      {"numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so", "numpy.core._multiarray_umath", false, true,
       false},
      {"cryptography/_rust.abi3.so", "cryptography._rust", false, true, false},
      {"_x.so", "_x", false, true, false},
      {"_x.cp311-win_amd64.pyd", "_x", false, true, false},
      {"_x.pypy39-pp73-x86_64-linux-gnu.so", "_x", false, true, false},
      {"a/b.pyc", "a.b", false, false, true},
      {"__pycache__/six.cpython-311.pyc", "six", false, false, true},
      {"a/__pycache__/__init__.cpython-311.opt-1.pyc", "a", true, false, true},
      {"a/__main__.py", "a.__main__", false, false, false},
      {"\xC3\xA9t\xC3\xA9/x.py", "\xC3\xA9t\xC3\xA9.x", false, false, false},
  };
  for (const auto& expected : kCases) {
    const auto module = module_of_file(expected.path);
    ASSERT_TRUE(module) << expected.path;
    EXPECT_EQ(module->dotted, expected.dotted) << expected.path;
    EXPECT_EQ(module->package, expected.package) << expected.path;
    EXPECT_EQ(module->extension, expected.extension) << expected.path;
    EXPECT_EQ(module->bytecode, expected.bytecode) << expected.path;
  }
}

TEST(ModuleFileTest, IsAbsentForWhatCannotBeImported) {
  for (const auto* const path : {"",
                                 "a",
                                 "a.txt",
                                 "a/b.pyi",
                                 "a-1.0.dist-info/METADATA",
                                 "a-1.0.dist-info/x.py",
                                 "a.data/x.py",
                                 "numpy.libs/libblas.so",
                                 "a/libz.so.1",
                                 "libfoo.2.so",
                                 "__init__.py",
                                 "a/1x.py",
                                 "x.y.py",
                                 "a//b.py",
                                 "/a.py",
                                 "../a.py",
                                 "__pycache__/a.py",
                                 "__pycache__/b/c.cpython-311.pyc",
                                 "__pycache__/a.pyc",
                                 "a/.py",
                                 "my-package/a.py"}) {
    EXPECT_FALSE(module_of_file(path)) << path;
  }
}

TEST(DottedNameTest, NeedsIdentifiersBetweenDots) {
  for (const auto* const name : {"a", "a.b_c", "_x.y9", "\xC3\xA9"}) EXPECT_TRUE(is_dotted_name(name)) << name;
  for (const auto* const name : {"", ".", "a.", ".a", "a..b", "a.1", "a b", "a-b"})
    EXPECT_FALSE(is_dotted_name(name)) << name;
}

TEST(PyvenvTest, ReadsVenvVirtualenvAndUv) {
  const auto venv = parse_pyvenv_cfg(
      "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\nexecutable = "
      "/usr/bin/python3.11\ncommand = /usr/bin/python3 -m venv /x = y\n");
  EXPECT_EQ(venv.home, "/usr/bin");
  EXPECT_EQ(venv.version, "3.11.2");
  EXPECT_FALSE(venv.system_site_packages);
  const auto virtualenv = parse_pyvenv_cfg(
      "home=/usr/bin\nimplementation = CPython\nversion_info = 3.12.1.final.0\nInclude-System-Site-Packages = True\n");
  EXPECT_EQ(virtualenv.version, "3.12.1");
  EXPECT_EQ(virtualenv.implementation, "CPython");
  EXPECT_TRUE(virtualenv.system_site_packages);
  EXPECT_EQ(parse_pyvenv_cfg("nothing").home, "");
}

}  // namespace
}  // namespace varve::python
