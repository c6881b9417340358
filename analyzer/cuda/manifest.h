#pragma once
// The proof that CUDA came through a rewrite: every file of the selection, how the loader resolves it, and what of the config and the loader's
// configuration decides how it is found. docs/format-proof.md.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/cuda/rules.h"
#include "core/base/digest.h"
#include "core/oci/manifest.h"

namespace varve::cuda {

inline constexpr std::size_t kMaxManifestBytes = 256u << 20;

struct ManifestFile {
  std::string path;
  std::string type;      // "file" "symlink" "directory"
  std::uint32_t mode = 0, uid = 0, gid = 0;
  std::uint64_t size = 0;
  std::string sha256;    // of a file's content; "" for others
  std::string target;    // of a symlink
  std::string xattrs;    // sha256 of all of them; "" = none
  std::string rule;
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  Digest image;
  std::vector<ManifestFile> files;                          // by path
  std::map<std::string, std::vector<std::string>> resolved; // "path needs name" -> matches, in search order
  std::vector<std::string> unresolved;                      // "path needs name"
  std::string config_digest;                                // over Env, Labels, Entrypoint, Cmd, User, WorkingDir, Volumes, StopSignal, platform
  std::map<std::string, std::string> config;                // these by name, as JSON: for messages
};

Manifest make_manifest(const index::FlatTree& tree, const elf::Loader& loader, const Selection& selection, const Rules& rules, const oci::ImageConfig& config,
                       const Digest& image);
std::string to_json(const Manifest& manifest);
Manifest parse_manifest(std::string_view json, std::string_view what);

// Empty: equal. Lines name the path and what differs: "usr/lib/libcudnn.so.9: sha256 … instead of …", "Env: …". The first is the first difference by path.
std::vector<std::string> compare(const Manifest& before, const Manifest& after);

}  // namespace varve::cuda
