#pragma once
// The layers of an image put together: the tree that a container sees, and what of the layers it does not see.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analyzer/packages/compressed_shares.h"
#include "analyzer/packages/file_source.h"
#include "core/index/format/layer_entries.h"
#include "core/index/merge/merge_layers.h"
#include "core/index/merge/tree.h"

namespace varve::packages {

inline constexpr std::size_t kMaxStackFiles =
    20'000'000;  // names of a whole image; a few directories linked often enough would make more
inline constexpr std::size_t kMaxStackPathBytes = 4096;  // deeper names cannot be opened by anybody

// add() base first, then finish(); the rest may be asked from then on. Not shared between threads.
class LayerStack {
 public:
  LayerStack();
  LayerStack(const LayerStack&) = delete;
  LayerStack& operator=(const LayerStack&) = delete;

  // Throws what index::LayerMerger throws.
  void add(index::LayerEntries layer, const CompressedShares& shares);
  void finish();

  const std::map<std::string, SourceFile, std::less<>>& files() const { return files_; }
  const std::vector<HiddenFile>& hidden() const { return hidden_; }
  // Where the content of a visible regular file lies; nullptr if there is none of that name.
  const index::TreeInode* find_regular(std::string_view path) const;

 private:
  // What is kept of an entry when the merger has taken it.
  struct Fact {
    std::string path;
    index::FileType type = index::FileType::kRegular;
    std::uint64_t size = 0;
    std::uint64_t compressed_bytes = 0;
    Digest content;
  };
  struct Removal {
    std::uint32_t by_layer = 0;
    bool deleted = false;
  };
  using Place = std::pair<std::uint32_t, std::uint32_t>;  // layer, entry

  void note_removal(const index::TreeInode& removed, std::uint32_t by_layer, bool deleted);
  void list_files();
  void list_hidden();
  const Fact* fact_of(std::uint32_t layer, std::uint32_t entry) const;
  bool has_same_content(const Fact& fact, std::uint32_t layer,
                        std::map<std::uint32_t, std::map<std::string_view, const Fact*>>& by_path) const;

  index::LayerMerger merger_;
  index::Tree tree_;
  std::vector<std::vector<Fact>> facts_;
  std::map<Place, Removal> removals_;
  std::vector<std::vector<bool>> seen_;  // by layer and entry: visible under some name
  std::map<std::string, SourceFile, std::less<>> files_;
  std::vector<HiddenFile> hidden_;
};

}  // namespace varve::packages
