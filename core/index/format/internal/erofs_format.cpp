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

void store_inode(std::byte* at, const InodeFields& inode) {
  store_le(at + compact::kFormatAt, inode.format());
  store_le(at + compact::kXattrCountAt, inode.xattr_count);
  store_le(at + compact::kModeAt, inode.mode);
  store_le(at + compact::kUnionAt, inode.union_value);
  if (inode.extended) {
    store_le(at + extended::kSizeAt, inode.size);
    store_le(at + extended::kUidAt, inode.uid);
    store_le(at + extended::kGidAt, inode.gid);
    store_le(at + extended::kMtimeAt, inode.mtime_seconds);
    store_le(at + extended::kNanosecondsAt, inode.mtime_nanoseconds);
    store_le(at + extended::kNlinkAt, inode.nlink);
  } else {
    store_le(at + compact::kNlinkAt, std::uint16_t(inode.nlink));
    store_le(at + compact::kSizeAt, std::uint32_t(inode.size));
    store_le(at + compact::kUidAt, std::uint16_t(inode.uid));
    store_le(at + compact::kGidAt, std::uint16_t(inode.gid));
  }
}

InodeFields load_inode(const std::byte* at) {
  InodeFields inode;
  const auto format = load_le<std::uint16_t>(at + compact::kFormatAt);
  inode.layout = Layout(format >> 1);
  inode.extended = (format & 1) != 0;
  inode.xattr_count = load_le<std::uint16_t>(at + compact::kXattrCountAt);
  inode.mode = load_le<std::uint16_t>(at + compact::kModeAt);
  inode.union_value = load_le<std::uint32_t>(at + compact::kUnionAt);
  if (inode.extended) {
    inode.size = load_le<std::uint64_t>(at + extended::kSizeAt);
    inode.uid = load_le<std::uint32_t>(at + extended::kUidAt);
    inode.gid = load_le<std::uint32_t>(at + extended::kGidAt);
    inode.mtime_seconds = load_le<std::int64_t>(at + extended::kMtimeAt);
    inode.mtime_nanoseconds = load_le<std::uint32_t>(at + extended::kNanosecondsAt);
    inode.nlink = load_le<std::uint32_t>(at + extended::kNlinkAt);
  } else {
    inode.nlink = load_le<std::uint16_t>(at + compact::kNlinkAt);
    inode.size = load_le<std::uint32_t>(at + compact::kSizeAt);
    inode.uid = load_le<std::uint16_t>(at + compact::kUidAt);
    inode.gid = load_le<std::uint16_t>(at + compact::kGidAt);
  }
  return inode;
}

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

void seal(Bytes& image) {
  std::byte* const at = image.data() + kSuperOffset;
  std::ranges::copy(content_uuid(image), at + super::kUuidAt);
  store_le(at + super::kChecksumAt, super_checksum(image));
}

}  // namespace varve::index::erofs
