#include "analyzer/elf/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/elf/unresolved.h"
#include "testing/elf_tree.h"

namespace varve::elf {
namespace {

using test::FakeTree;
using test::with_rpath;
using test::with_runpath;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LoaderTest : public ::testing::Test {
 protected:
  // "first match second match" of the one library that a file needs.
  std::vector<std::string> matches(const std::string& path, const std::vector<std::string>& loaded_by = {}) const {
    const Loader loader(made.tree, options);
    const auto needs = loader.resolve(path, loaded_by);
    EXPECT_EQ(needs.size(), 1u);
    return needs.empty() ? std::vector<std::string>() : needs.front().matches;
  }
  FakeTree made;
  LoaderOptions options;
};

// A cache as ldconfig writes it.
struct CacheLine {
  std::uint32_t flags;
  std::string name, path;
  std::uint64_t hwcap = 0;
};
std::string new_cache(const std::vector<CacheLine>& lines, const std::vector<std::string>& hwcaps = {}) {
  Bytes bytes = to_bytes(as_bytes(std::string_view("glibc-ld.so.cache1.1")));
  std::string strings;
  const auto strings_at = 48 + lines.size() * 24;
  const auto add_text = [&](const std::string& text) {
    const auto at = strings_at + strings.size();
    strings += text + '\0';
    return std::uint32_t(at);
  };
  Bytes entries, names;
  for (const auto& line : lines) {
    append_le(entries, line.flags);
    append_le(entries, add_text(line.name));
    append_le(entries, add_text(line.path));
    append_le<std::uint32_t>(entries, 0);
    append_le(entries, line.hwcap);
  }
  for (const auto& name : hwcaps) append_le(names, add_text(name));
  const auto extension = std::uint32_t(strings_at + strings.size());
  append_le(bytes, std::uint32_t(lines.size()));
  append_le(bytes, std::uint32_t(strings.size()));
  append_le<std::uint32_t>(bytes, 2);
  append_le<std::uint32_t>(bytes, hwcaps.empty() ? 0 : extension);
  for (int i = 0; i < 3; ++i) append_le<std::uint32_t>(bytes, 0);
  append(bytes, entries);
  append(bytes, as_bytes(strings));
  if (!hwcaps.empty()) {
    append_le<std::uint32_t>(bytes, 0xEAA42174);
    append_le<std::uint32_t>(bytes, 1);
    append_le<std::uint32_t>(bytes, 1);
    append_le<std::uint32_t>(bytes, 0);
    append_le<std::uint32_t>(bytes, extension + 24);
    append_le(bytes, std::uint32_t(names.size()));
    append(bytes, names);
  }
  return std::string(as_text(bytes));
}

TEST_F(LoaderTest, SearchesInTheOrderOfLdSoAndKeepsEveryMatch) {
  for (const auto* dir : {"own", "env", "cached", "lib", "usr/lib"}) made.library(std::string(dir) + "/libx.so.1");
  made.library("bin/runpath", {"libx.so.1"}, with_runpath("/own"));
  made.library("bin/rpath", {"libx.so.1"}, with_rpath("/own"));
  options = {.library_path = "/env:/nothing:", .cache = new_cache({{0x0303, "libx.so.1", "/cached/libx.so.1"}})};
  EXPECT_THAT(matches("bin/runpath"),
              ElementsAre("env/libx.so.1", "own/libx.so.1", "cached/libx.so.1", "lib/libx.so.1", "usr/lib/libx.so.1"));
  EXPECT_THAT(matches("bin/rpath"),
              ElementsAre("own/libx.so.1", "env/libx.so.1", "cached/libx.so.1", "lib/libx.so.1", "usr/lib/libx.so.1"));
}

TEST_F(LoaderTest, RpathsAreInheritedAndRunpathsAreNot) {
  made.library("own/liby.so", {});
  made.library("opt/program", {"libx.so"}, with_rpath("/own"));
  made.library("opt/other", {"libx.so"}, with_runpath("/own"));
  made.library("lib/libx.so", {"liby.so"});
  EXPECT_THAT(matches("lib/libx.so"), IsEmpty());
  EXPECT_THAT(matches("lib/libx.so", {"opt/program"}), ElementsAre("own/liby.so"));
  EXPECT_THAT(matches("lib/libx.so", {"opt/other"}), IsEmpty());
  EXPECT_THAT(matches("lib/libx.so", {"opt/other", "opt/program"}), ElementsAre("own/liby.so"))
      << "the chain goes on above a loader with a RUNPATH";
  made.library("lib/libx.so", {"liby.so"}, with_runpath("/elsewhere"));
  EXPECT_THAT(matches("lib/libx.so", {"opt/program"}), IsEmpty()) << "a RUNPATH of its own switches all RPATHs off";
}

TEST_F(LoaderTest, RpathIsIgnoredBesideRunpath) {
  made.library("a/liby.so");
  auto facts = with_rpath("/a");
  facts.runpath = "/b";
  made.library("x", {"liby.so"}, facts);
  EXPECT_THAT(matches("x"), IsEmpty());
}

TEST_F(LoaderTest, OriginIsTheRealFolderAndThoseOfLinksToTheFile) {
  made.library("opt/pkg/lib/liba.so", {"libb.so"}, with_runpath("$ORIGIN/../deps:${ORIGIN}"));
  made.library("opt/pkg/deps/libb.so");
  made.library("usr/local/deps/libb.so");
  made.link("usr/local/lib/liba.so", "/opt/pkg/lib/liba.so");
  EXPECT_THAT(matches("opt/pkg/lib/liba.so"), ElementsAre("opt/pkg/deps/libb.so", "usr/local/deps/libb.so"));
  EXPECT_THAT(matches("usr/local/lib/liba.so"), ElementsAre("usr/local/deps/libb.so")) << "opened by this name";
}

TEST_F(LoaderTest, LibAndPlatformAreExpanded) {
  made.library("lib/x86_64-linux-gnu/libc.so.6");
  made.library("p/lib/x86_64-linux-gnu/liba.so");
  made.library("p/haswell/liba.so");
  made.library("x", {"liba.so"}, with_runpath("/p/$LIB:/p/$PLATFORM"));
  EXPECT_THAT(matches("x"), ElementsAre("p/lib/x86_64-linux-gnu/liba.so", "p/haswell/liba.so"));
}

TEST_F(LoaderTest, OtherMachinesAndClassesArePassedOver) {
  index::ElfFacts arm, small;
  arm.machine = 183;
  small.is_64 = false;
  small.machine = 3;
  made.library("a/liby.so", {}, arm);
  made.library("b/liby.so", {}, small);
  made.file("c/liby.so", "no ELF file");
  made.library("lib/liby.so");
  made.library("x", {"liby.so"}, with_runpath("/a:/b:/c"));
  EXPECT_THAT(matches("x"), ElementsAre("lib/liby.so"));
}

TEST_F(LoaderTest, HwcapsSubdirectoriesComeFirst) {
  for (const auto* dir : {"a", "a/glibc-hwcaps/x86-64-v2", "a/glibc-hwcaps/x86-64-v3", "a/tls", "a/haswell/x86_64"})
    made.library(std::string(dir) + "/liby.so");
  made.library("x", {"liby.so"}, with_runpath("/a"));
  EXPECT_THAT(matches("x"), ElementsAre("a/glibc-hwcaps/x86-64-v3/liby.so", "a/glibc-hwcaps/x86-64-v2/liby.so",
                                        "a/tls/liby.so", "a/haswell/x86_64/liby.so", "a/liby.so"));
}

TEST_F(LoaderTest, DefaultFoldersAreThoseOfTheImagesLoader) {
  for (const auto* dir : {"lib/x86_64-linux-gnu", "usr/lib", "lib64", "usr/lib64"})
    made.library(std::string(dir) + "/liby.so");
  made.library("x", {"liby.so"});
  EXPECT_THAT(matches("x"), ElementsAre("usr/lib/liby.so")) << "no libc known";
  made.library("lib64/libc.so.6");
  EXPECT_THAT(matches("x"), ElementsAre("lib64/liby.so", "usr/lib64/liby.so"));
  made.library("lib/x86_64-linux-gnu/libc.so.6");
  EXPECT_THAT(matches("x"), ElementsAre("lib/x86_64-linux-gnu/liby.so", "usr/lib/liby.so"));
}

TEST_F(LoaderTest, CacheEntriesCountForTheirMachineAndTheMostDemandingComesFirst) {
  const std::uint64_t v = (1ull << 30) << 32;
  options.cache = new_cache({{0x0303, "liby.so", "/c1/liby.so"},
                             {0x0003, "liby.so", "/c32/liby.so"},
                             {0x0303, "liby.so", "/c2/liby.so", v | 0},
                             {0x0303, "liby.so", "/c3/liby.so", v | 1},
                             {0x0303, "liby.so", "/stale/liby.so"}},
                            {"x86-64-v2", "x86-64-v3"});
  for (const auto* dir : {"c1", "c32", "c2", "c3"}) made.library(std::string(dir) + "/liby.so");
  made.library("x", {"liby.so"});
  EXPECT_THAT(matches("x"), ElementsAre("c3/liby.so", "c2/liby.so", "c1/liby.so"));
}

TEST_F(LoaderTest, BrokenCacheIsAProblemAndTheRestGoesOn) {
  made.library("lib/liby.so");
  made.library("x", {"liby.so"});
  options.cache = new_cache({{0x0303, "liby.so", "/c/liby.so"}}).substr(0, 60);
  EXPECT_THAT(Loader(made.tree, options).problems(), ElementsAre("etc/ld.so.cache: 1 entries do not fit in 60 bytes"));
  EXPECT_THAT(matches("x"), ElementsAre("lib/liby.so"));
}

TEST_F(LoaderTest, NamesWithSlashesAreNotSearched) {
  made.library("opt/liby.so");
  made.library("lib/libz.so");
  made.library("a/x", {"/opt/liby.so"});
  made.library("a/y", {"$ORIGIN/../opt/liby.so"});
  made.library("a/z", {"./libz.so"});
  EXPECT_THAT(matches("a/x"), ElementsAre("opt/liby.so"));
  EXPECT_THAT(matches("a/y"), ElementsAre("opt/liby.so"));
  EXPECT_THAT(matches("a/z"), IsEmpty());
}

TEST_F(LoaderTest, LinksAreFollowedInsideTheImage) {
  made.library("opt/libs/liby.so.1.2");
  made.link("opt/current", "libs");
  made.link("usr/lib/liby.so.1", "../../opt/current/liby.so.1.2");
  made.link("loop/a", "b");
  made.link("loop/b", "a");
  made.library("x", {"liby.so.1"});
  EXPECT_THAT(matches("x"), ElementsAre("opt/libs/liby.so.1.2"));
  const Loader loader(made.tree, options);
  std::vector<std::string> links;
  EXPECT_EQ(loader.real_path("/usr/lib/liby.so.1", &links), "opt/libs/liby.so.1.2");
  EXPECT_THAT(links, ElementsAre("usr/lib/liby.so.1", "opt/current"));
  EXPECT_EQ(loader.real_path("loop/a"), "");
  EXPECT_EQ(loader.real_path("../../opt/libs/../libs/liby.so.1.2"), "opt/libs/liby.so.1.2");
  EXPECT_EQ(loader.real_path("opt/libs/liby.so.1.2/x"), "");
}

TEST_F(LoaderTest, FilesOfTheSameFolderAreFoundAsSiblings) {
  made.library("site/torch/lib/libtorch.so", {"libc10.so"});
  made.library("site/torch/lib/libc10.so");
  const Loader loader(made.tree, options);
  const auto needs = loader.resolve("site/torch/lib/libtorch.so");
  EXPECT_THAT(needs[0].matches, ElementsAre("site/torch/lib/libc10.so"));
  EXPECT_TRUE(needs[0].sibling);
}

TEST_F(LoaderTest, AClosureInheritsAlongEveryWay) {
  made.library("site/numpy/core.so", {"liba.so"}, with_rpath("$ORIGIN/../numpy.libs"));
  made.library("site/numpy.libs/liba.so", {"libb.so"});
  made.library("site/numpy.libs/libb.so", {"libc.so"});
  made.library("lib/libc.so", {"libd.so", "libgone.so"});
  made.library("site/numpy.libs/libd.so");
  made.library("site/unrelated.so");
  const Loader loader(made.tree, options);
  NeedsClosure closure(loader);
  closure.add("site/numpy/core.so");
  std::map<std::string, std::string> found;
  closure.run([&](const std::string& path, const std::string& by) { found[path] = by; });
  EXPECT_THAT(found, ::testing::UnorderedElementsAre(std::pair("site/numpy.libs/liba.so", "site/numpy/core.so"),
                                                     std::pair("site/numpy.libs/libb.so", "site/numpy.libs/liba.so"),
                                                     std::pair("lib/libc.so", "site/numpy.libs/libb.so"),
                                                     std::pair("site/numpy.libs/libd.so", "lib/libc.so")));
  EXPECT_THAT(unresolved(loader), ElementsAre(Unresolved{"lib/libc.so", "libgone.so"}));
}

TEST_F(LoaderTest, TheElfGateNamesWhatIsNotThereAnyMore) {
  made.library("usr/bin/tool", {"liba.so", "libnever.so"});
  made.library("usr/lib/liba.so");
  auto after = made;
  after.tree.entries.erase("usr/lib/liba.so");
  after.library("opt/new.so", {"libnew.so"});
  const Loader old_loader(made.tree, options), new_loader(after.tree, options);
  EXPECT_THAT(newly_unresolved(old_loader, new_loader),
              ElementsAre("opt/new.so needs libnew.so, which is not there",
                          "usr/bin/tool needs liba.so, which is not there any more"));
  EXPECT_THAT(newly_unresolved(old_loader, old_loader), IsEmpty());
}

TEST_F(LoaderTest, ProgramsNeedTheirInterpreter) {
  made.library("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2");
  made.link("lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2");
  made.library("lib/x86_64-linux-gnu/libc.so.6", {"ld-linux-x86-64.so.2"});
  index::ElfFacts facts;
  facts.interpreter = "/lib64/ld-linux-x86-64.so.2";
  made.library("bin/x", {"libc.so.6"}, facts);
  const Loader loader(made.tree, options);
  EXPECT_THAT(files_needed_by(loader, "bin/x"),
              ElementsAre("lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"));
}

}  // namespace
}  // namespace varve::elf
