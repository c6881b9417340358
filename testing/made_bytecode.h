#pragma once
// Bytecode of Python modules for tests.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"

namespace varve::test {

// As CPython 3.11 writes it, whose own compiler tests/oracle/test_bytecode_imports.py asks.
class MadeBytecode {
 public:
  static constexpr std::uint8_t kLoadConst = 100, kImportName = 108, kJumpForward = 110, kJumpIfFalse = 114,
                                kExtended = 144;

  explicit MadeBytecode(std::uint16_t magic = 3495, unsigned numbers = 5) : numbers_(numbers) {
    const std::uint8_t header[16] = {std::uint8_t(magic), std::uint8_t(magic >> 8), '\r', '\n'};
    append(bytes_, std::as_bytes(std::span(header)));
  }
  std::uint8_t name(const std::string& text) {
    names_ += object(text);
    return name_count_++;
  }
  std::uint8_t constant(const std::string& object) {
    constants_ += object;
    return constant_count_++;
  }
  void add(std::uint8_t code, std::uint8_t argument) { code_ += {char(code), char(argument)}; }
  void import(const std::string& text, std::int32_t level = 0, const std::vector<std::string>& members = {}) {
    add(kLoadConst, constant(number(level)));
    std::string tuple{')', char(members.size())};
    for (const auto& member : members) tuple += object(member);
    add(kLoadConst, constant(members.empty() ? "N" : tuple));
    add(kImportName, name(text));
  }
  static std::string object(const std::string& text) { return std::string{'z', char(text.size())} + text; }
  static std::string number(std::uint32_t value) {
    std::string object = "i";
    for (int i = 0; i < 4; ++i) object += char(value >> 8 * i);
    return object;
  }

  Bytes make() const {
    auto bytes = bytes_;
    const std::string object = "\xE3" + std::string(4 * numbers_, '\0') + "s" + number(code_.size()).substr(1) + code_ +
                               "(" + number(constant_count_).substr(1) + constants_ + ")" + char(name_count_) + names_;
    append(bytes, as_bytes(object));
    return bytes;
  }

 private:
  const unsigned numbers_;
  Bytes bytes_;
  std::string code_, constants_, names_;
  std::uint8_t constant_count_ = 0, name_count_ = 0;
};

}  // namespace varve::test
