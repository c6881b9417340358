#include "core/index/elf/library_start.h"

#include <elf.h>

#include <algorithm>
#include <utility>

#include "core/index/elf/internal/elf_tables.h"

namespace varve::index {
namespace {

constexpr std::uint64_t kMaxFunctionBytes =
    4096;  // what lies further behind its start is another's, or not run at once
constexpr std::uint64_t kLastFunctionBytes = 1024;
constexpr std::size_t kLongestBytes = 7;  // of the instructions that are looked for

static_assert(LibraryStart::kEntryBytes == sizeof(Elf64_Rela));

bool is_relative(std::uint64_t info) {
  const auto type = ELF64_R_TYPE(info);
  return type == R_X86_64_RELATIVE || type == R_AARCH64_RELATIVE;
}

}  // namespace

LibraryStart::LibraryStart(const LibraryLayout& layout, ByteView dynamic) : layout_(layout) {
  const auto section = dynamic_section_of(kOwnFormat, dynamic);
  const auto entry_bytes = section.value(DT_RELAENT).value_or(kEntryBytes);
  const auto address = section.value(DT_RELA);
  if (const auto content = address ? layout.content_at(*address) : std::nullopt;
      content && entry_bytes == kEntryBytes) {
    const auto bytes = std::min(content->length, section.value(DT_RELASZ).value_or(0));
    relocations_ = {content->offset, bytes / kEntryBytes * kEntryBytes};
  }
  init_array_ = {section.value(DT_INIT_ARRAY).value_or(0), section.value(DT_INIT_ARRAYSZ).value_or(0)};
}

void LibraryStart::add_relocations(ByteView entries) {
  // Most are of the same part as the one before.
  ByteRange from, to;  // by address, in the file
  std::uint64_t last_block = UINT64_MAX;
  for (; entries.size() >= kEntryBytes; entries = entries.subspan(kEntryBytes)) {
    const auto address = load_le<std::uint64_t>(entries.data());
    if (!from.contains(address)) {
      const auto* load = layout_.load_at(address);
      if (load == nullptr || !load->is_writable) continue;
      from = {load->address, load->in_file.length};
      to = load->in_file;
    }
    const auto block = (to.offset + (address - from.offset)) / kBlock;
    if (std::exchange(last_block, block) != block && relocated_.size() < kMaxRelocated / kBlock)
      if (relocated_.insert(block).second) untaken_.push_back(block);
    if (!init_array_.contains(address) || !is_relative(load_le<std::uint64_t>(entries.data() + 8))) continue;
    const auto function = code_at(load_le<std::uint64_t>(entries.data() + 16));
    if (function && functions_.size() < kMaxFunctions) functions_.push_back(*function);
  }
}

std::vector<ByteRange> LibraryStart::take_relocated() {
  std::vector<ByteRange> ranges;
  for (const auto block : std::exchange(untaken_, {}))
    for (const auto& load : layout_.loads()) {
      const auto part = load.in_file.common_with({block * kBlock, kBlock});
      if (load.is_writable && part.length != 0) ranges.push_back(part);
    }
  return joined_ranges(std::move(ranges));
}

std::optional<std::uint64_t> LibraryStart::code_at(std::uint64_t address) const {
  const auto* load = layout_.load_at(address);
  if (load == nullptr || !load->is_executable) return std::nullopt;
  return load->in_file.offset + (address - load->address);
}

const LibraryLayout::Load* LibraryStart::load_of(std::uint64_t function) const {
  const auto load = std::ranges::find_if(layout_.loads(), [&](const LibraryLayout::Load& one) {
    return one.is_executable && one.in_file.contains(function);
  });
  return load == layout_.loads().end() ? nullptr : &*load;
}

std::vector<ByteRange> LibraryStart::init_code() const {
  auto starts = functions_;
  std::ranges::sort(starts);
  std::vector<ByteRange> ranges;
  std::uint64_t left = kMaxInitCode;
  for (std::size_t i = 0; i < starts.size() && left > 0; ++i) {
    const bool is_last = i + 1 == starts.size();
    auto length = is_last ? kLastFunctionBytes : std::min(starts[i + 1] - starts[i], kMaxFunctionBytes);
    if (const auto* load = load_of(starts[i])) length = std::min(length, load->in_file.end() - starts[i]);
    length = std::min(length, left);
    left -= length;
    if (!ranges.empty() && starts[i] < ranges.back().end() + kMaxFunctionBytes)
      ranges.back().length = std::max(ranges.back().end(), starts[i] + length) - ranges.back().offset;
    else
      ranges.push_back({starts[i], length});
  }
  return ranges;
}

void LibraryStart::add_code(ByteRange in_file, ByteView code) {
  if (layout_.machine() != EM_X86_64) return;
  auto starts = functions_;
  std::ranges::sort(starts);
  for (const auto start : functions_) {
    if (!in_file.contains(start) || start - in_file.offset >= code.size()) continue;
    const auto next = std::ranges::upper_bound(starts, start);
    const auto length = next == starts.end() ? kMaxFunctionBytes : std::min(*next - start, kMaxFunctionBytes);
    auto part = code.subspan(start - in_file.offset);
    part = part.first(std::min<std::size_t>(part.size(), length));
    const auto* load = load_of(start);
    if (load != nullptr) look_at(load->address + (start - load->in_file.offset), part);
  }
}

void LibraryStart::look_at(std::uint64_t address, ByteView function) {
  constexpr std::byte kCall{0xE8}, kJump{0xE9}, kLea{0x8D};
  constexpr std::byte kWide{0x48}, kWideHighRegister{0x4C};  // prefixes
  const auto target = [&](std::size_t distance_at) {
    const auto distance = std::int32_t(load_le<std::uint32_t>(function.data() + distance_at));
    return address + distance_at + sizeof distance + std::uint64_t(std::int64_t(distance));
  };
  for (std::size_t at = 0; at + kLongestBytes <= function.size(); ++at) {
    if (function[at] == kCall || function[at] == kJump) {
      add_used(target(at + 1), true);
    } else if ((function[at] == kWide || function[at] == kWideHighRegister) && function[at + 1] == kLea) {
      constexpr std::byte kOperands{0xC7}, kByDistance{0x05};
      if ((function[at + 2] & kOperands) == kByDistance) add_used(target(at + 3), false);
    }
  }
}

void LibraryStart::add_used(std::uint64_t address, bool is_code) {
  const auto* load = layout_.load_at(address);
  if (load == nullptr || load->is_writable || load->is_executable != is_code) return;
  const auto block = (load->in_file.offset + (address - load->address)) / kBlock;
  if (used_blocks_.contains(block) || used_blocks_.size() == kMaxUsedBlocks) return;
  used_blocks_.insert(block);
  used_.push_back(load->in_file.common_with({block * kBlock, kBlock}));
}

}  // namespace varve::index
