#pragma once
// How many different users: a set that is exact while small and a HyperLogLog of 4,096 registers (standard error 1.6 %)
// once it is large. The same bytes in every database and on every machine.
#include <array>
#include <cstdint>
#include <vector>

#include "core/base/bytes.h"

namespace varve::usage {

// What user_sketch.subject_id means.
enum class SketchKind : std::uint8_t { kImage, kDistribution, kFailed, kReinstall };

// A value.
class UserSketch {
 public:
  static constexpr unsigned kIndexBits = 12;
  static constexpr std::size_t kRegisters = std::size_t(1) << kIndexBits;
  static constexpr std::size_t kMaxExact = 256;  // users known one by one: 2 kB, half of what the registers take

  UserSketch() = default;
  // Throws CorruptData if `stored` is not what bytes() gives.
  static UserSketch parse(ByteView stored);

  // `hash` must be uniform: the first 64 bits of a keyed hash are. Returns whether anything changed.
  bool add(std::uint64_t hash);
  void merge(const UserSketch& other);
  std::uint64_t count() const;
  Bytes bytes() const;

 private:
  void add_to_registers(std::uint64_t hash, bool& changed);
  void become_registers();

  std::vector<std::uint64_t> exact_;     // ascending; unused once there are registers
  std::vector<std::uint8_t> registers_;  // kRegisters of them, or none
};

}  // namespace varve::usage
