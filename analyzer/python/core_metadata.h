#pragma once
// METADATA of a dist-info, PKG-INFO of an egg-info. packaging.python.org/specifications/core-metadata; PEP 566, 643,
// 794.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/python/requirement.h"

namespace varve::python {

inline constexpr std::size_t kMaxMetadataFields = 100'000;  // further ones are not read

// One Import-Name or Import-Namespace.
struct ImportName {
  std::string name;         // dotted
  bool is_private = false;  // "; private"
};

struct CoreMetadata {
  std::string metadata_version;                  // "2.1"; "" = not said
  std::string name;                              // as written; "" = not said
  std::string version;                           // as written
  std::string requires_python;                   // as written
  std::string summary;                           // one line
  std::string license;                           // License-Expression, else the first line of License
  std::vector<Requirement> requires_dist;        // Requires-Dist, in order
  std::vector<std::string> unreadable_requires;  // Requires-Dist lines that are no requirements
  std::vector<std::string> provides_extras;      // as written
  // Absent: the metadata says nothing of it. Present and empty: it says that there is nothing to import
  // ("Import-Name:").
  std::optional<std::vector<ImportName>> import_names;
  std::optional<std::vector<ImportName>> import_namespaces;
  bool dynamic_requires = false;  // "Dynamic: Requires-Dist": what was built may need more than what is said here
};

// Never throws on bad text: lines that are no fields are passed over, broken UTF-8 is replaced by U+FFFD, of single
// fields the first counts.
CoreMetadata parse_core_metadata(std::string_view text);

}  // namespace varve::python
