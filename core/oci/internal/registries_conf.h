#pragma once
// containers-registries.conf(5), version 2: what podman, skopeo and buildah read where to ask.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/oci/internal/source.h"
#include "core/oci/reference.h"

namespace varve::oci::internal {

struct RegistryPlace {
  std::string location;  // takes the place of the prefix in the image's name
  bool insecure = false;
  bool by_digest = true, by_tag = true;  // of a mirror
};

// One [[registry]].
struct RegistryTable {
  std::string prefix;  // "registry.example:5000/team", or "*.example"
  RegistryPlace own;
  bool blocked = false;
  std::vector<RegistryPlace> mirrors;
  std::string place;  // "FILE:LINE"
};

// Throws CorruptData "FILE:LINE: why" for what containers refuse too, and for a file of version 1.
std::vector<RegistryTable> parse_registries_conf(std::string_view text, const std::string& what);

// Of several files: a table takes the place of an earlier one with the same prefix.
void merge_registries(std::vector<RegistryTable>& into, std::vector<RegistryTable> later);

// The table with the longest prefix of the name; null if none has one.
const RegistryTable* find_registry(const std::vector<RegistryTable>& tables, const Reference& reference);

// `location` instead of the prefix of the name. Absent if that is no name of a repository.
std::optional<Source> source_at(const std::string& location, const std::string& prefix, const Reference& reference);

}  // namespace varve::oci::internal
