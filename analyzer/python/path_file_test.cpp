#include "analyzer/python/path_file.h"

#include <gmock/gmock.h>

#include <string>

#include "core/base/errors.h"

namespace varve::python {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(PathFileTest, TellsPathsFromCode) {
  const auto read = parse_path_file(
      "\xEF\xBB\xBF# a comment\n/home/me/src  \r\n\n../other\nimport sys; "
      "sys.path.append('x')\nimport\tos\nimportant\n./easy.egg\n");
  EXPECT_THAT(read.paths, ElementsAre("/home/me/src", "../other", "important", "./easy.egg"));
  EXPECT_THAT(read.code, ElementsAre("import sys; sys.path.append('x')", "import\tos"));
  EXPECT_THAT(read.modules, UnorderedElementsAre("sys", "os"));
}

TEST(PathFileTest, FindsTheFinderOfAnEditableInstall) {
  const auto read = parse_path_file("import __editable___foo_1_0_finder; __editable___foo_1_0_finder.install()");
  EXPECT_THAT(read.modules, ElementsAre("__editable___foo_1_0_finder"));
  EXPECT_TRUE(is_editable_finder_name(*read.modules.begin()));
  EXPECT_TRUE(is_editable_finder_name("_editable_impl_foo"));
  EXPECT_FALSE(is_editable_finder_name("os"));
  EXPECT_FALSE(is_editable_finder_name("_a.b"));
}

TEST(PathFileTest, SeesDunderImport) {
  const auto read = parse_path_file(
      "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; enabled and "
      "__import__('_distutils_hack').add_shim(); ");
  EXPECT_THAT(read.modules, UnorderedElementsAre("os", "_distutils_hack"));
}

TEST(PathFileTest, FindsNamespacesOfNspkg) {
  const auto read = parse_path_file(
      "import sys, types, os;has_mfs = sys.version_info > (3, 5);p = "
      "os.path.join(sys._getframe(1).f_locals['sitedir'], *('google',));importlib = has_mfs and "
      "__import__('importlib.util');has_mfs and __import__('importlib.machinery');m = has_mfs and "
      "sys.modules.setdefault('google', "
      "importlib.util.module_from_spec(importlib.machinery.PathFinder.find_spec('google', [os.path.dirname(p)])));m = "
      "m or sys.modules.setdefault('google', "
      "types.ModuleType('google'));mp = (m or []) and m.__dict__.setdefault('__path__',[]);(p not in mp) and "
      "mp.append(p)\n"
      "import sys, types, os;p = os.path.join(sys._getframe(1).f_locals['sitedir'], *('google', 'cloud'));ie = "
      "os.path.exists(os.path.join(p,'__init__.py'))\n");
  EXPECT_THAT(read.namespaces, UnorderedElementsAre("google", "google.cloud"));
  EXPECT_THAT(read.modules, testing::IsSupersetOf({"sys", "types", "os", "importlib.util"}));
}

TEST(EditableFinderTest, ReadsSetuptools) {
  const auto read = parse_editable_finder(
      "from __future__ import annotations\nimport sys\nMAPPING_OF_OTHERS = {}\n"
      "MAPPING: dict[str, str] = {'a': '/home/me/it\\'s/a', 'b.c': \"/x/\\u00e9\"}\n"
      "NAMESPACES: dict[str, list[str]] = {'b': ['/x', '/y'], 'n': []}\nPATH_PLACEHOLDER = "
      "'__editable__.foo-1.0.finder' + \".__path_hook__\"\n");
  ASSERT_TRUE(read);
  EXPECT_THAT(read->mapping, ElementsAre(Pair("a", "/home/me/it's/a"), Pair("b.c", "/x/\xC3\xA9")));
  EXPECT_THAT(read->namespaces, ElementsAre(Pair("b", ElementsAre("/x", "/y")), Pair("n", IsEmpty())));
  EXPECT_TRUE(parse_editable_finder("MAPPING = {}\n")->mapping.empty());
}

TEST(EditableFinderTest, ReadsEditablesScikitBuildAndMeson) {
  const auto editables = parse_editable_finder(
      "from editables.redirector import RedirectingFinder as F\nF.install()\nF.map_module('a', "
      "'/s/a/__init__.py')\nF.map_module('b', '/s/b.py')");
  ASSERT_TRUE(editables);
  EXPECT_THAT(editables->mapping, ElementsAre(Pair("a", "/s/a/__init__.py"), Pair("b", "/s/b.py")));
  const auto scikit = parse_editable_finder(
      "def install(\n    known: dict,\n): pass\n\ninstall({'a': '/s/a/__init__.py'}, {'a._core': 'a/_core.so'}, None, "
      "False, True, [])\n");
  ASSERT_TRUE(scikit);
  EXPECT_THAT(scikit->mapping, ElementsAre(Pair("a", "/s/a/__init__.py"), Pair("a._core", "a/_core.so")));
  const auto meson = parse_editable_finder(
      "class MesonpyMetaFinder(importlib.abc.MetaPathFinder):\n    pass\n\ndef init():\n    finder = "
      "MesonpyMetaFinder(\n        'pk-meson',\n        {'a', 'b'},\n        "
      "'/s/build/cp311',\n        ['/usr/bin/ninja'],\n        False,\n    )\n");
  ASSERT_TRUE(meson);
  EXPECT_THAT(meson->mapping, ElementsAre(Pair("a", "/s/build/cp311"), Pair("b", "/s/build/cp311")));
}

TEST(EditableFinderTest, IsAbsentInOtherModules) {
  EXPECT_FALSE(parse_editable_finder("import os\nos.MAPPING = {}\n"));
  EXPECT_FALSE(parse_editable_finder(""));
}

TEST(EditableFinderTest, RunsNothing) {
  for (const auto* const text :
       {"MAPPING = dict(a='/x')\n", "MAPPING = {'a': open('/etc/passwd').read()}\n", "MAPPING = {'a': 1}\n",
        "MAPPING = {'a'", "MAPPING = {'a': 'b\n'}\n", "MAPPING = {'a': '/x'}\nNAMESPACES = {'b': '/y'}\n",
        "F.map_module(name, path)\n", "F.map_module('a')\n"}) {
    EXPECT_THROW(parse_editable_finder(text), CorruptData) << text;
  }
}

TEST(EditableFinderTest, NestingIsBounded) {
  EXPECT_THROW(parse_editable_finder("MAPPING = " + std::string(1'000'000, '{')), CorruptData);
}

TEST(EggLinkTest, HasTwoLines) {
  const auto link = parse_egg_link("/home/me/project/src\n../\n");
  ASSERT_TRUE(link);
  EXPECT_EQ(link->folder, "/home/me/project/src");
  EXPECT_EQ(link->root, "../");
  EXPECT_EQ(parse_egg_link("/only")->root, "");
  EXPECT_FALSE(parse_egg_link("\n\n"));
}

}  // namespace
}  // namespace varve::python
