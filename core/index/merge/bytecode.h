#pragma once
// Python's bytecode beside its source: which source it is of, and whether it counts while that keeps its time. PEP 3147
// (names), PEP 552 (header: magic number, flags, then time and size of the source, or its hash).
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/bytes.h"

namespace varve::index {

inline constexpr std::size_t kBytecodeHeadBytes = 16;
inline constexpr std::size_t kBytecodeTimeOffset = 8;  // of the source's time: seconds modulo 2^32, little-endian

// "a/__pycache__/b.cpython-311.opt-1.pyc" is of "a/b.py", "a/b.pyc" too; "" for anything else.
std::string source_of_bytecode(std::string_view path);

enum class BytecodeBinding : std::uint8_t {
  kTime,  // Python takes it as long as its source has the very time and size it has now
  kHash,  // Python asks for no time: the header holds the source's hash
  kNone,  // anything else: not of this source's time or size (Python compiles anew), not in a __pycache__ folder, of
          // Python 3.6 or older
};
// `head`: the first kBytecodeHeadBytes of the file at `path`, or fewer of a shorter one.
BytecodeBinding bytecode_binding(std::string_view path, ByteView head, std::int64_t source_seconds,
                                 std::uint64_t source_bytes);

// Writes the source's time into a head.
void set_bytecode_time(std::span<std::byte> head, std::int64_t source_seconds);

// Writes time and size of the source (modulo 2^32) into a head that holds them; false if it holds a hash instead.
bool set_bytecode_source(std::span<std::byte> head, std::uint32_t source_seconds, std::uint32_t source_bytes);

}  // namespace varve::index
