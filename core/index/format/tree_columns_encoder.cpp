// Walks the image and keeps what does not follow from the order in which write_erofs() puts things.
#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "core/base/byte_range.h"
#include "core/base/errors.h"
#include "core/base/files/file_attributes.h"
#include "core/index/format/internal/byte_codec.h"
#include "core/index/format/internal/erofs_format.h"
#include "core/index/format/internal/tree_columns_parts.h"
#include "core/index/format/tree_columns.h"

namespace varve::index {
namespace {

using namespace columns;
using namespace erofs;

class ColumnEncoder {
 public:
  explicit ColumnEncoder(ByteView tree) : tree_(tree), reader_(tree, "the tree") {}

  Bytes encode() {
    read_names();
    for (const auto* list : {&directories_, &others_}) {
      for (const auto nid : *list) add_inode(nid);
    }
    add_shared_attributes();
    const auto header = tree_.first(reader_.root() * kSlot);
    Bytes out = to_bytes(as_bytes(kColumnsMagic));
    append_varint(out, header.size());
    append_varint(out, kinds_.size());
    for (const auto& column : columns_) append_varint(out, column.size());
    append(out, header);
    for (const auto& kind : kind_list_) {
      for (const std::uint32_t value : {std::uint32_t(kind.format()), std::uint32_t(kind.xattr_count),
                                        std::uint32_t(kind.mode), kind.uid, kind.gid, kind.nlink, kind.union_value})
        append_varint(out, value);
    }
    for (const auto& column : columns_) append(out, column);
    return out;
  }

 private:
  // Depth first, in order of names, as they lie.
  void read_names() {
    std::unordered_map<Nid, std::uint64_t> numbers;
    std::uint64_t since_link = 0;
    std::vector<Nid> to_visit{reader_.root()};
    while (!to_visit.empty()) {
      const auto directory = to_visit.back();
      to_visit.pop_back();
      directories_.push_back(directory);
      const auto first = std::ptrdiff_t(to_visit.size());
      reader_.read_directory(directory, 0, [&](std::string_view name, Nid nid, FileType type, std::uint64_t) {
        const bool dot = is_dot(name);
        const bool is_directory = !dot && type == FileType::kDirectory;
        append(columns_[kNames], as_bytes(name));
        columns_[kNames].push_back(std::byte(is_directory ? '/' : '\0'));
        if (is_directory) to_visit.push_back(nid);
        if (dot || is_directory) return true;
        const auto [known, is_new] = numbers.try_emplace(nid, others_.size());
        if (is_new) {
          others_.push_back(nid);
          ++since_link;
        } else {
          append_varint(columns_[kLinks], since_link);
          append_varint(columns_[kLinks], others_.size() - 1 - known->second);
          since_link = 0;
        }
        return true;
      });
      columns_[kNames].push_back(std::byte(0));
      std::reverse(to_visit.begin() + first, to_visit.end());
      if (directories_.size() + others_.size() > reader_.nid_end()) fail<Error>("a tree with loops");
    }
  }

  void add_inode(Nid nid) {
    const auto position = nid * kSlot;
    reader_.inode(nid);  // that it is inside
    const auto fields = load_inode(tree_.data() + position);
    const auto after = position + fields.header_bytes();
    const auto type = type_of_mode(fields.mode);
    const bool is_flat = type == FileType::kDirectory || type == FileType::kSymlink;
    add_kind(fields, type == FileType::kDirectory, is_flat);
    if (fields.extended) {
      append_varint(columns_[kTimes], zigzag(std::int64_t(std::uint64_t(fields.mtime_seconds) - std::uint64_t(time_))));
      append_varint(columns_[kTimes], fields.mtime_nanoseconds);
      time_ = fields.mtime_seconds;
    }
    append(columns_[kRaw], tree_.subspan(after - fields.xattr_bytes(), fields.xattr_bytes()));
    if (type == FileType::kRegular) {
      append_varint(columns_[kSizes], fields.size);
      if (fields.layout == Layout::kChunkBased) add_chunks(fields, align_up(after, kChunkIndexBytes));
    } else if (type == FileType::kSymlink) {
      append(columns_[kTargets], as_bytes(reader_.symlink_target(nid)));
      columns_[kTargets].push_back(std::byte(0));
    }
    if (is_flat) whole_blocks_ += whole_blocks(fields.layout, fields.size);
  }

  // What many inodes have in common. What follows from elsewhere is 0.
  void add_kind(InodeFields kind, bool is_directory, bool is_flat) {
    kind.size = 0;
    kind.mtime_seconds = 0;
    kind.mtime_nanoseconds = 0;
    if (is_directory) kind.nlink = 0;
    if (is_flat) kind.union_value = 0;
    const auto [known, is_new] = kinds_.try_emplace(kind, kinds_.size());
    if (is_new) kind_list_.push_back(kind);
    append_varint(columns_[kKinds], known->second);
  }

  void add_chunks(const InodeFields& fields, std::uint64_t table) {
    const auto bits = chunk_bits(fields.union_value);
    for (std::uint64_t i = 0; i < chunks_of(fields.size, bits); ++i, table += kChunkIndexBytes) {
      if (!ByteRange{table, kChunkIndexBytes}.fits_in(tree_.size())) fail<Error>("a chunk table outside the tree");
      const auto chunk = load_chunk(tree_.data() + table);
      append_varint(columns_[kChunks], chunk.device);
      append_varint(columns_[kChunks], zigzag(std::int32_t(chunk.block - guesses_.guess(chunk.device))));
      if (chunk.block != kNullBlock)
        guesses_.note(chunk.device, chunk.block, std::min(fields.size - (i << bits), std::uint64_t(1) << bits));
    }
  }

  void add_shared_attributes() {
    const std::uint64_t begin =
        load_le<std::uint32_t>(tree_.data() + kSuperOffset + super::kXattrBlockAt) * std::uint64_t(kBlock);
    const auto end = tree_.size() - std::min<std::uint64_t>(tree_.size(), whole_blocks_ * kBlock);
    if (begin > end) fail<Error>("whole blocks of the tree overlap what lies before them");
    append(columns_[kRaw], tree_.subspan(begin, end - begin));
  }

  ByteView tree_;
  ErofsReader reader_;
  std::vector<Nid> directories_;
  std::vector<Nid> others_;
  std::map<InodeFields, std::uint64_t> kinds_;
  std::vector<InodeFields> kind_list_;
  std::array<Bytes, kColumns> columns_;
  ChunkGuesses guesses_;
  std::int64_t time_ = 0;
  std::uint64_t whole_blocks_ = 0;
};

}  // namespace

Bytes encode_tree_columns(ByteView tree) {
  auto columns = ColumnEncoder(tree).encode();
  if (columns.size() > kMaxTreeColumnsBytes) fail<Unsupported>("a tree with {} bytes of columns", columns.size());
  decode_tree_columns(columns, tree.size(), "the tree", [&](std::uint64_t offset, ByteView piece) {
    if (!ByteRange{offset, piece.size()}.fits_in(tree.size()) ||
        !std::ranges::equal(piece, tree.subspan(offset, piece.size())))
      fail<Error>("a tree that is not as ours are, near byte {}", offset);
  });
  return columns;
}

}  // namespace varve::index
