#pragma once
// What the loader and the CUDA rules need to know of an ELF file, found while the file streams by. ELF: gABI chapters 4
// and 5; fatbin containers: analyzer/packages/cuda_architectures.cpp.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/bytes.h"

namespace varve::index {

inline constexpr std::size_t kMaxNeededLibraries = 4096;  // of one file; more makes its facts `broken`

struct ElfFacts {
  std::uint16_t type = 0;     // e_type: 1 relocatable, 2 program, 3 shared object
  std::uint16_t machine = 0;  // e_machine: 62 x86-64, 183 AArch64
  bool is_64 = true;
  std::string interpreter;          // PT_INTERP; "" = none
  std::string soname;               // DT_SONAME; "" = none
  std::string rpath, runpath;       // as written, not expanded; "" = none
  std::vector<std::string> needed;  // DT_NEEDED in order
  bool device_code = false;  // a section .nv_fatbin, __nv_relfatbin or .nvFatBinSegment (by name alone), or a fatbin
                             // container anywhere
  std::string broken;  // why the facts are not whole ("dynamic section outside the file"); "" = whole. What was found
                       // is there nevertheless
  bool operator==(const ElfFacts&) const = default;
};

// What is kept of a file's head until its dynamic section has come by: nearly every dynamic string table ends there.
// Behind it, what looks like a library's name or path is kept, and what lies right in front of the dynamic section.
inline constexpr std::size_t kMaxElfHeadBytes = 4 * 1024 * 1024;
inline constexpr std::size_t kMaxElfTextBytes =
    64 * 1024;  // of a file's strings together; more makes its facts `broken`

// Takes a file's content in order, in pieces of any size: the facts do not depend on how it is cut. 32 and 64 bit,
// either byte order. Memory: at most kMaxElfHeadBytes and 10 MiB, whatever the file's size or content; next to none for
// files that are no ELF files. Never throws on bad content. Not shared between threads.
class ElfFactsReader {
 public:
  // `max_head_bytes`: less only where what lies behind them is to be reached with small files.
  explicit ElfFactsReader(std::size_t max_head_bytes = kMaxElfHeadBytes);
  ~ElfFactsReader();
  // `size`: of the whole file. Starts a new file.
  void begin(std::uint64_t size);
  void feed(ByteView content);
  // As feed() of so many zeros, for holes: costs next to nothing.
  void feed_zeros(std::uint64_t count);
  // Null if the file is no ELF file. What was fed beyond or short of `size` makes the facts `broken`.
  std::shared_ptr<const ElfFacts> finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Bytes of all strings: what bounds are counted in.
std::uint64_t text_bytes(const ElfFacts& facts);

}  // namespace varve::index
