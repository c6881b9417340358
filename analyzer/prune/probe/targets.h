#pragma once
// What of an image can be started or imported: found in its records and its tree, without running anything.
#include <string>
#include <vector>

#include "analyzer/packages/inventory.h"
#include "analyzer/usage/probe.h"
#include "core/index/file_source.h"
#include "core/oci/manifest.h"

namespace varve::prune {

struct ProbeTarget {
  usage::ProbedKind kind = usage::ProbedKind::kImport;
  std::string name;                // as ProbedItem has it; "" of kServerExtension and kLabExtension, which are listed
  std::string distribution;        // normalised; "" = none
  std::string python;              // of kImport and kEntryPoint: the executable that imports it
  std::string object;              // of these: what is imported, "module" or "module:attribute"
  std::vector<std::string> words;  // of programs
  std::string kernel_spec;         // of kKernel: absolute path of its kernel.json
};

// By kind, then name. Reads entry_points.txt files. Throws what the source throws.
std::vector<ProbeTarget> probe_targets(const index::FileSource& files, const packages::Inventory& inventory,
                                       const oci::ImageConfig& config);

}  // namespace varve::prune
