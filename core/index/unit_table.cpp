#include "core/index/unit_table.h"

#include <algorithm>
#include <ranges>
#include <unordered_map>

#include "core/base/errors.h"
#include "core/codec/tar_block.h"
#include "core/index/format/internal/byte_codec.h"
#include "core/index/format/layer_map.h"
#include "core/index/merge/bytecode.h"

namespace varve::index {
namespace {

constexpr std::string_view kTableMagic = "VRVUNT1\n";
constexpr std::size_t kHeaderBytes = 8 + 2 * Digest::kBytes + 4 * 8;
constexpr std::size_t kRowBytes = 16 + Digest::kBytes;  // offset, length, kind, digest
constexpr std::size_t kPrefixBytes = 12;                // first bytes of a digest, content
constexpr std::size_t kBytecodeBytes = 24;              // path, content, seconds and bytes of the source, flags
constexpr std::uint64_t kMaxRowLength = 1 << 30;        // longer contents that are no unit are several
constexpr std::uint32_t kHasSource = 1;
constexpr std::uint64_t kMaxContents = 1ull << 30;

std::uint64_t first_bytes(const Digest& digest) { return load_le<std::uint64_t>(digest.raw().data()); }

struct Row {
  ByteRange range;
  bool unit = false;
  Digest digest = {};
  const LayerEntry* bytecode = nullptr;
};

void add_rows(const LayerEntry& entry, std::vector<Row>& rows) {
  const bool whole = entry.runs.size() == 1 && entry.runs[0].file_offset == 0 && entry.runs[0].length == entry.size;
  const auto start = entry.runs.empty() ? 0 : entry.runs[0].stream_offset;
  if (whole && entry.size <= kMaxUnitBytes) {
    const bool bytecode = entry.size >= kBytecodeHeadBytes && !source_of_bytecode(entry.path).empty();
    rows.push_back({.range = {.offset = start, .length = entry.size},
                    .unit = true,
                    .digest = entry.content_digest,
                    .bytecode = bytecode ? &entry : nullptr});
  } else if (whole && !entry.chunk_digests.empty()) {
    for (std::uint64_t at = 0, chunk = 0; at < entry.size; at += kMaxUnitBytes, ++chunk)
      rows.push_back({.range = {.offset = start + at, .length = std::min(kMaxUnitBytes, entry.size - at)},
                      .unit = true,
                      .digest = entry.chunk_digests[chunk]});
  } else {
    for (const auto& run : entry.runs)
      for (std::uint64_t at = 0; at < run.length; at += kMaxRowLength)
        rows.push_back(
            {.range = {.offset = run.stream_offset + at, .length = std::min(kMaxRowLength, run.length - at)}});
  }
}

std::uint64_t end_of(const Row& row) { return row.unit ? codec::next_tar_block(row.range.end()) : row.range.end(); }

void check_rows(const std::vector<Row>& rows, std::uint64_t stream_bytes, const Digest& entries) {
  std::uint64_t at = 0;
  for (const auto& row : rows) {
    if (row.range.offset < at || !row.range.fits_in(stream_bytes) ||
        (row.unit && row.range.offset % codec::kTarBlock != 0))
      fail<CorruptData>("layer entries {}: the content at stream offset {} is out of place", entries.to_string(),
                        row.range.offset);
    at = end_of(row);
  }
}

}  // namespace

Bytes UnitTable::make(const LayerEntries& layer, const Digest& entries_digest, std::uint64_t stream_bytes) {
  std::vector<Row> rows;
  std::unordered_map<std::string_view, const LayerEntry*> sources;
  for (const auto& entry : layer.entries) {
    if (entry.type != FileType::kRegular) continue;
    if (entry.path.ends_with(".py")) sources[entry.path] = &entry;  // of a path that is there twice the last counts
    if (entry.size > 0) add_rows(entry, rows);
  }
  std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.range.offset; });
  check_rows(rows, stream_bytes, entries_digest);
  if (rows.size() > kMaxContents) fail<Unsupported>("layer entries {}: too many", entries_digest.to_string());

  struct Bytecode {
    std::uint64_t path = 0;
    std::uint32_t content = 0;
    const LayerEntry* source = nullptr;
  };
  std::vector<Bytecode> bytecode;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> prefixes;
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    if (rows[i].unit) prefixes.emplace_back(first_bytes(rows[i].digest), i);
    if (rows[i].bytecode == nullptr) continue;
    const auto& path = rows[i].bytecode->path;
    const auto source = sources.find(source_of_bytecode(path));
    bytecode.push_back({.path = first_bytes(digest_of(path)),
                        .content = i,
                        .source = source == sources.end() ? nullptr : source->second});
  }
  std::ranges::sort(prefixes);
  std::ranges::sort(bytecode, {}, [](const Bytecode& one) { return std::pair(one.path, one.content); });
  std::vector<std::uint32_t> kinds(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) kinds[i] = rows[i].unit ? kUnit : kNoUnit;
  for (std::size_t i = 0; i < bytecode.size(); ++i) kinds[bytecode[i].content] = std::uint32_t(kFirstBytecode + i);

  Bytes out;
  out.reserve(kHeaderBytes + rows.size() * kRowBytes + prefixes.size() * kPrefixBytes +
              bytecode.size() * kBytecodeBytes + Digest::kBytes);
  append(out, as_bytes(kTableMagic));
  append_digest(out, layer.layer_digest);
  append_digest(out, entries_digest);
  for (const auto number :
       {stream_bytes, std::uint64_t(rows.size()), std::uint64_t(prefixes.size()), std::uint64_t(bytecode.size())})
    append_le(out, number);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    append_le(out, rows[i].range.offset);
    append_le(out, std::uint32_t(rows[i].range.length));
    append_le(out, kinds[i]);
    append_digest(out, rows[i].digest);
  }
  for (const auto& [prefix, content] : prefixes) {
    append_le(out, prefix);
    append_le(out, content);
  }
  for (const auto& one : bytecode) {
    append_le(out, one.path);
    append_le(out, one.content);
    append_le(out, one.source == nullptr ? 0 : std::uint32_t(one.source->mtime_seconds));
    append_le(out, one.source == nullptr ? 0 : std::uint32_t(one.source->size));
    append_le(out, one.source == nullptr ? 0 : kHasSource);
  }
  append_digest(out, digest_of(out));
  return out;
}

UnitTable UnitTable::decode(ByteView bytes, std::string_view what) {
  ByteReader reader(bytes, what);
  reader.magic(kTableMagic);
  UnitTable table;
  table.bytes_ = bytes;
  table.layer_ = reader.digest();
  table.entries_ = reader.digest();
  table.stream_bytes_ = reader.integer<std::uint64_t>();
  const auto contents = reader.integer<std::uint64_t>();
  const auto units = reader.integer<std::uint64_t>();
  const auto bytecode = reader.integer<std::uint64_t>();
  if (contents > kMaxContents || units > contents || bytecode > units || table.stream_bytes_ > kMaxStreamBytes)
    reader.corrupt("numbers that are too large");
  table.contents_ = contents;
  table.units_ = units;
  table.bytecode_ = bytecode;
  reader.take(contents * kRowBytes + units * kPrefixBytes + bytecode * kBytecodeBytes);
  const auto body = bytes.first(reader.offset());
  if (reader.digest() != digest_of(body)) reader.corrupt("its digest does not match");
  reader.end();
  table.check(what);
  return table;
}

void UnitTable::check(std::string_view what) const {
  const auto refuse = [&](std::string_view reason, std::size_t number) {
    fail<CorruptData>("{}: {} {}", what, reason, number);
  };
  std::uint64_t at = 0;
  std::size_t units = 0;
  std::size_t bytecode = 0;
  for (std::size_t i = 0; i < contents_; ++i) {
    const Row one{.range = range(i), .unit = is_unit(i)};
    if (one.range.offset < at || one.range.length == 0 || !one.range.fits_in(stream_bytes_) ||
        one.range.length > (one.unit ? kMaxUnitBytes : kMaxRowLength) ||
        (one.unit && one.range.offset % codec::kTarBlock != 0))
      refuse("out of place: content", i);
    at = end_of(one);
    units += one.unit;
    if (kind(i) < kFirstBytecode) continue;
    ++bytecode;
    const auto number = kind(i) - kFirstBytecode;
    if (number >= bytecode_ || load_le<std::uint32_t>(bytecode_row(number) + 8) != i ||
        one.range.length < kBytecodeHeadBytes)
      refuse("wrong bytecode of content", i);
  }
  if (units != units_ || bytecode != bytecode_) refuse("wrong numbers of units for contents:", contents_);
  const auto* prefixes = row(contents_);
  for (std::size_t i = 0; i < units_; ++i) {
    const auto* one = prefixes + i * kPrefixBytes;
    const auto content = load_le<std::uint32_t>(one + 8);
    if (content >= contents_ || !is_unit(content) || first_bytes(digest(content)) != load_le<std::uint64_t>(one) ||
        (i > 0 && load_le<std::uint64_t>(one - kPrefixBytes) > load_le<std::uint64_t>(one)))
      refuse("wrong order of digests at", i);
  }
  for (std::size_t i = 1; i < bytecode_; ++i)
    if (load_le<std::uint64_t>(bytecode_row(i - 1)) > load_le<std::uint64_t>(bytecode_row(i)))
      refuse("wrong order of bytecode at", i);
}

std::shared_ptr<const UnitTable> UnitTable::open(const std::filesystem::path& file) {
  if (std::error_code absent; !std::filesystem::exists(file, absent)) return nullptr;
  auto mapping = MappedFile::open(file);
  auto table = decode(mapping.bytes(), file.string());
  table.mapping_ = std::move(mapping);
  return std::make_shared<const UnitTable>(std::move(table));
}

Digest UnitTable::cut() const {
  Sha256 hash;
  Bytes size;
  append_le(size, stream_bytes_);
  hash.update(size);
  hash.update(ByteView(row(0), contents_ * kRowBytes));
  return hash.finish();
}

const std::byte* UnitTable::row(std::size_t content) const {
  return bytes_.data() + kHeaderBytes + content * kRowBytes;
}
std::uint32_t UnitTable::kind(std::size_t content) const { return load_le<std::uint32_t>(row(content) + 12); }
const std::byte* UnitTable::bytecode_row(std::size_t number) const {
  return row(contents_) + units_ * kPrefixBytes + number * kBytecodeBytes;
}

ByteRange UnitTable::range(std::size_t content) const {
  return {.offset = load_le<std::uint64_t>(row(content)), .length = load_le<std::uint32_t>(row(content) + 8)};
}

ByteRange UnitTable::padded_range(std::size_t content) const {
  const auto exact = range(content);
  return {.offset = exact.offset, .length = std::min(codec::next_tar_block(exact.end()), stream_bytes_) - exact.offset};
}

Digest UnitTable::digest(std::size_t content) const {
  return Digest::from_raw(ByteView(row(content) + 16, Digest::kBytes));
}

std::optional<UnitBytecode> UnitTable::bytecode(std::size_t content) const {
  const auto number = kind(content);
  if (number < kFirstBytecode) return std::nullopt;
  const auto* one = bytecode_row(number - kFirstBytecode);
  return UnitBytecode{.path = load_le<std::uint64_t>(one),
                      .has_source = (load_le<std::uint32_t>(one + 20) & kHasSource) != 0,
                      .source_seconds = load_le<std::uint32_t>(one + 12),
                      .source_bytes = load_le<std::uint32_t>(one + 16)};
}

std::pair<std::size_t, std::size_t> UnitTable::contents_of(ByteRange stream_range) const {
  const auto numbers = std::views::iota(std::size_t(0), contents_);
  const auto first = std::ranges::partition_point(
      numbers, [&](std::size_t content) { return padded_range(content).end() <= stream_range.offset; });
  const auto last = std::ranges::partition_point(
      first, numbers.end(), [&](std::size_t content) { return range(content).offset < stream_range.end(); });
  const auto begin = std::size_t(first - numbers.begin());
  return {begin, stream_range.length == 0 ? begin : std::size_t(last - numbers.begin())};
}

std::optional<std::size_t> UnitTable::find(const Digest& wanted) const {
  const auto* prefixes = row(contents_);
  const auto prefix = first_bytes(wanted);
  const auto numbers = std::views::iota(std::size_t(0), units_);
  for (auto at = *std::ranges::partition_point(
           numbers, [&](std::size_t i) { return load_le<std::uint64_t>(prefixes + i * kPrefixBytes) < prefix; });
       at < units_ && load_le<std::uint64_t>(prefixes + at * kPrefixBytes) == prefix; ++at) {
    const std::size_t content = load_le<std::uint32_t>(prefixes + at * kPrefixBytes + 8);
    if (digest(content) == wanted) return content;
  }
  return std::nullopt;
}

std::vector<std::size_t> UnitTable::find_bytecode(std::uint64_t path, std::uint64_t bytes) const {
  std::vector<std::size_t> found;
  const auto numbers = std::views::iota(std::size_t(0), bytecode_);
  for (auto at = *std::ranges::partition_point(
           numbers, [&](std::size_t i) { return load_le<std::uint64_t>(bytecode_row(i)) < path; });
       at < bytecode_ && load_le<std::uint64_t>(bytecode_row(at)) == path; ++at) {
    const std::size_t content = load_le<std::uint32_t>(bytecode_row(at) + 8);
    if (range(content).length == bytes) found.push_back(content);
  }
  return found;
}

}  // namespace varve::index
