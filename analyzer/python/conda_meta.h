#pragma once
// conda-meta/NAME-VERSION-BUILD.json: what conda, mamba and micromamba installed. docs.conda.io, "conda-meta"; conda's
// PrefixRecord.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"

namespace varve::python {

struct CondaFile {
  std::string path;                   // relative to the prefix, "/" between components
  std::optional<std::uint64_t> size;  // of paths_data; absent in older records and for links
  std::optional<Digest> sha256;       // of the file in this prefix, else of the one in the package
};

struct CondaRecord {
  std::string name, version, build;
  std::uint64_t build_number = 0;
  std::vector<std::string> depends;  // "python >=3.9,<3.10.0a0"
  std::string channel, subdir;       // "conda-forge", "linux-64"; "" = not said
  std::string noarch;                // "python" "generic"; "" = none
  std::string requested_spec;        // "" = came as a need of others
  std::vector<CondaFile> files;      // union of `files` and `paths_data`, by path
};
// Reads without a document in memory. Throws CorruptData naming `what`: no JSON, no name, nested too deep, too many
// files.
CondaRecord parse_conda_record(std::string_view json, std::string_view what = "conda-meta");

inline constexpr std::size_t kMaxCondaFiles = 1'000'000;
inline constexpr std::size_t kMaxCondaDepth = 64;

// The name of a dependency: "python" of "conda-forge::python >=3.9,<3.10.0a0"; "" if there is none.
std::string conda_dependency_name(std::string_view spec);

}  // namespace varve::python
