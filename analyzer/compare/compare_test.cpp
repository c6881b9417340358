#include "analyzer/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::compare {
namespace {

using index::FlatEntry;
using packages::Distribution;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

FlatEntry file(std::string_view content) {
  FlatEntry entry;
  entry.type = FileType::kRegular;
  entry.mode = 0644;
  entry.size = content.size();
  entry.content_digest = content.empty() ? Digest() : digest_of(content);
  return entry;
}

FlatEntry link(std::string target) {
  FlatEntry entry;
  entry.type = FileType::kSymlink;
  entry.symlink_target = std::move(target);
  return entry;
}

// One image in memory; what a test does not give is empty.
struct World {
  oci::Image image;
  index::FlatTree tree;
  packages::Inventory inventory;

  World() {
    config(R"({"config": {}})");
    python("3.11.2");
  }
  Side side() const { return {.image = image, .tree = tree, .inventory = inventory}; }
  void config(std::string_view json) { image.config_json = to_bytes(varve::as_bytes(json)); }
  void python(std::string version) {
    inventory.interpreters = {
        {.executable = "usr/bin/python3", .version = version, .sites = {"site"}, .environment = {}}};
  }
  void layer(std::string_view blob, std::string_view stream, std::uint64_t bytes) {
    oci::Descriptor descriptor;
    descriptor.digest = digest_of(blob);
    descriptor.size = bytes;
    image.manifest.layers.push_back(descriptor);
    image.config.diff_ids.push_back(digest_of(stream));
  }
  // A distribution with one module of its name, and what it needs.
  World& package(const std::string& name, const std::string& version, std::string_view content = "x",
                 const std::vector<std::string>& needs = {}) {
    Distribution distribution;
    distribution.name = distribution.normalized = name;
    distribution.version = version;
    distribution.record = "site/" + name + "-" + version + ".dist-info";
    distribution.bytes = content.size();
    for (const auto& need : needs) {
      packages::Need one;
      one.requirement.name = need;
      one.applies = true;
      distribution.needs.push_back(one);
    }
    const auto number = std::uint32_t(inventory.distributions.size());
    inventory.distributions.push_back(distribution);
    inventory.modules[name] = {number};
    inventory.path_owners["site/" + name + "/"] = {number};
    tree.entries["site/" + name + "/__init__.py"] = file(content);
    return *this;
  }
  // A distribution with one module of another name: a part of a namespace.
  World& module(const std::string& dotted, const std::string& name) {
    package(name, "1");
    inventory.modules.erase(name);
    inventory.modules[dotted] = {std::uint32_t(inventory.distributions.size() - 1)};
    return *this;
  }
};

class Compare : public testing::Test {
 protected:
  Comparison compare() const { return compare_images(a_.side(), b_.side()); }
  NotebookComparison notebook(const std::vector<std::string>& modules) const {
    notebooks::ScanResult scan;
    auto& scanned = scan.files.emplace_back();
    for (const auto& module : modules) {
      auto& import = scanned.imports.emplace_back();
      import.name = import.module = module;
      // "a/b": from a import b
      std::ranges::replace(import.name, '/', '.');
      import.module.erase(std::min(import.module.find('/'), import.module.size()));
      import.cell = 1;
    }
    return compare_for_notebook(scan, a_.side(), b_.side(), compare());
  }
  World a_, b_;
};

std::vector<std::string> said(const std::vector<ComparedPackage>& packages) {
  std::vector<std::string> list;
  for (const auto& package : packages)
    list.push_back(package.name + " " + std::string(package_change_name(package.change)));
  return list;
}
std::vector<std::string> names(const std::vector<BrokenImport>& imports) {
  std::vector<std::string> list;
  for (const auto& import : imports) list.push_back(import.name);
  return list;
}

TEST_F(Compare, EqualImagesAreIdentical) {
  for (auto* world : {&a_, &b_}) world->package("numpy", "1.0");
  EXPECT_TRUE(compare().identical());
  b_.tree.entries["site/numpy/__init__.py"].mtime_seconds = 5;
  const auto comparison = compare();
  EXPECT_EQ(comparison.files.counts.at(FileChange::kTime).files, 1u);
  EXPECT_TRUE(comparison.identical()) << "a time alone is no difference";
}

TEST_F(Compare, PackagesAreAddedRemovedChangedAndRebuilt) {
  a_.package("gone", "1").package("moved", "1").package("patched", "1", "before").package("same", "1");
  b_.package("came", "1").package("moved", "2").package("patched", "1", "after!").package("same", "1");
  const auto packages = compare().packages;
  EXPECT_THAT(said(packages.changed), ElementsAre("came added", "gone removed", "moved changed", "patched rebuilt"));
  EXPECT_EQ(packages.changed[2].before, std::vector<std::string>{"1"});
  EXPECT_EQ(packages.changed[2].after, std::vector<std::string>{"2"});
  EXPECT_EQ(packages.changed[3].changed_files, 1u);
  EXPECT_EQ(packages.unchanged.at(packages::Source::kPip), 1u);
}

ComparedPackage compared(const std::string& name, PackageChange change, std::uint64_t bytes, std::string before = "",
                         std::string after = "") {
  ComparedPackage package;
  package.name = name;
  package.change = change;
  package.bytes_after = bytes;
  if (!before.empty()) package.before = {std::move(before)};
  if (!after.empty()) package.after = {std::move(after)};
  return package;
}

TEST(BreakingFirst, WhatIsGoneThenMajorVersionsThenOthersThenWhatIsNew) {
  const auto sorted = breaking_first({compared("rebuilt", PackageChange::kRebuilt, 900, "1", "1"),
                                      compared("new", PackageChange::kAdded, 800, "", "1"),
                                      compared("minor", PackageChange::kChanged, 700, "1.9", "1.10"),
                                      compared("major", PackageChange::kChanged, 1, "1.9", "2.0"),
                                      compared("gone", PackageChange::kRemoved, 0, "1", "")});
  EXPECT_THAT(said(sorted),
              ElementsAre("gone removed", "major changed", "minor changed", "new added", "rebuilt rebuilt"));
}

TEST(BreakingFirst, OfOneKindTheLargestFirstOnEitherSide) {
  auto shrunk = compared("shrunk", PackageChange::kChanged, 1, "1.0", "1.1");
  shrunk.bytes_before = 50;
  const auto sorted = breaking_first({compared("b", PackageChange::kChanged, 10, "1.0", "1.1"),
                                      compared("a", PackageChange::kChanged, 10, "1.0", "1.1"), shrunk,
                                      compared("large", PackageChange::kChanged, 99, "1.0", "1.1")});
  EXPECT_THAT(said(sorted), ElementsAre("large changed", "shrunk changed", "b changed", "a changed"))
      << "equals stay as they were";
}

TEST(BreakingFirst, AnEpochOrAVersionThatNobodyCanReadIsAnotherMajorVersion) {
  const auto sorted = breaking_first({compared("same", PackageChange::kChanged, 9, "2.1", "v2.2"),
                                      compared("epoch", PackageChange::kChanged, 5, "2.1", "1!2.1"),
                                      compared("odd", PackageChange::kChanged, 3, "2.1", "not a version")});
  EXPECT_THAT(said(sorted), ElementsAre("epoch changed", "odd changed", "same changed"));
}

TEST_F(Compare, BytecodeOfOtherTimesDoesNotMakeAPackageRebuilt) {
  a_.package("numpy", "1").tree.entries["site/numpy/__pycache__/__init__.cpython-311.pyc"] = file("time 1");
  b_.package("numpy", "1").tree.entries["site/numpy/__pycache__/__init__.cpython-311.pyc"] = file("time 2");
  const auto comparison = compare();
  EXPECT_THAT(comparison.packages.changed, IsEmpty());
  EXPECT_EQ(comparison.files.counts.at(FileChange::kContent).files, 1u) << "but it is another file";
}

TEST_F(Compare, AnotherSiteFolderDoesNotMakeAPackageRebuilt) {
  a_.package("numpy", "1").package("scipy", "1");
  b_.package("numpy", "1").package("scipy", "1", "patched");
  for (auto& distribution : a_.inventory.distributions) distribution.site = "site";
  for (auto& distribution : b_.inventory.distributions) distribution.site = "new/site";
  for (const auto* name : {"numpy", "scipy"}) {
    auto node = b_.tree.entries.extract(std::string("site/") + name + "/__init__.py");
    node.key() = "new/" + node.key();
    b_.tree.entries.insert(std::move(node));
    b_.inventory.path_owners[std::string("new/site/") + name + "/"] =
        b_.inventory.path_owners.at(std::string("site/") + name + "/");
  }
  const auto packages = compare().packages;
  EXPECT_THAT(said(packages.changed), ElementsAre("scipy rebuilt"));
  EXPECT_EQ(packages.changed[0].changed_files, 1u);
}

TEST_F(Compare, ACopyInsideAnotherDistributionGoesWithThat) {
  a_.package("pip", "1").package("idna", "3");
  a_.inventory.distributions.back().vendored_by = "pip";
  b_.package("pip", "1");
  b_.tree.entries["site/idna/__init__.py"] = file("x");
  EXPECT_THAT(compare().packages.changed, IsEmpty());
}

TEST_F(Compare, SeveralCopiesOfADistributionAreOneRow) {
  a_.package("numpy", "1").package("numpy", "2");
  b_.package("numpy", "2");
  const auto packages = compare().packages;
  ASSERT_EQ(packages.changed.size(), 1u);
  EXPECT_THAT(packages.changed[0].before, ElementsAre("1", "2"));
  EXPECT_THAT(packages.changed[0].after, ElementsAre("2"));
}

TEST_F(Compare, FilesAreCountedByWhatChanged) {
  a_.tree.entries = {{"content", file("one")}, {"gone", file("gone")}, {"link", link("x")}, {"mode", file("m")},
                     {"same", file("same")},   {"type", file("t")},    {"folder", {}},      {"left", {}}};
  b_.tree.entries = {{"content", file("other")}, {"came", file("came!")}, {"link", link("y")}, {"mode", file("m")},
                     {"same", file("same")},     {"type", link("t")},     {"folder", {}}};
  b_.tree.entries["mode"].mode = 0755;
  b_.tree.entries["folder"].mtime_seconds = 7;  // what was put into it changed that
  const auto files = compare().files;
  std::vector<std::string> list;
  for (const auto& changed : files.changed)
    list.push_back(changed.path + " " + std::string(file_change_name(changed.change)) +
                   (changed.detail.empty() ? "" : ": " + changed.detail));
  EXPECT_THAT(list,
              ElementsAre("came added", "content content", "gone removed", "link content: leads to y instead of x",
                          "mode attributes: mode 0755 instead of 0644", "type content: a link instead of a file"));
  EXPECT_EQ(files.counts.at(FileChange::kAdded).bytes, 5u);
  EXPECT_EQ(files.counts.at(FileChange::kRemoved).bytes, 4u);
  EXPECT_EQ(files.unchanged, 1u);
}

TEST_F(Compare, ContentThatIsSomewhereInAIsShared) {
  a_.tree.entries["old/name"] = file("large content");
  b_.tree.entries["new/name"] = file("large content");
  b_.tree.entries["new/hard"] = file("large content");
  b_.tree.entries["new/name"].link_of = "new/hard";
  b_.tree.entries["fresh"] = file("new");
  const auto files = compare().files;
  EXPECT_EQ(files.content_bytes, 13u + 3u);
  EXPECT_EQ(files.shared_content_bytes, 13u);
  EXPECT_EQ(files.bytecode_bytes, 0u);
}

TEST_F(Compare, BytecodeOfUnchangedSourcesIsToldApart) {
  for (const auto* module : {"same", "changed", "grown", "alone"}) {
    a_.tree.entries[fmt::format("lib/{}.py", module)] = file("source");
    a_.tree.entries[fmt::format("lib/__pycache__/{}.cpython-311.pyc", module)] = file("compiled then");
  }
  b_.tree = a_.tree;
  for (const auto* module : {"same", "changed", "alone"})
    b_.tree.entries[fmt::format("lib/__pycache__/{}.cpython-311.pyc", module)] = file("compiled now!");
  b_.tree.entries["lib/__pycache__/grown.cpython-311.pyc"] = file("compiled, and more");
  b_.tree.entries["lib/changed.py"] = file("source, other");
  b_.tree.entries.erase("lib/alone.py");
  const auto files = compare().files;
  EXPECT_EQ(files.bytecode_bytes, 13u);
  EXPECT_EQ(files.shared_content_bytes, 2 * 6u);
}

TEST_F(Compare, LayersAreComparedByBlobAndByStream) {
  a_.layer("base", "base stream", 100);
  a_.layer("old", "stream", 30);
  b_.layer("base", "base stream", 100);
  b_.layer("zstd of it", "stream", 20);
  b_.layer("fresh", "fresh stream", 7);
  b_.layer("fresh", "fresh stream", 7);
  const auto layers = compare().layers;
  EXPECT_EQ(layers.reused, 1u);
  EXPECT_EQ(layers.recompressed, 1u);
  EXPECT_EQ(layers.shared_bytes, 100u);
  EXPECT_EQ(layers.new_bytes, 27u);
  EXPECT_EQ(layers.gone_bytes, 30u);
}

TEST_F(Compare, ConfigIsComparedFieldByField) {
  a_.config(
      R"({"architecture": "amd64", "created": "2026", "config": {"Env": ["PATH=/bin", "OLD=1", "SAME=s"], "Cmd": )"
      R"(["sh"], "Labels": {"a": "1"}, "User": ""}})");
  b_.config(R"({"architecture": "amd64", "created": "2027", "config": {"Env": ["PATH=/bin:/sbin", "SAME=s"], "Cmd": )"
            R"(["sh", "-l"], "Labels": {"a": "2", "b": "x"}}})");
  std::vector<std::string> list;
  for (const auto& change : compare().config)
    list.push_back(change.field + ": " + change.before + " -> " + change.after);
  EXPECT_THAT(list, ElementsAre(R"(Cmd: ["sh"] -> ["sh","-l"])", "Env OLD: 1 -> ", "Env PATH: /bin -> /bin:/sbin",
                                "Labels a: 1 -> 2", "Labels b:  -> x"));
  EXPECT_FALSE(compare().identical());
  b_.config("[]");
  EXPECT_THROW(compare(), CorruptData);
}

TEST_F(Compare, CudaLibrariesAreComparedByNameAndVersion) {
  a_.tree.entries = {{"lib/libcudnn.so.9", file("a")},
                     {"lib/libcudnn.so", link("libcudnn.so.9")},
                     {"lib/libcublas.so.12", file("b")},
                     {"lib/libm.so.6", file("c")},
                     {"lib/libnccl.so.2", file("n")}};
  b_.tree.entries = {{"lib/libcudnn.so.10", file("d")},
                     {"lib/libcublas.so.12", file("b2")},
                     {"lib/libm.so.6", file("e")},
                     {"lib/libnccl.so.2", file("n")}};
  const auto cuda = compare().cuda;
  ASSERT_EQ(cuda.size(), 2u);
  EXPECT_EQ(cuda[0].name, "libcublas");
  EXPECT_EQ(cuda[0].before, cuda[0].after);
  EXPECT_TRUE(cuda[0].content_changed);
  EXPECT_THAT(cuda[1].before, ElementsAre("9"));
  EXPECT_THAT(cuda[1].after, ElementsAre("10"));
}

TEST_F(Compare, ANotebookSeesWhatItImportsAndWhatThatNeeds) {
  a_.package("pandas", "1", "p", {"numpy"}).package("numpy", "1").package("torch", "1").package("six", "1");
  b_.package("pandas", "2", "p", {"numpy"}).package("numpy", "2").package("torch", "2").package("six", "1");
  const auto seen = notebook({"pandas", "six", "os"});
  EXPECT_THAT(said(seen.direct), ElementsAre("pandas changed"));
  EXPECT_THAT(said(seen.transitive), ElementsAre("numpy changed"));
  EXPECT_EQ(seen.unchanged_direct, 1u);
  EXPECT_EQ(seen.unchanged_transitive, 0u);
  EXPECT_THAT(seen.lost, IsEmpty());
}

TEST_F(Compare, ANotebookHearsWhichImportsBreak) {
  a_.package("xgboost", "1").package("sklearn", "1");
  b_.package("sklearn", "2").package("polars", "1");
  a_.tree.entries["site/sklearn/cross_validation.py"] = file("x");
  a_.tree.entries["site/sklearn/fast.cpython-311-x86_64-linux-gnu.so"] = file("x");
  b_.tree.entries["site/sklearn/fast.cpython-312-x86_64-linux-gnu.so"] = file("x");
  b_.python("3.12.1");
  const auto seen = notebook(
      {"xgboost", "sklearn.cross_validation", "sklearn.fast", "sklearn.made_up", "imp", "json", "polars", "nowhere"});
  EXPECT_THAT(names(seen.lost), ElementsAre("xgboost", "sklearn.cross_validation", "imp"));
  EXPECT_THAT(seen.lost[0].why, HasSubstr("belonged to xgboost 1, which is gone"));
  EXPECT_THAT(seen.lost[1].why, HasSubstr("sklearn 1 had a file for it, sklearn 2 has none"));
  EXPECT_THAT(seen.lost[2].why, HasSubstr("Python 3.12.1 has it no longer"));
  EXPECT_THAT(names(seen.never), ElementsAre("nowhere"));
  EXPECT_THAT(names(seen.gained), ElementsAre("polars"));
  EXPECT_THAT(said(seen.direct), ElementsAre("polars added", "sklearn changed", "xgboost removed"));
}

TEST_F(Compare, ANamespaceGivesWhatItsPartsGive) {
  for (auto* world : {&a_, &b_}) world->module("zope.event", "zope-event").module("google.cloud", "google-cloud");
  for (auto* world : {&a_, &b_}) world->module("google.api", "google-api");
  a_.module("zope.interface", "zope-interface");
  const auto seen = notebook({"zope", "google", "zope/event", "zope/interface", "google/cloud", "google/nothing"});
  EXPECT_THAT(names(seen.lost), ElementsAre("zope.interface"));
  EXPECT_THAT(seen.lost[0].why, HasSubstr("belonged to zope-interface 1, which is gone"));
  EXPECT_THAT(names(seen.never), ElementsAre("google.nothing"));
  EXPECT_THAT(seen.gained, IsEmpty());
}

TEST_F(Compare, OfAFolderOfNotebooksEachIsNamed) {
  notebooks::ScanResult scan;
  for (const auto* path : {"nbs/a.ipynb", "nbs/b.ipynb", "nbs/c.ipynb"}) {
    auto& file = scan.files.emplace_back();
    file.path = path;
    for (const auto* module : {"nowhere", "nowhere.deep"}) {
      auto& import = file.imports.emplace_back();
      import.name = import.module = module;
      import.cell = 2;
      import.line = 3;
    }
  }
  scan.files.back().imports.pop_back();
  scan.errors = {{"nbs/b.ipynb", "odd bytes"}, {"nbs/d.ipynb", "no JSON"}};
  const auto seen = compare_for_notebook(scan, a_.side(), b_.side(), compare());
  ASSERT_EQ(seen.never.size(), 2u);
  EXPECT_EQ(seen.never[0].path, "nbs/a.ipynb");
  EXPECT_EQ(seen.never[0].files, 3u);
  EXPECT_EQ(seen.never[1].files, 2u);
  EXPECT_THAT(seen.warnings, ElementsAre("nbs/b.ipynb: odd bytes"));
  EXPECT_THAT(seen.errors, ElementsAre("nbs/d.ipynb: no JSON"));
}

TEST_F(Compare, RequirementsInACircleEnd) {
  a_.package("one", "1", "x", {"two"}).package("two", "1", "x", {"one", "absent"});
  b_.package("one", "1", "x", {"two"}).package("two", "2", "x", {"one", "absent"});
  EXPECT_THAT(said(notebook({"one"}).transitive), ElementsAre("two changed"));
}

}  // namespace
}  // namespace varve::compare
