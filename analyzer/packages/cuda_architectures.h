#pragma once
// Which GPU architectures the CUDA code in a file is for, and where it lies: for marking code that no GPU of the fleet
// runs as cold. Reads the headers of ELF files and of the containers of device code in them ("fatbins"), never
// the code.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/base/byte_range.h"
#include "core/index/file_source.h"

namespace varve::packages {

enum class CodeKind : std::uint8_t {
  kMachine,   // runs as it is
  kPtx,       // the driver compiles it, for the architecture named and all later ones
  kLinkStep,  // for the link step
  kOther,     // not known here
};

struct CodeTarget {
  CodeKind kind = CodeKind::kOther;
  std::uint32_t number = 0;  // 86 is compute capability 8.6; 0 of kOther
  char variant = 0;          // 'a': that GPU only; 'f': its family; 0: neither
  // "sm_80", "sm_90a", "sm_100f" machine code; "compute_90" PTX; "lto_80"; "other".
  std::string name() const;
  bool operator==(const CodeTarget&) const = default;
};

struct CodeEntry {
  CodeTarget target;
  ByteRange range;  // within the file: header and payload as stored, compressed or not; a cubin is one entry
};
using OnCode = std::function<void(const CodeEntry& entry)>;

struct CodeAmount {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  bool operator==(const CodeAmount&) const = default;
};
using DeviceCode = std::map<std::string, CodeAmount>;  // by name of the target

// True for names that may hold device code: shared objects, static libraries, objects, cubins, fatbins, PTX, large
// programs.
bool may_hold_device_code(std::string_view path, const index::FlatEntry& file);

// The entries of one file of `size` bytes, each inside the file; those of a sound file do not overlap. None for what
// holds none or is of no known format; entries that are cut off or lie about their size end their container, what came
// before counts. Reads at most a window at a time, so memory does not depend on the file. Throws what `read` and
// `on_code` throw.
void for_each_code(std::uint64_t size, const index::RangeReader& read, const OnCode& on_code);
// The same, summed up.
DeviceCode read_device_code(std::uint64_t size, const index::RangeReader& read);

}  // namespace varve::packages
