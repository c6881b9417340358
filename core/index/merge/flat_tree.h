#pragma once
// An image's merged tree by path, with the digests of its contents: what comparisons, proofs and rewriting work on.
// Read from the index alone.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/index/elf/elf_facts.h"
#include "core/index/local_index.h"
#include "core/index/merge/tree.h"

namespace varve::index {

struct FlatEntry {
  FileType type = FileType::kDirectory;  // never kHardLink: see `link_of`
  std::uint32_t mode = 0755;             // 07777
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t mtime_seconds = 0;
  std::uint32_t mtime_nanoseconds = 0;
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  std::uint64_t size = 0;  // regular files
  std::string symlink_target;
  std::map<std::string, std::string> xattrs;
  std::string link_of;  // the first name, in byte order, of the same inode; "" = this is it
  Digest
      content_digest;  // regular, not empty: SHA-256 of the content. All zero where the index has none (kMaxHoleBytes)
  std::shared_ptr<const ElfFacts> elf;  // null: no ELF file, or not known
  std::uint32_t layer = 0;              // that gave it; a directory: that spoke of it last
  bool implied = false;                 // a parent directory that no layer gives
  std::vector<TreeRun> runs;            // where its content lies; gaps are zeros
};

struct FlatTree {
  std::map<std::string, FlatEntry, std::less<>> entries;  // by path without leading "/"; "" = the root
  std::uint32_t layers = 0;
  bool has_elf_facts = false;  // false: the index of some layer was made before there were any; `elf` says nothing then
};

// Layers base first. Throws CorruptData as LayerMerger does.
FlatTree flatten(std::vector<LayerEntries> layers);

// The entries of all layers from the index, here or fetched, checked against the image. `fetched_bytes`, if given, is
// added to.
std::vector<LayerEntries> read_layer_entries(LocalIndex& local, const LoadedIndex& index, const oci::Image& image,
                                             std::uint64_t* fetched_bytes = nullptr);

// The same of one layer.
LayerEntries read_layer_entries_of(LocalIndex& local, const LoadedIndex& index, const oci::Image& image,
                                   std::size_t layer, std::uint64_t* fetched_bytes = nullptr);

// True if nothing but the place of the content differs: type, mode, owner, time, xattrs, links, size, content. `why`,
// if given, gets the first difference in words ("mode 0644 instead of 0755").
bool same_entry(const FlatEntry& before, const FlatEntry& after, std::string* why = nullptr);

}  // namespace varve::index
