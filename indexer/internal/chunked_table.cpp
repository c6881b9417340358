#include "indexer/internal/chunked_table.h"

#include <fmt/format.h>

#include <array>

#include <nlohmann/json.hpp>

#include "core/base/text/base64.h"
#include "core/base/text/calendar.h"
#include "core/base/text/utf8.h"
#include "core/codec/tar_block.h"
#include "core/codec/zstd_magic.h"

namespace varve::indexer {
namespace {

using nlohmann::json;

constexpr std::string_view kAnnotationPrefix = "io.github.containers.zstd-chunked.";
constexpr std::uint64_t kManifestType = 1;  // "CRFS-compatible"
constexpr std::size_t kModeOffset = 100, kGnuAccessTime = 345, kGnuChangeTime = 357;
constexpr std::int64_t kLastYear = 253'402'300'799;  // 9999-12-31: what RFC 3339 can say
constexpr std::string_view kPlainAclPrefix = "system.posix_acl_";

std::string_view type_name(FileType type) {
  switch (type) {
    case FileType::kRegular:
      return "reg";
    case FileType::kHardLink:
      return "hardlink";
    case FileType::kSymlink:
      return "symlink";
    case FileType::kCharDevice:
      return "char";
    case FileType::kBlockDevice:
      return "block";
    case FileType::kDirectory:
      return "dir";
    case FileType::kFifo:
      return "fifo";
  }
  return "";
}

bool can_be_told(std::int64_t seconds) { return seconds >= 0 && seconds <= kLastYear; }

// The name without what tells no two files apart.
std::string_view bare_name(std::string_view name) {
  while (name.starts_with("./") || name.starts_with('/')) name.remove_prefix(name.front() == '/' ? 1 : 2);
  while (name.ends_with('/')) name.remove_suffix(1);
  return name;
}

json toc_entry(const codec::TarEntry& entry, std::uint32_t mode) {
  json object{{"type", type_name(entry.type)},
              {"name", entry.name},
              {"mode", mode},
              {"modtime", rfc3339(entry.mtime_seconds, entry.mtime_nanoseconds)}};
  if (!entry.link_name.empty()) object["linkName"] = entry.link_name;
  if (entry.size != 0) object["size"] = entry.size;
  if (entry.uid != 0) object["uid"] = entry.uid;
  if (entry.gid != 0) object["gid"] = entry.gid;
  if (entry.access_time) object["accesstime"] = rfc3339(entry.access_time->seconds, entry.access_time->nanoseconds);
  if (entry.change_time) object["changetime"] = rfc3339(entry.change_time->seconds, entry.change_time->nanoseconds);
  if (entry.device_major != 0) object["devMajor"] = entry.device_major;
  if (entry.device_minor != 0) object["devMinor"] = entry.device_minor;
  for (const auto& [name, value] : entry.xattrs) object["xattrs"][name] = base64_encode(value);
  return object;
}

void put_chunk(json& object, const PlacedChunk& chunk) {
  object["offset"] = chunk.compressed_offset;
  object["chunkSize"] = chunk.bytes;
  if (chunk.file_offset != 0) object["chunkOffset"] = chunk.file_offset;
  object["chunkDigest"] = chunk.digest.to_string();
  if (chunk.zeros) object["chunkType"] = "zeros";
}

void append_skippable_header(Bytes& bytes, std::size_t payload) {
  append_le(bytes, codec::kZstdSkippableMagic);
  append_le(bytes, std::uint32_t(payload));
}

}  // namespace

std::string_view table_obstacle(const codec::TarEntry& entry, ByteView header) {
  if (entry.sparse) return "a sparse file";
  if (!is_utf8(entry.name) || !is_utf8(entry.link_name)) return "a name that is not UTF-8";
  if (!can_be_told(entry.mtime_seconds) || (entry.access_time && !can_be_told(entry.access_time->seconds)) ||
      (entry.change_time && !can_be_told(entry.change_time->seconds)))
    return "a time before 1970 or after 9999";
  for (const auto& [name, value] : entry.xattrs) {
    if (name.starts_with(kPlainAclPrefix)) return "an access control list";
    if (!is_utf8(name)) return "a name that is not UTF-8";
  }
  if (header.size() < codec::kTarBlock) return "an entry without a header of its own";
  const auto block = header.last(codec::kTarBlock);
  if (as_text(block).substr(codec::kTarMagicOffset).starts_with("ustar ") &&
      (block[kGnuAccessTime] != std::byte(0) || block[kGnuChangeTime] != std::byte(0)))
    return "times in GNU's form";
  return "";
}

std::uint32_t header_mode(ByteView header) {
  std::uint32_t mode = 0;
  for (const auto byte : header.last(codec::kTarBlock).subspan(kModeOffset, 8)) {
    const auto digit = char(byte);
    if (digit >= '0' && digit <= '7') mode = mode * 8 + std::uint32_t(digit - '0');
  }
  return mode;
}

void ChunkedTable::give_up(std::string reason) {
  if (reason_.empty()) reason_ = std::move(reason);
}

void ChunkedTable::add_split_line(std::string_view line) {
  split_.feed(as_bytes(line));
  split_.feed(as_bytes("\n"));
  ++split_position_;
}

void ChunkedTable::add_split_segment(ByteView raw) {
  if (raw.empty()) return;
  add_split_line(json{{"type", 2}, {"payload", base64_encode(as_text(raw))}, {"position", split_position_}}.dump());
}

void ChunkedTable::begin_entry(const codec::TarEntry& entry, ByteView header) {
  if (reason_.empty()) give_up(std::string(table_obstacle(entry, header)));
  if (reason_.empty() && !names_.insert(std::string(bare_name(entry.name))).second) give_up("two entries of one name");
  if (!reason_.empty()) return;
  add_split_segment(header);
  open_name_ = entry.name;
  open_size_ = entry.size;
  if (open_size_ == 0)
    add_split_line(json{{"type", 1}, {"name", open_name_}, {"payload", nullptr}, {"position", split_position_}}.dump());
}

void ChunkedTable::end_content(std::uint64_t crc64) {
  if (!reason_.empty()) return;
  std::string sum(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) sum[i] = char(crc64 >> (56 - 8 * i) & 0xFF);
  add_split_line(json{{"type", 1},
                      {"name", open_name_},
                      {"size", open_size_},
                      {"payload", base64_encode(sum)},
                      {"position", split_position_}}
                     .dump());
}

void ChunkedTable::add_toc_text(std::string_view text) { toc_.feed(as_bytes(text)); }

void ChunkedTable::place_entry(const codec::TarEntry& entry, std::uint32_t mode, const Digest& content_digest,
                               const std::vector<PlacedChunk>& chunks, std::uint64_t end_offset) {
  if (!reason_.empty()) return;
  add_toc_text(first_ ? R"({"version":1,"entries":[)" : ",");
  first_ = false;
  auto object = toc_entry(entry, mode);
  if (!chunks.empty()) {
    object["digest"] = content_digest.to_string();
    object["offset"] = chunks.front().compressed_offset;
    object["endOffset"] = end_offset;
    if (chunks.size() > 1) put_chunk(object, chunks.front());
  }
  add_toc_text(object.dump());
  for (std::size_t i = 1; i < chunks.size(); ++i) {
    json chunk{{"type", "chunk"}, {"name", entry.name}};
    put_chunk(chunk, chunks[i]);
    add_toc_text("," + chunk.dump());
  }
}

ChunkedTable::Tail ChunkedTable::finish(ByteView rest, std::uint64_t offset) {
  if (first_ && reason_.empty()) give_up("no entries");
  if (!reason_.empty()) return {};
  add_split_segment(rest);
  const auto split = split_.finish();
  add_toc_text(fmt::format(R"(],"tarSplitDigest":"{}"}})", digest_of(split).to_string()));
  const auto toc = toc_.finish();

  constexpr std::size_t kFrameHeader = 8;
  const auto toc_offset = offset + kFrameHeader;
  const auto split_offset = toc_offset + toc.size() + kFrameHeader;
  Tail tail;
  append_skippable_header(tail.bytes, toc.size());
  append(tail.bytes, toc);
  append_skippable_header(tail.bytes, split.size());
  append(tail.bytes, split);
  const std::array<std::uint64_t, 7> footer{toc_offset,   toc.size(),   toc_.content_bytes(),  kManifestType,
                                            split_offset, split.size(), split_.content_bytes()};
  append_skippable_header(tail.bytes, sizeof footer + codec::kZstdChunkedMagic.size());
  for (const auto value : footer) append_le(tail.bytes, value);
  append(tail.bytes, as_bytes(codec::kZstdChunkedMagic));

  const auto key = [](std::string_view name) { return std::string(kAnnotationPrefix) + std::string(name); };
  tail.annotations[key("manifest-checksum")] = digest_of(toc).to_string();
  tail.annotations[key("manifest-position")] =
      fmt::format("{}:{}:{}:{}", toc_offset, toc.size(), toc_.content_bytes(), kManifestType);
  tail.annotations[key("tarsplit-position")] =
      fmt::format("{}:{}:{}", split_offset, split.size(), split_.content_bytes());
  return tail;
}

}  // namespace varve::indexer
