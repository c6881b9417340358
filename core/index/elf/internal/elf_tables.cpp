#include "core/index/elf/internal/elf_tables.h"

#include <algorithm>
#include <array>

#include "core/index/elf/elf_facts.h"

namespace varve::index {
namespace {

constexpr auto kSingleTags = std::to_array<std::uint64_t>(
    {DT_STRTAB, DT_STRSZ,   DT_SONAME, DT_RPATH, DT_RUNPATH, DT_HASH,    DT_GNU_HASH,   DT_SYMTAB,
     DT_VERSYM, DT_VERNEED, DT_VERDEF, DT_RELA,  DT_RELASZ,  DT_RELAENT, DT_INIT_ARRAY, DT_INIT_ARRAYSZ,
     DT_INIT,   DT_FINI,    DT_REL,    DT_RELSZ, DT_RELR,    DT_RELRSZ,  DT_JMPREL,     DT_PLTRELSZ});

}  // namespace

ElfHeader header_of(const ElfFormat& format, ByteView header) {
  const std::size_t tail = format.is_64 ? 52 : 40;  // where e_ehsize lies
  const auto half = [&](std::size_t at) { return format.number<std::uint16_t>(header, at); };
  return {.type = half(16),
          .machine = half(18),
          .segments_at = format.word(header, 32, 28),
          .sections_at = format.word(header, 40, 32),
          .segment_bytes = half(tail + 2),
          .segment_count = half(tail + 4),
          .section_bytes = half(tail + 6),
          .section_count = half(tail + 8),
          .names_section = half(tail + 10)};
}

std::vector<ElfSegment> segments_of(const ElfFormat& format, ByteView table) {
  std::vector<ElfSegment> segments;
  for (std::size_t at = 0; at < table.size(); at += format.segment_bytes()) {
    const auto segment = table.subspan(at, format.segment_bytes());
    segments.push_back({.type = format.number<std::uint32_t>(segment, 0),
                        .flags = format.number<std::uint32_t>(segment, format.is_64 ? 4 : 24),
                        .in_file = {format.word(segment, 8, 4), format.word(segment, 32, 16)},
                        .address = format.word(segment, 16, 8)});
  }
  return segments;
}

DynamicSection dynamic_section_of(const ElfFormat& format, ByteView table) {
  DynamicSection section;
  std::size_t needed = 0;
  const std::size_t entry_bytes = format.is_64 ? 16 : 8;
  for (std::size_t at = 0; at + entry_bytes <= table.size(); at += entry_bytes) {
    const auto tag = format.word(table, at, at);
    const auto value = format.word(table, at + 8, at + 4);
    if (tag == DT_NULL) break;
    if (tag == DT_NEEDED && ++needed > kMaxNeededLibraries)
      section.too_many_needed = true;
    else if (tag == DT_NEEDED)
      section.texts.push_back({.tag = tag, .offset = value});
    else if (std::ranges::find(kSingleTags, tag) != kSingleTags.end())
      section.values[tag] = value;
  }
  for (const std::uint64_t tag : {DT_SONAME, DT_RPATH, DT_RUNPATH})
    if (const auto offset = section.value(tag)) section.texts.push_back({.tag = tag, .offset = *offset});
  return section;
}

}  // namespace varve::index
