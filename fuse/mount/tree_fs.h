#pragma once
// Fuse mode's file system: names and attributes out of the tree, bytes out of layer streams. Holds no state per inode:
// numbers are the tree's own. Knows no FUSE type.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/index/format/erofs.h"
#include "fuse/mount/stream_file.h"
#include "fuse/mount/user_ids.h"

namespace varve::fuse {

// Whose the files are shown to be. As root what the image says.
struct OwnerMap {
  IdMap uids;
  IdMap gids;
  // For mounts of this process: a plain user's overlay can only copy up what he owns or has a range for.
  static OwnerMap of_this_process();
};

// Which extended attributes a tree has at all: what nobody has need not be asked for file by file.
struct XattrUse {
  bool any = false;
  bool access_lists = false;  // system.posix_acl_*
};

// Safe to use from any thread.
class TreeFs {
 public:
  // `image` are the bytes beneath `tree`; devices[i] is device i+1. What the arguments refer to must outlive this.
  // Throws CorruptData if devices are missing.
  TreeFs(const index::ErofsReader& tree, ByteView image, std::vector<std::shared_ptr<StreamFile>> devices,
         OwnerMap owners = {});

  index::Nid root() const { return tree_.root(); }
  index::InodeInfo attributes(index::Nid nid) const;
  std::optional<index::Nid> lookup(index::Nid directory, std::string_view name) const {
    return tree_.lookup(directory, name);
  }
  void read_directory(index::Nid directory, std::uint64_t from, const index::ErofsReader::EntryCallback& entry) const {
    tree_.read_directory(directory, from, entry);
  }
  std::string symlink_target(index::Nid nid) const { return tree_.symlink_target(nid); }
  // Absent: no such attribute.
  std::optional<std::string> xattr(index::Nid nid, const std::string& name) const;
  // Names, each ended by a NUL, as listxattr(2) gives them: trusted.* to those who may read them alone.
  std::string xattr_names(index::Nid nid, bool with_trusted) const;
  XattrUse xattr_use() const { return xattr_use_; }

  // Reads what lies inside the file.
  void read(index::Nid nid, ByteRange file_range, ReadDone done) const;
  // Where content, or a hole, begins at or after `offset`, as lseek(2) has it: the file's end is a hole. Absent:
  // `offset` is not inside the file, or no content follows.
  std::optional<std::uint64_t> next_data(index::Nid nid, std::uint64_t offset) const;
  std::optional<std::uint64_t> next_hole(index::Nid nid, std::uint64_t offset) const;

  struct Totals {
    std::uint64_t inodes = 0;
    std::uint64_t bytes = 0;  // of all devices
  };
  Totals totals() const;

 private:
  const index::ErofsReader& tree_;
  ByteView image_;
  std::vector<std::shared_ptr<StreamFile>> devices_;
  OwnerMap owners_;
  XattrUse xattr_use_;
};

// Walks all directories and looks which attributes there are.
XattrUse find_xattr_use(const index::ErofsReader& tree);

}  // namespace varve::fuse
