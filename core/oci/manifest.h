#pragma once
// Manifests, indexes and image configs, parsed with limits. A document is identified by its exact bytes, which are
// kept.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/oci/descriptor.h"

namespace varve::oci {

inline constexpr std::uint64_t kMaxManifestBytes = 4 * 1024 * 1024;
inline constexpr std::uint64_t kMaxConfigBytes = 16 * 1024 * 1024;
inline constexpr std::size_t kMaxLayers = 1024;  // kernels and runtimes stop far below
inline constexpr std::size_t kMaxIndexEntries = 16'384;
inline constexpr int kMaxIndexDepth = 4;

// OCI image manifest or Docker manifest v2 schema 2.
struct Manifest {
  std::string media_type;
  std::string artifact_type;  // "" if none
  Descriptor config;
  std::vector<Descriptor> layers;  // base first
  std::optional<Descriptor> subject;
  std::map<std::string, std::string> annotations;

  // `what` names the document in messages. Throws CorruptData (wrong form) or Unsupported (schema 1, limits).
  static Manifest parse(ByteView json, std::string_view media_type, std::string_view what);
};

// OCI image index or Docker manifest list. Entries of unknown media type are kept; choosing skips them.
struct ImageIndex {
  std::vector<Descriptor> manifests;
  std::map<std::string, std::string> annotations;
  static ImageIndex parse(ByteView json, std::string_view what);
};

// The parts of an image config that Varve acts on (OCI image-spec config.md). Unknown fields are ignored here;
// rewriting works on the exact JSON instead.
struct ImageConfig {
  Platform platform;
  std::vector<Digest> diff_ids;
  std::vector<std::string> created_by;  // one per layer, as its builder noted it; "" = unknown
  std::vector<std::string> env;         // "NAME=value", in order
  std::vector<std::string> entrypoint;
  std::vector<std::string> cmd;
  std::string user;         // "name|uid[:group|gid]", "" = root
  std::string working_dir;  // "" = "/"
  std::string stop_signal;  // "SIGINT" or "2"; "" = SIGTERM
  std::vector<std::string> volumes;
  std::map<std::string, std::string> labels;

  static ImageConfig parse(ByteView json, std::string_view what);
};

// An artifact manifest in canonical form (sorted keys, no white space): same input, same bytes.
struct ArtifactManifest {
  std::string artifact_type;
  std::vector<Descriptor> layers;
  std::optional<Descriptor> subject;
  std::map<std::string, std::string> annotations;
  Bytes to_json() const;  // media type kOciManifestType, config = the empty JSON blob "{}"
};
// The blob "{}" that artifact manifests name as their config (image-spec manifest.md, "Guidance for an Empty
// Descriptor").
Descriptor empty_json_descriptor();
ByteView empty_json();

}  // namespace varve::oci
