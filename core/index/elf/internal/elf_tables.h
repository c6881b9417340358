#pragma once
// Tables of an ELF file, once they are at hand. Layouts: elf(5), and "System V ABI", chapters 4 and 5.
#include <concepts>
#include <cstdint>
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
  std::size_t header_bytes() const { return is_64 ? 64 : 52; }
  std::size_t segment_bytes() const { return is_64 ? 56 : 32; }
  std::size_t section_bytes() const { return is_64 ? 64 : 40; }
};

inline constexpr std::uint32_t kLoad = 1, kDynamic = 2, kInterp = 3;  // Segment::type
inline constexpr std::uint32_t kExecutable = 1;                       // of Segment::flags

struct Segment {
  std::uint32_t type = 0, flags = 0;
  ByteRange in_file;
  std::uint64_t address = 0;
};
// `table` is a whole number of program headers.
std::vector<Segment> segments_of(const ElfFormat& format, ByteView table);

enum DynamicTag : std::uint64_t {
  kNull = 0,
  kNeeded = 1,
  kStrtab = 5,
  kStrsz = 10,
  kSoname = 14,
  kRpath = 15,
  kRunpath = 29
};
// A string that the dynamic section names.
struct DynamicText {
  std::uint64_t tag = 0;     // kNeeded, kSoname, kRpath or kRunpath
  std::uint64_t offset = 0;  // in the string table
};
struct DynamicSection {
  std::optional<std::uint64_t> strings_address, strings_bytes;
  std::vector<DynamicText> texts;  // in order; of needed libraries at most kMaxNeededLibraries
  bool too_many_needed = false;
};
DynamicSection dynamic_section_of(const ElfFormat& format, ByteView table);

}  // namespace varve::index
