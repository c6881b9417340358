#pragma once
// What happens in a library between its tables and the first call of somebody who wanted it: the loader writes to its
// data where relocations say so, then runs its init functions (gABI chapter 5, DT_INIT_ARRAY). The relocations tell
// which pages are written to, of much more that may be, and where the functions are; their code, which functions they
// call, and which ones they leave to be called when the process exits.
//
//     relocations --add_relocations()--> take_relocated(): parts of the data
//                                    |-> maybe_lists(): parts of that --add_list()-.
//                                    `-> init_code(): parts of the code <----------'
//                                           `--add_code()--> used(): more of code, constants
//                                                        `-> used_at_exit(): code
//
// A list is what old compilers have instead of DT_INIT_ARRAY (.ctors, of NVIDIA's nvrtc and nvJitLink): -1, functions,
// 0, of which no tag tells; the code at DT_INIT runs them from the last to the first (gcc, crtstuff.c).
//
// Data, functions and lists are facts, the rest is a look at bytes of x86-64: calls and jumps by a distance, addresses
// of constants, and the address of a function as a call's first argument, as atexit(3) has it (Intel SDM volume 2A:
// CALL E8, JMP E9, LEA 8D with REX.W and RIP). Some are other instructions' bytes, calls by a table are not seen, and
// what a function calls further on is not followed. Good for fetching ahead and for nothing else.
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/index/elf/library_layout.h"

namespace varve::index {

// Ranges are parts of the file, inside it. Never throws on bad content: what is wrong is left out.
class LibraryStart {
 public:
  static constexpr std::uint64_t kBlock = 64 << 10;  // so finely are parts told apart; kBlock is a multiple of a page
  static constexpr std::size_t kEntryBytes = 24;     // of a relocation
  static constexpr std::size_t kMaxFunctions = 65'536;
  static constexpr std::uint64_t kMaxInitCode = 32 << 20;
  static constexpr std::size_t kMaxUsedBlocks = 1024;  // 64 MiB; of each kind
  static constexpr std::size_t kMaxLists = 4096;
  static constexpr std::uint64_t kMaxRelocated = 64 << 20;

  // `layout` must outlive this. `dynamic`: the bytes of its dynamic section.
  LibraryStart(const LibraryLayout& layout, ByteView dynamic);

  // Whole entries, LibraryLayout::kMaxReadAtLoad at most; empty: it has none, or others than of this form.
  ByteRange relocations() const { return relocations_; }
  // The next entries of them, in order.
  void add_relocations(ByteView entries);
  // What they change, but for what was taken before.
  std::vector<ByteRange> take_relocated();

  // After all relocations. Of all that could be lists one is, or none.
  std::vector<ByteRange> maybe_lists();
  // The bytes of one of them; ignored if it is none.
  void add_list(ByteRange in_file, ByteView bytes);
  std::vector<ByteRange> init_code();
  // The bytes of one of init_code().
  void add_code(ByteRange in_file, ByteView code);
  // In the order in which code was added, in that by the turn of the functions.
  const std::vector<ByteRange>& used() const { return used_; }
  // In the order in which an exit runs it: what was registered last comes first.
  std::vector<ByteRange> used_at_exit() const;

 private:
  // Addresses of functions, one behind the other.
  struct MaybeList {
    std::uint64_t address = 0;  // of the first
    std::vector<std::uint64_t> functions = {};
    ByteRange in_file = {};  // with the words before and behind
  };

  bool is_code(const LibraryLayout::Load& load, std::uint64_t address) const;
  std::optional<std::uint64_t> code_at(std::uint64_t address) const;  // in the file
  void note_for_list(std::uint64_t address, std::optional<std::uint64_t> function);
  void end_list(std::uint64_t next_address);
  const LibraryLayout::Load* load_of(std::uint64_t function) const;
  void look_at(std::uint64_t address, ByteView function);
  void add_used(std::uint64_t address, bool is_called);
  void add_at_exit(std::uint64_t address);

  const LibraryLayout& layout_;
  ByteRange relocations_;
  ByteRange init_array_;                  // by address
  std::uint64_t code_end_ = 0;            // address, in a segment that has constants behind its code; 0: not known
  std::set<std::uint64_t> relocated_;     // blocks of the file
  std::vector<std::uint64_t> untaken_;    // of those
  std::vector<std::uint64_t> functions_;  // in the file, as they run
  std::vector<std::pair<std::uint64_t, std::size_t>> starts_;  // by place, with their turn; from init_code() on
  std::uint64_t last_relocated_ = 0;                           // address
  MaybeList list_;                                             // that may go on
  std::vector<MaybeList> lists_;
  std::size_t listed_ = 0;  // functions in them
  std::set<std::uint64_t> used_blocks_;
  std::vector<ByteRange> used_;
  std::vector<ByteRange> at_exit_;  // as they are registered; some several times
};

}  // namespace varve::index
