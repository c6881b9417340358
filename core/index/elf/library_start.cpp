#include "core/index/elf/library_start.h"

#include <elf.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include "core/index/elf/internal/elf_tables.h"

namespace varve::index {
namespace {

constexpr std::uint64_t kMaxFunctionBytes =
    4096;  // what lies further behind its start is another's, or not run at once
constexpr std::uint64_t kLastFunctionBytes = 1024;
constexpr std::size_t kLongestBytes = 7;  // of the instructions that are looked for
// GNU ld puts DT_INIT's code in front of all other, DT_FINI's behind it, and constants behind that, in old libraries in
// one segment. Others put the two beside each other.
constexpr std::uint64_t kLeastCode = 64 << 10;
constexpr std::uint64_t kAligned = 16;  // who begins one function at a multiple of this does so with all
constexpr std::size_t kCallBytes = 24;  // behind a call's first argument the call comes so soon
constexpr std::size_t kWord = 8;
// Fewer functions are not worth the look; most tables of virtual functions have fewer, too.
constexpr std::size_t kMinListed = 16;

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
    const auto bytes = std::min({content->length, section.value(DT_RELASZ).value_or(0), LibraryLayout::kMaxReadAtLoad});
    relocations_ = {content->offset, bytes / kEntryBytes * kEntryBytes};
  }
  const auto init = section.value(DT_INIT), fini = section.value(DT_FINI);
  if (init && fini && *fini > *init && *fini - *init > kLeastCode) code_end_ = *fini;
  init_array_ = {section.value(DT_INIT_ARRAY).value_or(0), section.value(DT_INIT_ARRAYSZ).value_or(0)};
}

void LibraryStart::add_relocations(ByteView entries) {
  // Most are of the same part as the one before.
  ByteRange from, to, no_code;  // by address, in the file, by address
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
    const auto target = load_le<std::uint64_t>(entries.data() + 16);
    std::optional<std::uint64_t> function;
    if (is_relative(load_le<std::uint64_t>(entries.data() + 8)) && !no_code.contains(target)) {
      function = code_at(target);
      if (const auto* load = layout_.load_at(target); load != nullptr && !load->is_executable)
        no_code = {load->address, load->in_file.length};
    }
    if (!init_array_.contains(address))
      note_for_list(address, function);
    else if (function && functions_.size() < kMaxFunctions)
      functions_.push_back(*function);
  }
}

// Linkers sort them by address. What has a relocation in front or behind is no whole list.
void LibraryStart::note_for_list(std::uint64_t address, std::optional<std::uint64_t> function) {
  const auto last = std::exchange(last_relocated_, address);
  if (function && address == list_.address + kWord * list_.functions.size() && !list_.functions.empty()) {
    list_.functions.push_back(*function);
    return;
  }
  end_list(address);
  if (function && last + kWord != address) list_ = {.address = address, .functions = {*function}};
}

void LibraryStart::end_list(std::uint64_t next_address) {
  auto list = std::exchange(list_, {});
  const auto count = list.functions.size();
  const auto end = list.address + kWord * count;
  if (count < kMinListed || next_address == end || lists_.size() == kMaxLists || listed_ + count > kMaxFunctions)
    return;
  const auto content = layout_.content_at(list.address - kWord);
  if (!content || content->length < kWord * (count + 2)) return;
  list.in_file = {content->offset, kWord * (count + 2)};
  listed_ += count;
  lists_.push_back(std::move(list));
}

std::vector<ByteRange> LibraryStart::maybe_lists() {
  end_list(0);
  std::vector<ByteRange> ranges;
  for (const auto& list : lists_) ranges.push_back(list.in_file);
  return ranges;
}

void LibraryStart::add_list(ByteRange in_file, ByteView bytes) {
  const auto list = std::ranges::find(lists_, in_file, &MaybeList::in_file);
  if (list == lists_.end() || bytes.size() != in_file.length) return;
  if (load_le<std::uint64_t>(bytes.data()) != UINT64_MAX || load_le<std::uint64_t>(&bytes[bytes.size() - kWord]) != 0)
    return;
  // They run before those of DT_INIT_ARRAY.
  const auto room = kMaxFunctions - functions_.size();
  auto& functions = list->functions;
  functions.resize(std::min(functions.size(), room));
  functions_.insert(functions_.begin(), functions.rbegin(), functions.rend());
  lists_.erase(list);
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

bool LibraryStart::is_code(const LibraryLayout::Load& load, std::uint64_t address) const {
  const bool has_end = code_end_ != 0 && ByteRange{load.address, load.in_file.length}.contains(code_end_);
  return load.is_executable && !(has_end && address > code_end_);
}

std::optional<std::uint64_t> LibraryStart::code_at(std::uint64_t address) const {
  const auto* load = layout_.load_at(address);
  if (load == nullptr || !is_code(*load, address)) return std::nullopt;
  return load->in_file.offset + (address - load->address);
}

const LibraryLayout::Load* LibraryStart::load_of(std::uint64_t function) const {
  const auto load = std::ranges::find_if(layout_.loads(), [&](const LibraryLayout::Load& one) {
    return one.is_executable && one.in_file.contains(function);
  });
  return load == layout_.loads().end() ? nullptr : &*load;
}

std::vector<ByteRange> LibraryStart::init_code() {
  starts_.clear();
  for (std::size_t turn = 0; turn < functions_.size(); ++turn) starts_.emplace_back(functions_[turn], turn);
  std::ranges::sort(starts_);
  std::vector<ByteRange> ranges;
  std::uint64_t left = kMaxInitCode;
  for (std::size_t i = 0; i < starts_.size() && left > 0; ++i) {
    const auto start = starts_[i].first;
    const bool is_last = i + 1 == starts_.size();
    auto length = is_last ? kLastFunctionBytes : std::min(starts_[i + 1].first - start, kMaxFunctionBytes);
    if (const auto* load = load_of(start)) length = std::min(length, load->in_file.end() - start);
    length = std::min(length, left);
    left -= length;
    if (!ranges.empty() && start < ranges.back().end() + kMaxFunctionBytes)
      ranges.back().length = std::max(ranges.back().end(), start + length) - ranges.back().offset;
    else
      ranges.push_back({start, length});
  }
  return ranges;
}

void LibraryStart::add_code(ByteRange in_file, ByteView code) {
  if (layout_.machine() != EM_X86_64) return;
  struct Function {
    std::size_t turn;
    std::uint64_t start, length;
  };
  std::vector<Function> functions;
  auto at = std::ranges::lower_bound(starts_, std::pair(in_file.offset, std::size_t(0)));
  for (; at != starts_.end() && at->first < in_file.offset + code.size() && in_file.contains(at->first); ++at) {
    const auto next = std::next(at);
    const auto length =
        next == starts_.end() ? kMaxFunctionBytes : std::min(next->first - at->first, kMaxFunctionBytes);
    functions.push_back({.turn = at->second, .start = at->first, .length = length});
  }
  std::ranges::sort(functions, {}, &Function::turn);
  for (const auto& [turn, start, length] : functions) {
    const auto part = code.subspan(start - in_file.offset);
    const auto* load = load_of(start);
    if (load != nullptr)
      look_at(load->address + (start - load->in_file.offset), part.first(std::min<std::size_t>(part.size(), length)));
  }
}

void LibraryStart::look_at(std::uint64_t address, ByteView function) {
  constexpr std::byte kCall{0xE8}, kJump{0xE9}, kLea{0x8D};
  constexpr std::byte kWide{0x48}, kWideHighRegister{0x4C};  // prefixes
  constexpr std::byte kByDistance{0x05}, kNoRegister{0xC7}, kRdi{0x3D};
  const auto target = [&](std::size_t distance_at) {
    const auto distance = std::int32_t(load_le<std::uint32_t>(function.data() + distance_at));
    return address + distance_at + sizeof distance + std::uint64_t(std::int64_t(distance));
  };
  const auto is_call = [](std::byte code) { return code == kCall || code == kJump; };
  for (std::size_t at = 0; at + kLongestBytes <= function.size(); ++at) {
    if (is_call(function[at])) {
      if (address % kAligned == 0 && target(at + 1) % kAligned != 0) continue;
      add_used(target(at + 1), true);
    } else if ((function[at] == kWide || function[at] == kWideHighRegister) && function[at + 1] == kLea) {
      if ((function[at + 2] & kNoRegister) != kByDistance) continue;
      add_used(target(at + 3), false);
      const auto behind = function.subspan(at + kLongestBytes);
      if (function[at] == kWide && function[at + 2] == kRdi &&
          std::ranges::any_of(behind.first(std::min(behind.size(), kCallBytes)), is_call))
        add_at_exit(target(at + 3));
    }
  }
}

void LibraryStart::add_used(std::uint64_t address, bool is_called) {
  const auto* load = layout_.load_at(address);
  if (load == nullptr || load->is_writable || is_code(*load, address) != is_called) return;
  const auto block = (load->in_file.offset + (address - load->address)) / kBlock;
  if (used_blocks_.contains(block) || used_blocks_.size() == kMaxUsedBlocks) return;
  used_blocks_.insert(block);
  used_.push_back(load->in_file.common_with({block * kBlock, kBlock}));
}

void LibraryStart::add_at_exit(std::uint64_t address) {
  const auto* load = layout_.load_at(address);
  if (load == nullptr || load->is_writable || !is_code(*load, address)) return;
  const auto block = (load->in_file.offset + (address - load->address)) / kBlock;
  const auto part = load->in_file.common_with({block * kBlock, kBlock});
  if ((at_exit_.empty() || at_exit_.back() != part) && at_exit_.size() < kMaxFunctions) at_exit_.push_back(part);
}

std::vector<ByteRange> LibraryStart::used_at_exit() const {
  std::vector<ByteRange> ranges;
  std::set<std::uint64_t> blocks;
  for (const auto& part : at_exit_ | std::views::reverse)
    if (blocks.size() < kMaxUsedBlocks && blocks.insert(part.offset).second) ranges.push_back(part);
  return ranges;
}

}  // namespace varve::index
