#pragma once
// An image's merged tree by path, with the digests of its contents, and what of its layers nobody sees: what package
// lists, comparisons, proofs and rewriting work on. Read from the index alone.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/index/elf/elf_facts.h"
#include "core/index/local_index.h"
#include "core/index/merge/compressed_shares.h"
#include "core/index/merge/merge_layers.h"
#include "core/index/merge/path_list.h"
#include "core/index/merge/tree.h"

namespace varve::index {

inline constexpr std::size_t kMaxTreeNames =
    20'000'000;  // of a whole image; a few directories linked often enough would make more
inline constexpr std::size_t kMaxTreePathBytes = 4096;  // deeper names cannot be opened by anybody

struct FlatEntry : FileAttributes {  // type never kHardLink: see `link_of`
  FlatEntry() {
    type = FileType::kDirectory;
    mode = 0755;
  }

  std::uint64_t size = 0;  // regular files
  std::string symlink_target;
  std::string link_of;  // the first name, in byte order, of the same inode; "" = this is it
  Digest
      content_digest;  // regular, not empty: SHA-256 of the content. All zero where the index has none (kMaxHoleBytes)
  std::shared_ptr<const ElfFacts> elf;  // null: no ELF file, or not known
  std::uint32_t layer = 0;              // that gave it; a directory: that spoke of it last. 0 where there are no layers
  std::uint32_t entry = kNoEntry;       // its place in that layer's entries
  std::uint64_t compressed_bytes = 0;   // its share of its layer's blob, tar header and padding included
  bool implied = false;                 // a parent directory that no layer gives
  std::vector<TreeRun> runs;            // where its content lies; gaps are zeros

  bool is_first_name() const { return link_of.empty(); }
};

// A regular file or symlink that a layer holds and nobody sees, because that or an upper layer hides it.
struct HiddenFile {
  std::string path;  // as its layer names it
  FileType type = FileType::kRegular;
  std::uint64_t size = 0;
  std::uint32_t layer = 0;
  std::uint64_t compressed_bytes = 0;
  std::uint32_t by_layer = 0;
  bool deleted = false;       // by a whiteout; else replaced
  bool same_content = false;  // replaced by the very same bytes (a file that only changed its owner, mode or time)
};

struct FlatTree {
  using Entries = std::map<std::string, FlatEntry, std::less<>>;
  Entries entries;  // by path without leading "/"; "" = the root
  std::vector<HiddenFile> hidden;
  std::uint32_t layers = 0;
  bool has_elf_facts = false;  // false: the index of some layer was made before there were any; `elf` says nothing then

  // nullptr if there is no regular file of that name. Symbolic links are not followed.
  const FlatEntry* find_regular(std::string_view path) const;
};

// Makes the tree of layers: add() base first, then finish().
class FlatTreeMaker {
 public:
  FlatTreeMaker();
  FlatTreeMaker(const FlatTreeMaker&) = delete;
  FlatTreeMaker& operator=(const FlatTreeMaker&) = delete;

  // Without shares `compressed_bytes` is 0. Throws what LayerMerger throws.
  void add(LayerEntries layer, const CompressedShares& shares = {});
  // The maker is used up. Throws Unsupported beyond the limits above.
  FlatTree finish();

 private:
  // What is kept of an entry when the merger has taken it.
  struct Fact {
    FileType type = FileType::kRegular;
    bool visible = false;  // under some name
    std::uint64_t size = 0;
    std::uint64_t compressed_bytes = 0;
    Digest content;
    std::shared_ptr<const ElfFacts> elf;
  };
  struct LayerFacts {
    std::vector<Fact> facts;  // by entry
    PathList paths;           // of them
  };
  struct Removal {
    std::uint32_t by_layer = 0;
    bool deleted = false;
  };

  void note_removal(const TreeInode& removed, std::uint32_t by_layer, bool deleted);
  void put(const std::string& path, TreeInode inode);
  void put_all(TreeInode root);
  void list_hidden();
  void compare_hidden(const std::vector<const Fact*>& facts);

  LayerMerger merger_;
  std::vector<LayerFacts> layers_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Removal> removals_;  // by layer and entry
  FlatTree flat_;
};

// The tree of all these layers, base first. Throws CorruptData as LayerMerger does.
FlatTree flatten(std::vector<LayerEntries> layers);

// The entries of one layer from the index, here or fetched, checked against the image. `fetched_bytes`, if given, is
// added to.
LayerEntries read_layer_entries_of(LocalIndex& local, const LoadedIndex& index, const oci::Image& image,
                                   std::size_t layer, std::uint64_t* fetched_bytes = nullptr);

// The tree of the whole image. Memory: the tree, and the entries of one layer.
FlatTree read_flat_tree(LocalIndex& local, const LoadedIndex& index, const oci::Image& image,
                        std::uint64_t* fetched_bytes = nullptr);

// True if nothing but the place of the content differs: type, mode, owner, time, xattrs, links, size, content. `why`,
// if given, gets the first difference in words ("mode 0644 instead of 0755").
bool same_entry(const FlatEntry& before, const FlatEntry& after, std::string* why = nullptr);

}  // namespace varve::index
