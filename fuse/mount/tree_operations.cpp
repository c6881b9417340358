#include "fuse/mount/tree_operations.h"

#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "core/base/errors.h"
#include "fuse/mount/fuse_channel.h"

namespace varve::fuse {
namespace {

constexpr unsigned kTreeMaxBackground = 256;
constexpr unsigned kTreeCongestionThreshold = 192;
constexpr std::uint64_t kRootNode = FUSE_ROOT_ID;
constexpr std::uint64_t kNodeOfZero = std::uint64_t(1) << 63;  // beyond any nid

struct TreeFileSystem final : FuseFileSystem {
  TreeFileSystem(std::shared_ptr<TreeFs> tree, const TreeMountOptions& options)
      : fs(std::move(tree)), image(options.name), read_ahead_kb(options.read_ahead_kb) {}
  void init(fuse_conn_info& connection) override {
    connection.max_read = kMaxReadBytes;
    if (read_ahead_kb != 0) connection.max_readahead = std::min(connection.max_readahead, read_ahead_kb << 10);
    connection.max_background = kTreeMaxBackground;
    connection.congestion_threshold = kTreeCongestionThreshold;
    if ((connection.capable & FUSE_CAP_CACHE_SYMLINKS) != 0) connection.want |= FUSE_CAP_CACHE_SYMLINKS;
    if ((connection.capable & FUSE_CAP_READDIRPLUS_AUTO) != 0)
      connection.want |= FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO;
    // The kernel then enforces access lists, as it would on a local disk.
    if (fs->xattr_use().access_lists && (connection.capable & FUSE_CAP_POSIX_ACL) != 0)
      connection.want |= FUSE_CAP_POSIX_ACL;
    no_open = (connection.capable & FUSE_CAP_NO_OPEN_SUPPORT) != 0;
    no_opendir = (connection.capable & FUSE_CAP_NO_OPENDIR_SUPPORT) != 0;
  }
  std::string name() const override { return image; }

  std::shared_ptr<TreeFs> fs;
  std::string image;
  unsigned read_ahead_kb = 0;
  bool no_open = false;
  bool no_opendir = false;
};

TreeFileSystem& file_system_of(fuse_req_t req) {
  return static_cast<TreeFileSystem&>(FuseChannel::file_system_of(req));
}
TreeFs& tree_of(fuse_req_t req) { return *file_system_of(req).fs; }
index::Nid asked_nid(fuse_req_t req, fuse_ino_t node) { return nid_of(node, tree_of(req).root()); }

struct ::stat to_stat(index::Nid nid, const index::InodeInfo& info) {
  struct ::stat status {};
  status.st_ino = nid;
  status.st_mode = type_bits(info.type) | info.mode;
  status.st_nlink = info.nlink;
  status.st_uid = info.uid;
  status.st_gid = info.gid;
  status.st_rdev = makedev(info.device_major, info.device_minor);
  status.st_size = static_cast<off_t>(info.size);
  status.st_blocks = static_cast<blkcnt_t>((info.size + 511) / 512);
  status.st_blksize = 4096;
  status.st_mtim = {.tv_sec = static_cast<time_t>(info.mtime_seconds),
                    .tv_nsec = static_cast<long>(info.mtime_nanoseconds)};
  status.st_atim = status.st_mtim;
  status.st_ctim = status.st_mtim;
  return status;
}

fuse_entry_param entry_of(TreeFs& tree, index::Nid nid) {
  fuse_entry_param entry{};
  entry.ino = node_of(nid, tree.root());
  entry.attr = to_stat(nid, tree.attributes(nid));
  entry.attr_timeout = kEndlessSeconds;
  entry.entry_timeout = kEndlessSeconds;
  return entry;
}

void tree_init(void* user_data, fuse_conn_info* connection) {
  static_cast<FuseFileSystem*>(user_data)->init(*connection);
}

void tree_lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  answer(req, "lookup", [&] {
    // The kernel's own limit for FUSE is another one.
    if (std::strlen(name) > NAME_MAX) return void(fuse_reply_err(req, ENAMETOOLONG));
    auto& tree = tree_of(req);
    const auto found = tree.lookup(asked_nid(req, parent), name);
    fuse_entry_param entry{};
    entry.entry_timeout = kEndlessSeconds;  // node 0: remembered as absent
    if (found) entry = entry_of(tree, *found);
    fuse_reply_entry(req, &entry);
  });
}

void tree_getattr(fuse_req_t req, fuse_ino_t node, fuse_file_info*) {
  answer(req, "getattr", [&] {
    const auto nid = asked_nid(req, node);
    const auto status = to_stat(nid, tree_of(req).attributes(nid));
    fuse_reply_attr(req, &status, kEndlessSeconds);
  });
}

void tree_readlink(fuse_req_t req, fuse_ino_t node) {
  answer(req, "readlink", [&] { fuse_reply_readlink(req, tree_of(req).symlink_target(asked_nid(req, node)).c_str()); });
}

// ENOSYS, once: the kernel then opens and closes without asking, and keeps what it has read.
void tree_open(fuse_req_t req, fuse_ino_t, fuse_file_info* file) {
  answer(req, "open", [&] {
    if (file_system_of(req).no_open) return void(fuse_reply_err(req, ENOSYS));
    file->keep_cache = 1;
    file->noflush = 1;
    fuse_reply_open(req, file);
  });
}

void tree_opendir(fuse_req_t req, fuse_ino_t, fuse_file_info* file) {
  answer(req, "opendir", [&] {
    if (file_system_of(req).no_opendir) return void(fuse_reply_err(req, ENOSYS));
    file->keep_cache = 1;
    file->cache_readdir = 1;
    fuse_reply_open(req, file);
  });
}

void tree_read(fuse_req_t req, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info*) {
  answer(req, "read", [&] {
    const auto nid = asked_nid(req, node);
    auto& file_system = file_system_of(req);
    const ByteRange range{static_cast<std::uint64_t>(offset), std::min(size, kMaxReadBytes)};
    file_system.fs->read(nid, range, file_system.channel->reply_later(req, nid, range));
  });
}

template <typename AddEntry>
void reply_directory(fuse_req_t req, fuse_ino_t node, std::size_t size, off_t offset, AddEntry&& add_entry) {
  std::vector<char> buffer(std::min(size, kMaxReadBytes));
  std::size_t used = 0;
  tree_of(req).read_directory(asked_nid(req, node), static_cast<std::uint64_t>(offset),
                              [&](std::string_view name, index::Nid nid, FileType type, std::uint64_t position) {
                                const auto room = buffer.size() - used;
                                const auto needed = add_entry(buffer.data() + used, room, std::string(name), nid, type,
                                                              static_cast<off_t>(position + 1));
                                if (needed > room) return false;
                                used += needed;
                                return true;
                              });
  fuse_reply_buf(req, buffer.data(), used);
}

void tree_readdir(fuse_req_t req, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info*) {
  answer(req, "readdir", [&] {
    reply_directory(
        req, node, size, offset,
        [&](char* at, std::size_t room, const std::string& name, index::Nid nid, FileType type, off_t next) {
          struct ::stat status {};
          status.st_ino = nid;
          status.st_mode = type_bits(type);
          return fuse_add_direntry(req, at, room, name.c_str(), &status, next);
        });
  });
}

void tree_readdirplus(fuse_req_t req, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info*) {
  answer(req, "readdirplus", [&] {
    auto& tree = tree_of(req);
    reply_directory(req, node, size, offset,
                    [&](char* at, std::size_t room, const std::string& name, index::Nid nid, FileType, off_t next) {
                      auto entry = entry_of(tree, nid);
                      if (name == "." || name == "..") entry.ino = 0;  // shown, not remembered as names
                      return fuse_add_direntry_plus(req, at, room, name.c_str(), &entry, next);
                    });
  });
}

void reply_sized(fuse_req_t req, const std::string& value, std::size_t size) {
  if (size == 0)
    fuse_reply_xattr(req, value.size());
  else if (value.size() > size)
    fuse_reply_err(req, ERANGE);
  else
    fuse_reply_buf(req, value.data(), value.size());
}

// 0, or the error for a name that no file can have: the kernel lets FUSE have them all.
int xattr_name_error(std::string_view name) {
  for (const std::string_view prefix : {"user.", "trusted.", "security."}) {
    if (name.starts_with(prefix)) return name.size() > prefix.size() ? 0 : EINVAL;
  }
  return name.starts_with("system.posix_acl_") ? 0 : EOPNOTSUPP;
}

void tree_getxattr(fuse_req_t req, fuse_ino_t node, const char* name, std::size_t size) {
  answer(req, "getxattr", [&] {
    auto& tree = tree_of(req);
    if (!tree.xattr_use().any) return void(fuse_reply_err(req, ENOSYS));  // and is never asked again
    if (const int error = xattr_name_error(name); error != 0) return void(fuse_reply_err(req, error));
    const auto value = tree.xattr(asked_nid(req, node), name);
    if (!value) return void(fuse_reply_err(req, ENODATA));
    reply_sized(req, *value, size);
  });
}

void tree_listxattr(fuse_req_t req, fuse_ino_t node, std::size_t size) {
  answer(req, "listxattr", [&] {
    auto& tree = tree_of(req);
    if (!tree.xattr_use().any) return void(fuse_reply_err(req, ENOSYS));
    // Who has CAP_SYS_ADMIN cannot be seen from here; root is who usually has it.
    reply_sized(req, tree.xattr_names(asked_nid(req, node), fuse_req_ctx(req)->uid == 0), size);
  });
}

// SEEK_DATA and SEEK_HOLE; the kernel does the others.
void tree_lseek(fuse_req_t req, fuse_ino_t node, off_t offset, int whence, fuse_file_info*) {
  answer(req, "lseek", [&] {
    auto& tree = tree_of(req);
    const auto nid = asked_nid(req, node);
    const auto from = static_cast<std::uint64_t>(offset);  // negative: beyond every file
    const auto found = whence == SEEK_DATA ? tree.next_data(nid, from) : tree.next_hole(nid, from);
    if (!found) return void(fuse_reply_err(req, ENXIO));
    fuse_reply_lseek(req, static_cast<off_t>(*found));
  });
}

void tree_statfs(fuse_req_t req, fuse_ino_t) {
  answer(req, "statfs", [&] {
    const auto totals = tree_of(req).totals();
    struct ::statvfs status {};
    status.f_bsize = 4096;
    status.f_frsize = 512;
    status.f_blocks = totals.bytes / 512;
    status.f_files = totals.inodes;
    status.f_namemax = NAME_MAX;
    fuse_reply_statfs(req, &status);
  });
}

constexpr fuse_lowlevel_ops kTreeOperations = [] {
  fuse_lowlevel_ops operations{};
  operations.init = tree_init;
  operations.lookup = tree_lookup;
  operations.getattr = tree_getattr;
  operations.readlink = tree_readlink;
  operations.open = tree_open;
  operations.opendir = tree_opendir;
  operations.read = tree_read;
  operations.readdir = tree_readdir;
  operations.readdirplus = tree_readdirplus;
  operations.getxattr = tree_getxattr;
  operations.listxattr = tree_listxattr;
  operations.lseek = tree_lseek;
  operations.statfs = tree_statfs;
  return operations;
}();

}  // namespace

std::uint64_t node_of(index::Nid nid, index::Nid root) {
  if (nid == root) return kRootNode;
  if (nid == 0) return kNodeOfZero;
  if (nid == kRootNode) return root == 0 ? kNodeOfZero : root;
  return nid;
}

index::Nid nid_of(std::uint64_t node, index::Nid root) {
  if (node == kRootNode) return root;
  if (node == kNodeOfZero) return root == 0 ? kRootNode : 0;
  if (node == root) return kRootNode;
  return node;
}

std::shared_ptr<FuseChannel> mount_tree(std::shared_ptr<TreeFs> fs, const TreeMountOptions& options,
                                        const FuseKeeping& keeping) {
  return FuseChannel::mount({.dir = options.dir,
                             .source = options.source,
                             .check_permissions = options.check_permissions,
                             .threads = options.threads,
                             .keeping = keeping},
                            kTreeOperations, std::make_shared<TreeFileSystem>(std::move(fs), options));
}

}  // namespace varve::fuse
