#pragma once
// Small ELF files for tests.
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"

namespace varve::test {

inline constexpr std::uint64_t kAddress = 0x400000;  // of the file's first byte

// Writes an ELF file from parts that lie wherever the test wants them.
struct ElfFile {
  bool is_64 = true;
  bool big_endian = false;
  std::uint16_t type = 3;
  std::uint16_t machine = 62;
  std::uint64_t size = 8192;
  std::uint64_t segments_at = 64;
  std::uint64_t dynamic_at = 4096;  // 0: no dynamic section
  std::uint64_t strings_at = 1024;
  std::string interpreter = {};  // at 640
  std::vector<std::pair<std::uint64_t, std::string>> names = {
      {1, "libm.so.6"}, {1, "libc.so.6"}, {14, "libme.so.1"}, {29, "$ORIGIN/../lib"}};
  std::vector<std::string> sections = {};  // names; headers at sections_at, their names before
  std::uint64_t sections_at = 6144;
  std::uint64_t section_names_at = 5120;
  std::function<void(Bytes&)> edit = {};

  template <typename T>
  void put(Bytes& out, std::uint64_t at, T value) const {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      out.at(at + (big_endian ? sizeof(T) - 1 - i : i)) = std::byte(value >> 8 * i & 0xFF);
  }
  void put_word(Bytes& out, std::uint64_t at_64, std::uint64_t at_32, std::uint64_t value) const {
    is_64 ? put(out, at_64, value) : put(out, at_32, std::uint32_t(value));
  }
  static void put_text(Bytes& out, std::uint64_t at, std::string_view text) {
    std::memcpy(&out.at(at), text.data(), text.size());
  }

  void segment(Bytes& out, std::size_t number, std::uint32_t kind, std::uint64_t at, std::uint64_t bytes) const {
    const auto begin = segments_at + number * (is_64 ? 56 : 32);
    put(out, begin, kind);
    put_word(out, begin + 8, begin + 4, at);
    put_word(out, begin + 16, begin + 8, kAddress + at);
    put_word(out, begin + 32, begin + 16, bytes);
  }

  // For `edit`, of 64-bit files.
  void set_segments(Bytes& out, std::uint16_t count) const { put(out, 56, count); }
  void set_flags(Bytes& out, std::size_t segment, std::uint32_t flags) const {
    put(out, segments_at + segment * 56 + 4, flags);
  }
  // Behind those that the dynamic section has.
  void add_entries(Bytes& out, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& entries) const {
    auto at = dynamic_at;
    while (load_le<std::uint64_t>(&out[at]) != 0) at += 16;
    for (const auto& [tag, value] : entries) {
      put(out, at, tag);
      put(out, at + 8, value);
      at += 16;
    }
    segment(out, 1, 2, dynamic_at, at + 16 - dynamic_at);
  }

  Bytes make() const {
    Bytes out(size);
    put_text(out, 0, "\177ELF");
    out[4] = std::byte(is_64 ? 2 : 1);
    out[5] = std::byte(big_endian ? 2 : 1);
    put(out, 16, type);
    put(out, 18, machine);
    const std::uint64_t tail = is_64 ? 52 : 40;
    put_word(out, 32, 28, segments_at);
    put(out, tail + 2, std::uint16_t(is_64 ? 56 : 32));
    const std::uint16_t segments = 1 + (dynamic_at != 0) + !interpreter.empty();
    put(out, tail + 4, segments);
    segment(out, 0, 1, 0, size);
    if (dynamic_at != 0) put_dynamic(out);
    if (!interpreter.empty()) {
      segment(out, segments - 1, 3, 640, interpreter.size() + 1);
      put_text(out, 640, interpreter);
    }
    if (!sections.empty()) put_sections(out, tail);
    if (edit) edit(out);
    return out;
  }

  void put_dynamic(Bytes& out) const {
    std::uint64_t at = dynamic_at;
    const auto entry = [&](std::uint64_t tag, std::uint64_t value) {
      put_word(out, at, at, tag);
      put_word(out, at + 8, at + 4, value);
      at += is_64 ? 16 : 8;
    };
    std::uint64_t name_at = 1;
    for (const auto& [tag, name] : names) {
      put_text(out, strings_at + name_at, name);
      entry(tag, name_at);
      name_at += name.size() + 1;
    }
    entry(5, kAddress + strings_at);
    entry(10, name_at);
    entry(0, 0);
    segment(out, 1, 2, dynamic_at, at - dynamic_at);
  }

  void put_sections(Bytes& out, std::uint64_t tail) const {
    const std::uint64_t header = is_64 ? 64 : 40;
    put_word(out, 40, 32, sections_at);
    put(out, tail + 6, std::uint16_t(header));
    put(out, tail + 8, std::uint16_t(sections.size() + 2));
    put(out, tail + 10, std::uint16_t(sections.size() + 1));
    std::uint32_t name = 1;
    for (std::size_t i = 0; i < sections.size(); ++i) {
      put(out, sections_at + (i + 1) * header, name);
      put_text(out, section_names_at + name, sections[i]);
      name += std::uint32_t(sections[i].size() + 1);
    }
    const auto names_header = sections_at + (sections.size() + 1) * header;
    put_word(out, names_header + 24, names_header + 16, section_names_at);
    put_word(out, names_header + 32, names_header + 20, name);
  }
};

}  // namespace varve::test
