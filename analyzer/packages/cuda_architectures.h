#pragma once
// Which GPU architectures the CUDA code in a file is for, and what each weighs: for marking code that no GPU of the
// fleet runs as cold. Reads the headers of ELF files and of the containers of device code in them ("fatbins"), never
// the code.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/base/byte_range.h"
#include "core/index/file_source.h"

namespace varve::packages {

// By what it is for: "sm_80", "sm_90a", "sm_100f" machine code; "compute_90" PTX, for that and all later ones; "lto_80"
// code for the link step; "other" entries of kinds not known here.
struct CodeAmount {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  // headers and payload as stored, compressed or not
  bool operator==(const CodeAmount&) const = default;
};
using DeviceCode = std::map<std::string, CodeAmount>;

// True for names that may hold device code: shared objects, static libraries, objects, cubins, fatbins, PTX, large
// programs.
bool may_hold_device_code(std::string_view path, const index::FlatEntry& file);

// One file of `size` bytes. Empty for what holds none or is of no known format; entries that are cut off or lie about
// their size end their container, what came before counts. Reads at most a window at a time, so memory does not depend
// on the file.
DeviceCode read_device_code(std::uint64_t size, const index::RangeReader& read);

}  // namespace varve::packages
