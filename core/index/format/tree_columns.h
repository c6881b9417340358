#pragma once
// The tree as it is published: of its EROFS image (docs/formats/tree.md) only what does not follow from the order in
// which write_erofs() puts things, each kind of value in a column of its own. The same image follows from it byte for
// byte. Two fifths as large when both are compressed.
//
//   head    magic "VRVTREE2"; varints: bytes before the root, kinds, lengths of the eight columns; these bytes; the
//           kinds in the order of their first use, each different: varints format, attribute count, mode, uid, gid,
//           links (of directories 0), union (of directories and symlinks 0) as their inodes have them
//   names   of each directory in the order of the image, in the order of its entries: the name, then "/" if it leads
//           to a directory that is not "." or "..", else 0; behind the last one 0
//   links   for each name of an inode that an earlier name led to: varint: inodes (no directories) first named since
//           the last such name, or ever; varint: inodes first named after this one was
//   kinds   varint for each inode in the order of the image: directories, then all others
//   sizes   varint for each regular file
//   times   for each extended inode: zigzag varint seconds since that of the one before (of the first: since 1970);
//           varint nanoseconds
//   chunks  of each chunk: varint device; zigzag varint of 32 bits: its block, less the one that is guessed: the one
//           behind the block that follows the last chunk on this device that is no hole; for the first, 0
//   targets of each symlink, 0 behind it
//   raw     the attributes of each inode, then the image from the shared ones up to the whole blocks
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/index/format/erofs.h"

namespace varve::index {

inline constexpr std::uint64_t kMaxTreeColumnsBytes = 256ull << 20;  // some ten million files

// `tree`: as write_erofs() makes it. Throws Unsupported where the columns are larger than that or a tree has more than
// 2,000,000 directories, 16,000,000 inodes or 1,000,000 kinds, and Error for an image that another program made.
Bytes encode_tree_columns(ByteView tree);

// Gets a piece of a tree, and where in it that begins. Two threads may call it at once, for different places.
using TreeSink = std::function<void(std::uint64_t offset, ByteView piece)>;

// The image again, every byte of it once, in pieces of at most 128 KiB: it is never in memory. Returns the inodes with
// attributes, for ErofsReader::check_rest(): it and this find all that ErofsReader::check() finds, but for the UUID.
// Throws CorruptData, also where the columns make no tree of exactly `tree_bytes`, and Unsupported as above.
std::vector<Nid> decode_tree_columns(ByteView columns, std::uint64_t tree_bytes, std::string_view what,
                                     const TreeSink& sink);

}  // namespace varve::index
