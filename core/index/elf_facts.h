#pragma once
// What the loader and the CUDA rules need to know of an ELF file, found while the file streams by. ELF: gABI chapters 4 and 5; fatbin containers:
// docs/cuda-architectures.md.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/bytes.h"

namespace varve::index {

inline constexpr std::size_t kMaxNeededLibraries = 4096;  // of one file; more makes its facts `broken`

struct ElfFacts {
  std::uint16_t type = 0;      // e_type: 1 relocatable, 2 program, 3 shared object
  std::uint16_t machine = 0;   // e_machine: 62 x86-64, 183 AArch64
  bool is_64 = true;
  std::string interpreter;     // PT_INTERP; "" = none
  std::string soname;          // DT_SONAME; "" = none
  std::string rpath, runpath;  // as written, not expanded; "" = none
  std::vector<std::string> needed;  // DT_NEEDED in order
  bool device_code = false;    // a section .nv_fatbin, __nv_relfatbin or .nvFatBinSegment, or a fatbin container anywhere
  std::string broken;          // why the facts are not whole ("dynamic string table outside the file"); "" = whole
  bool operator==(const ElfFacts&) const = default;
};

// Takes a file's content in order. Memory: kMaxElfHeadBytes and a small tail, whatever the file's size. Never throws on bad content.
class ElfFactsReader {
 public:
  ElfFactsReader();
  ~ElfFactsReader();
  // `size`: of the whole file. Starts a new file.
  void begin(std::uint64_t size);
  void feed(ByteView content);
  // Null if the file is no ELF file.
  std::shared_ptr<const ElfFacts> finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::index
