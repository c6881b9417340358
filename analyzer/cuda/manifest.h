#pragma once
// The proof that CUDA came through a rewrite: every file of the selection, how the loader resolves it, and what of the
// config and the loader's configuration decides how it is found. docs/formats/proof.md.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/cuda/rules.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"

namespace varve::cuda {

inline constexpr std::size_t kMaxManifestBytes = 256u << 20;
inline constexpr std::size_t kMaxManifestValues =
    8'000'000;  // of its JSON: bounds the memory that a small document can ask for
inline constexpr std::size_t kMaxManifestText = 64u << 10;  // of one string

struct ManifestFile {
  std::string path;
  std::string type;  // "file" "symlink" "directory" "other" (devices, pipes)
  std::uint32_t mode = 0, uid = 0, gid = 0;
  std::uint64_t size = 0;
  std::string sha256;  // of a file's content, hex; "" for others, and for files that the index has no digest of (one
                       // hole larger than kMaxHoleBytes)
  std::string target;  // of a symlink
  std::string xattrs;  // sha256 over all names and values; "" = none
  std::string rule;    // why it is here: not compared
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  Digest image;
  Digest rules;                     // of the rule file
  std::vector<ManifestFile> files;  // by path
  std::map<std::string, std::vector<std::string>>
      resolved;  // "path needs name" -> matches, in search order; "beside:path" = only in the same folder
  std::vector<std::string> unresolved;  // "path needs name", sorted
  std::vector<std::string> missing;     // what the dlopen table requires and the image lacks: for readers, not compared
  Digest config_digest;                 // over `config`
  std::map<std::string, std::string>
      config;  // the image config but for rootfs, history and our labels: "Env", "Labels", "os" … -> JSON
};

// The tree and the loader are those that `selection` was made from. `config_json`: the image's config as it is. Throws
// CorruptData if that is no config.
Manifest make_manifest(const index::FlatTree& tree, const Selection& selection, const Rules& rules,
                       ByteView config_json, const Digest& image);
// All of it: loader options from config and tree, selection, manifest. `ld_cache`: content of etc/ld.so.cache, "" =
// none.
Manifest make_manifest(const index::FlatTree& tree, std::string_view ld_cache, const Rules& rules, ByteView config_json,
                       const Digest& image);
// LD_LIBRARY_PATH of an image config.
std::string library_path_of(ByteView config_json);

// What Manifest::config_digest is.
Digest config_digest(const std::map<std::string, std::string>& config);

// Same manifest, same bytes. Names that are no UTF-8 are written with \xNN, "\" as "\\".
std::string to_json(const Manifest& manifest);
// Throws CorruptData or Unsupported naming `what` and the field.
Manifest parse_manifest(std::string_view json, std::string_view what);

// Empty: equal. Lines name the path and what differs: "usr/lib/libcudnn.so.9: sha256 … instead of …", "Env[2]: …".
// Files come first, so that the first line is the first difference by path; then loader resolution, then config.
std::vector<std::string> compare(const Manifest& before, const Manifest& after);

}  // namespace varve::cuda
