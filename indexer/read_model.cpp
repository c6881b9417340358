#include "indexer/read_model.h"

#include <elf.h>

#include <algorithm>
#include <array>

namespace varve::indexer {
namespace {

constexpr std::size_t kHeadBytes = 4096;           // of an ELF file: its program headers are there
constexpr std::uint64_t kSmallBytes = 256 * 1024;  // read whole or not at all
constexpr std::uint64_t kLargeHeadBytes = 64 * 1024;
constexpr std::uint64_t kLibraryHeadBytes =
    1024 * 1024;  // of the first segment; linkers put constants or code behind the symbols
constexpr std::uint64_t kCodeStartBytes = 256 * 1024;  // initialisers: compilers and linkers put them first
constexpr std::uint64_t kDataEdgeBytes =
    2 * 1024 * 1024;  // of a writable segment; device code lies in the middle of long ones
constexpr std::size_t kMaxSegments = 64;

ReadWeight thousandths(std::uint64_t weight) { return kOnce / 1000 * weight; }

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

bool contains_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

bool is_unlikely(std::string_view name) {
  return contains_any(name, {"/tests/", "/test/", "/include/", "/share/doc/", "/share/man/", "/share/info/",
                             "/var/cache/", "/var/lib/dpkg/info/", "/share/locale/", ".dist-info/", "/examples/"}) ||
         ends_with_any(name, {".h", ".hpp", ".cuh", ".a", ".pyi", ".pxd", ".md", ".rst", ".html", ".gz"});
}

}  // namespace

void ReadModel::begin(const codec::TarEntry& entry) {
  active_ = false;
  if (entry.type != FileType::kRegular || entry.size == 0 || entry.sparse) return;
  active_ = true;
  stream_begin_ = entry.data_stream_offset;
  size_ = entry.size;
  head_.clear();
  const std::string_view name = entry.name;
  if (is_unlikely(name)) {
    whole_ = thousandths(expect_.unlikely);
  } else if (name.ends_with(".pyc")) {
    whole_ = thousandths(expect_.bytecode);
  } else {
    whole_ = thousandths(expect_.script);
  }
}

void ReadModel::content(ByteView bytes) {
  if (!active_) return;
  append(head_, bytes.first(std::min(bytes.size(), kHeadBytes - head_.size())));
  if (head_.size() == kHeadBytes) classify();
}

void ReadModel::end() {
  if (active_) classify();
}

void ReadModel::classify() {
  active_ = false;
  if (expect_elf(head_)) return;
  if (size_ <= kSmallBytes) {
    planner_.expect_whole(stream_begin_, stream_begin_ + size_, whole_);
    return;
  }
  const auto head = std::min(whole_, thousandths(expect_.large_head));
  planner_.expect_whole(stream_begin_, stream_begin_ + kLargeHeadBytes, head);
  planner_.expect_scattered(stream_begin_ + kLargeHeadBytes, stream_begin_ + size_, thousandths(expect_.large_per_mib));
}

// Shared libraries and programs, 64 bit little-endian as all machines with such images have. Segments outside the file
// are ignored: the file is only data here, and wrong hints cost nothing but a less fitting span.
bool ReadModel::expect_elf(ByteView head) {
  if (head.size() < sizeof(Elf64_Ehdr)) return false;
  Elf64_Ehdr header;
  std::memcpy(&header, head.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || (header.e_type != ET_DYN && header.e_type != ET_EXEC) ||
      header.e_phentsize != sizeof(Elf64_Phdr))
    return false;
  bool any = false;
  for (std::size_t i = 0; i < std::min<std::size_t>(header.e_phnum, kMaxSegments); ++i) {
    const auto at = header.e_phoff + i * sizeof(Elf64_Phdr);
    if (!ByteRange{.offset = at, .length = sizeof(Elf64_Phdr)}.fits_in(head.size())) break;
    Elf64_Phdr segment;
    std::memcpy(&segment, head.data() + at, sizeof segment);
    if (segment.p_type != PT_LOAD || !ByteRange{.offset = segment.p_offset, .length = segment.p_filesz}.fits_in(size_))
      continue;
    const auto begin = stream_begin_ + segment.p_offset;
    const auto end = begin + segment.p_filesz;
    expect_segment(segment.p_flags, !any, begin, end);
    any = true;
  }
  return any;
}

void ReadModel::expect_segment(std::uint32_t flags, bool first, std::uint64_t begin, std::uint64_t end) {
  const bool code = (flags & PF_X) != 0;
  const auto per_mib = thousandths(code ? expect_.code_per_mib : expect_.constants_per_mib);
  if ((flags & PF_W) != 0) {
    const auto edge_end = std::min(end, begin + kDataEdgeBytes);
    const auto edge_begin = std::max(edge_end, end - std::min(end, kDataEdgeBytes));
    planner_.expect_whole(begin, edge_end, thousandths(expect_.library_data));
    planner_.expect_scattered(edge_end, edge_begin, thousandths(expect_.bulk_per_mib));
    planner_.expect_whole(edge_begin, end, thousandths(expect_.library_data));
    return;
  }
  if (first || code) {
    const auto start_end = std::min(end, begin + (first ? kLibraryHeadBytes : kCodeStartBytes));
    planner_.expect_whole(begin, start_end, thousandths(expect_.library_head));
    begin = start_end;
  }
  planner_.expect_in_library(begin, end, per_mib);
}

}  // namespace varve::indexer
