#include "core/index/format/layer_entries.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/base/errors.h"
#include "core/codec/span_decoder.h"
#include "core/codec/tar_block.h"
#include "core/index/format/internal/byte_codec.h"

namespace varve::index {
namespace {

constexpr std::string_view kEntriesMagic = "VRVENT1\n";
constexpr std::string_view kEntriesMagicWithElf = "VRVENT2\n";
constexpr int kZstdLevel = 9;
constexpr std::uint64_t kMinEntryBytes =
    9;  // of the columns: what bounds the number of entries by the bytes that are there
constexpr std::size_t kMaxName = 255;
constexpr std::size_t kMaxPath = 4096;
constexpr std::size_t kMaxSymlink = 4095;
constexpr std::size_t kMaxXattrValue = 65'536;
constexpr std::uint64_t kMaxStreamOffset = std::uint64_t(1) << 44;  // as kMaxStreamBytes of a layer map
constexpr std::uint64_t kMax32 = 0xFFFFFFFF;
constexpr std::uint64_t kMaxFactsTextBytes = kMaxElfTextBytes + 1024;  // with the reason why they are not whole
constexpr std::uint64_t kElf64 = 1, kElfDeviceCode = 2, kAllElfFlags = 3;

bool has_content(const LayerEntry& entry) { return entry.type == FileType::kRegular && entry.size != 0; }
bool has_target(const LayerEntry& entry) {
  return entry.type == FileType::kSymlink || entry.type == FileType::kHardLink;
}
bool is_device(const LayerEntry& entry) {
  return entry.type == FileType::kCharDevice || entry.type == FileType::kBlockDevice;
}
bool may_have_chunks(const LayerEntry& entry) { return has_content(entry) && entry.size > kChunkBytes; }
std::uint64_t chunk_count(const LayerEntry& entry) { return (entry.size - 1) / kChunkBytes + 1; }
// Nearly every file: all of it in one place.
bool is_whole(const LayerEntry& entry) {
  return entry.runs.size() == 1 && entry.runs[0].file_offset == 0 && entry.runs[0].length == entry.size;
}

// What is wrong with a path, or "" if it is normalised.
std::string_view path_fault(std::string_view path) {
  if (path.size() > kMaxPath) return "longer than 4096 bytes";
  if (path.find('\0') != std::string_view::npos) return "holds a NUL";
  while (!path.empty()) {
    const auto end = path.find('/');
    const auto name = path.substr(0, end);
    if (name.empty() || name == ".") return "not normalised";
    if (name == "..") return "leaves the root";
    if (name.size() > kMaxName) return "has a name longer than 255 bytes";
    if (end == std::string_view::npos) break;
    path.remove_prefix(end + 1);
    if (path.empty()) return "not normalised";
  }
  return "";
}

std::string_view content_fault(const LayerEntry& entry) {
  if (!has_content(entry)) {
    if (entry.size != 0) return "a size without content";
    if (!entry.runs.empty() || !entry.chunk_digests.empty() || entry.content_digest != Digest() || entry.elf)
      return "content where there is none";
    return "";
  }
  if (entry.size > std::uint64_t(INT64_MAX)) return "a size that no file can have";
  std::uint64_t previous_end = 0;
  for (const auto& run : entry.runs) {
    if (run.length == 0 || run.file_offset < previous_end ||
        !ByteRange{run.file_offset, run.length}.fits_in(entry.size) ||
        !ByteRange{run.stream_offset, run.length}.fits_in(kMaxStreamOffset))
      return "runs that overlap or lie outside";
    previous_end = run.file_offset + run.length;
  }
  if (entry.elf && (entry.elf->needed.size() > kMaxNeededLibraries || text_bytes(*entry.elf) > kMaxFactsTextBytes))
    return "ELF facts that are too long";
  if (!entry.chunk_digests.empty() &&
      (!may_have_chunks(entry) || !is_whole(entry) || entry.chunk_digests.size() != chunk_count(entry)))
    return "wrong number of chunk digests";
  return "";
}

std::string_view fault(const LayerEntry& entry) {
  if (const auto reason = path_fault(entry.path); !reason.empty()) return reason;
  if (entry.mode > 07777 || entry.mtime_nanoseconds >= 1'000'000'000) return "mode or time out of range";
  if (!is_device(entry) && (entry.device_major != 0 || entry.device_minor != 0))
    return "a device number without device";
  if (entry.type == FileType::kSymlink) {
    if (entry.link_target.empty() || entry.link_target.size() > kMaxSymlink ||
        entry.link_target.find('\0') != std::string::npos)
      return "a symlink target that no symlink can have";
  } else if (entry.type == FileType::kHardLink) {
    if (entry.link_target.empty()) return "a hard link to the root";
    if (const auto reason = path_fault(entry.link_target); !reason.empty())
      return "a hard link whose target is no path in the root";
  } else if (!entry.link_target.empty()) {
    return "a target without link";
  }
  for (const auto& [name, value] : entry.xattrs) {
    if (name.empty() || name.size() > kMaxName || name.find('\0') != std::string::npos || value.size() > kMaxXattrValue)
      return "an extended attribute that no file can have";
  }
  return content_fault(entry);
}

void append_text(Bytes& out, std::string_view text) {
  append_varint(out, text.size());
  append(out, as_bytes(text));
}

std::size_t shared_prefix(std::string_view a, std::string_view b) {
  return std::size_t(std::ranges::mismatch(a, b).in1 - a.begin());
}

void encode_paths(const std::vector<LayerEntry>& entries, Bytes& out) {
  std::string_view previous;
  Bytes suffixes;
  for (const auto& entry : entries) {
    const auto shared = shared_prefix(previous, entry.path);
    append_varint(out, shared);
    append_varint(out, entry.path.size() - shared);
    append(suffixes, as_bytes(std::string_view(entry.path).substr(shared)));
    previous = entry.path;
  }
  append(out, suffixes);
}

void encode_attributes(const std::vector<LayerEntry>& entries, Bytes& out) {
  for (const auto& entry : entries) append_varint(out, entry.mode);
  for (const auto& entry : entries) append_varint(out, entry.uid);
  for (const auto& entry : entries) append_varint(out, entry.gid);
  std::uint64_t previous = 0;
  for (const auto& entry : entries) {
    append_varint(out, zigzag(std::int64_t(std::uint64_t(entry.mtime_seconds) - previous)));
    previous = std::uint64_t(entry.mtime_seconds);
  }
  for (const auto& entry : entries) append_varint(out, entry.mtime_nanoseconds);
  for (const auto& entry : entries) {
    if (!is_device(entry)) continue;
    append_varint(out, entry.device_major);
    append_varint(out, entry.device_minor);
  }
  for (const auto& entry : entries) {
    if (has_target(entry)) append_text(out, entry.link_target);
  }
  for (const auto& entry : entries) {
    append_varint(out, entry.xattrs.size());
    for (const auto& [name, value] : entry.xattrs) {
      append_text(out, name);
      append_text(out, value);
    }
  }
}

void encode_content(const std::vector<LayerEntry>& entries, Bytes& out) {
  for (const auto& entry : entries) {
    if (entry.type == FileType::kRegular) append_varint(out, entry.size);
  }
  // Where the content before ended, rounded up to a tar block: the next one is a few headers further on.
  std::uint64_t expected = 0;
  for (const auto& entry : entries) {
    if (!has_content(entry)) continue;
    const bool whole = is_whole(entry);
    append_varint(out, whole ? 0 : entry.runs.size() + 1);
    std::uint64_t file_end = 0;
    for (const auto& run : entry.runs) {
      append_varint(out, zigzag(std::int64_t(run.stream_offset - expected)));
      if (!whole) {
        append_varint(out, run.file_offset - file_end);
        append_varint(out, run.length);
      }
      file_end = run.file_offset + run.length;
      expected = codec::next_tar_block(run.stream_offset + run.length);
    }
  }
  for (const auto& entry : entries) {
    if (may_have_chunks(entry)) out.push_back(std::byte(entry.chunk_digests.empty() ? 0 : 1));
  }
}

// Every string once, numbered from 1 in the order in which they are first met; 0 is none.
class ElfTexts {
 public:
  void add(std::string_view text) {
    if (!text.empty() && numbers_.try_emplace(text, numbers_.size() + 1).second) order_.push_back(text);
  }
  std::uint64_t number(std::string_view text) const { return text.empty() ? 0 : numbers_.at(text); }
  const std::vector<std::string_view>& order() const { return order_; }

 private:
  std::unordered_map<std::string_view, std::uint64_t> numbers_;
  std::vector<std::string_view> order_;
};

// In the order of the format.
template <typename Facts, typename Use>
void each_text(Facts& facts, const Use& use) {
  for (auto* text : {&facts.interpreter, &facts.soname, &facts.rpath, &facts.runpath, &facts.broken}) use(*text);
  for (auto& name : facts.needed) use(name);
}

void encode_elf(const LayerEntries& layer, Bytes& out) {
  ElfTexts texts;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  for (const auto& entry : layer.entries) {
    if (!entry.elf) continue;
    ++files;
    bytes += text_bytes(*entry.elf);
    each_text(*entry.elf, [&](const std::string& text) { texts.add(text); });
  }
  if (bytes > kMaxLayerElfTextBytes)
    fail<Unsupported>("layer {}: more than {} bytes of names in ELF files", layer.layer_digest.to_string(),
                      kMaxLayerElfTextBytes);
  append_varint(out, texts.order().size());
  for (const auto text : texts.order()) append_text(out, text);
  append_varint(out, files);
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < layer.entries.size(); ++i) {
    const auto* facts = layer.entries[i].elf.get();
    if (facts == nullptr) continue;
    append_varint(out, i - expected);
    expected = i + 1;
    append_varint(out, (facts->is_64 ? kElf64 : 0) | (facts->device_code ? kElfDeviceCode : 0));
    append_varint(out, facts->type);
    append_varint(out, facts->machine);
    append_varint(out, facts->needed.size());
    each_text(*facts, [&](const std::string& text) { append_varint(out, texts.number(text)); });
  }
}

std::string take_text(ByteReader& reader, std::uint64_t limit) {
  const auto length = reader.varint_up_to(limit, "a text that is too long");
  return std::string(as_text(reader.take(length)));
}

void decode_paths(ByteReader& reader, std::vector<LayerEntry>& entries) {
  struct Lengths {
    std::uint16_t shared = 0;
    std::uint16_t suffix = 0;
  };
  std::vector<Lengths> lengths(entries.size());
  std::uint64_t previous_length = 0;
  for (auto& [shared, suffix] : lengths) {
    shared = std::uint16_t(reader.varint_up_to(previous_length, "a path that shares more than there is"));
    suffix = std::uint16_t(reader.varint_up_to(kMaxPath - shared, "a path longer than 4096 bytes"));
    previous_length = shared + suffix;
  }
  std::string path;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    path.resize(lengths[i].shared);
    path.append(as_text(reader.take(lengths[i].suffix)));
    entries[i].path = path;
  }
}

void decode_attributes(ByteReader& reader, std::vector<LayerEntry>& entries) {
  constexpr std::string_view kTooLarge = "a number that is too large";
  for (auto& entry : entries) entry.mode = std::uint32_t(reader.varint_up_to(07777, kTooLarge));
  for (auto& entry : entries) entry.uid = std::uint32_t(reader.varint_up_to(kMax32, kTooLarge));
  for (auto& entry : entries) entry.gid = std::uint32_t(reader.varint_up_to(kMax32, kTooLarge));
  std::uint64_t seconds = 0;
  for (auto& entry : entries) {
    seconds += std::uint64_t(unzigzag(reader.varint()));
    entry.mtime_seconds = std::int64_t(seconds);
  }
  for (auto& entry : entries) entry.mtime_nanoseconds = std::uint32_t(reader.varint_up_to(999'999'999, kTooLarge));
  for (auto& entry : entries) {
    if (!is_device(entry)) continue;
    entry.device_major = std::uint32_t(reader.varint_up_to(kMax32, kTooLarge));
    entry.device_minor = std::uint32_t(reader.varint_up_to(kMax32, kTooLarge));
  }
  for (auto& entry : entries) {
    if (has_target(entry)) entry.link_target = take_text(reader, kMaxPath);
  }
  for (auto& entry : entries) {
    const auto count = reader.varint_up_to(reader.left(), "too many extended attributes");
    for (std::uint64_t i = 0; i < count; ++i) {
      auto name = take_text(reader, kMaxName);
      if (!entry.xattrs.empty() && name <= entry.xattrs.rbegin()->first)
        reader.corrupt("extended attributes out of order");
      entry.xattrs.emplace_hint(entry.xattrs.end(), std::move(name), take_text(reader, kMaxXattrValue));
    }
  }
}

void decode_content(ByteReader& reader, std::vector<LayerEntry>& entries) {
  for (auto& entry : entries) {
    if (entry.type == FileType::kRegular) entry.size = reader.varint();
  }
  std::uint64_t expected = 0;
  for (auto& entry : entries) {
    if (!has_content(entry)) continue;
    const auto code = reader.varint_up_to(reader.left(), "too many runs");  // each takes a byte at least
    const auto runs = code == 0 ? 1 : code - 1;
    std::uint64_t file_end = 0;
    for (std::uint64_t i = 0; i < runs; ++i) {
      ContentRun run{
          .file_offset = 0, .stream_offset = expected + std::uint64_t(unzigzag(reader.varint())), .length = entry.size};
      if (code != 0) {
        run.file_offset = file_end + reader.varint_up_to(entry.size - file_end, "a run outside its file");
        run.length = reader.varint_up_to(entry.size - run.file_offset, "a run outside its file");
      }
      if (!ByteRange{run.stream_offset, run.length}.fits_in(kMaxStreamOffset))
        reader.corrupt("a run outside its layer");
      file_end = run.file_offset + run.length;
      expected = codec::next_tar_block(run.stream_offset + run.length);
      entry.runs.push_back(run);
    }
    if (code != 0 && is_whole(entry)) reader.corrupt("a whole file that is not written as one");
  }
}

void decode_elf(ByteReader& reader, std::vector<LayerEntry>& entries) {
  std::vector<std::string> texts(1);
  const auto text_count = reader.varint_up_to(reader.left(), "more names than bytes for them");
  texts.reserve(text_count + 1);
  for (std::uint64_t i = 0; i < text_count; ++i) {
    texts.push_back(take_text(reader, kMaxFactsTextBytes));
    if (texts.back().empty()) reader.corrupt("an empty name");
  }
  const auto files = reader.varint_up_to(entries.size(), "more ELF files than entries");
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < files; ++i) {
    if (at == entries.size()) reader.corrupt("more ELF files than entries");
    at += reader.varint_up_to(entries.size() - 1 - at, "an ELF file behind the last entry");
    auto facts = std::make_shared<ElfFacts>();
    const auto flags = reader.varint_up_to(kAllElfFlags, "unknown flags");
    facts->is_64 = (flags & kElf64) != 0;
    facts->device_code = (flags & kElfDeviceCode) != 0;
    facts->type = std::uint16_t(reader.varint_up_to(0xFFFF, "a number that is too large"));
    facts->machine = std::uint16_t(reader.varint_up_to(0xFFFF, "a number that is too large"));
    facts->needed.resize(reader.varint_up_to(kMaxNeededLibraries, "too many needed libraries"));
    each_text(*facts, [&](std::string& text) {
      text = texts[reader.varint_up_to(text_count, "a name that is not there")];
      bytes += text.size();
      if (bytes > kMaxLayerElfTextBytes) reader.corrupt("more names in ELF files than a layer may hold");
    });
    entries[at++].elf = std::move(facts);
  }
}

// Which digests follow; their number is known before any is read.
std::uint64_t decode_digest_counts(ByteReader& reader, std::vector<LayerEntry>& entries, std::uint64_t limit) {
  std::uint64_t digests = 0;
  for (const auto& entry : entries) digests += has_content(entry);
  for (auto& entry : entries) {
    if (!may_have_chunks(entry)) continue;
    const auto flag = reader.integer<std::uint8_t>();
    if (flag > 1) reader.corrupt("unknown flags");
    if (flag == 0) continue;
    digests += chunk_count(entry);
    if (digests > limit) reader.corrupt("more digests than there are");
    entry.chunk_digests.resize(chunk_count(entry));
  }
  return digests;
}

bool is_known(std::uint8_t type) {
  return (type >= std::uint8_t(FileType::kRegular) && type <= std::uint8_t(FileType::kFifo)) ||
         type == std::uint8_t(FileType::kSymlink) || type == std::uint8_t(FileType::kHardLink);
}

}  // namespace

bool LayerEntry::operator==(const LayerEntry& other) const {
  const auto members = [](const LayerEntry& entry) {
    return std::tie(entry.attributes(), entry.path, entry.link_target, entry.size, entry.runs, entry.content_digest,
                    entry.chunk_digests);
  };
  return members(*this) == members(other) && (elf == other.elf || (elf && other.elf && *elf == *other.elf));
}

bool LayerEntries::has_elf_facts_in(ByteView bytes) { return as_text(bytes).starts_with(kEntriesMagicWithElf); }

Bytes LayerEntries::encode() const {
  if (entries.size() > kMaxLayerEntries)
    fail<Unsupported>("layer {}: more than {} entries", layer_digest.to_string(), kMaxLayerEntries);
  for (const auto& entry : entries) {
    if (const auto reason = fault(entry); !reason.empty())
      fail<CorruptData>("layer {}: entry {:.200}: {}", layer_digest.to_string(), entry.path, reason);
  }
  Bytes columns;
  for (const auto& entry : entries) columns.push_back(std::byte(entry.type));
  encode_paths(entries, columns);
  encode_attributes(entries, columns);
  encode_content(entries, columns);
  if (has_elf_facts) encode_elf(*this, columns);
  if (columns.size() > kMaxLayerEntriesBytes)
    fail<Unsupported>("layer {}: entries of more than {} bytes", layer_digest.to_string(), kMaxLayerEntriesBytes);
  const auto compressed = codec::compress_zstd(columns, kZstdLevel);
  std::uint64_t digests = 0;
  for (const auto& entry : entries) digests += has_content(entry) + entry.chunk_digests.size();

  Bytes out;
  out.reserve(kEntriesMagic.size() + Digest::kBytes * (1 + digests) + 4 * 8 + compressed.size());
  append(out, as_bytes(has_elf_facts ? kEntriesMagicWithElf : kEntriesMagic));
  append_digest(out, layer_digest);
  append_le(out, std::uint64_t(entries.size()));
  append_le(out, std::uint64_t(columns.size()));
  append_le(out, std::uint64_t(compressed.size()));
  append_le(out, digests);
  append(out, compressed);
  for (const auto& entry : entries) {
    if (has_content(entry)) append_digest(out, entry.content_digest);
  }
  for (const auto& entry : entries) {
    for (const auto& digest : entry.chunk_digests) append_digest(out, digest);
  }
  return out;
}

LayerEntries LayerEntries::decode(ByteView bytes, std::string_view what) {
  ByteReader reader(bytes, what);
  LayerEntries result;
  result.has_elf_facts = has_elf_facts_in(bytes);
  reader.magic(result.has_elf_facts ? kEntriesMagicWithElf : kEntriesMagic);
  result.layer_digest = reader.digest();
  const auto entry_count = reader.integer<std::uint64_t>();
  const auto columns_bytes = reader.integer<std::uint64_t>();
  const auto compressed_bytes = reader.integer<std::uint64_t>();
  const auto digest_count = reader.integer<std::uint64_t>();
  if (entry_count > kMaxLayerEntries)
    fail<Unsupported>("{}: {} entries are more than {}", what, entry_count, kMaxLayerEntries);
  if (columns_bytes > kMaxLayerEntriesBytes)
    fail<Unsupported>("{}: {} bytes are more than {}", what, columns_bytes, kMaxLayerEntriesBytes);
  if (entry_count > columns_bytes / kMinEntryBytes) reader.corrupt("more entries than bytes for them");
  const auto compressed = reader.take(compressed_bytes);
  if (digest_count != reader.left() / Digest::kBytes || reader.left() % Digest::kBytes != 0)
    reader.corrupt("wrong number of digests");

  const auto columns = codec::decompress_zstd(compressed, columns_bytes, what);
  if (columns.size() != columns_bytes) reader.corrupt("entries of another length than declared");
  const std::string columns_what = std::string(what) + ", entries";
  ByteReader column(columns, columns_what);
  auto& entries = result.entries;
  entries.resize(entry_count);
  for (auto& entry : entries) {
    const auto type = column.integer<std::uint8_t>();
    if (!is_known(type)) column.corrupt("unknown file type");
    entry.type = FileType(type);
  }
  decode_paths(column, entries);
  decode_attributes(column, entries);
  decode_content(column, entries);
  if (decode_digest_counts(column, entries, digest_count) != digest_count) column.corrupt("wrong number of digests");
  if (result.has_elf_facts) decode_elf(column, entries);
  column.end();
  for (auto& entry : entries) {
    if (has_content(entry)) entry.content_digest = reader.digest();
  }
  for (auto& entry : entries) {
    for (auto& digest : entry.chunk_digests) digest = reader.digest();
  }
  reader.end();
  for (const auto& entry : entries) {
    if (const auto reason = fault(entry); !reason.empty())
      fail<CorruptData>("{}: entry {:.200}: {}", what, entry.path, reason);
  }
  return result;
}

std::string normalise_path(std::string_view raw, std::string_view what) {
  std::string path;
  path.reserve(std::min(raw.size(), kMaxPath));
  for (auto rest = raw; !rest.empty();) {
    const auto end = std::min(rest.find('/'), rest.size());
    const auto name = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (name.empty() || name == ".") continue;
    if (!path.empty()) path += '/';
    path += name;
  }
  if (const auto reason = path_fault(path); !reason.empty())
    fail<CorruptData>("{}: name {:.200}: {}", what, raw, reason);
  return path;
}

}  // namespace varve::index
