#include "fuse/mount/tree_fs.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "core/base/errors.h"
#include "fuse/mount/fuse_mount.h"

namespace varve::fuse {
namespace {

// Content that lies in the tree itself.
struct InlineBytes {
  std::uint64_t into = 0;
  ByteView bytes;
};

ReadDone patched(std::vector<InlineBytes> patches, ReadDone done) {
  return [patches = std::move(patches), done = std::move(done)](std::exception_ptr error, ByteView bytes) {
    if (error) return done(error, bytes);
    Bytes whole = to_bytes(bytes);
    for (const auto& patch : patches) std::memcpy(whole.data() + patch.into, patch.bytes.data(), patch.bytes.size());
    done(nullptr, whole);
  };
}

}  // namespace

OwnerMap OwnerMap::of_this_process() {
  if (!in_initial_user_namespace()) {
    const IdMap only_root({{.inside = 0, .outside = 0, .count = 1}}, 0);
    return {only_root, only_root};
  }
  auto ids = UserIds::of_this_process();
  return {std::move(ids.uids), std::move(ids.gids)};
}

TreeFs::TreeFs(const index::ErofsReader& tree, ByteView image, std::vector<std::shared_ptr<StreamFile>> devices,
               OwnerMap owners)
    : tree_(tree),
      image_(image),
      devices_(std::move(devices)),
      owners_(std::move(owners)),
      xattr_use_(find_xattr_use(tree)) {
  if (devices_.size() != tree_.device_count())
    fail<CorruptData>("the tree names {} devices, the image has {}", tree_.device_count(), devices_.size());
}

index::InodeInfo TreeFs::attributes(index::Nid nid) const {
  auto info = tree_.inode(nid);
  info.uid = owners_.uids.outside(info.uid);
  info.gid = owners_.gids.outside(info.gid);
  return info;
}

std::optional<std::string> TreeFs::xattr(index::Nid nid, const std::string& name) const {
  if (!xattr_use_.any) return std::nullopt;
  const auto all = tree_.xattrs(nid);
  const auto found = all.find(name);
  if (found == all.end()) return std::nullopt;
  return found->second;
}

std::string TreeFs::xattr_names(index::Nid nid, bool with_trusted) const {
  std::string names;
  if (!xattr_use_.any) return names;
  for (const auto& [name, value] : tree_.xattrs(nid)) {
    if (with_trusted || !name.starts_with("trusted.")) names += name + '\0';
  }
  return names;
}

void TreeFs::read(index::Nid nid, ByteRange file_range, ReadDone done) const {
  const auto info = tree_.inode(nid);
  if (info.type != FileType::kRegular)
    throw std::system_error(EISDIR, std::generic_category(), "read of something that is no file");
  const auto offset = std::min(file_range.offset, info.size);
  const ByteRange wanted{offset, std::min(file_range.length, info.size - offset)};
  std::vector<StreamPiece> pieces;
  std::vector<InlineBytes> patches;
  for (const auto& run : wanted.length == 0 ? std::vector<index::DeviceRun>{} : tree_.runs(nid)) {
    const auto from = std::max(run.file_offset, wanted.offset);
    const auto to = std::min(run.file_offset + run.length, wanted.end());
    if (from >= to) continue;
    const ByteRange on_device{run.device_offset + (from - run.file_offset), to - from};
    if (run.device == 0) {
      if (!on_device.fits_in(image_.size()))
        fail<CorruptData>("inode {}: content at {} is outside the tree", nid, on_device.offset);
      patches.push_back({from - wanted.offset, image_.subspan(on_device.offset, on_device.length)});
      continue;
    }
    if (run.device > devices_.size() || !on_device.fits_in(devices_[run.device - 1]->size())) {
      fail<CorruptData>("inode {}: content at {}+{} is outside device {}", nid, on_device.offset, on_device.length,
                        run.device);
    }
    devices_[run.device - 1]->find_pieces(on_device, from - wanted.offset, pieces);
  }
  if (!patches.empty()) done = patched(std::move(patches), std::move(done));
  read_pieces(std::move(pieces), wanted.length, std::move(done));
}

std::optional<std::uint64_t> TreeFs::next_data(index::Nid nid, std::uint64_t offset) const {
  if (offset >= tree_.inode(nid).size) return std::nullopt;
  for (const auto& run : tree_.runs(nid)) {
    if (offset < run.file_offset + run.length) return std::max(offset, run.file_offset);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> TreeFs::next_hole(index::Nid nid, std::uint64_t offset) const {
  if (offset >= tree_.inode(nid).size) return std::nullopt;
  for (const auto& run : tree_.runs(nid)) {
    if (offset < run.file_offset) break;
    offset = std::max(offset, run.file_offset + run.length);
  }
  return offset;
}

TreeFs::Totals TreeFs::totals() const {
  Totals totals{.inodes = tree_.inode_count()};
  for (const auto& device : devices_) totals.bytes += device->size();
  return totals;
}

XattrUse find_xattr_use(const index::ErofsReader& tree) {
  XattrUse use;
  std::vector<index::Nid> directories{tree.root()};
  std::unordered_set<index::Nid> seen{tree.root()};
  const auto look_at = [&](index::Nid nid) {
    for (const auto& [name, value] : tree.xattrs(nid)) {
      use.any = true;
      if (name.starts_with("system.posix_acl_")) use.access_lists = true;
    }
  };
  look_at(tree.root());
  while (!directories.empty() && !use.access_lists) {
    const auto directory = directories.back();
    directories.pop_back();
    tree.read_directory(directory, 0, [&](std::string_view name, index::Nid nid, FileType type, std::uint64_t) {
      if (name == "." || name == "..") return true;
      look_at(nid);
      // A tree from outside could loop; each directory is entered once.
      if (type == FileType::kDirectory && seen.insert(nid).second) directories.push_back(nid);
      return true;
    });
  }
  return use;
}

}  // namespace varve::fuse
