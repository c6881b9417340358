#include "core/index/elf/internal/elf_tables.h"

#include <map>

#include "core/index/elf/elf_facts.h"

namespace varve::index {

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
  std::map<std::uint64_t, std::uint64_t> single;  // of several the loader takes the last
  const std::size_t entry_bytes = format.is_64 ? 16 : 8;
  for (std::size_t at = 0; at + entry_bytes <= table.size(); at += entry_bytes) {
    const auto tag = format.word(table, at, at);
    const auto value = format.word(table, at + 8, at + 4);
    if (tag == DT_NULL) break;
    if (tag == DT_STRTAB) section.strings_address = value;
    if (tag == DT_STRSZ) section.strings_bytes = value;
    if (tag == DT_NEEDED && ++needed > kMaxNeededLibraries)
      section.too_many_needed = true;
    else if (tag == DT_NEEDED)
      section.texts.push_back({.tag = tag, .offset = value});
    else if (tag == DT_SONAME || tag == DT_RPATH || tag == DT_RUNPATH)
      single[tag] = value;
  }
  for (const auto& [tag, offset] : single) section.texts.push_back({.tag = tag, .offset = offset});
  return section;
}

}  // namespace varve::index
