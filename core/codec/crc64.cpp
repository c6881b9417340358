#include "core/codec/crc64.h"

#include <array>

namespace varve::codec {
namespace {

constexpr std::uint64_t kPolynomial = 0xD800000000000000;
constexpr std::size_t kSlices = 8;  // bytes taken in one step

using Tables = std::array<std::array<std::uint64_t, 256>, kSlices>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint64_t i = 0; i < 256; ++i) {
    auto crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ kPolynomial : crc >> 1;
    tables[0][i] = crc;
  }
  for (std::size_t slice = 1; slice < kSlices; ++slice)
    for (std::size_t i = 0; i < 256; ++i) tables[slice][i] = tables[0][tables[slice - 1][i] & 0xFF] ^ tables[slice - 1][i] >> 8;
  return tables;
}

constexpr auto kTables = make_tables();

}  // namespace

std::uint64_t crc64_iso(std::uint64_t crc, ByteView bytes) {
  crc = ~crc;
  while (bytes.size() >= kSlices) {
    crc ^= load_le<std::uint64_t>(bytes.data());
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < kSlices; ++i) next ^= kTables[kSlices - 1 - i][crc >> (8 * i) & 0xFF];
    crc = next;
    bytes = bytes.subspan(kSlices);
  }
  for (const auto byte : bytes) crc = kTables[0][(crc ^ std::uint64_t(byte)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

}  // namespace varve::codec
