#pragma once
// What the reader's parts share about one inode and one block of a directory.
#include "core/index/format/erofs.h"
#include "core/index/format/internal/erofs_format.h"

namespace varve::index {

struct ErofsReader::Inode {
  Nid nid = 0;
  erofs::Layout layout = erofs::Layout::kFlatPlain;
  std::uint32_t union_value = 0;  // first block, device number or chunk format
  std::uint64_t xattr_at = 0;
  std::uint64_t xattr_bytes = 0;
  std::uint64_t after = 0;  // first byte behind the attributes
  InodeInfo info;
};

// Entries 0..count-1; every accessor checks what it follows.
struct ErofsReader::DirectoryBlock {
  const ErofsReader* reader = nullptr;
  Nid directory = 0;
  ByteView bytes;
  std::size_t count = 0;

  std::string_view name(std::size_t entry) const;
  Nid nid(std::size_t entry) const { return load_le<std::uint64_t>(bytes.data() + entry * erofs::kDirentBytes); }
  FileType type(std::size_t entry) const;
};

}  // namespace varve::index
