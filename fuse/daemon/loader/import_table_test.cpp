#include "fuse/daemon/loader/import_table.h"

#include <gmock/gmock.h>

#include "fuse/daemon/pages/shown_files.h"
#include "testing/trees.h"

namespace varve::fuse {
namespace {

using index::PythonImport;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Imported = ImportTable::Imported::Kind;

constexpr std::uint64_t kBetween = 1 << 20;
const std::string kStdlib = "usr/lib/python3.11/", kSite = "usr/lib/python3/dist-packages/";

class ImportTableTest : public ::testing::Test {
 protected:
  void add(const std::string& path) {
    const auto at = next_;
    next_ += kBetween;
    places_[path] = at;
    test::put(tree_, path,
              test::make_file(100, {{.layer = 0, .run = {.file_offset = 0, .stream_offset = at, .length = 100}}}));
  }
  // Its bytecode, as CPython 3.11 keeps it, and its source.
  void add_module(const std::string& folder, const std::string& name) {
    add(folder + "__pycache__/" + name + ".cpython-311.pyc");
    add(folder + name + ".py");
  }
  void open() {
    tree_.layers = 1;
    written_ = index::write_erofs(tree_, {std::string(64, 'a')}, {next_});
    reader_ = std::make_unique<index::ErofsReader>(written_.bytes, "the test's tree");
    for_each_name(*reader_, [&](index::Nid file, FileType type, const auto& folder, std::string_view name) {
      if (type == FileType::kRegular) table_.add(NamedFile(*reader_, file, folder, name));
    });
    table_.finish();
    search_ = std::make_unique<ImportTable::Search>(*reader_);
  }
  // Paths of what the module in that folder imports.
  std::vector<std::string> imported_by(const std::string& folder, const std::vector<PythonImport>& imports,
                                       const std::string& name = "me.cpython-311.pyc") {
    std::vector<std::string> paths;
    for (const auto& found : table_.find({.folder = folder + "__pycache__", .name = name}, imports, *search_)) {
      paths.push_back(found.folder + "/" + found.name);
      EXPECT_EQ(reader_->resolve(paths.back(), true), found.file) << paths.back();
      const auto kind = found.name.ends_with(".pyc")  ? Imported::kBytecode
                        : found.name.ends_with(".so") ? Imported::kLibrary
                                                      : Imported::kSource;
      EXPECT_EQ(found.kind, kind) << paths.back();
    }
    return paths;
  }
  static std::string pyc(const std::string& folder, const std::string& name) {
    return folder + "__pycache__/" + name + ".cpython-311.pyc";
  }

  index::Tree tree_;
  std::uint64_t next_ = kBetween;
  std::map<std::string, std::uint64_t> places_;
  index::ErofsImage written_;
  std::unique_ptr<index::ErofsReader> reader_;
  ImportTable table_;
  std::unique_ptr<ImportTable::Search> search_;
};

TEST_F(ImportTableTest, PackagesModulesAndExtensionsInTheFoldersThatHoldThem) {
  add_module(kStdlib, "os");
  add_module(kStdlib, "json");
  add_module(kStdlib + "email/", "__init__");
  add_module(kStdlib + "email/", "message");
  add(kStdlib + "lib-dynload/_json.cpython-311-x86_64-linux-gnu.so");
  add_module(kSite + "numpy/", "__init__");
  add(kSite + "numpy/_core.cpython-311-x86_64-linux-gnu.so");
  add(kSite + "numpy/_core.py");  // extensions come first
  add(kSite + "numpy/fast.abi3.so");
  add(kSite + "numpy/plain.so");
  add(kSite + "numpy/source.py");
  open();
  EXPECT_THAT(imported_by(kSite + "numpy/", {{.name = "email.message", .members = {"Message"}},
                                             {.name = "json", .members = {"loads"}},
                                             {.name = "_json"},
                                             {.name = "none"},
                                             {.name = "numpy._core"}}),
              ElementsAre(pyc(kStdlib + "email/", "__init__"), pyc(kStdlib + "email/", "message"), pyc(kStdlib, "json"),
                          kStdlib + "lib-dynload/_json.cpython-311-x86_64-linux-gnu.so",
                          pyc(kSite + "numpy/", "__init__"), kSite + "numpy/_core.cpython-311-x86_64-linux-gnu.so"));
  EXPECT_THAT(imported_by(kStdlib, {{.name = "numpy", .members = {"fast", "plain", "source", "array", "_core"}},
                                    {.name = "json"},
                                    {.name = "os"}}),  // in the program itself
              ElementsAre(kSite + "numpy/fast.abi3.so", kSite + "numpy/plain.so", kSite + "numpy/source.py"))
      << "what was found before is not told again";
}

TEST_F(ImportTableTest, RelativeImportsAreOfThePackage) {
  for (const auto* name : {"__init__", "a", "b"}) add_module(kSite + "pack/", name);
  for (const auto* name : {"__init__", "c"}) add_module(kSite + "pack/sub/", name);
  add_module(kSite, "a");
  add_module(kSite + "pack/spread/", "d");  // a folder without __init__
  open();
  EXPECT_THAT(imported_by(kSite + "pack/sub/", {{.level = 1, .name = "c"},
                                                {.level = 2, .name = "a", .members = {"b"}},  // a is no package
                                                {.level = 2, .name = "", .members = {"b", "nothing"}},
                                                {.level = 2, .name = "spread.d"},
                                                {.level = 200, .name = "a"}}),
              ElementsAre(pyc(kSite + "pack/sub/", "c"), pyc(kSite + "pack/", "a"), pyc(kSite + "pack/", "b"),
                          pyc(kSite + "pack/spread/", "d")));
}

TEST_F(ImportTableTest, TheNearestFolderOfTheSameVersionCounts) {
  const std::string one = "opt/one/lib/python3.11/site-packages/", two = "opt/two/lib/python3.11/site-packages/";
  for (const auto& site : {one, two, std::string("opt/old/lib/python3.10/site-packages/")}) add_module(site, "same");
  for (const auto* home : {"opt/one/lib/python3.11/", "opt/two/lib/python3.11/"})
    for (const auto* name : {"os", "types"}) add_module(home, name);
  add_module("opt/old/lib/python3.10/site-packages/", "only");
  open();
  EXPECT_THAT(imported_by(two + "pack/", {{.name = "same"}, {.name = "types"}, {.name = "only"}}),
              ElementsAre(pyc(two, "same"), pyc("opt/two/lib/python3.11/", "types")));
  EXPECT_THAT(imported_by(one + "pack/", {{.name = "same"}}), ElementsAre(pyc(one, "same")));
  EXPECT_THAT(imported_by(one + "pack/", {{.name = "same"}}, "me.cpython-310.pyc"),
              ElementsAre("opt/old/lib/python3.10/site-packages/same.py"))
      << "that version has no bytecode of it";
}

// PEP 420: a folder without __init__ may have parts in several folders, and a package anywhere comes before it.
TEST_F(ImportTableTest, FoldersWithoutInitAreLookedForEverywhere) {
  const std::string local = "usr/local/lib/python3.11/dist-packages/";
  add_module(local + "google/near/", "__init__");
  add_module(local + "late/", "unseen");
  add_module(kSite + "google/far/", "__init__");
  add_module(kSite + "late/", "__init__");
  add_module(kSite + "late/", "seen");
  open();
  EXPECT_THAT(imported_by(local + "me/", {{.name = "google.far"},
                                          {.name = "google", .members = {"near"}},
                                          {.name = "late", .members = {"seen"}}}),
              ElementsAre(pyc(kSite + "google/far/", "__init__"), pyc(local + "google/near/", "__init__"),
                          pyc(kSite + "late/", "__init__"), pyc(kSite + "late/", "seen")));
}

TEST_F(ImportTableTest, OptimizedBytecodeImportsSuch) {
  add(kSite + "__pycache__/a.cpython-311.opt-1.pyc");
  add(kSite + "__pycache__/a.cpython-311.pyc");
  add(kStdlib + "runpy.py");
  add_module(kStdlib, "os");
  open();
  EXPECT_THAT(imported_by(kSite, {{.name = "a"}}, "me.cpython-311.opt-1.pyc"),
              ElementsAre(kSite + "__pycache__/a.cpython-311.opt-1.pyc"));
  EXPECT_THAT(imported_by(kSite, {{.name = "runpy"}, {.name = "os.path"}}), IsEmpty()) << "in the program itself";
}

TEST_F(ImportTableTest, LongNamesAndManyAreNotLookedFor) {
  add_module(kSite + "pack/", "a");
  open();
  const std::string huge(8 << 20, 'x'), long_part(300, 'x');
  const std::vector<std::string_view> members(8192, huge);
  const std::vector<PythonImport> imports(256, {.level = 1, .name = "", .members = members});
  EXPECT_THAT(imported_by(kSite + "pack/", imports), IsEmpty());
  EXPECT_THAT(imported_by(kSite + "pack/", {{.name = huge}, {.level = 1, .name = long_part}}), IsEmpty());
  const std::vector<std::string_view> many(8192, "none");
  EXPECT_THAT(imported_by(kSite + "pack/", std::vector<PythonImport>(200, {.level = 1, .name = "", .members = many})),
              IsEmpty());
  EXPECT_THAT(imported_by(kSite + "pack/", {{.level = 1, .name = "a"}}), IsEmpty()) << "as often as it may";
}

TEST_F(ImportTableTest, KnowsWhereBytecodeBegins) {
  add_module(kSite + "pack/", "a");
  add_module(kSite + "pack/", "b");
  add(kSite + "pack/__pycache__/c.pypy39.pyc");
  add(kSite + "pack/__pycache__/d.cpython-311.opt-1.pyc");
  add(kSite + "pack/legacy.pyc");
  open();
  EXPECT_EQ(table_.modules().size(), 3u);
  const auto at = places_.at(pyc(kSite + "pack/", "b"));
  const auto found = table_.modules_in(1, {at - 4096, 8192});
  ASSERT_EQ(found.size(), 1u);
  const auto file = table_.file_of(found.front());
  EXPECT_EQ(file.folder + "/" + file.name, pyc(kSite + "pack/", "b"));
  EXPECT_EQ(reader_->resolve(file.folder + "/" + file.name, true), file.file);
  EXPECT_THAT(table_.modules_in(1, {at + 1, 4096}), IsEmpty());
  EXPECT_THAT(table_.modules_in(2, {at, 4096}), IsEmpty());
}

TEST_F(ImportTableTest, NamesThatAreNoNamesAndLinksInCirclesLeadNowhere) {
  add_module(kSite + "pack/", "__init__");
  add_module(kSite + "pack/", "a");
  test::put(tree_, kSite + "pack/loop", test::make_symlink("loop"));
  test::put(tree_, kSite + "pack/up", test::make_symlink(".."));
  test::put(tree_, kSite + "pack/linked.py", test::make_symlink("a.py"));
  test::put(tree_, kSite + "pack/gone.py", test::make_symlink("nowhere"));
  open();
  const std::string zero("a\0b", 3);
  EXPECT_THAT(imported_by(kSite + "pack/", {{.level = 1, .name = "loop.x"},
                                            {.level = 1, .name = "gone"},
                                            {.level = 1, .name = "../a"},
                                            {.level = 1, .name = ".."},
                                            {.level = 1, .name = "", .members = {"../../pack", "", ".", "..", zero}},
                                            {.name = "..pack.a"}}),
              ElementsAre(pyc(kSite + "pack/", "__init__"), pyc(kSite + "pack/", "a")))
      << "empty parts are none";
  EXPECT_THAT(imported_by(kSite + "pack/", {{.level = 1, .name = "linked"}}), ElementsAre(kSite + "pack/linked.py"));
  std::string far;
  for (int i = 0; i < 200; ++i) far += "up.pack.";
  EXPECT_THAT(imported_by(kSite + "pack/", {{.level = 1, .name = far + "a"}}).size(), ::testing::Le(401u));
}

}  // namespace
}  // namespace varve::fuse
