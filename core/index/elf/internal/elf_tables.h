#pragma once
// Tables of an ELF file, once they are at hand. Layouts: elf(5), and "System V ABI", chapters 4 and 5.
#include <elf.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"

namespace varve::index {

// How the file writes numbers, and how large that makes its structures. Callers see to it that places are inside.
struct ElfFormat {
  bool is_64 = false;
  bool big_endian = false;

  template <std::integral T>
  T number(ByteView bytes, std::size_t at) const {
    auto value = load_le<T>(bytes.data() + at);
    if (!big_endian) return value;
    T turned = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) turned = T(turned << 8 | (value & 0xFF)), value = T(value >> 8);
    return turned;
  }
  // An address, an offset or a size.
  std::uint64_t word(ByteView bytes, std::size_t at_64, std::size_t at_32) const {
    return is_64 ? number<std::uint64_t>(bytes, at_64) : number<std::uint32_t>(bytes, at_32);
  }
  std::size_t header_bytes() const { return is_64 ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr); }
  std::size_t segment_bytes() const { return is_64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr); }
  std::size_t section_bytes() const { return is_64 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr); }
};

// Of the machines that Varve runs on.
inline constexpr ElfFormat kOwnFormat{.is_64 = true, .big_endian = false};

struct ElfHeader {
  std::uint16_t type = 0, machine = 0;             // e_type, e_machine
  std::uint64_t segments_at = 0, sections_at = 0;  // in the file
  std::uint16_t segment_bytes = 0, segment_count = 0;
  std::uint16_t section_bytes = 0, section_count = 0;
  std::uint16_t names_section = 0;
};
// `header` has header_bytes().
ElfHeader header_of(const ElfFormat& format, ByteView header);

struct ElfSegment {
  std::uint32_t type = 0, flags = 0;  // PT_…, PF_…
  ByteRange in_file;
  std::uint64_t address = 0;
};
// `table` is a whole number of program headers.
std::vector<ElfSegment> segments_of(const ElfFormat& format, ByteView table);

// A string that the dynamic section names.
struct DynamicText {
  std::uint64_t tag = 0;     // DT_NEEDED, DT_SONAME, DT_RPATH or DT_RUNPATH
  std::uint64_t offset = 0;  // in the string table
};
struct DynamicSection {
  std::map<std::uint64_t, std::uint64_t> values;  // by tag, of those that a loader looks at; of several the last
  std::vector<DynamicText> texts;                 // kMaxNeededLibraries at most, in order; of others the last
  bool too_many_needed = false;

  std::optional<std::uint64_t> value(std::uint64_t tag) const {
    const auto found = values.find(tag);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  }
};
DynamicSection dynamic_section_of(const ElfFormat& format, ByteView table);

}  // namespace varve::index
