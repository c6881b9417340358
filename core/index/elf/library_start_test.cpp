#include "core/index/elf/library_start.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include <array>
#include <random>

#include "core/base/files/file.h"
#include "testing/elf_file.h"

namespace varve::index {

// Run before main() by a function of its own: one that the compiler makes for all of a file may call another that does.
// Aligned, as all functions are where compilers optimize.
__attribute__((noinline, aligned(16))) int called_at_start(int number) {
  static volatile int sum = 0;
  sum = sum + number;
  return sum;
}

namespace {

using test::ElfFile;
using test::kAddress;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kBlock = LibraryStart::kBlock;

int at_start = 0;
[[gnu::constructor]] void run_at_start() { at_start = called_at_start(7); }

ByteView bytes_of(const Bytes& file, ByteRange range) { return ByteView(file).subspan(range.offset, range.length); }

LibraryLayout opened(const Bytes& file) {
  return LibraryLayout::of(ByteView(file).first(std::min(file.size(), LibraryLayout::kHeadBytes)), file.size()).value();
}

struct Seen {
  std::vector<ByteRange> relocated, maybe_lists, init_code = {}, used = {}, at_exit = {};
};
Seen all_of(const Bytes& file) {
  const auto layout = opened(file);
  LibraryStart start(layout, bytes_of(file, layout.dynamic_section()));
  start.add_relocations(bytes_of(file, start.relocations()));
  Seen seen{.relocated = start.take_relocated(), .maybe_lists = start.maybe_lists()};
  EXPECT_THAT(start.take_relocated(), IsEmpty()) << "each is told once";
  for (const auto& range : seen.maybe_lists) start.add_list(range, bytes_of(file, range));
  seen.init_code = start.init_code();
  for (const auto& range : seen.init_code) start.add_code(range, bytes_of(file, range));
  seen.used = start.used();
  seen.at_exit = start.used_at_exit();
  return seen;
}

// 16 blocks: 0 to 3 are only read, 4 to 11 are code, 12 to 15 are written to. Tables are in block 0.
struct MadeLibrary {
  static constexpr std::uint64_t kRelocations = 8192, kInitArray = 12 * kBlock + 64;
  ElfFile file{.size = 16 * kBlock};
  std::vector<std::array<std::uint64_t, 3>> relocations;  // address, type, addend; of the file's first byte on
  std::vector<std::pair<std::uint64_t, Bytes>> content;
  std::uint64_t functions = 0;
  std::uint64_t init = 0, fini = 0;

  void add_function(std::uint64_t at, const Bytes& code) {
    relocations.push_back({kInitArray + 8 * functions++, R_X86_64_RELATIVE, at});
    content.emplace_back(at, code);
  }
  // As old compilers make them: no tag names the list.
  void add_list(std::uint64_t at, const std::vector<std::uint64_t>& places, std::uint64_t before = UINT64_MAX,
                std::uint64_t behind = 0) {
    Bytes words;
    append(words, bytes_of_words({before}));
    for (std::size_t i = 0; i < places.size(); ++i) {
      relocations.push_back({at + 8 * (i + 1), R_X86_64_RELATIVE, places[i]});
      append(words, Bytes(8));
    }
    append(words, bytes_of_words({behind}));
    content.emplace_back(at, words);
  }
  static Bytes bytes_of_words(const std::vector<std::uint64_t>& words) {
    return to_bytes(std::as_bytes(std::span(words)));
  }
  // `prefix` and the distance from `at` to what is meant.
  static Bytes instruction(std::vector<std::uint8_t> prefix, std::uint64_t at, std::uint64_t target) {
    const auto distance = std::uint32_t(target - (at + prefix.size() + 4));
    for (int i = 0; i < 4; ++i) prefix.push_back(std::uint8_t(distance >> 8 * i));
    return to_bytes(std::as_bytes(std::span(prefix)));
  }

  Bytes make() {
    file.edit = [this](Bytes& out) {
      file.set_segments(out, 4);
      file.segment(out, 0, PT_LOAD, 0, 4 * kBlock);
      file.set_flags(out, 0, PF_R);
      file.segment(out, 2, PT_LOAD, 4 * kBlock, 8 * kBlock);
      file.set_flags(out, 2, PF_R | PF_X);
      file.segment(out, 3, PT_LOAD, 12 * kBlock, 4 * kBlock);
      file.set_flags(out, 3, PF_R | PF_W);
      file.add_entries(out, {{DT_RELA, kAddress + kRelocations},
                             {DT_RELASZ, relocations.size() * 24},
                             {DT_RELAENT, 24},
                             {DT_INIT, init == 0 ? 0 : kAddress + init},
                             {DT_FINI, fini == 0 ? 0 : kAddress + fini},
                             {DT_INIT_ARRAY, kAddress + kInitArray},
                             {DT_INIT_ARRAYSZ, functions * 8}});
      auto at = kRelocations;
      for (const auto& [address, type, addend] : relocations) {
        file.put(out, at, kAddress + address);
        file.put(out, at + 8, type);
        file.put(out, at + 16, kAddress + addend);
        at += 24;
      }
      for (const auto& [place, bytes] : content) std::ranges::copy(bytes, out.begin() + std::ptrdiff_t(place));
    };
    return file.make();
  }
};

TEST(LibraryStartTest, RelocationsSayWhichDataIsWrittenTo) {
  MadeLibrary library;
  library.relocations = {{13 * kBlock + 5, R_X86_64_64, 0}, {13 * kBlock + 50, R_X86_64_GLOB_DAT, 0},
                         {15 * kBlock, R_X86_64_64, 0},     {5 * kBlock, R_X86_64_64, 0},  // code: text relocations
                         {100 * kBlock, R_X86_64_64, 0},    {14 * kBlock, R_X86_64_64, 0}};
  const auto seen = all_of(library.make());
  EXPECT_THAT(seen.relocated, ElementsAre(ByteRange{13 * kBlock, 3 * kBlock}));
  EXPECT_THAT(seen.init_code, IsEmpty());
}

TEST(LibraryStartTest, InitFunctionsCallAndPointAt) {
  constexpr std::uint64_t kFirst = 9 * kBlock, kSecond = 4 * kBlock + 100;
  MadeLibrary library;
  Bytes first = MadeLibrary::instruction({0xE8}, kFirst, 6 * kBlock + 16);
  append(first, MadeLibrary::instruction({0x48, 0x8D, 0x35}, kFirst + first.size(), 2 * kBlock + 9));  // lea rsi
  append(first, MadeLibrary::instruction({0x48, 0x8D, 0x3D}, kFirst + first.size(), 7 * kBlock));   // of code: not run
  append(first, MadeLibrary::instruction({0x4C, 0x8D, 0x05}, kFirst + first.size(), 13 * kBlock));  // of data
  append(first, MadeLibrary::instruction({0xE9}, kFirst + first.size(), 11 * kBlock + 32));
  append(first,
         MadeLibrary::instruction({0xE8}, kFirst + first.size(), 10 * kBlock + 1));        // it is aligned, that is not
  append(first, MadeLibrary::instruction({0xE8}, kFirst + first.size(), 2 * kBlock));      // no code there
  append(first, MadeLibrary::instruction({0xE8}, kFirst + first.size(), 1'000 * kBlock));  // nothing there
  append(first, Bytes(8));
  library.add_function(kFirst, first);
  Bytes second = MadeLibrary::instruction({0xE8}, kSecond, 6 * kBlock + 500);  // as the first
  append(second, MadeLibrary::instruction({0xE8}, kSecond + second.size(), 5 * kBlock));
  append(second, Bytes(8));
  library.add_function(kSecond, second);
  const auto seen = all_of(library.make());
  ASSERT_EQ(seen.init_code.size(), 2u);
  EXPECT_EQ(seen.init_code[0].offset, kSecond);
  EXPECT_EQ(seen.init_code[1].offset, kFirst);
  // Code is looked at by address here: the second function's first.
  EXPECT_THAT(seen.used, ElementsAre(ByteRange{6 * kBlock, kBlock}, ByteRange{5 * kBlock, kBlock},
                                     ByteRange{2 * kBlock, kBlock}, ByteRange{11 * kBlock, kBlock}));
}

std::vector<std::uint64_t> places(std::size_t count, std::uint64_t first) {
  std::vector<std::uint64_t> places;
  for (std::size_t i = 0; i < count; ++i) places.push_back(first + i * kBlock / 4);
  return places;
}

TEST(LibraryStartTest, AListThatNoTagNamesRunsFromItsEnd) {
  MadeLibrary library;
  library.add_list(13 * kBlock, places(16, 5 * kBlock));
  for (const auto at : {5 * kBlock, 8 * kBlock + 3 * kBlock / 4})
    library.content.emplace_back(at, MadeLibrary::instruction({0xE8}, at, at == 5 * kBlock ? 4 * kBlock : 10 * kBlock));
  library.add_function(9 * kBlock, MadeLibrary::instruction({0xE8}, 9 * kBlock, 11 * kBlock));
  const auto seen = all_of(library.make());
  EXPECT_THAT(seen.maybe_lists, ElementsAre(ByteRange{13 * kBlock, 18 * 8}));
  EXPECT_EQ(seen.init_code.size(), 17u);
  // As code is looked at by address: of these three the list's first function lies first, its last one behind it.
  EXPECT_THAT(seen.used, ElementsAre(ByteRange{4 * kBlock, kBlock}, ByteRange{10 * kBlock, kBlock},
                                     ByteRange{11 * kBlock, kBlock}));
}

TEST(LibraryStartTest, WhatIsNoListBeginsNothing) {
  const auto functions = places(16, 5 * kBlock);
  MadeLibrary tables;  // of virtual functions
  tables.add_list(13 * kBlock, functions, 0);
  tables.add_list(14 * kBlock, functions, UINT64_MAX, 1);
  EXPECT_EQ(all_of(tables.make()).maybe_lists.size(), 2u);
  EXPECT_THAT(all_of(tables.make()).init_code, IsEmpty());
  MadeLibrary others;
  others.add_list(12 * kBlock + 8, places(15, 5 * kBlock));  // too few
  others.add_list(13 * kBlock, functions);
  others.relocations.push_back({13 * kBlock + 17 * 8, R_X86_64_64, 0});  // it goes on with something else
  others.relocations.push_back({14 * kBlock, R_X86_64_64, 0});           // something else is in front of it
  others.add_list(14 * kBlock, functions);
  others.add_list(15 * kBlock, places(16, 1 * kBlock));  // no code
  EXPECT_THAT(all_of(others.make()).maybe_lists, IsEmpty());
}

TEST(LibraryStartTest, BytesOfAnotherListAreNotTaken) {
  MadeLibrary library;
  library.add_list(13 * kBlock, places(16, 5 * kBlock));
  const auto bytes = library.make();
  const auto layout = opened(bytes);
  LibraryStart start(layout, bytes_of(bytes, layout.dynamic_section()));
  start.add_relocations(bytes_of(bytes, start.relocations()));
  const auto list = start.maybe_lists().at(0);
  start.add_list({list.offset + 8, list.length}, bytes_of(bytes, list));
  start.add_list(list, bytes_of(bytes, list).first(list.length - 8));
  EXPECT_THAT(start.init_code(), IsEmpty());
  start.add_list(list, bytes_of(bytes, list));
  const auto once = start.init_code();
  EXPECT_EQ(once.size(), 16u);
  start.add_list(list, bytes_of(bytes, list));
  EXPECT_EQ(start.init_code(), once);
}

// Old libraries have constants in the segment of the code, behind DT_FINI.
TEST(LibraryStartTest, ConstantsMayLieInTheSegmentOfTheCode) {
  constexpr std::uint64_t kFirst = 5 * kBlock;
  MadeLibrary library;
  library.init = 4 * kBlock;
  library.fini = 9 * kBlock + 8;
  Bytes code = MadeLibrary::instruction({0x48, 0x8D, 0x35}, kFirst, 10 * kBlock);
  append(code, MadeLibrary::instruction({0xE8}, kFirst + code.size(), 11 * kBlock));             // that is no code
  append(code, MadeLibrary::instruction({0x48, 0x8D, 0x35}, kFirst + code.size(), 8 * kBlock));  // that is code
  append(code, MadeLibrary::instruction({0xE8}, kFirst + code.size(), 7 * kBlock));
  append(code, Bytes(8));
  library.add_function(kFirst, code);
  library.add_function(10 * kBlock, code);  // no code, either
  const auto seen = all_of(library.make());
  EXPECT_EQ(seen.init_code.size(), 1u);
  EXPECT_THAT(seen.used, ElementsAre(ByteRange{10 * kBlock, kBlock}, ByteRange{7 * kBlock, kBlock}));
  // A linker that puts the code of both tags in front says nothing of what lies behind.
  library.init = 4 * kBlock;
  library.fini = 4 * kBlock + 24;
  const auto others = all_of(library.make());
  EXPECT_EQ(others.init_code.size(), 2u);
  EXPECT_THAT(others.used, ElementsAre(ByteRange{11 * kBlock, kBlock}, ByteRange{7 * kBlock, kBlock}));
}

TEST(LibraryStartTest, WithoutTheTagAllOfACodeSegmentIsCode) {
  MadeLibrary library;
  library.add_function(9 * kBlock, MadeLibrary::instruction({0xE8}, 9 * kBlock, 6 * kBlock));
  auto bytes = library.make();
  // Its segments, relocations and tables from address 0 on, as most libraries have them.
  for (int segment : {0, 2, 3}) {
    const auto at = library.file.segments_at + std::uint64_t(segment) * 56 + 16;
    library.file.put(bytes, at, load_le<std::uint64_t>(&bytes[at]) - kAddress);
  }
  for (auto at = library.file.dynamic_at; load_le<std::uint64_t>(&bytes[at]) != DT_NULL; at += 16)
    if (const auto value = load_le<std::uint64_t>(&bytes[at + 8]); value >= kAddress)
      library.file.put(bytes, at + 8, value - kAddress);
  for (const auto field : {0, 16})
    library.file.put(bytes, MadeLibrary::kRelocations + std::uint64_t(field),
                     load_le<std::uint64_t>(&bytes[MadeLibrary::kRelocations + std::uint64_t(field)]) - kAddress);
  EXPECT_THAT(all_of(bytes).used, ElementsAre(ByteRange{6 * kBlock, kBlock}));
}

TEST(LibraryStartTest, WhatWasRegisteredLastRunsFirstAtExit) {
  MadeLibrary library;
  const auto registers = [](std::uint64_t at, std::uint64_t function) {
    Bytes code = MadeLibrary::instruction({0x48, 0x8D, 0x3D}, at, function);                    // lea rdi
    append(code, MadeLibrary::instruction({0x48, 0x8D, 0x35}, at + code.size(), 13 * kBlock));  // lea rsi: its object
    append(code, MadeLibrary::instruction({0xE9}, at + code.size(), 4 * kBlock));               // jmp __cxa_atexit
    append(code, Bytes(8));
    return code;
  };
  library.add_function(5 * kBlock, registers(5 * kBlock, 8 * kBlock));
  library.add_function(6 * kBlock, registers(6 * kBlock, 10 * kBlock));
  library.add_function(6 * kBlock + 256, registers(6 * kBlock + 256, 8 * kBlock + 64));
  library.add_function(6 * kBlock + 512, registers(6 * kBlock + 512, 9 * kBlock));
  library.add_function(6 * kBlock + 768, registers(6 * kBlock + 768, 2 * kBlock));     // a constant
  library.add_function(6 * kBlock + 1024, registers(6 * kBlock + 1024, 14 * kBlock));  // data: an object's own call
  Bytes far = MadeLibrary::instruction({0x48, 0x8D, 0x3D}, 7 * kBlock, 11 * kBlock);
  append(far, Bytes(64));
  append(far, MadeLibrary::instruction({0xE8}, 7 * kBlock + far.size(), 4 * kBlock));
  append(far, Bytes(8));
  library.add_function(7 * kBlock, far);
  EXPECT_THAT(all_of(library.make()).at_exit, ElementsAre(ByteRange{9 * kBlock, kBlock}, ByteRange{8 * kBlock, kBlock},
                                                          ByteRange{10 * kBlock, kBlock}));
}

TEST(LibraryStartTest, WhatLiesBehindAFunctionIsAnothers) {
  constexpr std::uint64_t kFirst = 9 * kBlock;
  MadeLibrary library;
  library.add_function(kFirst, Bytes(16));
  library.content.emplace_back(kFirst + 8192, MadeLibrary::instruction({0xE8}, kFirst + 8192, 6 * kBlock));
  EXPECT_THAT(all_of(library.make()).used, IsEmpty());
}

TEST(LibraryStartTest, OfAnotherMachineNothingIsGuessed) {
  constexpr std::uint64_t kFirst = 9 * kBlock;
  MadeLibrary library;
  library.file.machine = EM_AARCH64;
  library.add_function(kFirst, MadeLibrary::instruction({0xE8}, kFirst, 6 * kBlock));
  EXPECT_THAT(all_of(library.make()).used, IsEmpty());
}

TEST(LibraryStartTest, HoldsItsBounds) {
  MadeLibrary library;
  library.file.size = 16 * kBlock;
  library.content.emplace_back(4 * kBlock, Bytes(8 * kBlock, std::byte(0xE8)));
  std::mt19937_64 random(3);
  for (int i = 0; i < 2'000; ++i) library.add_function(random() % (20 * kBlock), Bytes());
  library.add_list(14 * kBlock, places(20, 5 * kBlock));
  library.add_list(16 * kBlock - 22 * 8, places(20, 5 * kBlock));  // to the file's last byte
  for (std::uint64_t i = 0; i < 20; ++i)                           // one behind the file
    library.relocations.push_back({20 * kBlock + 8 * i, R_X86_64_RELATIVE, 5 * kBlock});
  const auto bytes = library.make();
  const auto seen = all_of(bytes);
  for (const auto& ranges : {seen.relocated, seen.maybe_lists, seen.init_code, seen.used, seen.at_exit})
    for (const auto& range : ranges) EXPECT_TRUE(range.length > 0 && range.fits_in(bytes.size()));
}

TEST(LibraryStartTest, RelocationsInAnotherFormAreNotRead) {
  MadeLibrary library;
  library.relocations = {{13 * kBlock, R_X86_64_64, 0}};
  auto bytes = library.make();
  for (auto at = library.file.dynamic_at; load_le<std::uint64_t>(&bytes[at]) != DT_NULL; at += 16)
    if (load_le<std::uint64_t>(&bytes[at]) == DT_RELAENT) library.file.put(bytes, at + 8, std::uint64_t(32));
  EXPECT_THAT(all_of(bytes).relocated, IsEmpty());
}

// The compiler's and linker's word for it: this program has run that function, by an init function of its own.
TEST(LibraryStartTest, OfThisVeryProgram) {
  ASSERT_EQ(at_start, 7);
  std::uint64_t base = UINT64_MAX;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        auto& found = *static_cast<std::uint64_t*>(into);
        if (found == UINT64_MAX) found = info->dlpi_addr;  // the program is the first
        return 0;
      },
      &base);
  const auto bytes = read_file("/proc/self/exe");
  const auto layout = opened(bytes);
  const auto function = layout.content_at(reinterpret_cast<std::uint64_t>(&called_at_start) - base);
  ASSERT_TRUE(function);
  const auto seen = all_of(bytes);
  EXPECT_THAT(seen.init_code, Not(IsEmpty()));
  EXPECT_THAT(seen.relocated, Not(IsEmpty()));
  // Sanitizers' init functions call one that calls it, and what is called further on is not followed.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const auto holds = [&](const std::vector<ByteRange>& ranges) {
    return std::ranges::any_of(ranges, [&](const ByteRange& range) { return range.contains(function->offset); });
  };
  EXPECT_TRUE(holds(seen.used) || holds(seen.init_code) || layout.machine() != EM_X86_64) << function->offset;
#endif
}

}  // namespace
}  // namespace varve::index
