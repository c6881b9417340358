#pragma once
// The part of the EROFS on-disk format that our trees use (Linux fs/erofs/erofs_fs.h); byte tables in
// docs/formats/tree.md.
#include <array>
#include <cstdint>
#include <string_view>

#include "core/base/bytes.h"

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

enum class Layout : std::uint8_t { kFlatPlain = 0, kFlatInline = 2, kChunkBased = 4 };
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

// CRC-32C as the superblock wants it: no final inversion. Over the block that holds the superblock, its checksum field
// taken as zero.
std::uint32_t crc32c(std::uint32_t crc, ByteView bytes);
std::uint32_t super_checksum(ByteView image);
// The UUID of our trees: a digest of everything behind the superblock, in the form of RFC 9562, version 8.
inline constexpr std::size_t kUuidBytes = 16;
std::array<std::byte, kUuidBytes> content_uuid(ByteView image);

}  // namespace varve::index::erofs
