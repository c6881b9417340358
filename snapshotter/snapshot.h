#pragma once
// What containerd knows of a snapshot, and how we answer what it may not ask.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/digest.h"
#include "core/base/errors.h"

namespace varve::snapshotter {

// The numbers are those of the protocol.
enum class SnapshotKind : std::uint8_t { kView = 1, kActive = 2, kCommitted = 3 };

using Labels = std::map<std::string, std::string>;

// The tree of the first layers of an image.
struct TreeId {
  Digest image;  // its manifest
  std::uint32_t layers = 0;
  auto operator<=>(const TreeId&) const = default;
};

struct Snapshot {
  std::int64_t id = 0;  // never given twice; names its folder
  std::string name;     // the key of a view or an active one
  std::string parent;   // name of a committed one; "" if none
  SnapshotKind kind = SnapshotKind::kActive;
  Labels labels;
  std::int64_t created_ns = 0;  // since 1970
  std::int64_t updated_ns = 0;
  std::string chain = {};  // of a placeholder: the chain ID that it stands for; else ""
  // Of a placeholder: the tree that it stands for. Of a view or an active one: the tree that lies beneath, if any.
  std::optional<TreeId> tree = {};

  bool is_placeholder() const { return !chain.empty(); }
};

struct Mount {
  std::string type;
  std::string source;
  std::vector<std::string> options;
  bool operator==(const Mount&) const = default;
};

struct SnapshotUsage {
  std::int64_t bytes = 0;
  std::int64_t inodes = 0;
  bool operator==(const SnapshotUsage&) const = default;
};

// The name is taken; of Prepare: the layer is there, and need not be fetched.
class AlreadyExists : public Error {
 public:
  using Error::Error;
};

// Not in the state that the call asks for: it has children, it is not active.
class FailedPrecondition : public Error {
 public:
  using Error::Error;
};

// Labels that mean something here; docs/formats/snapshotter.md.
inline constexpr const char* kSnapshotRefLabel = "containerd.io/snapshot.ref";
inline constexpr const char* kImageRefLabel = "containerd.io/snapshot/cri.image-ref";
inline constexpr const char* kManifestDigestLabel = "containerd.io/snapshot/cri.manifest-digest";
inline constexpr const char* kUidMappingLabel = "containerd.io/snapshot/uidmapping";
inline constexpr const char* kGidMappingLabel = "containerd.io/snapshot/gidmapping";

}  // namespace varve::snapshotter
