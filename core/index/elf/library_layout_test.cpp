#include "core/index/elf/library_layout.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/files/file.h"
#include "testing/elf_file.h"

namespace varve::index {
namespace {

using test::ElfFile;
using test::kAddress;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = LibraryLayout::Kind;

std::optional<LibraryLayout> layout_of(const Bytes& file) {
  return LibraryLayout::of(ByteView(file).first(std::min(file.size(), LibraryLayout::kHeadBytes)), file.size());
}
ByteView part(const Bytes& file, ByteRange range) { return ByteView(file).subspan(range.offset, range.length); }

std::vector<std::pair<Kind, std::string>> names_of(const Bytes& file) {
  const auto layout = layout_of(file);
  if (!layout) return {};
  std::vector<std::pair<Kind, std::string>> names;
  for (const auto& name : layout->names(part(file, layout->dynamic_section())))
    if (const auto text = LibraryLayout::text_of(part(file, name.in_file))) names.emplace_back(name.kind, *text);
  return names;
}

// What a library of this machine says of itself by its dynamic section, with further entries.
ElfFile with_entries(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& entries) {
  ElfFile file;
  file.edit = [=](Bytes& out) { file.add_entries(out, entries); };
  return file;
}

TEST(LibraryLayoutTest, NamesWhatIsNeededAndWhereItIsLookedFor) {
  const auto file = ElfFile{}.make();
  EXPECT_THAT(names_of(file), ElementsAre(std::pair(Kind::kNeeded, "libm.so.6"), std::pair(Kind::kNeeded, "libc.so.6"),
                                          std::pair(Kind::kSearchPath, "$ORIGIN/../lib")));
  EXPECT_EQ(layout_of(file)->interpreter(), "");
}

TEST(LibraryLayoutTest, SaysHowOthersAskForIt) {
  const auto file = ElfFile{}.make();
  const auto layout = layout_of(file);
  const auto at = layout->soname(part(file, layout->dynamic_section()));
  ASSERT_TRUE(at);
  EXPECT_EQ(LibraryLayout::text_of(part(file, *at)), "libme.so.1");
  const auto unnamed = ElfFile{.names = {{1, "libc.so.6"}}}.make();
  EXPECT_FALSE(layout_of(unnamed)->soname(part(unnamed, layout->dynamic_section())));
}

TEST(LibraryLayoutTest, AProgramHasALoader) {
  const auto layout = layout_of(ElfFile{.type = ET_EXEC, .interpreter = "/lib64/ld-linux-x86-64.so.2"}.make());
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->interpreter(), "/lib64/ld-linux-x86-64.so.2");
  EXPECT_FALSE(layout_of(ElfFile{.type = ET_EXEC, .dynamic_at = 0}.make())) << "a static program: nothing is loaded";
}

TEST(LibraryLayoutTest, WhatNoLoaderOfThisMachineLoadsIsNone) {
  EXPECT_FALSE(layout_of(ElfFile{.is_64 = false}.make()));
  EXPECT_FALSE(layout_of(ElfFile{.big_endian = true}.make()));
  EXPECT_FALSE(layout_of(ElfFile{.type = ET_REL}.make()));
  EXPECT_FALSE(layout_of(ElfFile{.segments_at = 5000}.make())) << "program headers behind the head";
  EXPECT_FALSE(layout_of(to_bytes(as_bytes("#!/bin/sh\n"))));
  EXPECT_FALSE(layout_of({}));
  auto file = ElfFile{}.make();
  EXPECT_FALSE(LibraryLayout::of(ByteView(file).first(40), file.size())) << "it ends inside its header";
}

TEST(LibraryLayoutTest, TablesOutsideTheFileAreLeftOut) {
  for (const std::uint64_t outside : {std::uint64_t(0), kAddress + 8192, kAddress - 1, UINT64_MAX}) {
    const auto file = with_entries({{DT_STRTAB, outside}, {DT_RELA, outside}, {DT_RELASZ, UINT64_MAX}}).make();
    const auto layout = layout_of(file);
    ASSERT_TRUE(layout);
    const auto dynamic = part(file, layout->dynamic_section());
    EXPECT_THAT(layout->names(dynamic), IsEmpty()) << outside;
    EXPECT_THAT(layout->read_at_load(dynamic), IsEmpty()) << outside;
  }
  ElfFile file;
  file.edit = [&](Bytes& out) { file.segment(out, 1, PT_DYNAMIC, 8000, 4096); };
  EXPECT_FALSE(layout_of(file.make()));
  file.edit = [&](Bytes& out) { file.segment(out, 0, PT_LOAD, UINT64_MAX - 4096, 8192); };
  EXPECT_THAT(names_of(file.make()), IsEmpty());
}

TEST(LibraryLayoutTest, ReadsTablesToTheNextOneAndWhatMayBeRelocated) {
  auto file = with_entries({{DT_GNU_HASH, kAddress + 700},
                            {DT_SYMTAB, kAddress + 800},
                            {DT_RELA, kAddress + 2000},
                            {DT_RELASZ, 240},
                            {DT_JMPREL, kAddress + 3000},
                            {DT_PLTRELSZ, 48}});
  const auto tables = file.edit;
  file.names = {{DT_NEEDED, "libc.so.6"}};  // a string table of 11 bytes, at 1024
  auto bytes = file.make();
  auto layout = layout_of(bytes);
  EXPECT_THAT(layout->read_at_load(part(bytes, layout->dynamic_section())),
              ElementsAre(ByteRange{700, 335}, ByteRange{2000, 240}, ByteRange{3000, 48}));
  file.edit = [&](Bytes& out) {
    tables(out);
    file.set_flags(out, 0, PF_R | PF_W);
  };
  bytes = file.make();
  layout = layout_of(bytes);
  EXPECT_THAT(layout->read_at_load(part(bytes, layout->dynamic_section())), ElementsAre(ByteRange{0, 8192}))
      << "all may be written to";
}

TEST(LibraryLayoutTest, ReadsABoundedPartOfAHugeOne) {
  const std::uint64_t size = LibraryLayout::kMaxReadAtLoad + 100'000;
  ElfFile file{.size = size};
  file.edit = [&](Bytes& out) { file.set_flags(out, 0, PF_R | PF_W); };
  const auto bytes = file.make();
  const auto layout = layout_of(bytes);
  EXPECT_THAT(layout->read_at_load(part(bytes, layout->dynamic_section())),
              ElementsAre(ByteRange{0, LibraryLayout::kMaxReadAtLoad}));
}

// As libtensorflow_cc has them: 87 MB of names, in front of the relocations.
TEST(LibraryLayoutTest, WhatIsReadAsAWholeComesBeforeWhatNamesAreLookedUpIn) {
  constexpr std::uint64_t kMost = LibraryLayout::kMaxReadAtLoad, kNames = LibraryLayout::kMaxLookedUp;
  const auto read_of = [](std::uint64_t names, std::uint64_t relocations) {
    auto file = with_entries({{DT_SYMTAB, kAddress + 4096},
                              {DT_STRTAB, kAddress + 8192},
                              {DT_STRSZ, names},
                              {DT_RELA, kAddress + 8192 + names},
                              {DT_RELASZ, relocations}});
    file.size = 8192 + names + relocations + 4096;
    const auto bytes = file.make();
    const auto layout = layout_of(bytes);
    return layout->read_at_load(part(bytes, layout->dynamic_section()));
  };
  EXPECT_THAT(read_of(kNames, 4096), ElementsAre(ByteRange{4096, 4096 + kNames + 4096}));
  EXPECT_THAT(read_of(kNames + 1, 4096), ElementsAre(ByteRange{4096, 4096}, ByteRange{8192 + kNames + 1, 4096}));
  EXPECT_THAT(read_of(8192, kMost - 4096), ElementsAre(ByteRange{4096, 4096}, ByteRange{16384, kMost - 4096}));
}

TEST(LibraryLayoutTest, NamesWithoutEndOrTooLongAreLeftOut) {
  const auto file = ElfFile{.names = {{DT_NEEDED, std::string(LibraryLayout::kMaxNameBytes, 'x')},
                                      {DT_NEEDED, std::string(LibraryLayout::kMaxNameBytes - 1, 'y')}}};
  EXPECT_THAT(names_of(file.make()),
              ElementsAre(std::pair(Kind::kNeeded, std::string(LibraryLayout::kMaxNameBytes - 1, 'y'))));
}

TEST(LibraryLayoutTest, OfThisVeryProgram) {
  const auto bytes = read_file("/proc/self/exe");
  const auto layout = layout_of(bytes);
  ASSERT_TRUE(layout);
  EXPECT_THAT(layout->interpreter(), ::testing::HasSubstr("ld-linux"));
  EXPECT_THAT(names_of(bytes), ::testing::Contains(std::pair(Kind::kNeeded, std::string("libc.so.6"))));
}

}  // namespace
}  // namespace varve::index
