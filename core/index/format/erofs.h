#pragma once
// The tree as a metadata-only EROFS image: 512-byte blocks, one extra device per layer stream, and one more device made
// of ranges for content that is not one 512-aligned run of a stream. Format: Linux fs/erofs/erofs_fs.h; what we use of
// it: docs/formats/tree.md.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/index/merge/tree.h"

namespace varve::index {

inline constexpr std::uint32_t kTreeBlockBytes = 512;
inline constexpr std::uint64_t kMaxTreeBytes = 1ull << 30;  // some four million files

// A piece of the ranges device: `length` bytes at `device_offset` are those at `stream_offset` of a layer. Gaps read as
// zeros.
struct DeviceRange {
  std::uint64_t device_offset = 0;
  std::uint32_t layer = 0;
  std::uint64_t stream_offset = 0;
  std::uint64_t length = 0;
  bool operator==(const DeviceRange&) const = default;
};

struct RangesDevice {
  std::uint64_t bytes = 0;          // 0: the image needs none
  std::vector<DeviceRange> ranges;  // in order, not overlapping
  Bytes encode() const;             // docs/formats/tree.md
  static RangesDevice decode(ByteView bytes, std::string_view what);
};

struct ErofsImage {
  Bytes bytes;
  RangesDevice ranges;
};

// The same tree gives the same bytes. Device slot i+1 is layer i, tagged with the hex of its diff_id (`layer_tags`), of
// `layer_stream_bytes[i]` bytes rounded up to blocks; the ranges device, if any, comes last, tagged "ranges".
ErofsImage write_erofs(const Tree& tree, const std::vector<std::string>& layer_tags,
                       const std::vector<std::uint64_t>& layer_stream_bytes);

using Nid = std::uint64_t;  // inode number as the kernel shows it

struct InodeInfo : FileAttributes {  // without xattrs: they are asked for apart
  std::uint32_t nlink = 1;
  std::uint64_t size = 0;  // directories: bytes of their blocks
};

// Where a run of content lies: device 0 = the image itself, 1..n = extra devices. Gaps read as zeros.
struct DeviceRun {
  std::uint64_t file_offset = 0;
  std::uint32_t device = 0;
  std::uint64_t device_offset = 0;
  std::uint64_t length = 0;
};

// Reads an EROFS image of our own writing out of memory (usually a mapped file), checking everything it follows. Safe
// to use from any thread. Throws CorruptData naming the image; the bytes must outlive it.
class ErofsReader {
 public:
  ErofsReader(ByteView image, std::string what);

  Nid root() const;
  std::uint64_t inode_count() const;
  Nid nid_end() const;  // above all of them
  std::uint32_t device_count() const;
  std::string device_tag(std::uint32_t device) const;      // 1-based
  std::uint64_t device_bytes(std::uint32_t device) const;  // in whole blocks; 0 = the image itself
  InodeInfo inode(Nid nid) const;
  // Absent when the directory has no such name.
  std::optional<Nid> lookup(Nid directory, std::string_view name) const;
  // Calls back for each entry from position `from` on ("." and ".." included), in order, until it returns false;
  // `position` + 1 as `from` goes on after that entry. Positions are opaque but increase.
  using EntryCallback = std::function<bool(std::string_view name, Nid nid, FileType type, std::uint64_t position)>;
  void read_directory(Nid directory, std::uint64_t from, const EntryCallback& entry) const;
  std::string symlink_target(Nid nid) const;
  std::vector<DeviceRun> runs(Nid nid) const;
  std::map<std::string, std::string> xattrs(Nid nid) const;

  // Resolves a path in the image root, following symlinks inside it if asked (at most 40). Absent if a component is
  // missing.
  std::optional<Nid> resolve(std::string_view path, bool follow_last) const;
  // True if every byte behind the superblock is as it was written: the UUID is a digest of them. For trees that lay on
  // a disk.
  bool is_intact() const;
  // Walks everything once, checking all of it: for verify and for indexes from outside.
  void check() const;
  // What decode_tree_columns() leaves of that: devices, and the attributes of these inodes.
  void check_rest(const std::vector<Nid>& with_attributes) const;

 private:
  struct Inode;
  struct DirectoryBlock;
  struct CheckState;

  [[noreturn]] void corrupt(Nid nid, std::string_view reason) const;
  void read_superblock();
  Inode parse(Nid nid) const;
  Inode parse_directory(Nid nid) const;
  DirectoryBlock directory_block(const Inode& directory, std::uint64_t block) const;
  ByteView flat_content(const Inode& inode, std::uint64_t block) const;
  std::map<std::string, std::string> xattrs_of(const Inode& inode) const;
  std::vector<DeviceRun> runs_of(const Inode& inode) const;
  // Of a regular file, without its gaps; those that lie one behind the other are not joined.
  void visit_chunks(const Inode& inode, const std::function<void(const DeviceRun& chunk)>& visit) const;
  template <typename OnEntry>
  void visit_directory(const Inode& directory, std::uint64_t from, const OnEntry& entry) const;
  std::string target_of(const Inode& symlink) const;
  void add_xattr(std::uint64_t at, std::uint64_t end, const Inode& inode,
                 std::map<std::string, std::string>& xattrs) const;
  void check_files() const;
  void check_devices() const;
  void charge(const Inode& inode, std::uint64_t& bytes_left, std::uint64_t bytes) const;
  void check_attributes(const Inode& inode, std::uint64_t& bytes_left) const;
  void check_directory(CheckState& state) const;
  void check_content(const Inode& inode, CheckState& state) const;

  ByteView image_;
  std::string what_;
  std::uint64_t xattr_offset_ = 0;
  std::uint32_t devices_ = 0;
  std::uint64_t device_table_offset_ = 0;
  Nid root_ = 0;
  std::uint64_t inodes_ = 0;
  std::int64_t build_seconds_ = 0;
  std::uint32_t build_nanoseconds_ = 0;
};

}  // namespace varve::index
