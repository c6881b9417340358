#pragma once
// What happens in a library between its tables and the first call of somebody who wanted it: the loader writes to its
// data where relocations say so, then runs its init functions (gABI chapter 5, DT_INIT_ARRAY). The relocations tell
// which pages are written to, of much more that may be, and where the functions are; their code, which functions they
// call.
//
//     relocations --add_relocations()--> take_relocated(): parts of the data
//                                    `-> init_code(): parts of the code --add_code()--> used(): more of code, constants
//
// The first two are facts, the third is a look at bytes of x86-64: calls and jumps by a distance, addresses of what is
// only read (Intel SDM volume 2A: CALL E8, JMP E9, LEA 8D with REX.W and RIP). Some are other instructions' bytes,
// calls by a table are not seen, and what a function calls further on is not followed. Good for fetching ahead and for
// nothing else.
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "core/index/elf/library_layout.h"

namespace varve::index {

// Ranges are parts of the file, inside it. Never throws on bad content: what is wrong is left out.
class LibraryStart {
 public:
  static constexpr std::uint64_t kBlock = 64 << 10;  // so finely are parts told apart; kBlock is a multiple of a page
  static constexpr std::size_t kEntryBytes = 24;     // of a relocation
  static constexpr std::size_t kMaxFunctions = 65'536;
  static constexpr std::uint64_t kMaxInitCode = 8 << 20;
  static constexpr std::size_t kMaxUsedBlocks = 1024;  // 64 MiB
  static constexpr std::uint64_t kMaxRelocated = 64 << 20;

  // `layout` must outlive this. `dynamic`: the bytes of its dynamic section.
  LibraryStart(const LibraryLayout& layout, ByteView dynamic);

  // Whole entries; empty: it has none, or others than of this form.
  ByteRange relocations() const { return relocations_; }
  // The next entries of them, in order.
  void add_relocations(ByteView entries);
  // What they change, but for what was taken before.
  std::vector<ByteRange> take_relocated();

  // After all relocations.
  std::vector<ByteRange> init_code() const;
  // The bytes of one of init_code().
  void add_code(ByteRange in_file, ByteView code);
  // In the order in which code was added, in that by the turn of the functions.
  const std::vector<ByteRange>& used() const { return used_; }

 private:
  std::optional<std::uint64_t> code_at(std::uint64_t address) const;  // in the file
  const LibraryLayout::Load* load_of(std::uint64_t function) const;
  void look_at(std::uint64_t address, ByteView function);
  void add_used(std::uint64_t address, bool is_code);

  const LibraryLayout& layout_;
  ByteRange relocations_;
  ByteRange init_array_;                  // by address
  std::set<std::uint64_t> relocated_;     // blocks of the file
  std::vector<std::uint64_t> untaken_;    // of those
  std::vector<std::uint64_t> functions_;  // in the file, as they run
  std::set<std::uint64_t> used_blocks_;
  std::vector<ByteRange> used_;
};

}  // namespace varve::index
