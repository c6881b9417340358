#include "core/codec/tar_parser.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/base/errors.h"
#include "core/codec/internal/pax.h"
#include "core/codec/internal/tar_header.h"
#include "core/codec/internal/tar_sparse.h"

namespace varve::codec {
namespace {

using internal::PaxRecords;
using internal::PaxSparse;
using internal::TarDialect;
using internal::TarHeader;
using internal::TarPlace;

// Global headers are merged into every later entry, so they stay small.
constexpr std::size_t kMaxGlobalPaxBytes = 64 * 1024;

enum class TarStep { kHeader, kExtension, kOldSparseMap, kSparseMapInData, kContent, kSkip, kPadding, kEnd };

FileType type_of(const TarHeader& header, const TarPlace& place) {
  switch (header.typeflag) {
    case '\0':
      return !header.name.empty() && header.name.back() == '/' ? FileType::kDirectory : FileType::kRegular;
    case '0':
    case '7':
    case 'S':
      return FileType::kRegular;
    case '1':
      return FileType::kHardLink;
    case '2':
      return FileType::kSymlink;
    case '3':
      return FileType::kCharDevice;
    case '4':
      return FileType::kBlockDevice;
    case '5':
    case 'D':
      return FileType::kDirectory;  // D: a directory with a list of its names as content, from incremental dumps
    case '6':
      return FileType::kFifo;
    default:
      break;
  }
  fail<Unsupported>("{}: tar entry at {}: type {:#04x} is not supported", place.what, place.stream_offset,
                    std::uint8_t(header.typeflag));
}

}  // namespace

class TarParser::Impl {
 public:
  Impl(std::string what, TarListener& listener) : what_(std::move(what)), listener_(listener) {}

  void feed(ByteView stream) {
    while (!stream.empty() && step_ != TarStep::kEnd) {
      const auto used = advance(stream);
      stream = stream.subspan(used);
      stream_offset_ += used;
    }
  }

  void finish() {
    switch (step_) {
      case TarStep::kEnd:
        return;
      case TarStep::kPadding:
        if (!in_entry_) return;  // the last content is whole; only its padding is missing
        break;
      case TarStep::kHeader:
        if (block_.empty() && !in_entry_) return;
        break;
      default:
        break;
    }
    fail<CorruptData>("{}: the tar ends at {} in the middle of an entry", what_, stream_offset_);
  }

 private:
  TarPlace place() const { return {.what = what_, .stream_offset = block_stream_offset_}; }

  // Does one step with the bytes there are; returns how many it used.
  std::size_t advance(ByteView stream) {
    switch (step_) {
      case TarStep::kContent:
        return pass_content(stream);
      case TarStep::kExtension:
        return collect_extension(stream);
      case TarStep::kSkip:
      case TarStep::kPadding:
        return skip(stream);
      default:
        return collect_block(stream);
    }
  }

  std::size_t collect_block(ByteView stream) {
    if (block_.empty() && stream.size() >= kTarBlock) {
      block_stream_offset_ = stream_offset_;
      take_block(stream.first(kTarBlock));
      return kTarBlock;
    }
    if (block_.empty()) block_stream_offset_ = stream_offset_;
    const auto used = std::min(stream.size(), kTarBlock - block_.size());
    append(block_, stream.first(used));
    if (block_.size() == kTarBlock) {
      const auto block = std::exchange(block_, {});
      take_block(block);
    }
    return used;
  }

  void take_block(ByteView block) {
    switch (step_) {
      case TarStep::kHeader:
        take_header(block);
        break;
      case TarStep::kOldSparseMap:
        take_old_sparse_block(block);
        break;
      default:
        take_sparse_map_block(block);
        break;
    }
  }

  void take_header(ByteView block) {
    if (internal::is_zero_block(block)) {
      if (in_entry_) fail<CorruptData>("{}: the tar ends at {} after an extended header", what_, block_stream_offset_);
      if (zero_block_seen_) step_ = TarStep::kEnd;
      zero_block_seen_ = true;
      return;
    }
    // Some readers stop at one zero block, others go on: what they would see differs, so it is no tar for us.
    if (zero_block_seen_)
      fail<CorruptData>("{}: a lone zero block before {} is followed by more", what_, block_stream_offset_);
    header_ = internal::parse_tar_header(block, place());
    if (!in_entry_ && header_.typeflag != 'g') {
      in_entry_ = true;
      entry_stream_offset_ = block_stream_offset_;
    }
    switch (header_.typeflag) {
      case 'x':
      case 'X':
      case 'g':
      case 'L':
      case 'K':
        begin_extension();
        break;
      case 'V':  // a label of the volume
      case 'N':  // names of very old GNU tars, for renaming afterwards
        forget_extensions();
        begin_skip(header_.size);
        break;
      case 'M':
        fail<Unsupported>("{}: tar entry at {}: multi-volume archives are not supported", what_, block_stream_offset_);
      default:
        begin_entry(block);
        break;
    }
  }

  void begin_extension() {
    if (header_.size > kMaxPaxBytes) {
      fail<Unsupported>("{}: extended tar header at {}: {} bytes exceed the limit of {}", what_, block_stream_offset_,
                        header_.size, kMaxPaxBytes);
    }
    extension_.clear();
    remaining_ = header_.size;
    step_ = TarStep::kExtension;
    if (remaining_ == 0) take_extension();
  }

  std::size_t collect_extension(ByteView stream) {
    const auto used = std::size_t(std::min<std::uint64_t>(stream.size(), remaining_));
    append(extension_, stream.first(used));
    remaining_ -= used;
    if (remaining_ == 0) take_extension();
    return used;
  }

  void take_extension() {
    switch (header_.typeflag) {
      case 'g':
        take_global();
        break;
      case 'L':
        long_name_ = internal::tar_text(extension_);
        break;
      case 'K':
        long_link_ = internal::tar_text(extension_);
        break;
      default:
        internal::parse_pax(extension_, local_, place());
        break;
    }
    begin_padding(header_.size);
  }

  void take_global() {
    PaxRecords records;
    internal::parse_pax(extension_, records, place());
    std::size_t bytes = 0;
    for (auto& [key, value] : records.values) {
      if (!key.starts_with("GNU.sparse.")) globals_.insert_or_assign(key, std::move(value));
    }
    for (const auto& [key, value] : globals_) bytes += key.size() + value.size();
    if (bytes > kMaxGlobalPaxBytes) {
      fail<Unsupported>("{}: global tar header at {}: more than {} bytes of attributes", what_, block_stream_offset_,
                        kMaxGlobalPaxBytes);
    }
  }

  void begin_entry(ByteView block) {
    if (++entries_ > kMaxTarEntries)
      fail<Unsupported>("{}: tar entry at {}: more than {} entries", what_, block_stream_offset_, kMaxTarEntries);
    for (const auto& [key, value] : globals_) local_.values.emplace(key, value);
    entry_ = {};
    entry_.header_stream_offset = entry_stream_offset_;
    apply_header();
    apply_records();
    if (long_name_) entry_.name = *long_name_;
    if (long_link_) entry_.link_name = *long_link_;
    header_.name = entry_.name;
    entry_.type = type_of(header_, place());
    check_names();
    sparse_map_.clear();
    if (entry_.type != FileType::kRegular) {
      finish_other();
    } else if (header_.typeflag == 'S') {
      begin_old_sparse(block);
    } else {
      begin_regular();
    }
  }

  void apply_header() {
    entry_.name = header_.name;
    entry_.link_name = header_.link_name;
    entry_.mode = header_.mode;
    entry_.uid = header_.uid;
    entry_.gid = header_.gid;
    entry_.mtime_seconds = header_.mtime_seconds;
    entry_.device_major = header_.device_major;
    entry_.device_minor = header_.device_minor;
    stored_bytes_ = header_.size;
  }

  void apply_records() {
    if (local_.empty()) return;
    const auto number = [&](std::string_view key, auto& into, std::uint64_t limit) {
      const auto* text = local_.find(key);
      if (text == nullptr) return;
      const auto value = internal::parse_pax_number(*text, key, place());
      if (value > limit)
        fail<CorruptData>("{}: extended tar header at {}: {} is out of range", what_, block_stream_offset_, key);
      into = static_cast<std::remove_reference_t<decltype(into)>>(value);
    };
    if (const auto* path = local_.find("path")) entry_.name = *path;
    if (const auto* link = local_.find("linkpath")) entry_.link_name = *link;
    number("size", stored_bytes_, internal::kMaxTarNumber);
    number("uid", entry_.uid, internal::kMaxTarNumber);
    number("gid", entry_.gid, internal::kMaxTarNumber);
    number("SCHILY.devmajor", entry_.device_major, UINT32_MAX);
    number("SCHILY.devminor", entry_.device_minor, UINT32_MAX);
    if (const auto* mtime = local_.find("mtime")) {
      const auto time = internal::parse_pax_time(*mtime, "mtime", place());
      entry_.mtime_seconds = time.seconds;
      entry_.mtime_nanoseconds = time.nanoseconds;
    }
    if (const auto* atime = local_.find("atime"))
      entry_.access_time = internal::parse_pax_time(*atime, "atime", place());
    if (const auto* ctime = local_.find("ctime"))
      entry_.change_time = internal::parse_pax_time(*ctime, "ctime", place());
    entry_.xattrs = internal::xattrs_of(local_, place());
  }

  void check_names() const {
    if (entry_.name.empty()) fail<CorruptData>("{}: tar entry at {}: it has no name", what_, block_stream_offset_);
    const bool link = entry_.type == FileType::kSymlink || entry_.type == FileType::kHardLink;
    if (link && entry_.link_name.empty())
      fail<CorruptData>("{}: tar entry at {}: a link without a target", what_, block_stream_offset_);
  }

  // Links, devices and directories have no content. Some writers put the size of the target into a hard link's header
  // all the same; it means nothing. Only the name lists of incremental dumps are really there.
  void finish_other() {
    const bool has_list = header_.typeflag == 'D';
    if (entry_.type != FileType::kHardLink && entry_.type != FileType::kSymlink) entry_.link_name.clear();
    entry_.data_stream_offset = block_stream_offset_ + kTarBlock;
    forget_extensions();
    listener_.on_entry(std::move(entry_));
    listener_.on_entry_end();
    begin_skip(has_list ? stored_bytes_ : 0);
  }

  void begin_old_sparse(ByteView block) {
    if (header_.dialect != TarDialect::kGnu)
      fail<CorruptData>("{}: tar entry at {}: a sparse entry outside the GNU format", what_, block_stream_offset_);
    entry_.sparse = true;
    entry_.size = internal::parse_tar_size(block.subspan(483, 12), "real size", place());
    if (internal::append_old_gnu_pairs(block, false, sparse_map_, place())) {
      step_ = TarStep::kOldSparseMap;
    } else {
      begin_content(block_stream_offset_ + kTarBlock);
    }
  }

  void take_old_sparse_block(ByteView block) {
    if (!internal::append_old_gnu_pairs(block, true, sparse_map_, place()))
      begin_content(block_stream_offset_ + kTarBlock);
  }

  void begin_regular() {
    const auto kind = internal::pax_sparse_kind(local_);
    entry_.size = stored_bytes_;
    if (kind == PaxSparse::kNone) return begin_content(block_stream_offset_ + kTarBlock);
    entry_.sparse = true;
    if (const auto* name = local_.find("GNU.sparse.name")) entry_.name = *name;
    const auto* size = local_.find("GNU.sparse.realsize");
    if (size == nullptr) size = local_.find("GNU.sparse.size");
    if (size == nullptr)
      fail<CorruptData>("{}: sparse file at {}: it does not state its size", what_, block_stream_offset_);
    entry_.size = internal::parse_pax_number(*size, "GNU.sparse.size", place());
    if (kind == PaxSparse::kInRecords) {
      sparse_map_ = internal::sparse_map_of_records(local_, place());
      return begin_content(block_stream_offset_ + kTarBlock);
    }
    if (*local_.find("GNU.sparse.major") != "1")
      fail<Unsupported>("{}: sparse file at {}: unknown format version", what_, block_stream_offset_);
    map_reader_ = {};
    map_bytes_ = 0;
    step_ = TarStep::kSparseMapInData;
  }

  void take_sparse_map_block(ByteView block) {
    map_bytes_ += kTarBlock;
    if (map_bytes_ > stored_bytes_)
      fail<CorruptData>("{}: sparse file at {}: the map is longer than the data", what_, block_stream_offset_);
    if (map_bytes_ > kMaxPaxBytes)
      fail<Unsupported>("{}: sparse file at {}: the map exceeds {} bytes", what_, block_stream_offset_, kMaxPaxBytes);
    if (!map_reader_.feed_block(block, place())) return;
    sparse_map_ = map_reader_.take();
    stored_bytes_ -= map_bytes_;
    begin_content(block_stream_offset_ + kTarBlock);
  }

  void begin_content(std::uint64_t data_stream_offset) {
    forget_extensions();
    entry_.data_stream_offset = data_stream_offset;
    entry_.data_stream_length = stored_bytes_;
    entry_.link_name.clear();
    if (entry_.sparse) {
      entry_.runs = internal::runs_of(sparse_map_, entry_.size, data_stream_offset, stored_bytes_, place());
    } else if (entry_.size != 0) {
      entry_.runs.push_back({.file_offset = 0, .stream_offset = data_stream_offset, .length = entry_.size});
    }
    listener_.on_entry(std::move(entry_));
    remaining_ = stored_bytes_;
    step_ = TarStep::kContent;
    if (remaining_ == 0) end_content();
  }

  std::size_t pass_content(ByteView stream) {
    const auto used = std::size_t(std::min<std::uint64_t>(stream.size(), remaining_));
    listener_.on_content(stream.first(used));
    remaining_ -= used;
    if (remaining_ == 0) end_content();
    return used;
  }

  void end_content() {
    listener_.on_entry_end();
    begin_padding(stored_bytes_);
  }

  void begin_skip(std::uint64_t size) {
    remaining_ = size;
    skipped_size_ = size;
    step_ = TarStep::kSkip;
    if (size == 0) step_ = TarStep::kHeader;
  }

  void begin_padding(std::uint64_t size) {
    remaining_ = padding_of(size);
    step_ = remaining_ == 0 ? TarStep::kHeader : TarStep::kPadding;
  }

  std::size_t skip(ByteView stream) {
    const auto used = std::size_t(std::min<std::uint64_t>(stream.size(), remaining_));
    remaining_ -= used;
    if (remaining_ != 0) return used;
    if (step_ == TarStep::kSkip) {
      begin_padding(skipped_size_);
    } else {
      step_ = TarStep::kHeader;
    }
    return used;
  }

  // Extended headers and long names belong to the one entry that follows them.
  void forget_extensions() {
    in_entry_ = false;
    local_ = {};
    long_name_.reset();
    long_link_.reset();
    extension_ = {};
  }

  std::string what_;
  TarListener& listener_;
  TarStep step_ = TarStep::kHeader;
  std::uint64_t stream_offset_ = 0;
  Bytes block_;                            // a block that came in pieces
  std::uint64_t block_stream_offset_ = 0;  // of the last block taken
  bool zero_block_seen_ = false;
  std::uint64_t entries_ = 0;

  bool in_entry_ = false;  // a header or extended header was read and its entry has not begun
  std::uint64_t entry_stream_offset_ = 0;
  TarHeader header_;
  Bytes extension_;
  std::map<std::string, std::string> globals_;
  PaxRecords local_;
  std::optional<std::string> long_name_;
  std::optional<std::string> long_link_;

  TarEntry entry_;
  std::uint64_t stored_bytes_ = 0;
  internal::SparseMap sparse_map_;
  internal::SparseMapReader map_reader_;
  std::uint64_t map_bytes_ = 0;
  std::uint64_t remaining_ = 0;
  std::uint64_t skipped_size_ = 0;
};

TarParser::TarParser(std::string what, TarListener& listener)
    : impl_(std::make_unique<Impl>(std::move(what), listener)) {}
TarParser::~TarParser() = default;
void TarParser::feed(ByteView stream) { impl_->feed(stream); }
void TarParser::finish() { impl_->finish(); }

}  // namespace varve::codec
