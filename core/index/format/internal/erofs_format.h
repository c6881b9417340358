#pragma once
// The part of the EROFS on-disk format that our trees use (Linux fs/erofs/erofs_fs.h); byte tables in
// docs/formats/tree.md.
#include <array>
#include <compare>
#include <cstdint>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/files/file_attributes.h"

namespace varve::index::erofs {

inline constexpr std::uint64_t kBlock = 512;
inline constexpr std::uint8_t kBlockBits = 9;
inline constexpr std::uint64_t kSlot = 32;  // an inode number counts slots from the start of the image

inline constexpr std::uint64_t kSuperOffset = 1024;
inline constexpr std::uint32_t kMagic = 0xE0F5E1E2;
inline constexpr std::uint32_t kCompatChecksum = 1;
inline constexpr std::uint32_t kCompatMtime = 2;
inline constexpr std::uint32_t kIncompatChunkedFile = 4;
inline constexpr std::uint32_t kIncompatDeviceTable = 8;
inline constexpr std::uint64_t kSuperBytes = 128;
namespace super {  // offsets from kSuperOffset
inline constexpr std::size_t kMagicAt = 0, kChecksumAt = 4, kCompatAt = 8, kBlockBitsAt = 12, kRootNidAt = 14,
                             kInosAt = 16, kBuildTimeAt = 24, kBuildNanosecondsAt = 32, kBlocksAt = 36,
                             kMetaBlockAt = 40, kXattrBlockAt = 44, kUuidAt = 48, kVolumeNameAt = 64, kIncompatAt = 80,
                             kExtraDevicesAt = 86, kDeviceTableAt = 88;
}

inline constexpr std::uint64_t kDeviceSlotBytes = 128;
inline constexpr std::size_t kDeviceTagBytes = 64;
inline constexpr std::size_t kDeviceBlocksAt = 64;  // in a device slot
inline constexpr std::uint32_t kMaxDevices = 65'535;

enum class Layout : std::uint16_t { kFlatPlain = 0, kFlatInline = 2, kChunkBased = 4 };
inline constexpr std::uint64_t kCompactBytes = 32;
inline constexpr std::uint64_t kExtendedBytes = 64;
namespace compact {
inline constexpr std::size_t kFormatAt = 0, kXattrCountAt = 2, kModeAt = 4, kNlinkAt = 6, kSizeAt = 8, kUnionAt = 16,
                             kUidAt = 24, kGidAt = 26;
}
namespace extended {
inline constexpr std::size_t kFormatAt = 0, kXattrCountAt = 2, kModeAt = 4, kSizeAt = 8, kUnionAt = 16, kUidAt = 24,
                             kGidAt = 28, kMtimeAt = 32, kNanosecondsAt = 40, kNlinkAt = 44;
}

inline constexpr std::uint16_t kChunkIndexes = 0x20;  // chunk format: 8-byte indexes
inline constexpr std::uint16_t kChunkBitsMask = 0x1f;
inline constexpr std::uint32_t kMaxChunkBits = 31;  // above the block bits
inline constexpr std::uint64_t kChunkIndexBytes = 8;
inline constexpr std::uint32_t kNullBlock = 0xFFFFFFFF;

inline constexpr std::uint64_t kDirentBytes = 12;
inline constexpr std::size_t kMaxName = 255;
inline constexpr std::size_t kMaxSymlink = 4095;
constexpr bool is_dot(std::string_view name) {
  return (name.size() == 1 || name.size() == 2) && name.front() == '.' && name.back() == '.';
}

inline constexpr std::uint64_t kXattrHeaderBytes = 12;
inline constexpr std::uint64_t kXattrEntryBytes = 4;
inline constexpr std::uint64_t kMaxSharedXattrs = 255;  // of one inode
inline constexpr std::uint64_t kMaxXattrBodyBytes = 12 + 4 * 65'534ull;
inline constexpr std::uint64_t kMaxXattrValue = 65'535;

struct XattrPrefix {
  std::uint8_t index;
  std::string_view prefix;
  bool whole_name;  // the name has no suffix
};
inline constexpr std::array<XattrPrefix, 5> kXattrPrefixes{{{1, "user.", false},
                                                            {2, "system.posix_acl_access", true},
                                                            {3, "system.posix_acl_default", true},
                                                            {4, "trusted.", false},
                                                            {6, "security.", false}}};

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}
constexpr std::uint64_t blocks_of(std::uint64_t bytes) { return bytes / kBlock + (bytes % kBlock != 0); }
constexpr std::uint64_t xattr_entry_size(std::uint64_t suffix_bytes, std::uint64_t value_bytes) {
  return align_up(kXattrEntryBytes + suffix_bytes + value_bytes, 4);
}

// Of a directory or symlink, which has a size.
constexpr std::uint64_t whole_blocks(Layout layout, std::uint64_t size) {
  return layout == Layout::kFlatInline ? (size - 1) / kBlock : blocks_of(size);
}

// An inode without its attributes and what lies behind them. A compact one has no time.
struct InodeFields {
  Layout layout = Layout::kFlatPlain;
  bool extended = false;
  std::uint16_t xattr_count = 0;
  std::uint16_t mode = 0;  // with the type
  std::uint32_t nlink = 0;
  std::uint32_t union_value = 0;
  std::uint64_t size = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t mtime_seconds = 0;
  std::uint32_t mtime_nanoseconds = 0;

  std::uint16_t format() const { return std::uint16_t(std::uint16_t(layout) << 1 | (extended ? 1 : 0)); }
  std::uint64_t xattr_bytes() const { return xattr_count == 0 ? 0 : kXattrHeaderBytes + (xattr_count - 1) * 4ull; }
  std::uint64_t header_bytes() const { return (extended ? kExtendedBytes : kCompactBytes) + xattr_bytes(); }
  auto operator<=>(const InodeFields&) const = default;
};
// The caller has checked that its 32 or 64 bytes are there; those that have no field are 0.
void store_inode(std::byte* at, const InodeFields& inode);
InodeFields load_inode(const std::byte* at);
constexpr std::uint64_t inode_bytes(std::uint16_t format) { return (format & 1) != 0 ? kExtendedBytes : kCompactBytes; }

struct ChunkIndex {
  std::uint16_t device = 0;
  std::uint32_t block = 0;
  bool operator==(const ChunkIndex&) const = default;
};
inline void store_chunk(std::byte* at, const ChunkIndex& chunk) {
  store_le(at + 2, chunk.device);
  store_le(at + 4, chunk.block);
}
inline ChunkIndex load_chunk(const std::byte* at) {
  return {.device = load_le<std::uint16_t>(at + 2), .block = load_le<std::uint32_t>(at + 4)};
}

// Of one chunk, in bits; and how many a file has.
constexpr std::uint64_t chunk_bits(std::uint32_t union_value) { return (union_value & kChunkBitsMask) + kBlockBits; }
constexpr std::uint64_t chunks_of(std::uint64_t size, std::uint64_t bits) {
  return size == 0 ? 0 : ((size - 1) >> bits) + 1;
}

// An entry of a directory whose name lies at `name_at` of its block.
inline void store_entry(std::byte* at, std::uint64_t slot, std::uint16_t name_at, FileType type) {
  store_le(at, slot);
  store_le(at + 8, name_at);
  at[10] = std::byte(type);
}

// The first slot from `at` on where an inode's tail crosses no block; a symlink's must share it with the inode. None if
// it is 512 bytes behind.
constexpr std::uint64_t place_inline(std::uint64_t at, bool is_directory, std::uint64_t header_bytes,
                                     std::uint64_t tail_bytes) {
  const auto before = is_directory ? header_bytes : 0;
  const auto in_one_block = (is_directory ? 0 : header_bytes) + tail_bytes;
  const auto first = at;
  while (at - first < kBlock && (at + before) % kBlock + in_one_block > kBlock) at += kSlot;
  return at;
}

// CRC-32C as the superblock wants it: no final inversion. Over the block that holds the superblock, its checksum field
// taken as zero.
std::uint32_t crc32c(std::uint32_t crc, ByteView bytes);
std::uint32_t super_checksum(ByteView image);
// The UUID of our trees: a digest of everything behind the superblock, in the form of RFC 9562, version 8.
inline constexpr std::size_t kUuidBytes = 16;
std::array<std::byte, kUuidBytes> content_uuid(ByteView image);
// Puts UUID and checksum where they belong, once all else is there.
void seal(Bytes& image);

}  // namespace varve::index::erofs
