#include "core/index/elf/library_layout.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/index/elf/internal/elf_tables.h"

namespace varve::index {
namespace {

// Of a table that does not say how long it is and has none behind it.
constexpr std::uint64_t kUnknownTableBytes = 4096;

struct TableTags {
  std::uint64_t address;
  std::uint64_t bytes;    // DT_NULL: it does not say
  bool is_whole = false;  // a loader goes through it; in the others it looks names up
};
constexpr auto kTables = std::to_array<TableTags>({{DT_HASH, DT_NULL},
                                                   {DT_GNU_HASH, DT_NULL},
                                                   {DT_SYMTAB, DT_NULL},
                                                   {DT_STRTAB, DT_STRSZ},
                                                   {DT_VERSYM, DT_NULL},
                                                   {DT_VERNEED, DT_NULL},
                                                   {DT_VERDEF, DT_NULL},
                                                   {DT_RELA, DT_RELASZ, true},
                                                   {DT_REL, DT_RELSZ, true},
                                                   {DT_RELR, DT_RELRSZ, true},
                                                   {DT_JMPREL, DT_PLTRELSZ, true}});

// Takes from `left` what the ranges have, the rest of them goes.
void cut_to(std::vector<ByteRange>& ranges, std::uint64_t& left) {
  for (auto& range : ranges) {
    range.length = std::min(range.length, left);
    left -= range.length;
  }
  std::erase_if(ranges, [](const ByteRange& range) { return range.length == 0; });
}

}  // namespace

std::optional<LibraryLayout> LibraryLayout::of(ByteView head, std::uint64_t file_bytes) {
  if (head.size() < kOwnFormat.header_bytes() || !as_text(head).starts_with(ELFMAG) ||
      std::uint8_t(head[EI_CLASS]) != ELFCLASS64 || std::uint8_t(head[EI_DATA]) != ELFDATA2LSB)
    return std::nullopt;
  const auto header = header_of(kOwnFormat, head);
  if ((header.type != ET_EXEC && header.type != ET_DYN) || header.segment_bytes != kOwnFormat.segment_bytes())
    return std::nullopt;
  const ByteRange segments{header.segments_at, header.segment_count * kOwnFormat.segment_bytes()};
  if (!segments.fits_in(head.size())) return std::nullopt;
  LibraryLayout layout;
  layout.machine_ = header.machine;
  for (const auto& segment : segments_of(kOwnFormat, head.subspan(segments.offset, segments.length))) {
    if (!segment.in_file.fits_in(file_bytes)) continue;
    if (segment.type == PT_LOAD)
      layout.loads_.push_back({.in_file = segment.in_file,
                               .address = segment.address,
                               .is_writable = (segment.flags & PF_W) != 0,
                               .is_executable = (segment.flags & PF_X) != 0});
    if (segment.type == PT_DYNAMIC) layout.dynamic_ = segment.in_file;
    if (segment.type == PT_INTERP && segment.in_file.fits_in(head.size()))
      layout.interpreter_ =
          text_of(head.subspan(segment.in_file.offset, segment.in_file.length)).value_or(std::string());
  }
  if (layout.dynamic_.length > kMaxDynamicBytes) return std::nullopt;
  if (layout.dynamic_.length == 0 && layout.interpreter_.empty()) return std::nullopt;
  return layout;
}

const LibraryLayout::Load* LibraryLayout::load_at(std::uint64_t address) const {
  const auto load = std::ranges::find_if(loads_, [&](const Load& one) {
    return ByteRange{one.address, one.in_file.length}.contains(address);
  });
  return load == loads_.end() ? nullptr : &*load;
}

std::optional<ByteRange> LibraryLayout::content_at(std::uint64_t address) const {
  const auto* load = load_at(address);
  if (load == nullptr) return std::nullopt;
  const auto into = address - load->address;
  return ByteRange{load->in_file.offset + into, load->in_file.length - into};
}

bool LibraryLayout::has_much_data(ByteView dynamic) const {
  std::uint64_t bytes = 0;
  for (const auto& load : loads_)
    if (load.is_writable) bytes += std::min(load.in_file.length, kMuchData + 1);
  const auto relocations = dynamic_section_of(kOwnFormat, dynamic).value(DT_RELA);
  return bytes > kMuchData && relocations && content_at(*relocations);
}

std::vector<LibraryLayout::Name> LibraryLayout::names(ByteView dynamic) const {
  const auto section = dynamic_section_of(kOwnFormat, dynamic);
  std::vector<Name> names;
  for (const auto& [tag, offset] : section.texts) {
    if (tag == DT_SONAME) continue;
    if (const auto in_file = text_at(section, offset))
      names.push_back({.kind = tag == DT_NEEDED ? Kind::kNeeded : Kind::kSearchPath, .in_file = *in_file});
  }
  return names;
}

std::optional<ByteRange> LibraryLayout::soname(ByteView dynamic) const {
  const auto section = dynamic_section_of(kOwnFormat, dynamic);
  const auto text = std::ranges::find(section.texts, std::uint64_t(DT_SONAME), &DynamicText::tag);
  return text == section.texts.end() ? std::nullopt : text_at(section, text->offset);
}

std::optional<ByteRange> LibraryLayout::text_at(const DynamicSection& section, std::uint64_t offset) const {
  const auto address = section.value(DT_STRTAB);
  const auto strings = address ? content_at(*address) : std::nullopt;
  if (!strings || offset >= strings->length) return std::nullopt;
  return ByteRange{strings->offset + offset, std::min<std::uint64_t>(strings->length - offset, kMaxNameBytes)};
}

std::optional<std::string> LibraryLayout::text_of(ByteView bytes) {
  const auto text = as_text(bytes);
  const auto end = text.find('\0');
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  return std::string(text.substr(0, end));
}

// A table that does not say how long it is ends where the next one begins.
std::vector<ByteRange> LibraryLayout::read_at_load(ByteView dynamic) const {
  const auto section = dynamic_section_of(kOwnFormat, dynamic);
  struct Table {
    ByteRange to_end;  // of what is mapped
    std::optional<std::uint64_t> bytes;
    bool is_whole;
  };
  std::vector<Table> tables;
  for (const auto& tags : kTables) {
    const auto address = section.value(tags.address);
    if (const auto content = address ? content_at(*address) : std::nullopt)
      tables.push_back({*content, section.value(tags.bytes), tags.is_whole});
  }
  std::ranges::sort(tables, {}, [](const Table& table) { return table.to_end.offset; });
  std::vector<ByteRange> whole, looked_up;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const auto& [content, bytes, is_whole] = tables[i];
    const bool is_last = i + 1 == tables.size() || !content.contains(tables[i + 1].to_end.offset);
    const auto assumed = is_last ? kUnknownTableBytes : tables[i + 1].to_end.offset - content.offset;
    const ByteRange table{content.offset, std::min(content.length, bytes.value_or(assumed))};
    if (is_whole)
      whole.push_back(table);
    else if (table.length <= kMaxLookedUp)
      looked_up.push_back(table);
  }
  if (!has_much_data(dynamic))
    for (const auto& load : loads_)
      if (load.is_writable) whole.push_back(load.in_file);
  auto left = kMaxReadAtLoad;
  whole = joined_ranges(std::move(whole));
  cut_to(whole, left);
  looked_up = joined_ranges(std::move(looked_up));
  cut_to(looked_up, left);
  whole.insert(whole.end(), looked_up.begin(), looked_up.end());
  return joined_ranges(std::move(whole));
}

}  // namespace varve::index
