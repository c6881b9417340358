#pragma once
// Which GPU architectures the CUDA code in an image is for, and what each weighs. Reads the headers of ELF files and of
// the containers of device code in them ("fatbins"), never the code. The container format is not published:
// docs/packages-cuda-architectures.md says what was seen.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "analyzer/packages/file_source.h"
#include "core/base/byte_range.h"

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
bool may_hold_device_code(std::string_view path, const SourceFile& file);

// One file of `size` bytes. Empty for what holds none or is of no known format; entries that are cut off or lie about
// their size end their container, what came before counts. Reads at most a window at a time, so memory does not depend
// on the file.
DeviceCode read_device_code(std::uint64_t size, const RangeReader& read);

// All of an image: bytes by architecture, as Inventory::cuda_architectures keeps them. A damaged file is left out, with
// a line for `problem`. Throws Unsupported for an image without an index, and what the source throws.
std::map<std::string, std::uint64_t> read_cuda_architectures(
    const FileSource& files, const std::function<void(const std::string& line)>& problem);

}  // namespace varve::packages
