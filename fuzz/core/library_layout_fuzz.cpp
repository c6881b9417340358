// What a loader reads of a library: never a crash, every range inside the file, and within the bounds that the daemon
// relies on. The first two bytes say how much larger than its head the file is.
#include <cstdint>
#include <cstdlib>

#include "core/index/elf/elf_facts.h"
#include "core/index/elf/library_layout.h"
#include "core/index/elf/library_start.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  if (size < 2) return 0;
  const auto content = std::as_bytes(std::span(data + 2, size - 2));
  const std::uint64_t file_bytes = content.size() + std::uint64_t(data[0]) * data[1] * 1024;
  const auto head = content.first(std::min(content.size(), index::LibraryLayout::kHeadBytes));
  const auto layout = index::LibraryLayout::of(head, file_bytes);
  if (!layout) return 0;
  const auto inside = [&](ByteRange range) {
    if (!range.fits_in(file_bytes)) std::abort();
    return range.fits_in(content.size()) ? content.subspan(range.offset, range.length) : ByteView();
  };
  const auto dynamic = inside(layout->dynamic_section());
  if (layout->dynamic_section().length > index::LibraryLayout::kMaxDynamicBytes) std::abort();
  const auto names = layout->names(dynamic);
  if (names.size() > index::kMaxNeededLibraries + 2) std::abort();
  for (const auto& name : names) {
    if (name.in_file.length > index::LibraryLayout::kMaxNameBytes) std::abort();
    const auto text = index::LibraryLayout::text_of(inside(name.in_file));
    if (text && (text->empty() || text->size() >= index::LibraryLayout::kMaxNameBytes)) std::abort();
  }
  std::uint64_t bytes = 0, end = 0;
  for (const auto& range : layout->read_at_load(dynamic)) {
    inside(range);
    if (range.length == 0 || range.offset < end) std::abort();
    end = range.end();
    bytes += range.length;
  }
  if (bytes > index::LibraryLayout::kMaxReadAtLoad) std::abort();

  index::LibraryStart start(*layout, dynamic);
  start.add_relocations(inside(start.relocations()));
  for (const auto& range : start.take_relocated()) inside(range);
  const auto lists = start.maybe_lists();
  if (lists.size() > index::LibraryStart::kMaxLists) std::abort();
  for (const auto& range : lists) start.add_list(range, inside(range));
  std::uint64_t code = 0;
  for (const auto& range : start.init_code()) {
    code += range.length;
    start.add_code(range, inside(range));
  }
  if (code > 2 * index::LibraryStart::kMaxInitCode) std::abort();
  for (const auto& range : start.used()) inside(range);
  if (start.used().size() > index::LibraryStart::kMaxUsedBlocks) std::abort();
  const auto at_exit = start.used_at_exit();
  for (const auto& range : at_exit) inside(range);
  if (at_exit.size() > index::LibraryStart::kMaxUsedBlocks) std::abort();
  return 0;
}
