#include <algorithm>

#include "core/base/errors.h"
#include "core/index/format/erofs.h"
#include "core/index/format/internal/erofs_format.h"
#include "core/index/format/internal/erofs_inode.h"
#include "core/index/format/internal/erofs_xattrs.h"

namespace varve::index {

using namespace erofs;

ErofsReader::ErofsReader(ByteView image, std::string what) : image_(image), what_(std::move(what)) {
  read_superblock();
}

void ErofsReader::corrupt(Nid nid, std::string_view reason) const {
  fail<CorruptData>("{}: inode {}: {}", what_, nid, reason);
}

void ErofsReader::read_superblock() {
  const auto size = image_.size();
  if (size < kSuperOffset + kBlock || size % kBlock != 0 || size > kMaxTreeBytes)
    fail<CorruptData>("{}: a tree of {} bytes", what_, size);
  const std::byte* const at = image_.data() + kSuperOffset;
  if (load_le<std::uint32_t>(at + super::kMagicAt) != kMagic)
    fail<CorruptData>("{}: no EROFS superblock at 1024", what_);
  if (load_le<std::uint32_t>(at + super::kChecksumAt) != super_checksum(image_))
    fail<CorruptData>("{}: the superblock's checksum does not match", what_);
  if (std::uint8_t(at[super::kBlockBitsAt]) != kBlockBits) fail<CorruptData>("{}: blocks are not of 512 bytes", what_);
  const auto incompat = load_le<std::uint32_t>(at + super::kIncompatAt);
  if ((incompat & ~(kIncompatChunkedFile | kIncompatDeviceTable)) != 0)
    fail<CorruptData>("{}: feature bits {:#x} that our trees do not use", what_, incompat);
  if (load_le<std::uint32_t>(at + super::kMetaBlockAt) != 0)
    fail<CorruptData>("{}: metadata does not begin at 0", what_);
  if (load_le<std::uint32_t>(at + super::kBlocksAt) != size / kBlock)
    fail<CorruptData>("{}: {} bytes are not its number of blocks", what_, size);
  root_ = load_le<std::uint16_t>(at + super::kRootNidAt);
  inodes_ = load_le<std::uint64_t>(at + super::kInosAt);
  build_seconds_ = load_le<std::int64_t>(at + super::kBuildTimeAt);
  build_nanoseconds_ = load_le<std::uint32_t>(at + super::kBuildNanosecondsAt);
  xattr_offset_ = load_le<std::uint32_t>(at + super::kXattrBlockAt) * kBlock;
  devices_ = load_le<std::uint16_t>(at + super::kExtraDevicesAt);
  device_table_offset_ = load_le<std::uint16_t>(at + super::kDeviceTableAt) * kDeviceSlotBytes;
  if (build_nanoseconds_ >= 1'000'000'000) fail<CorruptData>("{}: time out of range", what_);
  if (xattr_offset_ > size)
    fail<CorruptData>("{}: shared attributes at {} are outside the image", what_, xattr_offset_);
  if (!ByteRange{device_table_offset_, devices_ * kDeviceSlotBytes}.fits_in(size))
    fail<CorruptData>("{}: {} device slots at {} are outside the image", what_, devices_, device_table_offset_);
  parse_directory(root_);
}

bool ErofsReader::is_intact() const {
  return std::ranges::equal(content_uuid(image_), image_.subspan(kSuperOffset + super::kUuidAt, kUuidBytes));
}

Nid ErofsReader::root() const { return root_; }
std::uint64_t ErofsReader::inode_count() const { return inodes_; }
Nid ErofsReader::nid_end() const { return image_.size() / kSlot; }
std::uint32_t ErofsReader::device_count() const { return devices_; }

std::string ErofsReader::device_tag(std::uint32_t device) const {
  if (device == 0 || device > devices_) fail<CorruptData>("{}: no device {}", what_, device);
  const auto tag = as_text(image_.subspan(device_table_offset_ + (device - 1) * kDeviceSlotBytes, kDeviceTagBytes));
  return std::string(tag.substr(0, tag.find('\0')));
}

std::uint64_t ErofsReader::device_bytes(std::uint32_t device) const {
  if (device == 0) return image_.size();
  if (device > devices_) fail<CorruptData>("{}: no device {}", what_, device);
  return load_le<std::uint32_t>(image_.data() + device_table_offset_ + (device - 1) * kDeviceSlotBytes +
                                kDeviceBlocksAt) *
         kBlock;
}

ErofsReader::Inode ErofsReader::parse(Nid nid) const {
  Inode inode;
  inode.nid = nid;
  if (nid > image_.size() / kSlot || !ByteRange{nid * kSlot, kCompactBytes}.fits_in(image_.size()))
    corrupt(nid, "outside the image");
  const auto position = nid * kSlot;
  const std::byte* const at = image_.data() + position;
  if (!ByteRange{position, inode_bytes(load_le<std::uint16_t>(at + compact::kFormatAt))}.fits_in(image_.size()))
    corrupt(nid, "runs over the end of the image");
  const auto fields = load_inode(at);
  inode.layout = fields.layout;
  if (inode.layout != Layout::kFlatPlain && inode.layout != Layout::kFlatInline && inode.layout != Layout::kChunkBased)
    corrupt(nid, "unknown data layout");
  const auto type = type_of_mode(fields.mode);
  if (!type) corrupt(nid, "unknown file type");
  inode.union_value = fields.union_value;
  auto& info = inode.info;
  info.type = *type;
  info.mode = fields.mode & 07777;
  info.nlink = fields.nlink;
  info.size = fields.size;
  info.uid = fields.uid;
  info.gid = fields.gid;
  info.mtime_seconds = fields.extended ? fields.mtime_seconds : build_seconds_;
  info.mtime_nanoseconds = fields.extended ? fields.mtime_nanoseconds : build_nanoseconds_;
  if (info.mtime_nanoseconds >= 1'000'000'000 || info.size > std::uint64_t(INT64_MAX))
    corrupt(nid, "time or size out of range");
  if (info.type == FileType::kCharDevice || info.type == FileType::kBlockDevice) {
    info.device_major = inode.union_value >> 8 & 0xfff;
    info.device_minor = (inode.union_value & 0xff) | (inode.union_value >> 12 & 0xfff00);
  }
  inode.xattr_bytes = fields.xattr_bytes();
  inode.after = position + fields.header_bytes();
  inode.xattr_at = inode.after - inode.xattr_bytes;
  if (inode.after > image_.size()) corrupt(nid, "attributes run over the end of the image");
  return inode;
}

InodeInfo ErofsReader::inode(Nid nid) const { return parse(nid).info; }

// The 512 bytes (fewer in the last one) of a flat layout's block.
ByteView ErofsReader::flat_content(const Inode& inode, std::uint64_t block) const {
  const auto blocks = blocks_of(inode.info.size);
  if (block >= blocks) corrupt(inode.nid, "no such block of content");
  const auto bytes = std::min(kBlock, inode.info.size - block * kBlock);
  auto at = (inode.union_value + block) * kBlock;
  if (inode.layout == Layout::kFlatInline && block + 1 == blocks) {
    at = inode.after;
    if (at % kBlock + bytes > kBlock) corrupt(inode.nid, "inline content crosses a block");
  } else if (inode.layout == Layout::kChunkBased) {
    corrupt(inode.nid, "chunks where names or a target were expected");
  }
  if (!ByteRange{at, bytes}.fits_in(image_.size())) corrupt(inode.nid, "content outside the image");
  return image_.subspan(at, bytes);
}

std::string ErofsReader::symlink_target(Nid nid) const { return target_of(parse(nid)); }

std::string ErofsReader::target_of(const Inode& symlink) const {
  const auto bytes = symlink.info.size;
  if (symlink.info.type != FileType::kSymlink) corrupt(symlink.nid, "no symlink");
  if (bytes == 0 || bytes > kMaxSymlink) corrupt(symlink.nid, "symlink target of impossible length");
  std::string target;
  target.reserve(bytes);
  for (std::uint64_t block = 0; block < blocks_of(bytes); ++block) target.append(as_text(flat_content(symlink, block)));
  if (target.find('\0') != std::string::npos) corrupt(symlink.nid, "symlink target with a NUL");
  return target;
}

std::vector<DeviceRun> ErofsReader::runs(Nid nid) const { return runs_of(parse(nid)); }

std::vector<DeviceRun> ErofsReader::runs_of(const Inode& inode) const {
  std::vector<DeviceRun> runs;
  visit_chunks(inode, [&](const DeviceRun& run) {
    if (!runs.empty() && runs.back().device == run.device &&
        runs.back().file_offset + runs.back().length == run.file_offset &&
        runs.back().device_offset + runs.back().length == run.device_offset) {
      runs.back().length += run.length;
    } else {
      runs.push_back(run);
    }
  });
  return runs;
}

void ErofsReader::visit_chunks(const Inode& inode, const std::function<void(const DeviceRun& chunk)>& visit) const {
  const auto size = inode.info.size;
  if (inode.info.type != FileType::kRegular) corrupt(inode.nid, "no regular file");
  if (size == 0) return;
  if (inode.layout != Layout::kChunkBased) corrupt(inode.nid, "a regular file with content in the tree itself");
  const auto format = inode.union_value & 0xffff;
  if ((format & ~std::uint32_t(kChunkIndexes | kChunkBitsMask)) != 0 || (format & kChunkIndexes) == 0)
    corrupt(inode.nid, "unknown chunk format");
  const auto bits = chunk_bits(format);
  const auto count = chunks_of(size, bits);
  const auto table = align_up(inode.after, kChunkIndexBytes);
  if (table > image_.size() || count > (image_.size() - table) / kChunkIndexBytes)
    corrupt(inode.nid, "chunk table runs over the end of the image");
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto chunk = load_chunk(image_.data() + table + i * kChunkIndexBytes);
    if (chunk.block == kNullBlock) continue;
    DeviceRun run;
    run.file_offset = i << bits;
    run.device = chunk.device;
    run.device_offset = chunk.block * kBlock;
    run.length = std::min(size - run.file_offset, std::uint64_t(1) << bits);
    if (run.device == 0 || run.device > devices_) corrupt(inode.nid, "content on a device that is not there");
    if (!ByteRange{run.device_offset, run.length}.fits_in(device_bytes(run.device)))
      corrupt(inode.nid, "content outside its device");
    visit(run);
  }
}

std::map<std::string, std::string> ErofsReader::xattrs(Nid nid) const { return xattrs_of(parse(nid)); }

std::map<std::string, std::string> ErofsReader::xattrs_of(const Inode& inode) const {
  std::map<std::string, std::string> xattrs;
  if (inode.xattr_bytes == 0) return xattrs;
  const auto end = inode.xattr_at + inode.xattr_bytes;
  const auto shared_count = std::uint8_t(image_[inode.xattr_at + 4]);
  auto at = inode.xattr_at + kXattrHeaderBytes;
  if (shared_count * 4ull > end - at) corrupt(inode.nid, "numbers of shared attributes run over the attributes");
  for (unsigned i = 0; i < shared_count; ++i, at += 4)
    add_xattr(xattr_offset_ + load_le<std::uint32_t>(image_.data() + at) * 4ull, image_.size(), inode, xattrs);
  while (at < end) {
    add_xattr(at, end, inode, xattrs);
    at += xattr_entry_size(std::uint8_t(image_[at]), load_le<std::uint16_t>(image_.data() + at + 2));
  }
  return xattrs;
}

void ErofsReader::add_xattr(std::uint64_t at, std::uint64_t end, const Inode& inode,
                            std::map<std::string, std::string>& xattrs) const {
  if (at > end || end - at < kXattrEntryBytes) corrupt(inode.nid, "attribute outside its area");
  const auto suffix_bytes = std::uint8_t(image_[at]);
  const auto value_bytes = load_le<std::uint16_t>(image_.data() + at + 2);
  if (xattr_entry_size(suffix_bytes, value_bytes) > end - at) corrupt(inode.nid, "attribute outside its area");
  const auto suffix = as_text(image_.subspan(at + kXattrEntryBytes, suffix_bytes));
  const auto name = join_xattr_name(std::uint8_t(image_[at + 1]), suffix);
  if (!name || suffix.find('\0') != std::string_view::npos) corrupt(inode.nid, "attribute with an impossible name");
  if (!xattrs.emplace(*name, as_text(image_.subspan(at + kXattrEntryBytes + suffix_bytes, value_bytes))).second)
    corrupt(inode.nid, "attribute named twice");
}

std::optional<Nid> ErofsReader::resolve(std::string_view path, bool follow_last) const {
  // What is still to be walked; symlink targets are put in front of it.
  std::string rest(path);
  std::vector<Nid> parents;  // the way from the root to `at`
  Nid at = root_;
  int followed = 0;
  std::size_t position = 0;
  while (true) {
    while (position < rest.size() && rest[position] == '/') ++position;
    if (position == rest.size()) return at;
    const auto end = std::min(rest.find('/', position), rest.size());
    const auto name = std::string_view(rest).substr(position, end - position);
    const auto info = inode(at);
    if (info.type != FileType::kDirectory) return std::nullopt;
    position = end;
    if (name == ".") continue;
    if (name == "..") {  // at the root: stays there
      if (!parents.empty()) {
        at = parents.back();
        parents.pop_back();
      }
      continue;
    }
    const auto next = lookup(at, name);
    if (!next) return std::nullopt;
    const bool is_last = rest.find_first_not_of('/', end) == std::string::npos;
    if (inode(*next).type != FileType::kSymlink || (is_last && !follow_last && end == rest.size())) {
      parents.push_back(at);
      at = *next;
      continue;
    }
    if (++followed > kMaxSymlinksFollowed) return std::nullopt;
    const auto target = symlink_target(*next);
    if (target.front() == '/') {
      at = root_;
      parents.clear();
    }
    rest = target + rest.substr(end);
    position = 0;
    if (rest.size() > 1024 * 1024) return std::nullopt;
  }
}

}  // namespace varve::index
