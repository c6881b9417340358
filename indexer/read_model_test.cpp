#include "indexer/read_model.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace varve::indexer {
namespace {

constexpr std::uint64_t kReadMib = 1024 * 1024;

codec::TarEntry regular(std::string name, std::uint64_t data_offset, std::uint64_t size) {
  codec::TarEntry entry;
  entry.name = std::move(name);
  entry.size = size;
  entry.data_stream_offset = data_offset;
  return entry;
}

// A shared library: symbols, code, tables, data.
Bytes library_head(const std::vector<Elf64_Phdr>& segments) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = std::uint16_t(segments.size());
  Bytes head;
  append(head, std::as_bytes(std::span(&header, 1)));
  append(head, std::as_bytes(std::span(segments)));
  head.resize(8192);
  return head;
}

Elf64_Phdr load(std::uint32_t flags, std::uint64_t offset, std::uint64_t bytes) {
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_flags = flags;
  segment.p_offset = offset;
  segment.p_filesz = bytes;
  return segment;
}

// Where spans that follow none begin when a file of that name and head lies at 1 MiB of a stream of 64 MiB, with places
// every 64 KiB.
std::vector<std::uint64_t> starts_for(const std::string& name, std::uint64_t size, ByteView head, std::size_t step,
                                      const SpanPolicy& policy = {.span_price_bytes = 10'000}) {
  SpanPlanner planner(policy);
  ReadModel model(planner, {});
  std::vector<std::uint64_t> starts;
  for (std::uint64_t at = 0; at < 64 * kReadMib; at += 64 * 1024) {
    planner.offer({.compressed_offset = at / 2, .stream_offset = at, .window_bytes = 1});
    for (const auto& start : planner.take_decided())
      if (!start.follows) starts.push_back(start.stream_offset);
    if (at != kReadMib) continue;
    model.begin(regular(name, at, size));
    for (std::size_t i = 0; i < head.size(); i += step) model.content(head.subspan(i, std::min(step, head.size() - i)));
    model.end();
  }
  planner.finish(32 * kReadMib, 64 * kReadMib);
  for (const auto& start : planner.take_decided())
    if (!start.follows) starts.push_back(start.stream_offset);
  return starts;
}

bool cut_at(const std::vector<std::uint64_t>& starts, std::uint64_t offset) {
  return std::ranges::binary_search(starts, offset);
}

TEST(ReadModelTest, CutsAroundTheHeadAndTheDataOfALibrary) {
  const auto head = library_head({load(PF_R, 0, kReadMib), load(PF_R | PF_X, kReadMib, 8 * kReadMib),
                                  load(PF_R, 9 * kReadMib, 20 * kReadMib), load(PF_R | PF_W, 29 * kReadMib, kReadMib)});
  const auto starts = starts_for("lib/libx.so", 40 * kReadMib, head, 1000);
  EXPECT_TRUE(cut_at(starts, kReadMib)) << "the file's start";
  EXPECT_TRUE(cut_at(starts, 2 * kReadMib)) << "after the symbols";
  EXPECT_TRUE(cut_at(starts, 30 * kReadMib)) << "the data";
  EXPECT_TRUE(cut_at(starts, 31 * kReadMib));
  EXPECT_EQ(starts, starts_for("lib/libx.so", 40 * kReadMib, head, 7)) << "however the content comes in";
}

TEST(ReadModelTest, HostileProgramHeadersAreOnlyData) {
  auto segments = std::vector{load(PF_R, UINT64_MAX - 5, 10), load(PF_R | PF_W, 5, UINT64_MAX)};
  EXPECT_FALSE(starts_for("lib/libx.so", 40 * kReadMib, library_head(segments), 4096).empty());
  auto head = library_head(segments);
  store_le(head.data() + offsetof(Elf64_Ehdr, e_phoff), std::uint64_t(UINT64_MAX - 20));
  EXPECT_FALSE(starts_for("lib/libx.so", 40 * kReadMib, head, 4096).empty());
  EXPECT_FALSE(starts_for("lib/libx.so", 100, ByteView(head).first(20), 4096).empty());
}

TEST(ReadModelTest, LargeDataIsLeftInLongSpans) {
  const auto starts = starts_for("model.bin", 60 * kReadMib, Bytes(8192), 4096, {});
  EXPECT_LE(starts.size(), 64u);
}

}  // namespace
}  // namespace varve::indexer
