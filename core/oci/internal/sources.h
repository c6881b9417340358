#pragma once
// Where a repository can be read: [[mirror]] of varve.toml, else containerd's hosts.toml, else containers'
// registries.conf, else the registry that its name names.
#include <filesystem>
#include <string>
#include <vector>

#include "core/oci/internal/source.h"
#include "core/oci/repository.h"

namespace varve::oci::internal {

struct RepositorySources {
  std::vector<Source> sources;                // at least one, in the order in which they are asked
  std::vector<std::filesystem::path> looked;  // files and folders on which this depends, there or not
};

// Throws UsageError naming file and line for a file that cannot be read, and for a registry that registries.conf
// blocks.
RepositorySources find_sources(const Reference& reference, const RegistryOptions& options);

}  // namespace varve::oci::internal
