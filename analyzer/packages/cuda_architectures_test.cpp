#include "analyzer/packages/cuda_architectures.h"

#include <elf.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/device_code.h"

namespace varve::packages {
namespace {

using test::container;
using test::elf_file;
using test::joined;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

DeviceCode read(const Bytes& file) {
  return read_device_code(file.size(), [&](ByteRange range) {
    EXPECT_TRUE(range.fits_in(file.size()));
    return to_bytes(ByteView(file).subspan(range.offset, range.length));
  });
}

TEST(CudaArchitectures, EntriesAreCountedByWhatTheyAreFor) {
  const auto code =
      container({{.kind = 2, .architecture = 75, .payload_bytes = 1000},
                 {.kind = 2, .architecture = 90, .payload_bytes = 8, .flags = 0x100011},
                 {.kind = 2, .architecture = 100, .payload_bytes = 16, .flags = 0x200011, .header_bytes = 112},
                 {.kind = 1, .architecture = 90, .payload_bytes = 24, .header_bytes = 72},
                 {.kind = 8, .architecture = 75, .payload_bytes = 32},
                 {.kind = 99, .architecture = 75, .payload_bytes = 40}});
  EXPECT_THAT(read(elf_file({{".text", Bytes(64), SHF_ALLOC | SHF_EXECINSTR}, {".nv_fatbin", code}})),
              UnorderedElementsAre(Pair("sm_75", CodeAmount{1, 1064}), Pair("sm_90a", CodeAmount{1, 72}),
                                   Pair("sm_100f", CodeAmount{1, 128}), Pair("compute_90", CodeAmount{1, 96}),
                                   Pair("lto_75", CodeAmount{1, 96}), Pair("other", CodeAmount{1, 104})));
}

TEST(CudaArchitectures, ContainersFollowEachOtherWithPaddingAndInEverySectionOfData) {
  const auto one = container({{.architecture = 80, .payload_bytes = 8}});
  const auto file = elf_file({{".nv_fatbin", joined({one, Bytes(8), one, Bytes(64), one})},
                              {"__nv_relfatbin", one},
                              {".rodata", joined({Bytes(40), one})}});
  EXPECT_THAT(read(file), UnorderedElementsAre(Pair("sm_80", CodeAmount{5, 5 * 72})));
}

TEST(CudaArchitectures, EntriesSayWhereTheyLie) {
  const auto code = container({{.kind = 2, .architecture = 75, .payload_bytes = 1000},
                               {.kind = 2, .architecture = 90, .payload_bytes = 8, .flags = 0x100011},
                               {.kind = 1, .architecture = 90, .payload_bytes = 24, .header_bytes = 72}});
  const auto file = elf_file({{".text", Bytes(100), SHF_ALLOC | SHF_EXECINSTR}, {".nv_fatbin", code}});
  const auto at = std::uint64_t(std::ranges::search(file, code).begin() - file.begin());
  std::vector<CodeEntry> found;
  for_each_code(
      file.size(), [&](ByteRange range) { return to_bytes(ByteView(file).subspan(range.offset, range.length)); },
      [&](const CodeEntry& entry) { found.push_back(entry); });
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].target, (CodeTarget{CodeKind::kMachine, 75, 0}));
  EXPECT_EQ(found[0].range, (ByteRange{at + 16, 1064}));
  EXPECT_EQ(found[1].target, (CodeTarget{CodeKind::kMachine, 90, 'a'}));
  EXPECT_EQ(found[1].range, (ByteRange{at + 16 + 1064, 72}));
  EXPECT_EQ(found[2].target, (CodeTarget{CodeKind::kPtx, 90, 0}));
  EXPECT_EQ(found[2].range, (ByteRange{at + 16 + 1064 + 72, 96}));
}

TEST(CudaArchitectures, ContainersFarApartAreFoundAcrossWindows) {
  Bytes content;
  for (int i = 0; i < 40; ++i) {
    append(content, container({{.architecture = 80, .payload_bytes = 8}}));
    content.resize((content.size() + 100'003) / 8 * 8);
  }
  EXPECT_THAT(read(elf_file({{".nv_fatbin", content}})), UnorderedElementsAre(Pair("sm_80", CodeAmount{40, 40 * 72})));
}

TEST(CudaArchitectures, LargePayloadsAreNotRead) {
  const auto file = elf_file(
      {{".nv_fatbin", container({{.payload_bytes = 40u << 20}, {.architecture = 90, .payload_bytes = 40u << 20}})}});
  std::uint64_t read_bytes = 0;
  const auto found = read_device_code(file.size(), [&](ByteRange range) {
    read_bytes += range.length;
    return to_bytes(ByteView(file).subspan(range.offset, range.length));
  });
  EXPECT_EQ(found.size(), 2u);
  EXPECT_LT(read_bytes, 4u << 20);
}

TEST(CudaArchitectures, AnOrdinaryLibraryIsNotSearched) {
  const auto one = container({{.architecture = 80}});
  EXPECT_THAT(read(elf_file({{".rodata", one}, {".data", one}})), IsEmpty()) << "the magic number alone proves nothing";
  EXPECT_THAT(read(elf_file({{".nv_fatbin", Bytes(64)}, {".text", one, SHF_ALLOC | SHF_EXECINSTR}})), IsEmpty())
      << "instructions are not data";
}

TEST(CudaArchitectures, ACubinIsOfTheArchitectureInItsFlags) {
  const auto old = elf_file({{".text.kernel", Bytes(8)}}, 190, 0x00500550, 7);
  EXPECT_THAT(read(old), UnorderedElementsAre(Pair("sm_80", CodeAmount{1, old.size()})));
  const auto fresh = elf_file({{".text.kernel", Bytes(8)}}, 190, 0x06007802, 8);
  EXPECT_THAT(read(fresh), UnorderedElementsAre(Pair("sm_120", CodeAmount{1, fresh.size()})));
}

TEST(CudaArchitectures, ABareFatbinAndPtxAreKnown) {
  EXPECT_THAT(read(container({{.architecture = 86}})), UnorderedElementsAre(Pair("sm_86", CodeAmount{1, 128})));
  const std::string ptx = "//\n// made by hand\n.version 7.8\n.target sm_90a, texmode_independent\n.address_size 64\n";
  EXPECT_THAT(read(to_bytes(as_bytes(ptx))), UnorderedElementsAre(Pair("compute_90a", CodeAmount{1, ptx.size()})));
  EXPECT_THAT(read(to_bytes(as_bytes("a text that says .target sm_80 without a version"))), IsEmpty());
}

TEST(CudaArchitectures, MembersOfAStaticLibraryAreRead) {
  const auto member = [](const Bytes& content) {
    auto bytes = to_bytes(as_bytes(fmt::format("{:<48}{:<10}`\n", "name/", content.size())));
    append(bytes, content);
    if (content.size() % 2 != 0) bytes.push_back(std::byte{'\n'});
    return bytes;
  };
  const auto object = elf_file({{".nv_fatbin", container({{.architecture = 70, .payload_bytes = 8}})}});
  const auto library = joined({to_bytes(as_bytes("!<arch>\n")), member(Bytes(5)), member(object), member(object)});
  EXPECT_THAT(read(library), UnorderedElementsAre(Pair("sm_70", CodeAmount{2, 144})));
}

TEST(CudaArchitectures, WhatIsCutOffOrLiesEndsItsContainer) {
  const auto good = container({{.architecture = 80, .payload_bytes = 8}, {.architecture = 90, .payload_bytes = 8}});
  // The container claims more than there is, or less than its second entry.
  EXPECT_THAT(read(elf_file({{".nv_fatbin", container({{.architecture = 80, .payload_bytes = 8}}, 1 << 30)}})),
              UnorderedElementsAre(Pair("sm_80", CodeAmount{1, 72})));
  EXPECT_THAT(
      read(elf_file(
          {{".nv_fatbin",
            container({{.architecture = 80, .payload_bytes = 8}, {.architecture = 90, .payload_bytes = 8}}, -8)}})),
      UnorderedElementsAre(Pair("sm_80", CodeAmount{1, 72})));
  for (std::size_t length = 0; length < good.size(); ++length) {
    auto cut = good;
    cut.resize(length);
    const auto found = read(cut);
    EXPECT_EQ(found.size(), length < 16 + 72 ? 0u : length < good.size() ? 1u : 2u) << length;
  }
  auto huge = good;
  store_le<std::uint64_t>(huge.data() + 16 + 8, ~std::uint64_t(0) - 3);  // a payload that would wrap around
  EXPECT_THAT(read(elf_file({{".nv_fatbin", huge}})), IsEmpty());
}

TEST(CudaArchitectures, HostileElfHeadersAreLeftAlone) {
  const auto good = elf_file({{".nv_fatbin", container({{.architecture = 80}})}});
  for (std::size_t at = 0; at < sizeof(Elf64_Ehdr); ++at)
    for (const unsigned value : {0x00u, 0x01u, 0x7Fu, 0xFFu}) {
      auto bad = good;
      bad[at] = std::byte(value);
      EXPECT_LE(read(bad).size(), 1u);  // what is read lies inside the file, and it ends
    }
  for (std::size_t length = 0; length < good.size(); length += 7)
    EXPECT_LE(read(Bytes(good.begin(), good.begin() + std::ptrdiff_t(length))).size(), 1u);
}

TEST(CudaArchitectures, SectionsThatOverlapAreNotSearchedOverAndOver) {
  auto file = elf_file(
      {{".nv_fatbin", Bytes(1 << 20)}, {".a", Bytes(8)}, {".b", Bytes(8)}, {".c", Bytes(8)}, {".d", Bytes(8)}});
  const auto header = load_le<std::uint64_t>(file.data() + offsetof(Elf64_Ehdr, e_shoff));
  for (std::size_t i = 2; i < 6; ++i)
    std::memcpy(file.data() + header + i * sizeof(Elf64_Shdr) + 24, file.data() + header + sizeof(Elf64_Shdr) + 24, 16);
  std::uint64_t read_bytes = 0;
  read_device_code(file.size(), [&](ByteRange range) {
    read_bytes += range.length;
    return to_bytes(ByteView(file).subspan(range.offset, range.length));
  });
  EXPECT_LT(read_bytes, 3u << 20);
}

TEST(CudaArchitectures, AFileThatGivesFewerBytesIsSaid) {
  EXPECT_THROW(read_device_code(1000, [](ByteRange) { return Bytes(3); }), CorruptData);
}

TEST(CudaArchitectures, WhatNvidiasToolsMadeIsReadAsCuobjdumpListsIt) {
  const auto read_seed = [](const char* name) {
    return read(read_file(std::filesystem::path(VARVE_CUDA_CORPUS) / name));
  };
  using ::testing::Key;
  EXPECT_THAT(read_seed("library"),
              UnorderedElementsAre(Key("sm_75"), Key("sm_80"), Key("sm_90a"), Key("sm_100f"), Key("compute_75")));
  EXPECT_EQ(read_seed("fatbin"), read_seed("library"));
  EXPECT_THAT(read_seed("static_library"),
              UnorderedElementsAre(Key("sm_75"), Pair("sm_80", ::testing::Field(&CodeAmount::entries, 2)),
                                   Key("sm_90a"), Key("sm_100f"), Key("compute_75")));
  EXPECT_THAT(read_seed("cubin"), UnorderedElementsAre(Key("sm_100")));
  EXPECT_THAT(read_seed("ptx"), UnorderedElementsAre(Key("compute_75")));
}

index::FlatEntry file_of(std::uint64_t size, std::uint32_t mode = 0644) {
  index::FlatEntry file;
  file.type = FileType::kRegular;
  file.size = size;
  file.mode = mode;
  return file;
}

TEST(CudaArchitectures, OnlyFilesThatMayHoldItAreOpened) {
  for (const char* name :
       {"a/libx.so", "libx.so.12", "libx.so.12.1.3", "k.cubin", "k.fatbin", "k.ptx", "libx_static.a", "k.o"})
    EXPECT_TRUE(may_hold_device_code(name, file_of(1000))) << name;
  for (const char* name : {"a/b.py", "so", "a.so/readme", ".so", "data.bin"})
    EXPECT_FALSE(may_hold_device_code(name, file_of(1000))) << name;
  EXPECT_TRUE(may_hold_device_code("usr/bin/deviceQuery", file_of(2 << 20, 0755)));
  EXPECT_FALSE(may_hold_device_code("usr/bin/true", file_of(40 << 10, 0755))) << "too small";
  auto link = file_of(1000);
  link.type = FileType::kSymlink;
  EXPECT_FALSE(may_hold_device_code("libx.so", link));
  auto second_name = file_of(1000);
  second_name.link_of = "the first";
  EXPECT_FALSE(may_hold_device_code("libx.so", second_name)) << "counted under its other name";
}

}  // namespace
}  // namespace varve::packages
