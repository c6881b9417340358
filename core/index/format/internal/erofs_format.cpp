#include "core/index/format/internal/erofs_format.h"

#include <algorithm>

#include "core/base/digest.h"

namespace varve::index::erofs {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
    table[i] = crc;
  }
  return table;
}

constexpr auto kCrcTable = make_crc_table();

}  // namespace

std::uint32_t crc32c(std::uint32_t crc, ByteView bytes) {
  for (const auto byte : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ std::uint32_t(byte)) & 0xff];
  return crc;
}

std::uint32_t super_checksum(ByteView image) {
  // The kernel reads one block from the superblock on: with 512-byte blocks it begins on a block of its own.
  const auto block = image.subspan(kSuperOffset, kBlock);
  constexpr std::array<std::byte, 4> zero{};
  auto crc = crc32c(0xFFFFFFFF, block.first(super::kChecksumAt));
  crc = crc32c(crc, zero);
  return crc32c(crc, block.subspan(super::kChecksumAt + 4));
}

std::array<std::byte, kUuidBytes> content_uuid(ByteView image) {
  const auto digest = digest_of(image.subspan(kSuperOffset + kSuperBytes));
  std::array<std::byte, kUuidBytes> uuid;
  std::ranges::copy(digest.raw().first(kUuidBytes), uuid.begin());
  uuid[6] = (uuid[6] & std::byte(0x0f)) | std::byte(0x80);
  uuid[8] = (uuid[8] & std::byte(0x3f)) | std::byte(0x80);
  return uuid;
}

}  // namespace varve::index::erofs
