#pragma once
// All entries of one layer in tar order, with the digests of their contents: what merging, deduplication and package
// lists need without reading the layer again. On disk: docs/formats/layer-entries.md.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/files/file_attributes.h"
#include "core/index/elf/elf_facts.h"

namespace varve::index {

inline constexpr std::uint64_t kMaxLayerEntries = 10'000'000;
inline constexpr std::uint64_t kMaxLayerEntriesBytes = 4ull << 30;  // decompressed
inline constexpr std::uint64_t kMaxLayerElfTextBytes =
    256ull << 20;  // strings in the ELF facts of one layer, each as often as it occurs
inline constexpr std::uint64_t kChunkBytes = 1024 * 1024;  // content is cut at multiples of this from the file's start

struct LayerEntry : FileAttributes {
  std::string path;  // normalised: no leading "/", no "." parts, no trailing "/"; "" = the root. Whiteouts keep their
                     // ".wh." names
  std::string link_target;  // symlink: verbatim; hard link: normalised path in the image root
  std::uint64_t size = 0;
  std::vector<ContentRun> runs;         // regular and not empty
  Digest content_digest;                // regular and not empty: SHA-256 of the content, holes as zeros
  std::vector<Digest> chunk_digests;    // only if size > kChunkBytes and not sparse: one per kChunkBytes
  std::shared_ptr<const ElfFacts> elf;  // regular and not empty; null: no ELF file, or has_elf_facts is false
  bool operator==(const LayerEntry& other) const;  // facts are compared, not where they lie
};

struct LayerEntries {
  Digest layer_digest;
  std::vector<LayerEntry> entries;
  bool has_elf_facts = false;  // false: read by a version that kept none; written in the format of that version

  Bytes encode() const;
  // Throws CorruptData or Unsupported (limits); paths are checked to be normalised and to stay inside the root.
  static LayerEntries decode(ByteView bytes, std::string_view what);
  // Whether a blob, not checked further, is one with ELF facts.
  static bool has_elf_facts_in(ByteView bytes);
};

// Normalises an entry's name as layer.md says: strips "/" and "./", collapses "//". Throws CorruptData for "..", an
// empty component after normalising that hides a NUL, and names beyond NAME_MAX (255) or PATH_MAX (4096).
std::string normalise_path(std::string_view raw, std::string_view what);

}  // namespace varve::index
