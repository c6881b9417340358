#include <algorithm>
#include <unordered_map>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/index/format/erofs.h"
#include "core/index/format/internal/erofs_content.h"
#include "core/index/format/internal/erofs_format.h"
#include "core/index/format/internal/erofs_xattrs.h"

namespace varve::index {
namespace {

using namespace erofs;

constexpr std::size_t kMaxPathShown = 300;  // in messages

// The types of directory entries are those of FileType, except that there is no hard link.
std::uint16_t format_bits(FileType type) {
  if (type == FileType::kHardLink) fail<Error>("a tree holds inodes, not hard links");
  return std::uint16_t(type_bits(type));
}

// How the kernel packs a device number in 32 bits (new_encode_dev).
std::uint32_t encode_device(const TreeInode& inode) {
  return (inode.device_minor & 0xff) | inode.device_major << 8 | (inode.device_minor & ~0xffu) << 12;
}

struct DirectoryEntry {
  std::string_view name;
  std::uint32_t node = 0;
};

struct Node {
  const TreeInode* inode = nullptr;
  const std::string* name = nullptr;  // the first of its names; null for the root
  std::uint32_t parent = 0;           // of that name
  std::uint32_t nlink = 1;
  std::uint64_t position = 0;     // in the image
  std::uint64_t size = 0;         // directories: of their blocks
  std::uint64_t first_entry = 0;  // directories: in entries_
  std::uint32_t first_block = 0;  // flat layouts
  std::uint32_t xattr_bytes = 0;
  std::uint32_t table = 0;  // 1-based index of the chunk table; 0 = `chunk` is all
  ChunkIndex chunk{};
  Layout layout = Layout::kFlatPlain;
  bool extended = false;

  std::uint64_t header_bytes() const { return (extended ? kExtendedBytes : kCompactBytes) + xattr_bytes; }
  bool is_directory() const { return inode->type == FileType::kDirectory; }
  std::uint64_t tail_bytes() const { return layout == Layout::kFlatInline ? size - (size - 1) / kBlock * kBlock : 0; }
  std::uint64_t full_blocks() const { return whole_blocks(layout, size); }
};

class ErofsWriter {
 public:
  ErofsWriter(const Tree& tree, const std::vector<std::string>& layer_tags,
              const std::vector<std::uint64_t>& layer_stream_bytes)
      : tree_(tree), tags_(layer_tags), stream_bytes_(layer_stream_bytes), content_(layer_stream_bytes) {}

  ErofsImage write() {
    collect();
    choose_build_time();
    plan_inodes();
    ranges_ = content_.take_ranges();
    assign_positions();
    image_.resize(total_bytes_);
    for (const auto& node : nodes_) write_inode(node);
    write_directories();
    xattrs_.write_shared(image_.data() + xattr_offset_);
    write_devices();
    write_superblock();
    return {.bytes = std::move(image_), .ranges = std::move(ranges_)};
  }

 private:
  std::uint32_t device_count() const { return std::uint32_t(tags_.size() + (ranges_.bytes != 0)); }
  std::string path_of(const Node& node) const;

  void reserve_nodes();
  void collect();
  std::uint32_t add_name(std::uint32_t directory, const std::string& name, const std::shared_ptr<TreeInode>& inode);
  void check_name(const Node& directory, const std::string& name) const;
  void check_inode(const Node& node) const;
  void choose_build_time();
  void plan_inodes();
  void plan_directory(Node& node);
  void plan_content(Node& node);
  bool fits_compact(const Node& node) const;
  void assign_positions();
  void place(Node& node, std::uint64_t& at);
  template <typename Block>
  void for_each_block(const Node& node, Block&& block) const;
  std::vector<DirectoryEntry> entries_of(const Node& node) const;
  void write_inode(const Node& node);
  void write_content(const Node& node);
  void write_directories();
  void write_devices();
  void write_superblock();

  const Tree& tree_;
  const std::vector<std::string>& tags_;
  const std::vector<std::uint64_t>& stream_bytes_;
  ContentPlanner content_;
  XattrPool xattrs_;
  RangesDevice ranges_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> directories_;  // in the order of their places
  std::vector<std::uint32_t> files_;        // all others
  std::vector<std::uint32_t> entries_;      // the nodes of each directory's children, in order of names
  std::unordered_map<const TreeInode*, std::uint32_t> linked_;  // inodes that may have further names
  std::vector<ChunkTable> tables_;
  std::int64_t build_seconds_ = 0;
  std::uint32_t build_nanoseconds_ = 0;
  std::uint64_t xattr_offset_ = 0;
  std::uint64_t total_bytes_ = 0;
  Bytes image_;
};

std::string ErofsWriter::path_of(const Node& node) const {
  std::string path;
  for (const Node* at = &node; at->name != nullptr; at = &nodes_[at->parent]) path.insert(0, "/" + *at->name);
  if (path.size() > kMaxPathShown) path.replace(0, path.size() - kMaxPathShown, "...");
  return path.empty() ? "/" : path;
}

// Growing by doubling would cost as much again as the nodes themselves at the end.
void ErofsWriter::reserve_nodes() {
  std::size_t names = 1;
  std::vector<const TreeInode*> to_visit{tree_.root.get()};
  while (!to_visit.empty()) {
    const auto& children = to_visit.back()->children;
    to_visit.pop_back();
    names += children.size();
    for (const auto& [name, child] : children) {
      if (child->type == FileType::kDirectory) to_visit.push_back(child.get());
    }
  }
  nodes_.reserve(names);
  entries_.reserve(names);
  files_.reserve(names);
}

// Directories are visited depth first, so that a package's names, inodes and times are near each other: readers touch
// fewer pages and compression finds more.
void ErofsWriter::collect() {
  if (tags_.size() != tree_.layers || stream_bytes_.size() != tree_.layers)
    fail<Error>("a tree of {} layers with {} tags and {} sizes", tree_.layers, tags_.size(), stream_bytes_.size());
  if (tags_.size() >= kMaxDevices) fail<Unsupported>("{} layers are more than a tree can hold", tags_.size());
  if (tree_.root->type != FileType::kDirectory) fail<CorruptData>("the root of the tree is no directory");
  reserve_nodes();
  nodes_.push_back({.inode = tree_.root.get()});
  std::vector<std::uint32_t> to_visit{0};
  while (!to_visit.empty()) {
    const auto directory = to_visit.back();
    to_visit.pop_back();
    directories_.push_back(directory);
    nodes_[directory].first_entry = entries_.size();
    nodes_[directory].nlink = 2;
    const auto& children = nodes_[directory].inode->children;
    for (const auto& [name, child] : children) {
      check_name(nodes_[directory], name);
      const auto node = add_name(directory, name, child);
      entries_.push_back(node);
    }
    for (auto entry = entries_.rbegin(); entry != entries_.rbegin() + std::ptrdiff_t(children.size()); ++entry) {
      if (!nodes_[*entry].is_directory()) continue;
      ++nodes_[directory].nlink;
      to_visit.push_back(*entry);
    }
  }
}

std::uint32_t ErofsWriter::add_name(std::uint32_t directory, const std::string& name,
                                    const std::shared_ptr<TreeInode>& inode) {
  const auto next = std::uint32_t(nodes_.size());
  if (inode->type != FileType::kDirectory && inode.use_count() > 1) {
    const auto [linked, is_new] = linked_.try_emplace(inode.get(), next);
    if (!is_new) {
      ++nodes_[linked->second].nlink;
      return linked->second;
    }
  }
  if (next == std::uint32_t(-1)) fail<Unsupported>("more inodes than a tree can hold");
  nodes_.push_back({.inode = inode.get(), .name = &name, .parent = directory});
  check_inode(nodes_.back());
  if (inode->type != FileType::kDirectory) files_.push_back(next);
  return next;
}

void ErofsWriter::check_name(const Node& directory, const std::string& name) const {
  if (name.empty() || name.size() > kMaxName || is_dot(name) || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos)
    fail<CorruptData>("{}: \"{:.80}\" cannot be a name", path_of(directory), name);
}

void ErofsWriter::check_inode(const Node& node) const {
  const auto& inode = *node.inode;
  if (inode.mode > 07777 || inode.mtime_nanoseconds >= 1'000'000'000)
    fail<CorruptData>("{}: mode {:o} or time out of range", path_of(node), inode.mode);
  if (inode.type == FileType::kSymlink && (inode.symlink_target.empty() || inode.symlink_target.size() > kMaxSymlink ||
                                           inode.symlink_target.find('\0') != std::string::npos))
    fail<CorruptData>("{}: symlink target of {} bytes", path_of(node), inode.symlink_target.size());
  if (inode.device_major > 0xfff || inode.device_minor > 0xfffff)
    fail<Unsupported>("{}: device {}:{} is none that Linux has", path_of(node), inode.device_major, inode.device_minor);
}

// Compact inodes have no time of their own: all have that of the image.
void ErofsWriter::choose_build_time() {
  std::vector<std::pair<std::int64_t, std::uint32_t>> times;
  times.reserve(nodes_.size());
  for (const auto& node : nodes_) times.emplace_back(node.inode->mtime_seconds, node.inode->mtime_nanoseconds);
  std::ranges::sort(times);
  std::size_t most = 0;
  for (std::size_t i = 0; i < times.size();) {
    const auto next =
        std::size_t(std::upper_bound(times.begin() + std::ptrdiff_t(i), times.end(), times[i]) - times.begin());
    if (next - i > most) {
      most = next - i;
      std::tie(build_seconds_, build_nanoseconds_) = times[i];
    }
    i = next;
  }
}

bool ErofsWriter::fits_compact(const Node& node) const {
  const auto& inode = *node.inode;
  return inode.mtime_seconds == build_seconds_ && inode.mtime_nanoseconds == build_nanoseconds_ &&
         inode.uid <= 0xffff && inode.gid <= 0xffff && node.nlink <= 0xffff && node.size <= 0xffffffff;
}

void ErofsWriter::plan_inodes() {
  for (const auto& node : nodes_) {
    if (!node.inode->xattrs.empty()) xattrs_.count(node.inode->xattrs);
  }
  if (xattrs_.left_out() != 0)
    log::warn("{} extended attributes with names that Linux does not know are left out of the tree",
              xattrs_.left_out());
  for (auto& node : nodes_) {
    const auto& inode = *node.inode;
    if (!inode.xattrs.empty()) node.xattr_bytes = std::uint32_t(xattrs_.body_bytes(inode.xattrs, path_of(node)));
    if (inode.type == FileType::kDirectory) {
      plan_directory(node);
    } else if (inode.type == FileType::kRegular) {
      plan_content(node);
    } else if (inode.type == FileType::kSymlink) {
      node.size = inode.symlink_target.size();
    }
    node.extended = !fits_compact(node);
  }
}

void ErofsWriter::plan_directory(Node& node) {
  std::uint64_t blocks = 0;
  std::uint64_t used_in_last = 0;
  for_each_block(node, [&](std::span<const DirectoryEntry>, std::uint64_t used) {
    ++blocks;
    used_in_last = used;
  });
  node.size = (blocks - 1) * kBlock + used_in_last;
}

void ErofsWriter::plan_content(Node& node) {
  const auto& inode = *node.inode;
  node.size = inode.size;
  if (inode.size > std::uint64_t(INT64_MAX)) fail<Unsupported>("{}: a file of {} bytes", path_of(node), inode.size);
  if (!inode.runs.empty()) {
    const bool simple =
        inode.runs.size() == 1 && inode.runs[0].layer < stream_bytes_.size() && inode.runs[0].run.length != 0 &&
        inode.runs[0].run.length == inode.size && inode.runs[0].run.file_offset == 0 &&
        ByteRange{inode.runs[0].run.stream_offset, inode.size}.fits_in(stream_bytes_[inode.runs[0].layer]);
    if (!simple) content_.check_runs(inode, path_of(node));  // the path is only made where it may be needed
  }
  if (inode.size == 0) return;
  node.layout = Layout::kChunkBased;
  if (const auto chunk = content_.single_chunk(inode)) {
    node.chunk = *chunk;
    return;
  }
  tables_.push_back(content_.plan(inode, path_of(node)));
  node.table = std::uint32_t(tables_.size());
}

// Calls back with the entries of each 512-byte block and the bytes they fill.
template <typename Block>
void ErofsWriter::for_each_block(const Node& node, Block&& block) const {
  const auto entries = entries_of(node);
  std::size_t first = 0;
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto bytes = kDirentBytes + entries[i].name.size();
    if (used + bytes > kBlock) {
      block(std::span(entries).subspan(first, i - first), used);
      first = i;
      used = 0;
    }
    used += bytes;
  }
  block(std::span(entries).subspan(first), used);
}

std::vector<DirectoryEntry> ErofsWriter::entries_of(const Node& node) const {
  std::vector<DirectoryEntry> entries;
  const auto& children = node.inode->children;
  entries.reserve(children.size() + 2);
  const auto self = std::uint32_t(&node - nodes_.data());
  const DirectoryEntry dots[] = {{".", self}, {"..", node.parent}};
  std::size_t dot = 0;
  auto child_node = entries_.begin() + std::ptrdiff_t(node.first_entry);
  for (const auto& [name, child] : children) {
    while (dot < 2 && dots[dot].name < name) entries.push_back(dots[dot++]);
    entries.push_back({.name = name, .node = *child_node++});
  }
  while (dot < 2) entries.push_back(dots[dot++]);
  return entries;
}

// First the directories with the tails of their entries, then all other inodes, shared attributes, whole blocks.
void ErofsWriter::assign_positions() {
  auto at = align_up(kSuperOffset + kSuperBytes + device_count() * kDeviceSlotBytes, kSlot);
  for (const auto directory : directories_) place(nodes_[directory], at);
  for (const auto file : files_) place(nodes_[file], at);
  xattr_offset_ = align_up(at, kBlock);
  at = align_up(xattr_offset_ + xattrs_.lay_out(), kBlock);
  for (const auto* list : {&directories_, &files_}) {
    for (const auto index : *list) {
      auto& node = nodes_[index];
      if (node.layout == Layout::kChunkBased || node.size == 0 || node.full_blocks() == 0) continue;
      node.first_block = std::uint32_t(at / kBlock);
      at += node.full_blocks() * kBlock;
    }
  }
  total_bytes_ = at;
  if (total_bytes_ > kMaxTreeBytes)
    fail<Unsupported>("a tree of {} bytes is larger than {}", total_bytes_, kMaxTreeBytes);
}

void ErofsWriter::place(Node& node, std::uint64_t& at) {
  at = align_up(at, kSlot);
  const bool is_flat = node.is_directory() || node.inode->type == FileType::kSymlink;
  if (is_flat) {
    // Where skipping to the next block wastes more than a block of its own would, the tail gets that.
    const auto tail = node.size - (node.size - 1) / kBlock * kBlock;
    const auto shifted = place_inline(at, node.is_directory(), node.header_bytes(), tail);
    const bool inlined = tail < kBlock && shifted - at <= kBlock - tail && (node.is_directory() || node.size < kBlock);
    node.layout = inlined ? Layout::kFlatInline : Layout::kFlatPlain;
    if (inlined) at = shifted;
  }
  node.position = at;
  at += node.header_bytes() + node.tail_bytes();
  if (node.layout == Layout::kChunkBased)
    at = align_up(at, kChunkIndexBytes) +
         kChunkIndexBytes * (node.table == 0 ? 1 : tables_[node.table - 1].chunks.size());
}

void ErofsWriter::write_inode(const Node& node) {
  const auto& inode = *node.inode;
  std::byte* const at = image_.data() + node.position;
  std::uint32_t union_value = node.first_block;
  if (inode.type == FileType::kCharDevice || inode.type == FileType::kBlockDevice) union_value = encode_device(inode);
  if (node.layout == Layout::kChunkBased)
    union_value = kChunkIndexes | (node.table == 0 ? kMaxChunkBits : tables_[node.table - 1].chunk_bits);
  store_inode(at,
              {.layout = node.layout,
               .extended = node.extended,
               .xattr_count = std::uint16_t(node.xattr_bytes == 0 ? 0 : (node.xattr_bytes - kXattrHeaderBytes) / 4 + 1),
               .mode = std::uint16_t(format_bits(inode.type) | inode.mode),
               .nlink = node.nlink,
               .union_value = union_value,
               .size = node.size,
               .uid = inode.uid,
               .gid = inode.gid,
               .mtime_seconds = inode.mtime_seconds,
               .mtime_nanoseconds = inode.mtime_nanoseconds});
  if (node.xattr_bytes != 0) xattrs_.write_body(inode.xattrs, at + (node.extended ? kExtendedBytes : kCompactBytes));
  write_content(node);
}

void ErofsWriter::write_content(const Node& node) {
  std::byte* const after = image_.data() + node.position + node.header_bytes();
  if (node.inode->type == FileType::kSymlink) {
    std::byte* const to = node.layout == Layout::kFlatInline ? after : image_.data() + node.first_block * kBlock;
    std::memcpy(to, node.inode->symlink_target.data(), node.size);
  }
  if (node.layout != Layout::kChunkBased) return;
  std::byte* to = image_.data() + align_up(std::uint64_t(after - image_.data()), kChunkIndexBytes);
  const auto chunks =
      node.table == 0 ? std::span(&node.chunk, 1) : std::span(std::as_const(tables_[node.table - 1].chunks));
  for (const auto& chunk : chunks) {
    store_chunk(to, chunk);
    to += kChunkIndexBytes;
  }
}

void ErofsWriter::write_directories() {
  for (const auto directory : directories_) {
    const auto& node = nodes_[directory];
    std::uint64_t block_number = 0;
    for_each_block(node, [&](std::span<const DirectoryEntry> entries, std::uint64_t) {
      std::byte* const block = block_number < node.full_blocks()
                                   ? image_.data() + (node.first_block + block_number) * kBlock
                                   : image_.data() + node.position + node.header_bytes();
      auto name_at = kDirentBytes * entries.size();
      std::byte* entry = block;
      for (const auto& [name, target] : entries) {
        store_entry(entry, nodes_[target].position / kSlot, std::uint16_t(name_at), nodes_[target].inode->type);
        std::memcpy(block + name_at, name.data(), name.size());
        name_at += name.size();
        entry += kDirentBytes;
      }
      ++block_number;
    });
  }
}

void ErofsWriter::write_devices() {
  std::byte* slot = image_.data() + kSuperOffset + kSuperBytes;
  const auto write_slot = [&slot](std::string_view tag, std::uint64_t bytes) {
    if (tag.size() > kDeviceTagBytes) fail<Error>("device tag {} is too long", tag);
    std::memcpy(slot, tag.data(), tag.size());
    store_le(slot + kDeviceBlocksAt, std::uint32_t(blocks_of(bytes)));
    slot += kDeviceSlotBytes;
  };
  for (std::size_t layer = 0; layer < tags_.size(); ++layer) write_slot(tags_[layer], stream_bytes_[layer]);
  if (ranges_.bytes != 0) write_slot("ranges", ranges_.bytes);
}

void ErofsWriter::write_superblock() {
  std::byte* const at = image_.data() + kSuperOffset;
  store_le(at + super::kMagicAt, kMagic);
  store_le(at + super::kCompatAt, kCompatChecksum | kCompatMtime);
  at[super::kBlockBitsAt] = std::byte(kBlockBits);
  store_le(at + super::kRootNidAt, std::uint16_t(nodes_[0].position / kSlot));
  store_le(at + super::kInosAt, std::uint64_t(nodes_.size()));
  store_le(at + super::kBuildTimeAt, build_seconds_);
  store_le(at + super::kBuildNanosecondsAt, build_nanoseconds_);
  store_le(at + super::kBlocksAt, std::uint32_t(total_bytes_ / kBlock));
  store_le(at + super::kXattrBlockAt, std::uint32_t(xattr_offset_ / kBlock));
  store_le(at + super::kIncompatAt, kIncompatChunkedFile | kIncompatDeviceTable);
  store_le(at + super::kExtraDevicesAt, std::uint16_t(device_count()));
  store_le(at + super::kDeviceTableAt, std::uint16_t((kSuperOffset + kSuperBytes) / kDeviceSlotBytes));
  std::memcpy(at + super::kVolumeNameAt, "varve", 5);
  // overlayfs tells lower file systems apart by their UUID, so it must not be zero; as a digest it also shows what a
  // disk has broken.
  seal(image_);
}

}  // namespace

ErofsImage write_erofs(const Tree& tree, const std::vector<std::string>& layer_tags,
                       const std::vector<std::uint64_t>& layer_stream_bytes) {
  return ErofsWriter(tree, layer_tags, layer_stream_bytes).write();
}

}  // namespace varve::index
