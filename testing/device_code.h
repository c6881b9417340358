#pragma once
// Files with device code as NVIDIA's tools lay it out, made by hand. Format: analyzer/packages/cuda_architectures.cpp.
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/base/bytes.h"

namespace varve::test {

struct DeviceEntry {
  std::uint16_t kind = 2;
  std::uint32_t architecture = 80;
  std::uint64_t payload_bytes = 64;
  std::uint64_t flags = 0x11;
  std::uint32_t header_bytes = 64;
};

// A container of these entries; `lie` is added to the size that it claims.
inline Bytes container(const std::vector<DeviceEntry>& entries, std::int64_t lie = 0) {
  Bytes body;
  for (const auto& entry : entries) {
    const auto begin = body.size();
    append_le<std::uint16_t>(body, entry.kind);
    append_le<std::uint16_t>(body, 0x0101);
    append_le<std::uint32_t>(body, entry.header_bytes);
    append_le<std::uint64_t>(body, entry.payload_bytes);
    body.resize(begin + 28);
    append_le<std::uint32_t>(body, entry.architecture);
    body.resize(begin + 40);
    append_le<std::uint64_t>(body, entry.flags);
    body.resize(begin + entry.header_bytes + entry.payload_bytes);
  }
  Bytes bytes;
  append_le<std::uint32_t>(bytes, 0xBA55ED50);
  append_le<std::uint16_t>(bytes, 1);
  append_le<std::uint16_t>(bytes, 16);
  append_le<std::uint64_t>(bytes, std::uint64_t(std::int64_t(body.size()) + lie));
  append(bytes, body);
  return bytes;
}

struct DeviceSection {
  std::string name;
  Bytes content;
  std::uint64_t flags = SHF_ALLOC;
};

// Header, contents, names, table of sections: as linkers lay it out.
inline Bytes elf_file(const std::vector<DeviceSection>& wanted, std::uint16_t machine = EM_X86_64,
                      std::uint32_t flags = 0, std::uint8_t abi_version = 0) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_ABIVERSION] = abi_version;
  header.e_machine = machine;
  header.e_flags = flags;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = std::uint16_t(wanted.size() + 2);
  header.e_shstrndx = std::uint16_t(wanted.size() + 1);
  Bytes file(sizeof header);
  std::string names(1, '\0');
  std::vector<Elf64_Shdr> table(1);
  const auto add = [&](const std::string& name, ByteView content, std::uint32_t type, std::uint64_t section_flags) {
    file.resize((file.size() + 63) / 64 * 64);
    Elf64_Shdr section{};
    section.sh_name = std::uint32_t(names.size());
    section.sh_type = type;
    section.sh_flags = section_flags;
    section.sh_offset = file.size();
    names += name + '\0';
    section.sh_size = name == ".shstrtab" ? names.size() : content.size();
    append(file, name == ".shstrtab" ? as_bytes(names) : content);
    table.push_back(section);
  };
  for (const auto& section : wanted) add(section.name, section.content, SHT_PROGBITS, section.flags);
  add(".shstrtab", {}, SHT_STRTAB, 0);
  file.resize((file.size() + 7) / 8 * 8);
  header.e_shoff = file.size();
  std::memcpy(file.data(), &header, sizeof header);
  for (const auto& section : table) append(file, std::as_bytes(std::span(&section, 1)));
  return file;
}

inline Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const auto& part : parts) append(all, part);
  return all;
}

}  // namespace varve::test
