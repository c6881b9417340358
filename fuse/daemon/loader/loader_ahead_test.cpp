#include "fuse/daemon/loader/loader_ahead.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "core/base/files/file.h"
#include "testing/elf_file.h"
#include "testing/fake_layer_stream.h"
#include "testing/made_bytecode.h"
#include "testing/temp_dir.h"
#include "testing/trees.h"

namespace varve::fuse {
namespace {

using namespace std::chrono_literals;
using test::ElfFile;

constexpr std::uint64_t kApart = 1 << 20;  // of two files: more than what is fetched around them

// A layer of which start-up packs hold some.
class LearntFile final : public StreamFile {
 public:
  LearntFile(std::shared_ptr<LayerStream> layer, const std::vector<ByteRange>& learnt)
      : file_(std::move(layer)), learnt_(learnt) {}
  std::uint64_t size() const override { return file_.size(); }
  void find_pieces(ByteRange range, std::uint64_t into, std::vector<StreamPiece>& pieces) const override {
    file_.find_pieces(range, into, pieces);
    pieces.back().learnt = std::ranges::any_of(learnt_, [&](const ByteRange& one) { return one.overlaps(range); });
  }

 private:
  LayerFile file_;
  const std::vector<ByteRange>& learnt_;
};

// A tree of one layer whose files are what a test puts there.
class LoaderAheadTest : public ::testing::Test {
 protected:
  void add(const std::string& path, Bytes content) {
    const auto at = next_;
    next_ += (content.size() / kApart + 1) * kApart;
    places_[path] = {at, content.size()};
    test::put(
        tree_, path,
        test::make_file(content.size(),
                        {{.layer = 0, .run = {.file_offset = 0, .stream_offset = at, .length = content.size()}}}));
    content_.resize(at);
    append(content_, content);
  }
  // Needs `needed`, which it looks for in `search_path`.
  void add_library(const std::string& path, const std::vector<std::string>& needed, const std::string& search_path = {},
                   std::string interpreter = {}) {
    ElfFile file{.size = 64 << 10, .dynamic_at = 48 << 10, .strings_at = 32 << 10, .interpreter = interpreter};
    file.names.clear();
    for (const auto& name : needed) file.names.emplace_back(DT_NEEDED, name);
    if (!search_path.empty()) file.names.emplace_back(DT_RUNPATH, search_path);
    file.names.emplace_back(DT_SONAME, "me");
    add(path, file.make());
  }
  void add_link(const std::string& path, const std::string& target) {
    test::put(tree_, path, test::make_symlink(target));
  }

  void open() {
    add_modules({kLastModule});
    next_ += kApart;
    content_.resize(next_);
    write_file_atomically(dir_ / "layer", content_);
    layer_ = std::make_shared<test::FakeLayerStream>(dir_ / "layer", next_);
    layer_->set_missing();
    layer_->keep_what_comes();
    tree_.layers = 1;
    written_ = index::write_erofs(tree_, {layer_->map().diff_id.hex()}, {next_});
    reader_ = std::make_unique<index::ErofsReader>(written_.bytes, "the test's tree");
    const auto file = std::make_shared<LearntFile>(layer_, learnt_);
    ahead_ = std::make_shared<LoaderAhead>(*reader_, std::vector<std::shared_ptr<StreamFile>>{file});
    file_ = std::make_shared<WatchedFile>(file, 1, ahead_);
  }
  void begin() { open(), ahead_->begin(); }
  ~LoaderAheadTest() override {
    if (ahead_) ahead_->end();
  }

  // As the kernel asks for a page of a file.
  void read_at(const std::string& path, std::uint64_t offset) {
    std::vector<StreamPiece> pieces;
    file_->find_pieces({places_.at(path).offset + offset, 4096}, 0, pieces);
    EXPECT_EQ(pieces.size(), 1u);
  }
  void read_head(const std::string& path) { read_at(path, 0); }
  // Files of that length.
  void add_modules(const std::vector<std::string>& paths, std::size_t bytes = 3000) {
    for (const auto& path : paths) add(path, Bytes(bytes));
  }
  bool all_are_wanted(const std::vector<std::string>& paths) {
    return comes([&] {
      return std::ranges::all_of(paths, [&](const auto& path) { return is_wanted(path, {0, places_[path].length}); });
    });
  }
  bool is_wanted(const std::string& path, ByteRange in_file) {
    const ByteRange wanted{places_.at(path).offset + in_file.offset, in_file.length};
    return std::ranges::any_of(layer_->wished(), [&](const ByteRange& range) {
      return range.offset <= wanted.offset && range.end() >= wanted.end();
    });
  }
  // The first page, the dynamic section and the names.
  bool has_been_read(const std::string& path) { return is_wanted(path, {0, 4096}) && is_wanted(path, {48 << 10, 80}); }
  // False if one of them does not come in a minute.
  template <typename Condition>
  static bool comes(const Condition& condition) {
    for (const auto until = std::chrono::steady_clock::now() + 60s; !condition(); std::this_thread::sleep_for(1ms))
      if (std::chrono::steady_clock::now() > until) return false;
    return true;
  }
  bool all_are_read(const std::vector<std::string>& paths) {
    return comes([&] { return std::ranges::all_of(paths, [&](const auto& path) { return has_been_read(path); }); });
  }
  // Nothing tells that no more comes: something else that is begun afterwards must be through. Modules become known by
  // themselves.
  void settle() {
    read_head(kLastModule);
    EXPECT_TRUE(all_are_wanted({kLastModule}));
    read_head("settle/bin/last");
    EXPECT_TRUE(all_are_read({"settle/bin/last"}));
  }
  void expect_untouched(const std::vector<std::string>& paths) {
    for (const auto& path : paths) EXPECT_FALSE(is_wanted(path, {0, 1})) << path;
  }

  static constexpr const char* kLastModule = "settle/__pycache__/last.cpython-311.pyc";
  test::TempDir dir_;
  index::Tree tree_;
  Bytes content_;
  std::uint64_t next_ = kApart;
  std::map<std::string, ByteRange> places_;
  std::vector<ByteRange> learnt_;
  std::shared_ptr<test::FakeLayerStream> layer_;
  index::ErofsImage written_;
  std::unique_ptr<index::ErofsReader> reader_;
  std::shared_ptr<LoaderAhead> ahead_;
  std::shared_ptr<WatchedFile> file_;
};

TEST_F(LoaderAheadTest, AHeadBringsAllThatItsLoadReads) {
  add_library("usr/bin/python3", {"libc.so.6"}, "", "/lib64/ld-linux-x86-64.so.2");
  add_library("usr/lib/x86_64-linux-gnu/libc.so.6", {});
  add_library("lib64/ld-linux-x86-64.so.2", {});
  add_library("opt/site/torch/_C.so", {"libtorch.so", "libc.so.6"}, "$ORIGIN/lib");
  add_library("opt/site/torch/lib/libtorch.so", {"libcublas.so.12"}, "$ORIGIN/../../nvidia/cublas/lib:${ORIGIN}");
  add_library("opt/site/nvidia/cublas/lib/libcublas.so.12.4", {});
  add_link("opt/site/nvidia/cublas/lib/libcublas.so.12", "libcublas.so.12.4");
  add_library("opt/site/other/libother.so", {});
  begin();
  read_head("usr/bin/python3");
  EXPECT_TRUE(all_are_read({"usr/bin/python3", "usr/lib/x86_64-linux-gnu/libc.so.6", "lib64/ld-linux-x86-64.so.2"}));
  expect_untouched({"opt/site/torch/_C.so", "opt/site/torch/lib/libtorch.so"});
  read_head("opt/site/torch/_C.so");
  EXPECT_TRUE(all_are_read(
      {"opt/site/torch/_C.so", "opt/site/torch/lib/libtorch.so", "opt/site/nvidia/cublas/lib/libcublas.so.12.4"}));
  expect_untouched({"opt/site/other/libother.so"});
}

// Init functions of a library, each with one to run at exit: 64 KiB of tables, 2 MiB of code, 64 KiB of data.
struct LibraryWithInit {
  static constexpr std::uint64_t kCode = 64 << 10, kCodeBytes = 2 << 20, kData = kCode + kCodeBytes;
  static constexpr std::uint64_t kFunctions = 16;
  static constexpr std::uint64_t kCalled = kCode + 28 * (64 << 10);  // what all of them call
  static constexpr std::uint64_t at_exit(std::uint64_t function) { return kCode + (function + 8) * (64 << 10); }

  // Where the relocations lie that have so many bytes.
  static constexpr std::uint64_t relocations_at(std::uint64_t bytes) {
    return bytes == kFunctions * 24 ? 16384 : kData + (64 << 10);
  }
  static Bytes make(const std::string& name, std::uint64_t relocations = kFunctions * 24,
                    const std::string& needed = "") {
    const auto relocations_begin = relocations_at(relocations);
    ElfFile file{.size = kData + (64 << 10) + (relocations_begin == 16384 ? 0 : relocations),
                 .names = {{DT_SONAME, name}}};
    if (!needed.empty()) file.names.emplace_back(DT_NEEDED, needed);
    file.edit = [&](Bytes& out) {
      using test::kAddress;
      file.set_segments(out, 5);
      file.segment(out, 0, PT_LOAD, 0, kCode);
      file.set_flags(out, 0, PF_R);
      file.segment(out, 2, PT_LOAD, kCode, kCodeBytes);
      file.set_flags(out, 2, PF_R | PF_X);
      file.segment(out, 3, PT_LOAD, kData, 64 << 10);
      file.set_flags(out, 3, PF_R | PF_W);
      file.segment(out, 4, PT_LOAD, kData + (64 << 10), file.size - kData - (64 << 10));
      file.set_flags(out, 4, PF_R);
      file.add_entries(out, {{DT_RELA, kAddress + relocations_begin}, {DT_RELASZ, relocations}, {DT_RELAENT, 24}});
      // No tag tells of the functions: -1, functions, 0.
      file.put(out, kData, UINT64_MAX);
      for (std::uint64_t i = 0; i < kFunctions; ++i) {
        const auto function = kCode + i * 256;
        file.put(out, relocations_begin + 24 * i, kAddress + kData + 8 * (i + 1));
        file.put(out, relocations_begin + 24 * i + 8, std::uint64_t(R_X86_64_RELATIVE));
        file.put(out, relocations_begin + 24 * i + 16, kAddress + function);
        const std::uint8_t lea[] = {0x48, 0x8D, 0x3D}, call[] = {0xE8};
        std::ranges::copy(std::as_bytes(std::span(lea)), &out[function]);
        file.put(out, function + 3, std::uint32_t(at_exit(i) - (function + 7)));
        std::ranges::copy(std::as_bytes(std::span(call)), &out[function + 7]);
        file.put(out, function + 8, std::uint32_t(kCalled - (function + 12)));
      }
    };
    return file.make();
  }
};

TEST_F(LoaderAheadTest, WhoExitsGetsWhatInitFunctionsLeftForThat) {
  using Made = LibraryWithInit;
  const std::string first = "opt/site-packages/a/libfirst.so", second = "opt/site-packages/a/libsecond.so";
  add(first, Made::make("libfirst.so"));
  add(second, Made::make("libsecond.so"));
  add_library("settle/bin/last", {});
  begin();
  const auto has_started = [&](const std::string& path) {
    return comes([&] { return is_wanted(path, {Made::kCalled, 64 << 10}); });
  };
  read_head(first);
  EXPECT_TRUE(has_started(first)) << "what its init functions call";
  read_head(second);
  EXPECT_TRUE(has_started(second));
  settle();
  const ByteRange left_for_exit{Made::at_exit(4), 64 << 10};
  EXPECT_FALSE(is_wanted(first, left_for_exit));
  // They are in a list that runs from its end: what its first function registered exits first.
  read_at(second, Made::at_exit(0));
  read_at(second, Made::at_exit(1));
  settle();
  EXPECT_FALSE(is_wanted(second, left_for_exit));
  read_at(second, Made::at_exit(2));
  for (const auto& path : {second, first}) EXPECT_TRUE(comes([&] { return is_wanted(path, left_for_exit); })) << path;
  EXPECT_TRUE(comes([&] { return is_wanted(first, {Made::at_exit(0), 64 << 10}); }));
  EXPECT_FALSE(is_wanted(second, {Made::at_exit(0), 64 << 10})) << "its reader has it";
}

// ldconfig reads the heads of all libraries of a folder, dynamic sections and names, and loads none.
TEST_F(LoaderAheadTest, WhoseRelocationsNobodyReadsIsNotStarted) {
  using Made = LibraryWithInit;
  const std::string scanned = "opt/site-packages/a/liblarge.so", module = "opt/site-packages/b/module.so";
  add(scanned, Made::make("liblarge.so", 1 << 20));
  add("usr/lib/libneeded.so", Made::make("libneeded.so", 1 << 20));
  add(module, Made::make("module.so", 1 << 20, "libneeded.so"));
  add_library("settle/bin/last", {});
  begin();
  const ByteRange called{Made::kCalled, 64 << 10};
  read_head(scanned);
  EXPECT_TRUE(comes([&] { return is_wanted(scanned, {Made::relocations_at(1 << 20), 1 << 20}); }));
  settle();
  EXPECT_FALSE(is_wanted(scanned, called));
  read_at(scanned, Made::relocations_at(1 << 20) + (1 << 20) - 4096);
  EXPECT_TRUE(comes([&] { return is_wanted(scanned, called); }));
  // Nobody reads the head of an extension module but who loads it.
  read_head(module);
  for (const auto& path : {module, std::string("usr/lib/libneeded.so")})
    EXPECT_TRUE(comes([&] { return is_wanted(path, called); })) << path;
}

TEST_F(LoaderAheadTest, TablesAndRelocatedDataComeLast) {
  ElfFile file{.size = 1 << 20, .dynamic_at = 4096, .strings_at = 2048, .names = {{DT_NEEDED, "libdata.so"}}};
  file.edit = [&](Bytes& out) { file.put(out, 64 + 4, std::uint32_t(PF_R | PF_W)); };
  add("app/bin/app", file.make());
  file.names = {{DT_SONAME, "libdata.so"}};
  add("usr/lib/libdata.so", file.make());
  begin();
  read_head("app/bin/app");
  for (const auto* path : {"app/bin/app", "usr/lib/libdata.so"})
    EXPECT_TRUE(comes([&] { return is_wanted(path, {0, 1 << 20}); })) << path;
}

TEST_F(LoaderAheadTest, ALibraryThatNobodyNamesBeforehandIsFoundAnywhere) {
  add_library("opt/a/_a.so", {"libfar.so.1"});
  add_library("srv/deep/down/libfar.so.1", {});
  begin();
  read_head("opt/a/_a.so");
  EXPECT_TRUE(all_are_read({"srv/deep/down/libfar.so.1"}));
}

TEST_F(LoaderAheadTest, HeadsThatEverybodyReadsTellNothing) {
  add_library("usr/lib/libneeds.so.1", {"libother.so.1"});  // ldconfig reads them all, and loads none
  add_library("usr/lib/ld-linux.so.2", {"libother.so.1"});
  add_library("usr/lib/libother.so.1", {});
  add("usr/share/bin", to_bytes(as_bytes("not a folder")));
  add("usr/share/data.so.txt", Bytes(5000));
  add_library("settle/bin/last", {});
  begin();
  for (const auto* path : {"usr/lib/libneeds.so.1", "usr/lib/ld-linux.so.2", "usr/share/bin", "usr/share/data.so.txt"})
    read_head(path);
  settle();
  expect_untouched({"usr/lib/libneeds.so.1", "usr/lib/ld-linux.so.2", "usr/lib/libother.so.1", "usr/share/bin"});
}

TEST_F(LoaderAheadTest, LibrariesOfPythonPackagesAreLoadedByThemselves) {
  add_library("opt/site-packages/nvidia/lib/libcublas.so.12", {"libcublasLt.so.12"}, "$ORIGIN");
  add_library("opt/site-packages/nvidia/lib/libcublasLt.so.12", {});
  add_library("opt/site-packages/nvidia/lib/libcudart.so.12", {});
  add_library("opt/site-packages/nvidia/lib/libother.so.1", {});
  add_library("settle/bin/last", {});
  begin();
  read_head("opt/site-packages/nvidia/lib/libcublas.so.12");
  EXPECT_TRUE(all_are_read({"opt/site-packages/nvidia/lib/libcublasLt.so.12"}));
  read_head("opt/site-packages/nvidia/lib/libcudart.so.12");
  settle();
  expect_untouched({"opt/site-packages/nvidia/lib/libother.so.1"});  // no extension module: two say nothing of a third
}

TEST_F(LoaderAheadTest, NothingIsFetchedBeforeItBegins) {
  add_library("usr/bin/program", {});
  add_library("settle/bin/last", {});
  open();
  read_head("usr/bin/program");
  ahead_->begin();
  settle();
  expect_untouched({"usr/bin/program"});
}

TEST_F(LoaderAheadTest, WhatIsReadWhileTheTreeIsWalkedIsNotLost) {
  for (int i = 0; i < 3000; ++i) test::put(tree_, "many/names" + std::to_string(i), test::make_symlink("x"));
  add_library("usr/bin/program", {});
  begin();
  read_head("usr/bin/program");
  EXPECT_TRUE(all_are_read({"usr/bin/program"}));
}

TEST_F(LoaderAheadTest, WhereStartsAreLearntTheFirstReadThatIsNotIsWhatItBeginsWith) {
  add_library("usr/bin/program", {"libone.so"});
  add_library("usr/lib/libone.so", {});
  add_library("settle/bin/last", {});
  open();
  read_head("usr/bin/program");
  ahead_->begin(LoaderAhead::LookThrough::kAtFirstRead);
  settle();
  expect_untouched({"usr/bin/program"});
  read_head("usr/bin/program");
  EXPECT_TRUE(all_are_read({"usr/bin/program", "usr/lib/libone.so"}));
}

TEST_F(LoaderAheadTest, WhoHasReadNothingEndsWithoutALookAtTheTree) {
  add_library("usr/bin/program", {});
  open();
  ahead_->begin(LoaderAhead::LookThrough::kAtFirstRead);
  ahead_->end();
  read_head("usr/bin/program");
  expect_untouched({"usr/bin/program"});
}

TEST_F(LoaderAheadTest, CirclesAndWrongFilesEnd) {
  add_library("opt/a/_a.so", {"libb.so", "liba.so", "libnone.so", "../../../../../etc/passwd", "text.so", "folder.so"});
  add_library("opt/a/libb.so", {"liba.so", "libb.so", ""});
  add_library("opt/a/liba.so", {"libb.so"});
  add("opt/a/text.so", to_bytes(as_bytes("no library")));
  test::put(tree_, "opt/a/folder.so/x", test::make_symlink("x"));
  add_link("opt/a/libnone.so", "libnone.so");
  add_library("settle/bin/last", {});
  begin();
  read_head("opt/a/_a.so");
  EXPECT_TRUE(all_are_read({"opt/a/_a.so", "opt/a/libb.so", "opt/a/liba.so"}));
  settle();
}

TEST_F(LoaderAheadTest, HundredsOfThousandsOfNamesAreNotAllLookedFor) {
  // Each tries 64 folders and more.
  std::string path;
  for (int i = 0; i < 100; ++i) path += "/f:";
  std::vector<std::string> names;
  for (int i = 0; i < 1500; ++i) names.push_back("libx" + std::to_string(i) + ".so");
  for (int i = 0; i < 60; ++i) {
    ElfFile file{.size = 128 << 10, .dynamic_at = 48 << 10, .strings_at = 90 << 10};
    file.names.clear();
    for (const auto& name : names) file.names.emplace_back(DT_NEEDED, name);
    file.names.emplace_back(DT_RUNPATH, path);
    add("opt/m" + std::to_string(i) + ".so", file.make());
  }
  add_library("settle/bin/last", {});
  begin();
  for (int i = 0; i < 60; ++i) read_head("opt/m" + std::to_string(i) + ".so");
  settle();
  EXPECT_TRUE(is_wanted("opt/m59.so", {0, 4096}));
}

TEST_F(LoaderAheadTest, ALibraryThatCannotBeHadStandsInNobodysWay) {
  add_library("opt/a/_a.so", {"libb.so"});
  add_library("opt/a/libb.so", {});
  add_library("opt/c/_c.so", {"libd.so"});
  add_library("opt/c/libd.so", {});
  begin();
  layer_->fail_all("the registry is away");
  read_head("opt/a/_a.so");
  EXPECT_TRUE(comes([&] { return layer_->wishes() > 0; }));
  layer_->set_missing();
  read_head("opt/c/_c.so");
  EXPECT_TRUE(all_are_read({"opt/c/_c.so", "opt/c/libd.so"}));
}

TEST_F(LoaderAheadTest, TheEndWaitsForNothing) {
  add_library("opt/a/_a.so", {"libb.so"});
  add_library("opt/a/libb.so", {});
  begin();
  layer_->hold();
  read_head("opt/a/_a.so");
  layer_->wait_for_wishes(1);
  ahead_->end();
  read_head("opt/a/_a.so");  // the kernel may have the file open for longer
  layer_->arrive();
  expect_untouched({"opt/a/libb.so"});
}

TEST_F(LoaderAheadTest, ASecondExtensionModuleBringsThoseBesideIt) {
  add_library("site-packages/pack/_libs/a.so", {});
  add_library("site-packages/pack/_libs/b.so", {});
  add_library("site-packages/pack/_libs/c.so", {"libneeded.so"});
  add_library("site-packages/pack/_libs/more/d.so", {});
  add_library("usr/lib/libneeded.so", {});
  add_library("usr/bin/one", {});
  add_library("usr/bin/two", {});
  add_library("usr/bin/three", {});
  add_library("settle/bin/last", {});
  begin();
  read_head("site-packages/pack/_libs/a.so");
  read_head("usr/bin/one");
  read_head("usr/bin/two");
  settle();
  expect_untouched({"site-packages/pack/_libs/c.so", "usr/bin/three"});
  read_head("site-packages/pack/_libs/b.so");
  EXPECT_TRUE(all_are_read({"site-packages/pack/_libs/c.so", "usr/lib/libneeded.so"}));
  expect_untouched({"site-packages/pack/_libs/more/d.so", "usr/bin/three"});
}

TEST_F(LoaderAheadTest, WhatPacksBringBeginsNothing) {
  const std::string pack = "site-packages/pack/";
  for (const auto* name : {"a.so", "b.so", "c.so", "d.so"}) add_library(pack + "_libs/" + name, {"libneeded.so"});
  add_library("usr/lib/libneeded.so", {});
  add_library("settle/bin/last", {});
  const std::vector<std::string> modules{pack + "a.py", pack + "b.py", pack + "c.py", pack + "d.py"};
  add_modules(modules);
  for (const auto& path : {pack + "_libs/a.so", pack + "_libs/b.so", modules[0], modules[1]})
    learnt_.push_back(places_.at(path));
  begin();
  for (const auto& path : {pack + "_libs/a.so", pack + "_libs/b.so", modules[0], modules[1]}) read_head(path);
  settle();
  expect_untouched({pack + "_libs/c.so", "usr/lib/libneeded.so", modules[2]});
  // What nobody learnt, of the same package, is guessed as ever; what packs bring is left to them.
  for (const auto& path : {pack + "_libs/c.so", pack + "_libs/d.so", modules[2], modules[3]}) read_head(path);
  EXPECT_TRUE(all_are_read({pack + "_libs/c.so", pack + "_libs/d.so", "usr/lib/libneeded.so"}));
  EXPECT_TRUE(all_are_wanted({modules[2], modules[3]}));
  expect_untouched({pack + "_libs/a.so", modules[0], modules[1]});
}

TEST_F(LoaderAheadTest, OfManyLargeExtensionModulesNoneIsGuessed) {
  ElfFile file{.size = 40 << 20, .dynamic_at = 48 << 10, .strings_at = 32 << 10};
  file.names.clear();
  for (const auto* path : {"opt/large/a.so", "opt/large/b.so"}) add(path, file.make());
  add_library("opt/large/c.so", {});
  add_library("settle/bin/last", {});
  begin();
  read_head("opt/large/a.so");
  read_head("opt/large/b.so");
  settle();
  expect_untouched({"opt/large/c.so"});
}

Bytes bytecode_that_imports(const std::vector<std::string>& modules) {
  test::MadeBytecode made;
  for (const auto& module : modules) made.import(module);
  return made.make();
}

// Each in a folder of its own, as two of one folder bring the rest of that.
TEST_F(LoaderAheadTest, AModuleBringsWhatItImportsAndWhatThatImports) {
  const std::string site = "usr/lib/python3/dist-packages/";
  const auto module = [&](const std::string& package) { return site + package + "/__pycache__/m.cpython-311.pyc"; };
  const auto add_module = [&](const std::string& package, const std::vector<std::string>& imports) {
    add(module(package), bytecode_that_imports(imports));
  };
  const auto init = site + "second/__pycache__/__init__.cpython-311.pyc";
  const auto fast = site + "fast/m.cpython-311-x86_64-linux-gnu.so";
  add_module("first", {"second.m", "fast.m", "unknown.m"});
  add(init, bytecode_that_imports({}));
  add_module("second", {"third.m", "first.m"});  // in a circle
  add_module("third", {"source.m"});
  add(site + "source/m.py", Bytes(3000));
  add_module("other", {"unread.m"});
  add_module("unread", {});
  add_module("learnt", {"unread.m"});
  add(module("broken"), Bytes(3000));
  add_library(fast, {"libfast.so"});
  add_library("usr/lib/libfast.so", {});
  add_library("settle/bin/last", {});
  add_library("settle/bin/very-last", {});
  learnt_.push_back(places_.at(module("learnt")));
  begin();
  read_at(module("other"), 4096);  // what lies behind its head
  read_head(module("broken"));
  read_head(module("learnt"));
  settle();
  expect_untouched({module("unread"), module("first"), init, module("second"), module("third")});
  read_head(module("first"));
  EXPECT_TRUE(all_are_wanted({init, module("second"), module("third"), site + "source/m.py"}));
  EXPECT_TRUE(all_are_read({fast, "usr/lib/libfast.so"}));
  read_head("settle/bin/very-last");
  EXPECT_TRUE(all_are_read({"settle/bin/very-last"}));
  expect_untouched({module("unread"), module("learnt")});
}

TEST_F(LoaderAheadTest, APythonThatBeginsBringsItsCodeAndWhatItReads) {
  const std::string python = "opt/env/bin/python3.11", library = "opt/env/lib/python3.11/";
  const auto code = [](std::uint64_t bytes, const std::vector<std::string>& needed) {
    ElfFile file{.size = bytes, .dynamic_at = 48 << 10, .strings_at = 32 << 10};
    file.names.clear();
    for (const auto& name : needed) file.names.emplace_back(DT_NEEDED, name);
    return file.make();
  };
  add(python, code(3 << 20, {"libpython3.11.so.1.0", "libother.so.1"}));
  add("usr/lib/libpython3.11.so.1.0", code(2 << 20, {}));
  add("usr/lib/libother.so.1", code(2 << 20, {}));
  add("opt/env/bin/python3.11-config", code(2 << 20, {}));
  const std::vector<std::string> read{library + "encodings/__pycache__/__init__.cpython-311.pyc",
                                      library + "site-packages/a.pth", "usr/lib/locale/C.utf8/LC_CTYPE"};
  add_modules(read);
  const std::vector<std::string> others{library + "encodings/__pycache__/cp437.cpython-311.pyc",
                                        library + "__pycache__/site.cpython-311.pyc", library + "site-packages/a.txt",
                                        "opt/other/lib/python3.11/encodings/__pycache__/__init__.cpython-311.pyc"};
  add_modules(others);
  add_library("settle/bin/last", {});
  add_library("settle/bin/very-last", {});
  begin();
  read_head("opt/env/bin/python3.11-config");
  settle();
  expect_untouched({python, read[0], read[1], read[2]});
  read_head(python);
  EXPECT_TRUE(all_are_wanted(read));
  EXPECT_TRUE(comes([&] {
    for (const std::uint64_t at : {0, 1 << 20})
      if (!is_wanted(python, {at, 1 << 20}) || !is_wanted("usr/lib/libpython3.11.so.1.0", {at, 1 << 20})) return false;
    return is_wanted(python, {2 << 20, 1 << 20});
  }));
  read_head("settle/bin/very-last");
  EXPECT_TRUE(all_are_read({"settle/bin/very-last"}));
  expect_untouched(others);
  EXPECT_FALSE(is_wanted("usr/lib/libother.so.1", {1 << 20, 1}));
}

TEST_F(LoaderAheadTest, ASecondPlaceOfAPackageBringsTheRestOfIt) {
  const std::string site = "opt/conda/lib/python3.11/site-packages/";
  const std::vector<std::string> sources{site + "pack/__init__.py", site + "pack/a.py", site + "pack/sub/b.py"};
  const std::vector<std::string> bytecode{site + "pack/__pycache__/a.cpython-311.pyc",
                                          site + "pack/sub/__pycache__/b.cpython-311.pyc"};
  const std::vector<std::string> others{
      site + "pack/tests/test_a.py", site + "pack/sub/test/c.py", site + "six.py",
      site + "pack/sub/data.json",   site + "other/a.py",         "opt/conda/lib/python3.11/a.py"};
  add_modules(sources);
  add_modules(bytecode);
  add_modules(others);
  add_library("settle/bin/last", {});
  begin();
  read_head(sources[0]);
  read_at(sources[0], 2048);
  for (const auto& path : others) read_head(path);
  settle();
  expect_untouched(sources);
  read_head(sources[2]);
  EXPECT_TRUE(all_are_wanted(sources));
  expect_untouched(bytecode);
  expect_untouched(others);
  read_head(bytecode[1]);
  read_head(bytecode[0]);
  EXPECT_TRUE(all_are_wanted(bytecode));
}

TEST_F(LoaderAheadTest, EntryPointsOfAllThatIsInstalledComeTogether) {
  const std::string site = "usr/lib/python3/dist-packages/";
  const std::vector<std::string> all{site + "a-1.dist-info/entry_points.txt", site + "b.egg-info/entry_points.txt",
                                     site + "c-2.dist-info/entry_points.txt"};
  const std::vector<std::string> others{site + "a-1.dist-info/METADATA", site + "d/entry_points.txt",
                                        "opt/site-packages/e-1.dist-info/entry_points.txt"};
  add_modules(all, 50);
  add_modules(others, 50);
  add_library("settle/bin/last", {});
  begin();
  read_head(all[0]);
  for (const auto& path : others) read_head(path);
  settle();
  expect_untouched(all);
  read_head(all[2]);
  EXPECT_TRUE(all_are_wanted(all));
  expect_untouched(others);
}

TEST_F(LoaderAheadTest, ThePackagesOfTheStandardLibraryAreApart) {
  const std::vector<std::string> own{"usr/lib/python3.11/os.py", "usr/lib/python3.11/io.py",
                                     "usr/lib/python3.11/re.py"};
  const std::vector<std::string> json{"usr/lib/python3.11/json/decoder.py", "usr/lib/python3.11/json/tool.py"};
  add_modules(own);
  add_modules(json);
  begin();
  read_head(own[0]);
  read_head(json[0]);
  read_head(own[2]);
  EXPECT_TRUE(all_are_wanted(own));
  expect_untouched(json);
}

TEST_F(LoaderAheadTest, OfALargePackageOnlyTheFolderIsBrought) {
  const std::string pack = "srv/site-packages/pack/";
  add_modules({pack + "a/large.py", pack + "b/large.py"}, 10 << 20);
  add_modules({pack + "a/x.py", pack + "a/y.py", pack + "b/x.py"});
  add_modules({pack + "c/huge.py"}, ModuleTable::kMaxGroupBytes);
  add_modules({pack + "c/x.py", pack + "c/y.py"});
  add_library("settle/bin/last", {});
  begin();
  read_head(pack + "c/x.py");
  read_head(pack + "c/huge.py");
  read_head(pack + "a/x.py");
  read_head(pack + "a/large.py");
  EXPECT_TRUE(all_are_wanted({pack + "a/large.py", pack + "a/x.py", pack + "a/y.py"}));
  settle();
  expect_untouched({pack + "b/x.py", pack + "b/large.py", pack + "c/x.py", pack + "c/y.py"});
}

TEST_F(LoaderAheadTest, ModulesThatShareTheirBytesAreTakenOnce) {
  add_modules({"srv/app/a.py", "srv/app/b.py"});
  const auto a = places_["srv/app/a.py"];
  for (int i = 0; i < 3000; ++i)
    test::put(tree_, "srv/app/same" + std::to_string(i) + ".py",
              test::make_file(
                  a.length, {{.layer = 0, .run = {.file_offset = 0, .stream_offset = a.offset, .length = a.length}}}));
  add_library("settle/bin/last", {});
  begin();
  read_head("srv/app/a.py");
  read_head("srv/app/b.py");
  settle();
  EXPECT_LT(layer_->wishes(), 100u);
}

}  // namespace
}  // namespace varve::fuse
