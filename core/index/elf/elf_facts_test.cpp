#include "core/index/elf/elf_facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "testing/elf_file.h"

namespace varve::index {
namespace {

using test::ElfFile;
using test::kAddress;

constexpr std::uint64_t kMiB = 1024 * 1024;

std::shared_ptr<const ElfFacts> facts_of(ByteView content, std::size_t step, std::uint64_t size) {
  ElfFactsReader reader;
  reader.begin(size);
  for (; !content.empty(); content = content.subspan(std::min(step, content.size())))
    reader.feed(content.first(std::min(step, content.size())));
  return reader.finish();
}

// However it is cut.
std::shared_ptr<const ElfFacts> facts_of(const Bytes& content) {
  const auto whole = facts_of(content, SIZE_MAX, content.size());
  for (const std::size_t step : {1, 7, 4096, 65'521, 512 * 1024}) {
    if (step < 4096 && content.size() > 64 * 1024) continue;
    const auto cut = facts_of(content, step, content.size());
    EXPECT_EQ(whole == nullptr, cut == nullptr) << step;
    if (whole && cut) {
      EXPECT_EQ(*whole, *cut) << "in pieces of " << step << ": " << testing::PrintToString(whole->needed)
                              << testing::PrintToString(cut->needed) << cut->soname << "|" << cut->runpath
                              << whole->broken << " / " << cut->broken;
    }
  }
  return whole;
}
std::shared_ptr<const ElfFacts> facts_of(const ElfFile& file) { return facts_of(file.make()); }

void expect_names(const std::shared_ptr<const ElfFacts>& facts) {
  ASSERT_NE(facts, nullptr);
  EXPECT_EQ(facts->broken, "");
  EXPECT_EQ(facts->needed, (std::vector<std::string>{"libm.so.6", "libc.so.6"}));
  EXPECT_EQ(facts->soname, "libme.so.1");
  EXPECT_EQ(facts->runpath, "$ORIGIN/../lib");
  EXPECT_EQ(facts->rpath, "");
}

TEST(ElfFactsTest, AreReadFromEveryClassAndByteOrder) {
  for (const bool is_64 : {true, false}) {
    for (const bool big_endian : {true, false}) {
      const auto facts =
          facts_of(ElfFile{.is_64 = is_64, .big_endian = big_endian, .machine = 183, .interpreter = "/lib/ld.so"});
      expect_names(facts);
      EXPECT_EQ(facts->is_64, is_64);
      EXPECT_EQ(facts->type, 3);
      EXPECT_EQ(facts->machine, 183);
      EXPECT_EQ(facts->interpreter, "/lib/ld.so");
      EXPECT_FALSE(facts->device_code);
    }
  }
}

TEST(ElfFactsTest, DoNotDependOnWhereTheTablesLie) {
  constexpr std::uint64_t kFar = 9 * kMiB;  // behind the head
  const auto with = [](std::uint64_t segments, std::uint64_t strings, std::uint64_t dynamic, std::uint64_t size) {
    return facts_of(ElfFile{.size = size, .segments_at = segments, .dynamic_at = dynamic, .strings_at = strings});
  };
  expect_names(with(64, 4096, 1024, 8192));
  expect_names(with(7168, 1024, 4096, 8192));                        // program headers behind all
  expect_names(with(64, 1024, kFar, kFar + 4096));                   // as linkers do
  expect_names(with(64, kMaxElfHeadBytes - 16, kFar, kFar + 4096));  // half of it in the head
  expect_names(with(64, 5 * kMiB, kFar, kFar + 4096));               // a large symbol table in front
  expect_names(with(64, 5 * kMiB - 16, kFar, kFar + 4096));
  expect_names(with(64, kFar - 100, kFar, kFar + 4096));  // as patchelf does
  expect_names(with(64, kFar - kMiB - 16, kFar,
                    kFar + 4096));  // across the edge of what is kept in front of the dynamic section
  expect_names(with(64, kFar + 4096, kFar, kFar + 8192));
  expect_names(with(64, 2 * kFar, kFar, 2 * kFar + 8192));
  expect_names(with(kFar - 4096, kFar - 2048, kFar, kFar + 4096));
  expect_names(with(kFar - 4096, 2048, 4096, kFar + 4096));
}

// As the one of TensorFlow's framework library, 16 kB of it.
TEST(ElfFactsTest, KeepLongPathsBehindTheHead) {
  std::string path = "$ORIGIN/../lib";
  while (path.size() < 20'000) path += ":$ORIGIN/../../nvidia/cuda_runtime/lib";
  for (const std::uint64_t at : {5 * kMiB, 5 * kMiB + 500'000}) {
    const auto facts =
        facts_of(ElfFile{.size = 10 * kMiB, .dynamic_at = 9 * kMiB, .strings_at = at, .names = {{29, path}}});
    EXPECT_EQ(facts->broken, "");
    EXPECT_EQ(facts->runpath, path);
  }
}

TEST(ElfFactsTest, SayWhatWasNotKept) {
  ElfFile file{
      .size = 10 * kMiB, .dynamic_at = 9 * kMiB, .strings_at = 5 * kMiB, .names = {{1, "libm.so.6"}, {1, "odd"}}};
  auto facts = facts_of(file);
  EXPECT_EQ(facts->needed, std::vector<std::string>{"libm.so.6"});
  EXPECT_EQ(
      facts->broken,
      "a name of the dynamic section lies behind the file's first 4 MiB, in front of that section, and was not kept");
  file = {.size = 10 * kMiB, .segments_at = 9 * kMiB, .dynamic_at = 5 * kMiB};
  EXPECT_EQ(facts_of(file)->broken,
            "the dynamic section lies in front of the program headers and behind the file's head");
}

TEST(ElfFactsTest, PassOverCodeButNotTheFirstSegment) {
  ElfFile file{.size = 12 * kMiB, .dynamic_at = 11 * kMiB, .strings_at = 5 * kMiB};
  file.edit = [&](Bytes& out) { file.put(out, 64 + 4, std::uint32_t(5)); };
  expect_names(facts_of(file));
  // The same names in a second segment that is code: a string table is never there.
  file.interpreter = "x";
  file.edit = [&](Bytes& out) {
    file.segment(out, 2, 1, 4 * kMiB, 4 * kMiB);
    file.put(out, 64 + 2 * 56 + 4, std::uint32_t(5));
  };
  EXPECT_NE(facts_of(file)->broken, "");
}

TEST(ElfFactsTest, OfFilesWithoutDynamicSection) {
  ElfFile file{.type = 2, .dynamic_at = 0};
  auto facts = facts_of(file);
  EXPECT_EQ(*facts, (ElfFacts{.type = 2,
                              .machine = 62,
                              .interpreter = "",
                              .soname = "",
                              .rpath = "",
                              .runpath = "",
                              .needed = {},
                              .broken = ""}));
  file.type = 1;
  file.edit = [](Bytes& out) { out[32] = std::byte(0), out[56] = std::byte(0); };
  facts = facts_of(file);
  EXPECT_EQ(facts->type, 1);
  EXPECT_EQ(facts->broken, "");
}

TEST(ElfFactsTest, AreOfElfFilesOnly) {
  EXPECT_EQ(facts_of(Bytes()), nullptr);
  EXPECT_EQ(facts_of(to_bytes(as_bytes("\177EL"))), nullptr);
  EXPECT_EQ(facts_of(to_bytes(as_bytes("#!/bin/sh\n\177ELF and more"))), nullptr);
  EXPECT_EQ(facts_of(Bytes(100'000)), nullptr);
  EXPECT_EQ(facts_of(to_bytes(as_bytes("\177ELF")))->broken, "the file ends inside its header");
}

TEST(ElfFactsTest, FindDeviceCodeByTheNamesOfSections) {
  for (const auto* name : {".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment", ".rela.nv_fatbin"}) {
    for (const std::uint64_t names_at : {5120, 7900}) {  // in front of the headers, behind them
      for (const bool is_64 : {true, false}) {
        ElfFile file{.is_64 = is_64, .sections = {".text", name, ".data"}, .section_names_at = names_at};
        EXPECT_EQ(facts_of(file)->device_code, !std::string_view(name).starts_with(".rela"))
            << name << " at " << names_at;
      }
    }
  }
  // A linker may let a name begin inside another.
  ElfFile shared{.sections = {".rela.nv_fatbin", ".text"}};
  shared.edit = [&](Bytes& out) { shared.put(out, shared.sections_at + 2 * 64, std::uint32_t(6)); };
  EXPECT_TRUE(facts_of(shared)->device_code);
  // What only speaks of it, as cuobjdump does.
  ElfFile mention{.sections = {".text"},
                  .edit = [](Bytes& out) { ElfFile::put_text(out, 4500, std::string_view("\0.nv_fatbin\0", 12)); }};
  EXPECT_FALSE(facts_of(mention)->device_code);
  ElfFile longer{.sections = {".nv_fatbin2", ".nv_fatbi"}};
  EXPECT_FALSE(facts_of(longer)->device_code);
}

TEST(ElfFactsTest, CountSectionsWhereThereAreTooManyForTheHeader) {
  ElfFile file{.sections = {".text", ".nv_fatbin"}};
  file.edit = [&](Bytes& out) {
    file.put(out, 60, std::uint16_t(0));
    file.put(out, 62, std::uint16_t(0xFFFF));
    file.put(out, file.sections_at + 32, std::uint64_t(4));
    file.put(out, file.sections_at + 40, std::uint32_t(3));
  };
  EXPECT_TRUE(facts_of(file)->device_code);
  EXPECT_EQ(facts_of(file)->broken, "");
}

TEST(ElfFactsTest, NameNoSectionsThatTheFileDoesNotHave) {
  for (const std::uint64_t sections : {std::uint64_t(60'000), std::uint64_t(1) << 40, (std::uint64_t(1) << 58) + 1}) {
    ElfFile file{.sections = {".text", ".nv_fatbin"}};
    file.edit = [&](Bytes& out) {
      file.put(out, 60, std::uint16_t(0));
      file.put(out, 62, std::uint16_t(0xFFFF));
      file.put(out, file.sections_at + 32, sections);
      file.put(out, file.sections_at + 40, std::uint32_t(59'999));
    };
    EXPECT_FALSE(facts_of(file)->device_code);
    EXPECT_NE(facts_of(file)->broken, "");
  }
}

// Else each of 65,000 would be waited for on its own.
TEST(ElfFactsTest, ReadOfSeveralNamesOfAFileTheLastAlone) {
  ElfFile file{.names = {{14, "outside"}, {14, "libme.so.1"}, {1, "libc.so.6"}}};
  file.edit = [&](Bytes& out) { file.put(out, file.dynamic_at + 8, std::uint64_t(1000)); };
  const auto facts = facts_of(file);
  EXPECT_EQ(facts->soname, "libme.so.1");
  EXPECT_EQ(facts->broken, "");
}

TEST(ElfFactsTest, FindFatbinContainersAnywhere) {
  constexpr std::string_view kContainer("\x50\xED\x55\xBA\x01\x00\x10\x00", 8);
  for (const std::uint64_t at : {std::uint64_t(4500), std::uint64_t(4501), std::uint64_t(65'517), 2 * kMiB - 8}) {
    ElfFile file{.size = 2 * kMiB, .edit = [&](Bytes& out) { ElfFile::put_text(out, at, kContainer); }};
    EXPECT_TRUE(facts_of(file)->device_code) << at;
    file.edit = [&](Bytes& out) { ElfFile::put_text(out, at, kContainer.substr(0, 5)); };
    EXPECT_FALSE(facts_of(file)->device_code) << "a number in code is no container";
  }
}

TEST(ElfFactsTest, AreTheSameWhetherHolesAreFedOrPassedOver) {
  ElfFile file{.size = 10 * kMiB,
               .dynamic_at = 9 * kMiB,
               .strings_at = 5 * kMiB,
               .sections = {".nv_fatbin"},
               .sections_at = 10 * kMiB - 4096,
               .section_names_at = 6 * kMiB};
  const auto content = file.make();
  const auto whole = facts_of(content);
  expect_names(whole);
  EXPECT_TRUE(whole->device_code);
  ElfFactsReader reader;
  reader.begin(content.size());
  // Pages that hold nothing are holes.
  constexpr std::size_t kPage = 4096;
  std::uint64_t hole = 0;
  for (std::size_t at = 0; at < content.size(); at += kPage) {
    const auto page = ByteView(content).subspan(at, kPage);
    if (std::ranges::all_of(page, [](std::byte byte) { return byte == std::byte(0); })) {
      hole += kPage;
      continue;
    }
    reader.feed_zeros(hole);
    hole = 0;
    reader.feed(page);
  }
  reader.feed_zeros(hole);
  EXPECT_EQ(*reader.finish(), *whole);

  // A hole of an exbibyte takes no time.
  const auto head = ElfFile{.size = 4096, .dynamic_at = 0}.make();
  reader.begin(1ull << 60);
  reader.feed(head);
  reader.feed_zeros((1ull << 60) - head.size());
  EXPECT_EQ(reader.finish()->broken, "");
}

struct ElfBreakage {
  const char* name;
  const char* broken;
  std::function<void(const ElfFile&, Bytes&)> apply;  // to a file of 8192 bytes
};

class ElfFactsBreakageTest : public testing::TestWithParam<ElfBreakage> {};

TEST_P(ElfFactsBreakageTest, IsNamed) {
  ElfFile file{.interpreter = "/lib/ld.so", .sections = {".text"}};
  file.edit = [&](Bytes& out) { GetParam().apply(file, out); };
  const auto facts = facts_of(file);
  ASSERT_NE(facts, nullptr);
  EXPECT_EQ(facts->broken, GetParam().broken);
}

constexpr std::uint64_t kHuge = 0xFFFF'FFFF'FFFF'FFF0;
INSTANTIATE_TEST_SUITE_P(
    All, ElfFactsBreakageTest,
    testing::Values(
        ElfBreakage{"Class", "neither a 32 nor a 64 bit file", [](auto&, Bytes& out) { out[4] = std::byte(3); }},
        ElfBreakage{"ByteOrder", "an unknown byte order", [](auto&, Bytes& out) { out[5] = std::byte(0); }},
        ElfBreakage{"TooShort", "the file ends inside its header", [](auto&, Bytes& out) { out.resize(60); }},
        ElfBreakage{"SegmentsOutside", "program headers outside the file",
                    [](auto& file, Bytes& out) { file.put(out, 32, kHuge); }},
        ElfBreakage{"SegmentBytes", "program headers of an unknown size",
                    [](auto& file, Bytes& out) { file.put(out, 54, std::uint16_t(57)); }},
        ElfBreakage{"ManySegments", "more than 4096 program headers",
                    [](auto& file, Bytes& out) { file.put(out, 56, std::uint16_t(0xFFFF)); }},
        ElfBreakage{"SectionsOutside", "section headers outside the file",
                    [](auto& file, Bytes& out) { file.put(out, 40, kHuge); }},
        ElfBreakage{"SectionBytes", "section headers of an unknown size",
                    [](auto& file, Bytes& out) { file.put(out, 58, std::uint16_t(1)); }},
        ElfBreakage{"DynamicOutside", "dynamic section outside the file",
                    [](auto& file, Bytes& out) { file.put(out, 64 + 56 + 8, std::uint64_t(8190)); }},
        ElfBreakage{"DynamicTooLong", "dynamic section outside the file",
                    [](auto& file, Bytes& out) { file.put(out, 64 + 56 + 32, kHuge); }},
        ElfBreakage{"InterpreterOutside", "the program interpreter's name outside the file, or too long",
                    [](auto& file, Bytes& out) { file.put(out, 64 + 112 + 8, kHuge); }},
        ElfBreakage{"InterpreterWithoutEnd", "the program interpreter's name has no end",
                    [](auto& file, Bytes& out) { file.put(out, 64 + 112 + 32, std::uint64_t(10)); }},
        ElfBreakage{"StringsNowhere", "dynamic string table outside all segments",
                    [](auto& file, Bytes& out) { file.put(out, 4096 + 4 * 16 + 8, std::uint64_t(1)); }},
        ElfBreakage{"StringsOutside", "dynamic string table outside the file",
                    [](auto& file, Bytes& out) { file.put(out, 64 + 8, std::uint64_t(8000)); }},
        ElfBreakage{"NoStrings", "a dynamic section without string table",
                    [](auto& file, Bytes& out) { file.put(out, 4096 + 5 * 16, std::uint64_t(99)); }},
        ElfBreakage{"NameOutside", "a name outside the dynamic string table",
                    [](auto& file, Bytes& out) { file.put(out, 4096 + 8, std::uint64_t(1000)); }},
        ElfBreakage{"NameWithoutEnd", "a name in the dynamic section has no end",
                    [](auto& file, Bytes& out) {
                      std::ranges::fill(out.begin() + 5120, out.end(), std::byte('x'));
                      file.put(out, 4096 + 4 * 16 + 8, kAddress + 5120);
                      file.put(out, 40, std::uint64_t(0));
                    }},
        ElfBreakage{"Truncated", "section headers outside the file", [](auto&, Bytes& out) { out.resize(6100); }}),
    [](const auto& info) { return info.param.name; });

TEST(ElfFactsTest, SayWhenTheContentHasAnotherLengthThanTheFile) {
  const auto content = ElfFile{}.make();
  EXPECT_EQ(facts_of(ByteView(content).first(8000), 100, content.size())->broken, "the file ends before its size");
  EXPECT_EQ(facts_of(content, 100, 8000)->broken, "the file goes on behind its size");
}

TEST(ElfFactsTest, KeepLittleOfHostileFiles) {
  // 4096 names, each all that is left of one long string.
  ElfFile file{.size = 512 * 1024, .dynamic_at = 4096, .strings_at = 256 * 1024, .names = {}};
  for (const bool in_front : {true, false}) {
    if (in_front) std::swap(file.dynamic_at, file.strings_at);
    file.names.assign(4096, {1, ""});
    file.edit = [&](Bytes& out) {
      std::ranges::fill(out.begin() + std::ptrdiff_t(file.strings_at),
                        out.begin() + std::ptrdiff_t(file.strings_at) + 4097, std::byte('a'));
    };
    const auto facts = facts_of(file.make(), 65'536, file.size);
    EXPECT_EQ(facts->broken, "more text in its dynamic section than 64 KiB");
    EXPECT_LE(text_bytes(*facts), 2 * kMaxElfTextBytes);
  }
  file.names.assign(4097, {1, ""});
  file.edit = {};
  EXPECT_EQ(facts_of(file)->broken, "more than 4096 needed libraries");
}

TEST(ElfFactsTest, SurviveEveryChangedByteOfTheirTables) {
  const ElfFile file{.interpreter = "/lib/ld.so", .sections = {".text", ".nv_fatbin"}};
  const auto content = file.make();
  for (std::size_t at = 0; at < content.size(); ++at) {
    if (at > 700 && content[at] == std::byte(0)) continue;
    for (const auto value : {0x00, 0x01, 0x7F, 0xFF}) {
      auto changed = content;
      changed[at] = std::byte(value);
      const auto whole = facts_of(changed, SIZE_MAX, changed.size());
      const auto cut = facts_of(changed, 97, changed.size());
      ASSERT_EQ(whole == nullptr, cut == nullptr) << at;
      if (whole) {
        ASSERT_EQ(*whole, *cut) << at << " = " << value;
      }
    }
  }
}

TEST(ElfFactsTest, OfOneFileDoNotReachTheNext) {
  ElfFactsReader reader;
  const auto first = ElfFile{.interpreter = "/lib/ld.so", .sections = {".nv_fatbin"}}.make();
  const ElfFile second{.dynamic_at = 0};
  reader.begin(first.size());
  reader.feed(first);
  EXPECT_TRUE(reader.finish()->device_code);
  reader.begin(100);
  reader.feed(Bytes(100));
  EXPECT_EQ(reader.finish(), nullptr);
  reader.begin(second.size);
  reader.feed(second.make());
  EXPECT_EQ(*reader.finish(), *facts_of(second));
}

}  // namespace
}  // namespace varve::index
