// Goes over the columns twice, first to find every place, then to write the image: where an inode lies follows from the
// sizes of those before it, what an entry leads to from the order in which names are first met. The second time one
// thread writes directories and another all else, each from front to back: whoever mounts waits for the tree alone.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>

#include "core/base/byte_range.h"
#include "core/base/errors.h"
#include "core/base/files/file_attributes.h"
#include "core/base/threads/parallel.h"
#include "core/index/format/internal/byte_codec.h"
#include "core/index/format/internal/erofs_format.h"
#include "core/index/format/internal/tree_columns_parts.h"
#include "core/index/format/tree_columns.h"

namespace varve::index {
namespace {

using namespace columns;
using namespace erofs;

constexpr std::size_t kPieceBytes = 128 << 10;
// What a tree of the largest size could have is more than the memory for it is worth.
constexpr std::size_t kMostDirectories = 2'000'000;
constexpr std::size_t kMostInodes = 16'000'000;
constexpr std::size_t kMostKinds = 1'000'000;
constexpr std::uint64_t kSmallTreeBytes = 1 << 20;  // written before a thread has begun

// A part of a file from front to back, in pieces: zeros where nothing is put.
class TreePieces {
 public:
  TreePieces(const TreeSink& sink, std::uint64_t begin, std::uint64_t end)
      : sink_(sink), piece_(std::min<std::uint64_t>(kPieceBytes, end - begin)), begin_(begin), end_(end) {}

  // To be filled; at most a piece, behind all that was put before.
  std::byte* put(std::uint64_t position, std::uint64_t bytes) {
    if (position < begin_ || bytes > piece_.size() || position + bytes > end_)
      fail<Error>("a tree is written from front to back");
    if (position + bytes > begin_ + piece_.size()) skip_to(position);
    return piece_.data() + (position - begin_);
  }
  void put(std::uint64_t position, ByteView bytes) {
    for (std::uint64_t done = 0; done < bytes.size();) {
      const auto some = bytes.subspan(done, std::min(bytes.size() - done, kPieceBytes));
      std::memcpy(put(position + done, some.size()), some.data(), some.size());
      done += some.size();
    }
  }
  void end() { skip_to(end_); }

 private:
  void skip_to(std::uint64_t position) {
    while (begin_ < position) {
      const auto bytes = std::min<std::uint64_t>(position - begin_, piece_.size());
      sink_(begin_, ByteView(piece_).first(bytes));
      std::ranges::fill(piece_, std::byte(0));
      begin_ += bytes;
    }
  }

  const TreeSink& sink_;
  Bytes piece_;
  std::uint64_t begin_;  // of the piece
  const std::uint64_t end_;
};

// The first pass: what there is, and where it lies. Changes no more once it is made.
class TreePlan {
 public:
  TreePlan(ByteView columns, std::uint64_t tree_bytes, std::string_view what) : what_(what), tree_bytes_(tree_bytes) {
    read_head(columns);
    place_directories();
    place_others();
    place_blocks();
  }

 private:
  friend class TreeWriter;

  struct KnownKind {
    InodeFields fields;
    FileType type = FileType::kRegular;
  };
  // An inode that has its first name here, but for the link: that one had another before.
  enum class LeadsTo : std::uint8_t { kDirectory, kItself, kParent, kLinked, kOther };
  // A name, and what was named before it.
  struct Position {
    std::uint32_t name = 0;         // in lengths_
    std::uint32_t text = 0;         // in the column
    std::uint32_t directories = 0;  // in subdirectories_
    std::uint32_t others = 0;
    std::uint32_t links = 0;
  };
  struct Directory {
    Position begin, tail;    // of its first name and of the first in its last block
    std::uint32_t end = 0;   // in lengths_
    std::uint32_t last = 0;  // bytes of its last block
    std::uint32_t parent = 0;
    std::uint32_t subdirectories = 0;
    std::uint32_t blocks = 0;  // before the last
    std::uint32_t whole_blocks = 0;
    std::uint32_t first_block = 0;
  };
  struct Place {
    std::uint32_t slot = 0;
    std::uint32_t kind = 0;
  };
  struct Link {
    std::uint32_t other = 0;  // which of the names that lead to no directory
    std::uint32_t inode = 0;  // to which of what those lead to
  };

  [[noreturn]] void corrupt(std::string_view reason) const { fail<CorruptData>("{}: {}", what_, reason); }

  void read_head(ByteView columns) {
    ByteReader reader(columns, what_);
    reader.magic(kColumnsMagic);
    const auto header_bytes = reader.varint();
    const auto kinds = reader.varint();
    if (kinds > kMostKinds) fail<Unsupported>("{}: {} kinds of inodes", what_, kinds);
    std::array<std::uint64_t, kColumns> lengths{};
    for (auto& length : lengths) length = reader.varint();
    if (header_bytes < kSuperOffset + kSuperBytes || header_bytes % kSlot != 0 || header_bytes > tree_bytes_)
      corrupt("an impossible head");
    header_ = reader.take(header_bytes);
    read_devices();
    std::set<InodeFields> distinct;
    for (std::uint64_t i = 0; i < kinds; ++i) {
      const auto kind = read_kind(reader);
      if (!distinct.insert(kind).second) reader.corrupt("a kind twice");
      add_kind(kind);
    }
    for (std::size_t i = 0; i < kColumns; ++i) columns_[i] = reader.take(lengths[i]);
    reader.end();
    if (kinds_.empty() || columns_[kNames].size() > kMaxTreeColumnsBytes) corrupt("no kinds, or too many names");
    for (const auto column : columns_) readers_.emplace_back(column, what_);
    read_links();
  }

  void read_devices() {
    const auto* const super = header_.data() + kSuperOffset;
    const auto table = load_le<std::uint16_t>(super + super::kDeviceTableAt) * kDeviceSlotBytes;
    const auto devices = load_le<std::uint16_t>(super + super::kExtraDevicesAt);
    if (!ByteRange{table, devices * kDeviceSlotBytes}.fits_in(header_.size())) corrupt("devices behind the root");
    for (std::uint64_t at = table; device_blocks_.size() < devices; at += kDeviceSlotBytes)
      device_blocks_.push_back(load_le<std::uint32_t>(header_.data() + at + kDeviceBlocksAt));
  }

  static InodeFields read_kind(ByteReader& reader) {
    InodeFields kind;
    const auto format = reader.varint_up_to(0xffff, "a format of more than 16 bits");
    kind.layout = Layout(format >> 1);
    kind.extended = (format & 1) != 0;
    kind.xattr_count = std::uint16_t(reader.varint_up_to(0xffff, "attributes of more than 16 bits"));
    kind.mode = std::uint16_t(reader.varint_up_to(0xffff, "a mode of more than 16 bits"));
    for (auto* field : {&kind.uid, &kind.gid, &kind.nlink, &kind.union_value})
      *field = std::uint32_t(reader.varint_up_to(0xffffffff, "a field of more than 32 bits"));
    return kind;
  }

  void add_kind(const InodeFields& kind) {
    const auto type = type_of_mode(kind.mode);
    const auto layout = kind.layout;
    if (!type) corrupt("unknown file type");
    const bool has_blocks = *type == FileType::kDirectory || *type == FileType::kSymlink;
    if (layout != Layout::kFlatPlain && !(layout == Layout::kFlatInline && has_blocks) &&
        !(layout == Layout::kChunkBased && *type == FileType::kRegular))
      corrupt("a layout that files of this type do not have");
    if ((*type == FileType::kDirectory && kind.nlink != 0) || (has_blocks && kind.union_value != 0))
      corrupt("a kind that says what follows from elsewhere");
    if (*type != FileType::kDirectory && kind.nlink == 0) corrupt("a kind without links");
    if (!kind.extended && std::max({kind.uid, kind.gid, kind.nlink}) > 0xffff)
      corrupt("a compact kind with numbers of more than 16 bits");
    if (layout == Layout::kChunkBased && (kind.union_value & ~std::uint32_t(kChunkBitsMask)) != kChunkIndexes)
      corrupt("unknown chunk format");
    kinds_.push_back({.fields = kind, .type = *type});
  }

  // In order of the names, and the inodes alone in order of these.
  void read_links() {
    auto& reader = readers_[kLinks];
    std::uint64_t inodes = 0;
    while (reader.left() != 0) {
      inodes += reader.varint_up_to(columns_[kNames].size(), "a link behind the last name");
      if (inodes == 0 || inodes > columns_[kNames].size()) reader.corrupt("a link to nothing");
      const auto back = reader.varint_up_to(inodes - 1, "a link to nothing");
      links_.push_back({.other = std::uint32_t(inodes + links_.size()), .inode = std::uint32_t(inodes - 1 - back)});
      linked_.push_back(links_.back().inode);
    }
    std::ranges::sort(linked_);
  }

  const KnownKind& next_kind() {
    const auto kind = readers_[kKinds].varint_up_to(std::min(kinds_met_, kinds_.size() - 1), "kinds out of order");
    if (kind == kinds_met_) ++kinds_met_;
    if (directories_.size() > kMostDirectories || places_.size() == kMostInodes)
      fail<Unsupported>("{}: more than {} directories or {} inodes", what_, kMostDirectories, kMostInodes);
    places_.push_back({.slot = 0, .kind = std::uint32_t(kind)});
    return kinds_[kind];
  }

  // Gives the last inode its place. `tail`: bytes behind its attributes.
  void place(const KnownKind& kind, std::uint64_t tail) {
    const bool is_directory = kind.type == FileType::kDirectory;
    at_ = align_up(at_, kSlot);
    if (kind.fields.layout == Layout::kFlatInline) {
      const auto first = at_;
      at_ = place_inline(first, is_directory, kind.fields.header_bytes(), tail);
      if (at_ - first == kBlock) corrupt("what lies with an inode does not fit into a block");
    }
    places_.back().slot = std::uint32_t(at_ / kSlot);
    at_ += kind.fields.header_bytes();
    if (kind.fields.layout == Layout::kChunkBased) at_ = align_up(at_, kChunkIndexBytes);
    at_ += tail;
    if (at_ > tree_bytes_) corrupt("inodes run over the end of the tree");
  }

  void place_directories() {
    at_ = header_.size();
    Position position;
    struct Waiting {
      std::uint32_t entry = 0;  // in subdirectories_
      std::uint32_t parent = 0;
    };
    std::vector<Waiting> waiting{{}};
    subdirectories_.push_back(0);  // the root, which no name leads to
    position.directories = 1;
    while (!waiting.empty()) {
      const auto [entry, parent] = waiting.back();
      waiting.pop_back();
      const auto number = std::uint32_t(directories_.size());
      subdirectories_[entry] = number;
      const auto& kind = next_kind();
      if (kind.type != FileType::kDirectory) corrupt("no directory where one is named");
      if (kind.fields.extended) read_time(readers_[kTimes], time_);
      readers_[kRaw].take(kind.fields.xattr_bytes());
      Directory directory{.begin = position, .tail = position, .parent = parent};
      read_names(position, directory);
      directory.subdirectories = position.directories - directory.begin.directories;
      const bool is_inline = kind.fields.layout == Layout::kFlatInline;
      directory.whole_blocks = directory.blocks + (is_inline ? 0 : 1);
      place(kind, is_inline ? directory.last : 0);
      directories_.push_back(directory);
      for (auto next = position.directories; next != directory.begin.directories; --next)
        waiting.push_back({.entry = next - 1, .parent = number});
    }
    if (places_[0].slot != load_le<std::uint16_t>(header_.data() + kSuperOffset + super::kRootNidAt))
      corrupt("the root is not where it is said to be");
    if (position.text != columns_[kNames].size() || position.links != links_.size())
      corrupt("names or links that belong to no directory");
    others_ = position.others - position.links;
    others_at_ = at_;
  }

  // Of one directory: fills blocks as the writer does.
  void read_names(Position& position, Directory& directory) {
    const auto names = as_text(columns_[kNames]);
    std::string_view last;
    int dots = 0;
    while (true) {
      const auto rest = names.substr(position.text, kMaxName + 1);
      auto length = rest.find('\0');
      length = std::min(length, rest.substr(0, length).find('/'));
      if (length == std::string_view::npos) corrupt("a name that does not end, or is too long");
      if (length == 0) break;
      if (directory.last + kDirentBytes + length > kBlock) {
        ++directory.blocks;
        directory.last = 0;
        directory.tail = position;
      }
      directory.last += std::uint32_t(kDirentBytes + length);
      lengths_.push_back(std::uint8_t(length));
      const auto name = rest.substr(0, length);
      if (name <= last) corrupt("names out of order");
      last = name;
      const auto to = leads_to(position);
      if (to == LeadsTo::kDirectory) {
        subdirectories_.push_back(0);
        if (is_dot(name)) dots += 3;
      } else if (to == LeadsTo::kItself || to == LeadsTo::kParent) {
        ++dots;
      }
      pass(position, to);
    }
    if (dots != 2) corrupt("\".\" or \"..\" is missing, or leads elsewhere");
    if (names[position.text] != '\0') corrupt("a directory without a name");
    ++position.text;
    directory.end = position.name;
  }

  std::string_view name_at(const Position& position) const {
    return as_text(columns_[kNames].subspan(position.text, lengths_[position.name]));
  }
  LeadsTo leads_to(const Position& position) const {
    const auto name = name_at(position);
    if (columns_[kNames][position.text + name.size()] == std::byte('/')) return LeadsTo::kDirectory;
    if (is_dot(name)) return name.size() == 1 ? LeadsTo::kItself : LeadsTo::kParent;
    const bool is_link = position.links < links_.size() && links_[position.links].other == position.others;
    return is_link ? LeadsTo::kLinked : LeadsTo::kOther;
  }
  // To the next name.
  void pass(Position& position, LeadsTo to) const {
    position.directories += to == LeadsTo::kDirectory ? 1 : 0;
    position.links += to == LeadsTo::kLinked ? 1 : 0;
    position.others += to == LeadsTo::kLinked || to == LeadsTo::kOther ? 1 : 0;
    position.text += lengths_[position.name] + 1u;
    ++position.name;
  }

  void place_others() {
    std::size_t link = 0;
    for (std::uint64_t i = 0; i < others_; ++i) {
      const auto& kind = next_kind();
      std::uint64_t tail = 0;
      std::uint64_t links = 1;
      for (; link < linked_.size() && linked_[link] == i; ++link) ++links;
      if (kind.fields.nlink != links) corrupt("an inode with a wrong number of links");
      if (kind.type == FileType::kDirectory) {
        corrupt("a directory that no name leads to");
      } else if (kind.type == FileType::kRegular) {
        const auto size = readers_[kSizes].varint();
        const bool has_chunks = kind.fields.layout == Layout::kChunkBased;
        if ((size != 0) != has_chunks) corrupt("a regular file with content in the tree itself");
        if (size > (kind.fields.extended ? std::uint64_t(INT64_MAX) : 0xffffffff)) corrupt("a size out of range");
        const auto chunks = has_chunks ? chunks_of(size, chunk_bits(kind.fields.union_value)) : 0;
        if (chunks > tree_bytes_ / kChunkIndexBytes) corrupt("inodes run over the end of the tree");
        tail = chunks * kChunkIndexBytes;
      } else if (kind.type == FileType::kSymlink) {
        const auto target = next_target(readers_[kTargets]);
        const auto size = target.size();
        if (kind.fields.layout == Layout::kFlatInline) {
          if (size >= kBlock) corrupt("a symlink that is too long to lie with its inode");
          tail = size;
        } else {
          symlink_blocks_ += blocks_of(size);
          long_targets_.push_back(target);
        }
      }
      place(kind, tail);
    }
    for (const auto column : {kKinds, kSizes, kTargets}) readers_[column].end();
    if (kinds_met_ != kinds_.size()) corrupt("a kind that no inode has");
    if (load_le<std::uint64_t>(header_.data() + kSuperOffset + super::kInosAt) != places_.size())
      corrupt("another number of inodes than it says");
  }

  std::string_view next_target(ByteReader& reader) const {
    const auto rest = as_text(columns_[kTargets].subspan(reader.offset()));
    const auto length = rest.find('\0');
    if (length == std::string_view::npos || length == 0 || length > kMaxSymlink)
      reader.corrupt("a symlink's target of impossible length");
    reader.take(length + 1);
    return rest.substr(0, length);
  }

  void place_blocks() {
    std::uint64_t blocks = symlink_blocks_;
    for (const auto& directory : directories_) blocks += directory.whole_blocks;
    if (tree_bytes_ % kBlock != 0 || blocks > tree_bytes_ / kBlock) corrupt("more blocks than the tree has");
    blocks_at_ = tree_bytes_ - blocks * kBlock;
    symlinks_block_ = std::uint32_t(blocks_at_ / kBlock);
    for (auto& directory : directories_) {
      directory.first_block = directory.whole_blocks == 0 ? 0 : symlinks_block_;
      symlinks_block_ += directory.whole_blocks;
    }
    shared_at_ = load_le<std::uint32_t>(header_.data() + kSuperOffset + super::kXattrBlockAt) * std::uint64_t(kBlock);
    if (shared_at_ < at_ || shared_at_ > blocks_at_) corrupt("shared attributes outside their place");
  }

  std::size_t inode_at(std::size_t directory, const Position& position, LeadsTo to) const {
    switch (to) {
      case LeadsTo::kDirectory:
        return subdirectories_[position.directories];
      case LeadsTo::kItself:
        return directory;
      case LeadsTo::kParent:
        return directories_[directory].parent;
      case LeadsTo::kLinked:
        return directories_.size() + links_[position.links].inode;
      case LeadsTo::kOther:
        break;
    }
    return directories_.size() + position.others - position.links;
  }

  static std::uint32_t read_time(ByteReader& reader, std::int64_t& seconds) {
    seconds = std::int64_t(std::uint64_t(seconds) + std::uint64_t(unzigzag(reader.varint())));
    return std::uint32_t(reader.varint_up_to(999'999'999, "too many nanoseconds"));
  }

  const std::string what_;
  const std::uint64_t tree_bytes_;
  ByteView header_;
  std::array<ByteView, kColumns> columns_;
  std::vector<ByteReader>
      readers_;  // of the columns: in the end, of times and raw, at the first that is no directory's
  std::vector<KnownKind> kinds_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> linked_;          // their inodes, ascending
  std::vector<std::uint32_t> device_blocks_;   // of the extra devices
  std::vector<std::uint8_t> lengths_;          // of all names
  std::vector<std::uint32_t> subdirectories_;  // the directories that names lead to, in order of the names
  std::vector<Directory> directories_;
  std::vector<Place> places_;  // of directories, then of all others
  std::vector<std::string_view> long_targets_;
  std::size_t kinds_met_ = 0;
  std::uint64_t others_ = 0;
  std::uint64_t at_ = 0;
  std::uint64_t others_at_ = 0;  // behind the directories
  std::uint64_t symlink_blocks_ = 0;
  std::uint64_t blocks_at_ = 0;
  std::uint64_t shared_at_ = 0;
  std::uint32_t symlinks_block_ = 0;  // the first
  std::int64_t time_ = 0;             // of the last directory that has one
};

// The second pass, over directories or over all else.
class TreeWriter {
 public:
  TreeWriter(const TreePlan& plan, const TreeSink& sink) : plan_(plan), sink_(sink) {}

  // Both return the inodes with attributes.
  std::vector<Nid> write_directories() {
    for (const auto column : plan_.columns_) readers_.emplace_back(column, plan_.what_);
    begin_part(0, plan_.others_at_);
    pieces_->put(0, plan_.header_);
    for (std::size_t i = 0; i < plan_.directories_.size(); ++i) write_directory(i);
    begin_part(plan_.blocks_at_, plan_.tree_bytes_);
    write_blocks();
    pieces_->end();
    return std::move(with_attributes_);
  }
  std::vector<Nid> write_others() {
    readers_ = plan_.readers_;
    for (const auto column : {kSizes, kTargets}) readers_[column] = ByteReader(plan_.columns_[column], plan_.what_);
    time_ = plan_.time_;
    next_block_ = plan_.symlinks_block_;
    begin_part(plan_.others_at_, plan_.blocks_at_);
    for (std::size_t i = plan_.directories_.size(); i < plan_.places_.size(); ++i) write_other(i);
    pieces_->put(plan_.shared_at_, readers_[kRaw].take(plan_.blocks_at_ - plan_.shared_at_));
    pieces_->end();
    for (const auto column : {kTimes, kChunks, kRaw}) readers_[column].end();
    return std::move(with_attributes_);
  }

 private:
  // The part before it ends here.
  void begin_part(std::uint64_t begin, std::uint64_t end) {
    if (pieces_) pieces_->end();
    pieces_.emplace(sink_, begin, end);
  }

  // Returns where it ends, with its attributes.
  std::uint64_t write_inode(std::size_t inode, InodeFields& fields) {
    if (fields.extended) {
      fields.mtime_nanoseconds = TreePlan::read_time(readers_[kTimes], time_);
      fields.mtime_seconds = time_;
    }
    const auto position = plan_.places_[inode].slot * kSlot;
    store_inode(pieces_->put(position, inode_bytes(fields.format())), fields);
    const auto end = position + fields.header_bytes();
    if (fields.xattr_count != 0) {
      pieces_->put(end - fields.xattr_bytes(), readers_[kRaw].take(fields.xattr_bytes()));
      with_attributes_.push_back(plan_.places_[inode].slot);
    }
    return end;
  }

  void write_directory(std::size_t number) {
    const auto& directory = plan_.directories_[number];
    auto fields = plan_.kinds_[plan_.places_[number].kind].fields;
    fields.nlink = directory.subdirectories + 2;
    fields.size = directory.blocks * kBlock + directory.last;
    fields.union_value = directory.first_block;
    const auto end = write_inode(number, fields);
    auto tail = directory.tail;
    if (fields.layout == Layout::kFlatInline) write_entries(number, tail, end);
  }

  // As many as one block holds, which begins there.
  void write_entries(std::size_t number, TreePlan::Position& position, std::uint64_t begin) {
    const auto& directory = plan_.directories_[number];
    std::size_t used = 0;
    auto end = position.name;
    for (; end < directory.end && used + kDirentBytes + plan_.lengths_[end] <= kBlock; ++end)
      used += kDirentBytes + plan_.lengths_[end];
    auto* const block = pieces_->put(begin, used);
    auto name_at = (end - position.name) * kDirentBytes;
    for (auto* entry = block; position.name < end; entry += kDirentBytes) {
      const auto name = plan_.name_at(position);
      const auto to = plan_.leads_to(position);
      const auto& place = plan_.places_[plan_.inode_at(number, position, to)];
      store_entry(entry, place.slot, std::uint16_t(name_at), plan_.kinds_[place.kind].type);
      std::memcpy(block + name_at, name.data(), name.size());
      name_at += name.size();
      plan_.pass(position, to);
    }
  }

  void write_other(std::size_t inode) {
    const auto& kind = plan_.kinds_[plan_.places_[inode].kind];
    auto fields = kind.fields;
    if (kind.type == FileType::kRegular) {
      fields.size = readers_[kSizes].varint();
      const auto end = write_inode(inode, fields);
      if (fields.layout == Layout::kChunkBased) write_chunks(fields, align_up(end, kChunkIndexBytes));
    } else if (kind.type == FileType::kSymlink) {
      const auto target = plan_.next_target(readers_[kTargets]);
      fields.size = target.size();
      const bool is_inline = fields.layout == Layout::kFlatInline;
      if (!is_inline) {
        fields.union_value = next_block_;
        next_block_ += std::uint32_t(blocks_of(target.size()));
      }
      const auto end = write_inode(inode, fields);
      if (is_inline) pieces_->put(end, as_bytes(target));
    } else {
      write_inode(inode, fields);
    }
  }

  void write_chunks(const InodeFields& fields, std::uint64_t at) {
    const auto bits = chunk_bits(fields.union_value);
    auto& reader = readers_[kChunks];
    for (std::uint64_t i = 0; i < chunks_of(fields.size, bits); ++i, at += kChunkIndexBytes) {
      const auto device = std::uint16_t(reader.varint_up_to(kMaxDevices, "a device of more than 16 bits"));
      const auto distance = unzigzag(reader.varint_up_to(0xffffffff, "a block of more than 32 bits"));
      const auto block = guesses_.guess(device) + std::uint32_t(distance);
      if (block != kNullBlock) {
        const auto bytes = std::min(fields.size - (i << bits), std::uint64_t(1) << bits);
        if (device == 0 || device > plan_.device_blocks_.size()) plan_.corrupt("content on a device that is not there");
        if (!ByteRange{block * kBlock, bytes}.fits_in(plan_.device_blocks_[device - 1] * kBlock))
          plan_.corrupt("content outside its device");
        guesses_.note(device, block, bytes);
      }
      store_chunk(pieces_->put(at, kChunkIndexBytes), {.device = device, .block = block});
    }
  }

  void write_blocks() {
    auto at = plan_.blocks_at_;
    for (std::size_t i = 0; i < plan_.directories_.size(); ++i) {
      auto position = plan_.directories_[i].begin;
      for (std::uint32_t block = 0; block < plan_.directories_[i].whole_blocks; ++block, at += kBlock)
        write_entries(i, position, at);
    }
    for (const auto target : plan_.long_targets_) {
      pieces_->put(at, as_bytes(target));
      at += blocks_of(target.size()) * kBlock;
    }
  }

  const TreePlan& plan_;
  const TreeSink& sink_;
  std::optional<TreePieces> pieces_;
  std::vector<ByteReader> readers_;
  ChunkGuesses guesses_;
  std::vector<Nid> with_attributes_;
  std::int64_t time_ = 0;
  std::uint32_t next_block_ = 0;  // of a symlink
};

}  // namespace

std::vector<Nid> decode_tree_columns(ByteView columns, std::uint64_t tree_bytes, std::string_view what,
                                     const TreeSink& sink) {
  if (tree_bytes > kMaxTreeBytes) fail<CorruptData>("{}: a tree of {} bytes", what, tree_bytes);
  const TreePlan plan(columns, tree_bytes, what);
  std::array<std::vector<Nid>, 2> with_attributes;
  parallel_for(2, tree_bytes < kSmallTreeBytes ? 1 : 2, CancelFlag(), [&](std::size_t part, const CancelFlag&) {
    TreeWriter writer(plan, sink);
    with_attributes[part] = part == 0 ? writer.write_directories() : writer.write_others();
  });
  with_attributes[0].insert(with_attributes[0].end(), with_attributes[1].begin(), with_attributes[1].end());
  return std::move(with_attributes[0]);
}

}  // namespace varve::index
