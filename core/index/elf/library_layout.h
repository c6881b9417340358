#pragma once
// What a loader reads of a program or library before any code of it runs: which parts of the file, and which other
// libraries. Asked of a few parts of the file, each of which says where the next lies, where ElfFactsReader
// (elf_facts.h) needs all of it in order. ELF: gABI chapters 4 and 5; glibc's additions: elf(5), elf.h.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"

namespace varve::index {

struct DynamicSection;

// 64 bit, little endian: of the machines that Varve runs on. Ranges are parts of the file, inside it. Never throws on
// bad content: what is wrong is left out.
class LibraryLayout {
 public:
  static constexpr std::size_t kHeadBytes = 4096;
  static constexpr std::size_t kMaxDynamicBytes = 64 << 10;
  static constexpr std::size_t kMaxNameBytes = 512;             // of one, its end included; longer ones are left out
  static constexpr std::uint64_t kMaxReadAtLoad = 64ull << 20;  // of one library
  static constexpr std::uint64_t kMaxLookedUp = 12ull << 20;    // of a larger table of names only places are read
  static constexpr std::uint64_t kMuchData = 1 << 20;

  // `head`: the file's first kHeadBytes, or all of a shorter one. Absent: nothing that is loaded, or the program
  // headers lie behind the head, or the dynamic section is not inside the file or too long.
  static std::optional<LibraryLayout> of(ByteView head, std::uint64_t file_bytes);

  // The program's loader, a path; "" = none, as of libraries.
  const std::string& interpreter() const { return interpreter_; }
  // Empty: a program that needs no library.
  ByteRange dynamic_section() const { return dynamic_; }

  // A name that the dynamic section has.
  enum class Kind : std::uint8_t { kNeeded, kSearchPath };
  struct Name {
    Kind kind;
    ByteRange in_file;  // its text, what lies behind that included
  };
  // `dynamic`: the bytes of dynamic_section(). In order; kMaxNeededLibraries and two at most.
  std::vector<Name> names(ByteView dynamic) const;
  // Where the name lies by which others ask for this library (DT_SONAME); absent: it says none.
  std::optional<ByteRange> soname(ByteView dynamic) const;
  // Absent if `bytes` has no end of it, or it is empty.
  static std::optional<std::string> text_of(ByteView bytes);

  // What else is read before code runs, in order: the tables of relocations, all data that may be relocated, but for
  // much of it, and the tables of symbols. kMaxReadAtLoad at most, of those first that are read as a whole. `dynamic`
  // as above.
  std::vector<ByteRange> read_at_load(ByteView dynamic) const;
  // More than kMuchData may be relocated, and a table says what is (library_start.h).
  bool has_much_data(ByteView dynamic) const;

  // Content that is mapped at addresses.
  struct Load {
    ByteRange in_file;
    std::uint64_t address = 0;
    bool is_writable = false;
    bool is_executable = false;
  };
  const std::vector<Load>& loads() const { return loads_; }
  // Null if nothing of the file is mapped there.
  const Load* load_at(std::uint64_t address) const;
  // From that address on to the end of what is mapped there; absent if nothing of the file is.
  std::optional<ByteRange> content_at(std::uint64_t address) const;
  std::uint16_t machine() const { return machine_; }  // e_machine

 private:
  std::optional<ByteRange> text_at(const DynamicSection& section, std::uint64_t offset) const;

  std::string interpreter_;
  ByteRange dynamic_;
  std::vector<Load> loads_;
  std::uint16_t machine_ = 0;
};

}  // namespace varve::index
