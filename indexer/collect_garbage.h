#pragma once
// Frees what nothing reaches in an OCI layout folder. docs/guide/pins-and-export.md, "Garbage".
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/digest.h"
#include "indexer/pins.h"

namespace varve::indexer {

inline constexpr std::int64_t kDefaultGraceSeconds = 24 * 3600;

struct GarbageOptions {
  bool dry_run = false;
  bool untagged = false;  // images of index.json without any name go too, unless a pin or an index names them
  std::int64_t grace_seconds = kDefaultGraceSeconds;  // blobs younger than this stay: a push may be under way
  std::vector<Pin> known_pins;                        // what the list of pins must name, or it was lost
};

struct GarbageReport {
  std::vector<Digest> removed;            // blobs, manifests among them
  std::vector<Digest> removed_manifests;  // entries of index.json
  std::uint64_t freed_bytes = 0;
  std::uint64_t young_bytes = 0;  // unreached, but within the grace period
  std::uint64_t kept_bytes = 0;   // reached
};

// Reached is what tags, pins, indexes and the artifacts of what is reached name. Throws CorruptData, and removes
// nothing, if a document that is reached is missing or cannot be read, the list of pins above all: what it names is not
// known then. The same if the list lacks one of `known_pins`, or a promised image or index its manifest. Locks out
// other Varve processes; what other tools add while it runs is looked for before anything is unlinked. A run that was
// killed is made good by the next one.
GarbageReport collect_garbage(const std::filesystem::path& layout_dir, const GarbageOptions& options);

}  // namespace varve::indexer
