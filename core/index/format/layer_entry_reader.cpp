#include "core/index/format/layer_entry_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/errors.h"
#include "core/base/zeros.h"

namespace varve::index {

LayerEntry make_layer_entry(codec::TarEntry& entry, std::string_view what) {
  constexpr std::uint64_t kMaxId = std::numeric_limits<std::uint32_t>::max();
  if (entry.uid > kMaxId || entry.gid > kMaxId)
    fail<Unsupported>("{} at {}: {:.200}: owner {}:{} does not fit in 32 bits", what, entry.header_stream_offset,
                      entry.name, entry.uid, entry.gid);
  LayerEntry result;
  result.type = entry.type;
  result.path = normalise_path(entry.name, what);
  if (entry.type == FileType::kHardLink) result.link_target = normalise_path(entry.link_name, what);
  if (entry.type == FileType::kSymlink) result.link_target = std::move(entry.link_name);
  result.mode = entry.mode & 07777;
  result.uid = std::uint32_t(entry.uid);
  result.gid = std::uint32_t(entry.gid);
  result.mtime_seconds = entry.mtime_seconds;
  result.mtime_nanoseconds = entry.mtime_nanoseconds;
  if (entry.type == FileType::kCharDevice || entry.type == FileType::kBlockDevice) {
    result.device_major = entry.device_major;
    result.device_minor = entry.device_minor;
  }
  if (entry.type == FileType::kRegular) result.size = entry.size;
  result.xattrs = std::move(entry.xattrs);
  if (result.size != 0) result.runs = std::move(entry.runs);
  return result;
}

LayerEntryReader::LayerEntryReader(std::string what, EntryObserver* observer)
    : what_(std::move(what)), observer_(observer), parser_(what_, *this) {}

void LayerEntryReader::on_entry(codec::TarEntry entry) {
  if (observer_ != nullptr) observer_->begin(entry);
  const bool sparse = entry.sparse;
  entries_.push_back(make_layer_entry(entry, what_));
  const auto& made = entries_.back();
  has_content_ = made.size != 0;
  has_chunks_ = has_content_ && !sparse && made.size > kChunkBytes;
  holes_too_large_ = false;
  file_offset_ = 0;
  run_ = 0;
  in_chunk_ = 0;
  if (has_content_) elf_.begin(made.size);
}

void LayerEntryReader::digest_hole(std::uint64_t bytes) {
  file_offset_ += bytes;
  elf_.feed_zeros(bytes);
  if (holes_too_large_ || bytes > kMaxHoleBytes - hole_bytes_) {
    holes_too_large_ = true;
    return;
  }
  hole_bytes_ += bytes;
  give_zeros(bytes, [&](ByteView zeros) { content_digest_.update(zeros); });
}

void LayerEntryReader::digest(ByteView content) {
  file_offset_ += content.size();
  content_digest_.update(content);
  elf_.feed(content);
  while (has_chunks_ && !content.empty()) {
    const auto part = content.first(std::min<std::uint64_t>(content.size(), kChunkBytes - in_chunk_));
    chunk_digest_.update(part);
    in_chunk_ += part.size();
    content = content.subspan(part.size());
    if (in_chunk_ == kChunkBytes) {
      entries_.back().chunk_digests.push_back(chunk_digest_.finish());
      in_chunk_ = 0;
    }
  }
}

void LayerEntryReader::on_content(ByteView bytes) {
  if (observer_ != nullptr) observer_->content(bytes);
  if (!has_content_) return;
  const auto& runs = entries_.back().runs;
  while (!bytes.empty()) {
    while (run_ < runs.size() && file_offset_ >= runs[run_].file_offset + runs[run_].length) ++run_;
    if (run_ == runs.size()) return;  // stored, but part of no run
    const auto& run = runs[run_];
    if (file_offset_ < run.file_offset) digest_hole(run.file_offset - file_offset_);
    const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), run.file_offset + run.length - file_offset_));
    digest(part);
    bytes = bytes.subspan(part.size());
  }
}

void LayerEntryReader::on_entry_end() {
  if (observer_ != nullptr) observer_->end();
  if (!has_content_) return;
  auto& entry = entries_.back();
  if (file_offset_ < entry.size) digest_hole(entry.size - file_offset_);
  if (in_chunk_ != 0) entry.chunk_digests.push_back(chunk_digest_.finish());
  const auto content = content_digest_.finish();
  if (!holes_too_large_) entry.content_digest = content;
  find_elf_facts();
  has_content_ = false;
}

void LayerEntryReader::find_elf_facts() {
  auto facts = elf_.finish();
  if (!facts) return;
  elf_text_bytes_ += text_bytes(*facts);
  if (elf_text_bytes_ > kMaxLayerElfTextBytes)
    fail<Unsupported>("{}: more than {} bytes of names in ELF files", what_, kMaxLayerElfTextBytes);
  entries_.back().elf = std::move(facts);
}

}  // namespace varve::index
