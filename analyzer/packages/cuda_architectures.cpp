#include "analyzer/packages/cuda_architectures.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "core/base/errors.h"
#include "core/base/text/image_path.h"

// The container is not published; as seen in CUDA 11.8 to 13.5. Little-endian, at multiples of 8 from the start of the
// ELF file, in .nv_fatbin, __nv_relfatbin, .nvFatBinSegment, and (cuFFT: all) in .cask_resource, .ldata and .rodata.
//   container: 0 u32 0xBA55ED50; 4 u16 version 1; 6 u16 bytes of this header, 16; 8 u64 bytes of all entries that
//   follow entry:     0 u16 kind: 1 PTX, 2 machine code (ELF), 8 for the link step; 4 u32 bytes of this header, 64 and
//   more;
//              8 u64 bytes of the payload, padding included; 28 u32 number of the architecture;
//              40 u64 flags: 0x100000 this GPU only (a), 0x200000 its family (f), 0x2000 LZ4, 0x8000 zstd
// A cubin by itself is an ELF file of machine 190, with the number in e_flags: bits 0-7 up to ABI version 7, 8-23
// since.

namespace varve::packages {
namespace {

constexpr std::uint64_t kWindowBytes = 256 << 10;
constexpr std::uint64_t kMaxSections = 1 << 16;
constexpr std::uint64_t kMaxSectionNameBytes = 256;
constexpr std::uint64_t kMaxMembers = 1 << 20;     // of a static library
constexpr std::uint64_t kPtxHeadBytes = 16 << 10;  // the .target line comes after comments only
constexpr std::uint64_t kMinProgramBytes = 1 << 20;
constexpr std::uint64_t kContainerStart = 0x0010'0001'BA55'ED50;  // magic number, version 1, 16 bytes of header
constexpr std::uint64_t kContainerHeaderBytes = 16;
constexpr std::uint64_t kMinEntryHeaderBytes = 64, kMaxEntryHeaderBytes = 4096;
constexpr std::uint64_t kMaxArchitectures = 4096;  // of one file; real ones know about 30
constexpr std::uint64_t kFlagArchitectureOnly = 0x100000, kFlagFamilyOnly = 0x200000;

template <typename T>
T load(ByteView bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// A view that moves through the file and asks for large pieces, so that headers near each other cost one read.
class Window {
 public:
  Window(std::uint64_t size, const index::RangeReader& read) : size_(size), read_(read) {}

  std::uint64_t size() const { return size_; }

  // Empty if the file ends before `offset + length`; valid until the next call.
  ByteView at(std::uint64_t offset, std::uint64_t length) {
    if (offset > size_ || length > size_ - offset) return {};
    if (offset < start_ || offset + length > start_ + bytes_.size()) {
      const auto wanted = std::min(size_ - offset, std::max(length, kWindowBytes));
      bytes_ = read_({.offset = offset, .length = wanted});
      start_ = offset;
      if (bytes_.size() != wanted)
        fail<CorruptData>("{} bytes at {} were asked for, {} came", wanted, offset, bytes_.size());
    }
    return ByteView(bytes_).subspan(offset - start_, length);
  }

  // What can be had from `offset` on without another read, at least `length` bytes; empty if the file ends before.
  ByteView some_at(std::uint64_t offset, std::uint64_t length) {
    if (at(offset, length).empty()) return {};
    return ByteView(bytes_).subspan(offset - start_);
  }

 private:
  std::uint64_t size_;
  const index::RangeReader& read_;
  std::uint64_t start_ = 0;
  Bytes bytes_;
};

struct Section {
  std::string name;
  std::uint32_t type = 0;
  std::uint64_t flags = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

// The sections of a little-endian 64-bit ELF file that begins at `base`; CUDA knows no other. Empty if it is none.
std::vector<Section> read_sections(Window& file, std::uint64_t base) {
  const auto head = file.at(base, sizeof(Elf64_Ehdr));
  if (head.empty()) return {};
  const auto header = load<Elf64_Ehdr>(head, 0);
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff == 0 || header.e_shoff > file.size() - base) return {};
  const auto table = base + header.e_shoff;
  const auto section_at = [&](std::uint64_t index) -> std::optional<Elf64_Shdr> {
    const auto bytes = file.at(table + index * sizeof(Elf64_Shdr), sizeof(Elf64_Shdr));
    if (bytes.empty()) return std::nullopt;
    return load<Elf64_Shdr>(bytes, 0);
  };
  const auto first = section_at(0);
  if (!first) return {};
  const auto count = header.e_shnum != 0 ? std::uint64_t(header.e_shnum) : first->sh_size;
  const auto names_index = header.e_shstrndx != SHN_XINDEX ? std::uint64_t(header.e_shstrndx) : first->sh_link;
  if (count > kMaxSections || names_index >= count) return {};
  const auto names = section_at(names_index);
  if (!names || names->sh_offset > file.size() - base) return {};
  std::vector<Elf64_Shdr> raw;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto one = section_at(i);
    if (!one) break;
    raw.push_back(*one);
  }
  std::vector<Section> sections;
  for (const auto& one : raw) {
    if (one.sh_type == SHT_NOBITS || one.sh_offset > file.size() - base ||
        one.sh_size > file.size() - base - one.sh_offset)
      continue;
    const auto at = base + names->sh_offset + one.sh_name;
    const auto name =
        one.sh_name < names->sh_size
            ? as_text(file.at(at, std::min(kMaxSectionNameBytes, file.size() - std::min(at, file.size()))))
            : "";
    sections.push_back({.name = std::string(name.substr(0, name.find('\0'))),
                        .type = one.sh_type,
                        .flags = one.sh_flags,
                        .offset = base + one.sh_offset,
                        .size = one.sh_size});
  }
  return sections;
}

class DeviceCodeReader {
 public:
  DeviceCodeReader(std::uint64_t size, const index::RangeReader& read, const OnCode& on_code)
      : file_(size, read), on_code_(on_code), unsearched_bytes_(size) {}

  void read() {
    const auto head = file_.at(0, std::min<std::uint64_t>(file_.size(), 8));
    const auto text = as_text(head);
    if (text.starts_with(ELFMAG)) {
      read_elf(0, file_.size());
    } else if (text == "!<arch>\n") {
      read_static_library();
    } else if (head.size() == 8 && load<std::uint64_t>(head, 0) == kContainerStart) {
      read_containers(0, 0, file_.size());
    } else {
      read_ptx();
    }
  }

 private:
  void read_elf(std::uint64_t base, std::uint64_t size) {
    const auto head = file_.at(base, sizeof(Elf64_Ehdr));
    if (head.empty() || std::to_integer<int>(head[EI_CLASS]) != ELFCLASS64 ||
        std::to_integer<int>(head[EI_DATA]) != ELFDATA2LSB)
      return;
    const auto header = load<Elf64_Ehdr>(head, 0);
    if (header.e_machine == EM_CUDA)
      return on_code_({.target = cubin_target(header), .range = {.offset = base, .length = size}});
    const auto sections = read_sections(file_, base);
    const bool has_device_code = std::any_of(sections.begin(), sections.end(), [](const Section& one) {
      return one.name == ".nv_fatbin" || one.name == "__nv_relfatbin" || one.name == ".nvFatBinSegment" ||
             one.name == ".cask_resource" || one.name == ".ldata";
    });
    if (!has_device_code) return;
    // Libraries of NVIDIA keep containers in ordinary data too, found by their magic number alone.
    for (const auto& section : sections) {
      if (section.type != SHT_PROGBITS || (section.flags & SHF_EXECINSTR) != 0) continue;
      if (section.size > unsearched_bytes_) return;
      unsearched_bytes_ -= section.size;
      read_containers(base, section.offset, section.offset + section.size);
    }
  }

  // Since CUDA 13 the file says by its ABI version where the number stands.
  static CodeTarget cubin_target(const Elf64_Ehdr& header) {
    const auto number = header.e_ident[EI_ABIVERSION] >= 8 ? (header.e_flags >> 8) & 0xFFFF : header.e_flags & 0xFF;
    return {.kind = CodeKind::kMachine, .number = number};
  }

  // Containers stand at multiples of 8 from the start of their ELF file, which in a static library is only even.
  void read_containers(std::uint64_t base, std::uint64_t begin, std::uint64_t end) {
    auto at = base + ((begin - base + 7) & ~std::uint64_t(7));
    while (end >= kContainerHeaderBytes && at <= end - kContainerHeaderBytes) {
      const auto next = find_container(at, end);
      if (!next) return;
      at = *next + read_container(*next, end);
    }
  }

  // The next place in steps of 8 that holds a container's header.
  std::optional<std::uint64_t> find_container(std::uint64_t at, std::uint64_t end) {
    while (at <= end - kContainerHeaderBytes) {
      const auto piece = file_.some_at(at, kContainerHeaderBytes);
      const auto length = std::min<std::uint64_t>(piece.size(), end - at);
      if (length < kContainerHeaderBytes) return std::nullopt;
      std::uint64_t i = 0;
      for (; i + kContainerHeaderBytes <= length; i += 8)
        if (load<std::uint64_t>(piece, i) == kContainerStart) return at + i;
      at += i;
    }
    return std::nullopt;
  }

  // Returns by how much the reader may go on: the container if it is sound, else as far as its sound entries reach.
  std::uint64_t read_container(std::uint64_t at, std::uint64_t end) {
    const auto claimed = load<std::uint64_t>(file_.at(at, kContainerHeaderBytes), 8);
    const auto room = end - at - kContainerHeaderBytes;
    const auto size = std::min(claimed, room);
    std::uint64_t done = 0;
    while (size - done >= kMinEntryHeaderBytes) {
      const auto entry = read_entry(at + kContainerHeaderBytes + done, size - done);
      if (entry == 0) break;
      done += entry;
    }
    return kContainerHeaderBytes + ((done + 7) & ~std::uint64_t(7));
  }

  // Header and payload of one entry; 0 if it cannot be one.
  std::uint64_t read_entry(std::uint64_t at, std::uint64_t room) {
    const auto head = file_.at(at, kMinEntryHeaderBytes);
    if (head.empty()) return 0;
    const auto kind = load<std::uint16_t>(head, 0);
    const auto header_bytes = std::uint64_t(load<std::uint32_t>(head, 4));
    const auto payload_bytes = load<std::uint64_t>(head, 8);
    const auto number = load<std::uint32_t>(head, 28);
    const auto flags = load<std::uint64_t>(head, 40);
    if (header_bytes < kMinEntryHeaderBytes || header_bytes > kMaxEntryHeaderBytes || header_bytes > room ||
        payload_bytes > room - header_bytes)
      return 0;
    const auto bytes = header_bytes + payload_bytes;
    on_code_({.target = target_of(kind, number, flags), .range = {.offset = at, .length = bytes}});
    return bytes;
  }

  static CodeTarget target_of(std::uint16_t kind, std::uint32_t number, std::uint64_t flags) {
    const auto known = kind == 1   ? CodeKind::kPtx
                       : kind == 2 ? CodeKind::kMachine
                       : kind == 8 ? CodeKind::kLinkStep
                                   : CodeKind::kOther;
    if (known == CodeKind::kOther) return {};
    const char variant = (flags & kFlagArchitectureOnly) != 0 ? 'a' : (flags & kFlagFamilyOnly) != 0 ? 'f' : '\0';
    return {.kind = known, .number = number, .variant = variant};
  }

  // ar(5): members one after the other, each with a header of 60 bytes of text.
  void read_static_library() {
    std::uint64_t at = 8;
    for (std::uint64_t members = 0; members < kMaxMembers; ++members) {
      const auto head = file_.at(at, 60);
      if (head.empty() || as_text(head).substr(58) != "`\n") return;
      std::uint64_t size = 0;
      for (const char c : as_text(head).substr(48, 10)) {
        if (c == ' ') break;
        if (c < '0' || c > '9') return;
        size = size * 10 + std::uint64_t(c - '0');
      }
      at += 60;
      if (size > file_.size() - at) return;
      if (as_text(file_.at(at, std::min<std::uint64_t>(size, 4))) == ELFMAG) read_elf(at, size);
      at += size + size % 2;
    }
  }

  void read_ptx() {
    const auto text = as_text(file_.at(0, std::min(file_.size(), kPtxHeadBytes)));
    const auto version = text.find(".version");
    const auto target = text.find(".target", version == text.npos ? 0 : version);
    if (version == text.npos || target == text.npos) return;
    auto line = text.substr(target + 7, text.find_first_of("\n,/", target) - target - 7);
    const auto begin = line.find("sm_");
    if (begin == line.npos) return;
    line.remove_prefix(begin + 3);
    CodeTarget named{.kind = CodeKind::kPtx};
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), named.number);
    if (error != std::errc()) return;
    const auto rest = line.substr(std::size_t(end - line.data()));
    if (rest.starts_with('a') || rest.starts_with('f')) named.variant = rest.front();
    on_code_({.target = named, .range = {.offset = 0, .length = file_.size()}});
  }

  Window file_;
  const OnCode& on_code_;
  std::uint64_t unsearched_bytes_;  // sound sections do not overlap; hostile ones would be searched over and over
};

bool has_suffix(std::string_view name, std::string_view suffix) {
  return name.size() > suffix.size() && name.ends_with(suffix);
}

}  // namespace

std::string CodeTarget::name() const {
  constexpr std::array<const char*, 3> kPrefixes{"sm_", "compute_", "lto_"};
  if (kind == CodeKind::kOther) return "other";
  auto text = fmt::format("{}{}", kPrefixes.at(std::size_t(kind)), number);
  if (variant != 0) text += variant;
  return text;
}

bool may_hold_device_code(std::string_view path, const index::FlatEntry& file) {
  if (file.type != FileType::kRegular || !file.is_first_name() || file.size < kMinEntryHeaderBytes) return false;
  const auto name = name_of(path);
  if (has_suffix(name, ".so") || name.find(".so.") != name.npos) return true;
  for (const std::string_view suffix : {".cubin", ".fatbin", ".ptx", ".a", ".o"})
    if (has_suffix(name, suffix)) return true;
  return file.size >= kMinProgramBytes && (file.mode & 0111) != 0 && name.find('.') == name.npos;
}

void for_each_code(std::uint64_t size, const index::RangeReader& read, const OnCode& on_code) {
  DeviceCodeReader(size, read, on_code).read();
}

DeviceCode read_device_code(std::uint64_t size, const index::RangeReader& read) {
  DeviceCode found;
  for_each_code(size, read, [&](const CodeEntry& entry) {
    const auto name = entry.target.name();
    if (found.size() >= kMaxArchitectures && !found.contains(name)) return;
    auto& amount = found[name];
    ++amount.entries;
    amount.bytes += entry.range.length;
  });
  return found;
}

}  // namespace varve::packages
