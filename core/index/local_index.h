#pragma once
// What this machine knows: index blobs under the local root, so that a layer is indexed once and a mount works without
// the registry.
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "core/base/files/late_sync.h"
#include "core/base/files/mapped_file.h"
#include "core/index/early_blobs.h"
#include "core/index/format/cold_ranges.h"
#include "core/index/format/image_index.h"
#include "core/index/format/profile.h"
#include "core/index/format/start_packs.h"
#include "core/trust/judge.h"
#include "core/trust/origin.h"

namespace varve::index {

// An index and why it is believed.
struct TrustedIndex {
  FoundIndex found;
  trust::Judgement judgement;
};

// ROOT/index is an OCI layout folder of our artifacts; ROOT/trees/HEX.erofs are decompressed trees, ready for the
// kernel; ROOT/index-origin says where each index came from. Safe to use from any thread and by several processes at
// once. Nobody waits for the disk to take a tree: its digest is checked whenever it is opened, and it is unpacked again
// where a power loss has torn it. Blobs are on disk once a manifest that was put after them is.
class LocalIndex {
 public:
  static constexpr std::chrono::milliseconds kRestBeforeListing{500};

  // Creates the folders. Throws UsageError for settings that name keys which cannot be read.
  explicit LocalIndex(std::filesystem::path root, const trust::TrustSettings& settings = {},
                      std::chrono::milliseconds rest_before_listing = kRestBeforeListing);
  oci::Repository& repository();  // the layout folder, as source and destination of blobs
  const trust::Judge& judge() const { return *judge_; }
  trust::OriginRecords& origins() const { return *origins_; }

  // What the judge says of an index that is here, or that the image's repository offers now, or that of `index_from`,
  // one of the further ones where indexes are looked for ("" = none).
  trust::Judgement judge(const oci::Image& image, const FoundIndex& index, oci::Repository& place, bool offered_now,
                         std::string index_from = {}) const;
  // True if it counts as soon as one of the same content does, that has other notes (profile, cold marks).
  bool may_take_notes(const oci::Image& image, const FoundIndex& index) const;
  // Of those that are here and trusted, the one that is taken. What is wrong with others is appended to `refusals`, one
  // line each.
  std::optional<TrustedIndex> find_trusted(const oci::Image& image, std::vector<std::string>& refusals);
  // The same, for who does not ask why.
  std::optional<ImageIndexBlobs> find_index(const oci::Image& image);
  // Believed or not.
  std::optional<LayerIndexBlobs> find_layer_index(const Digest& layer_digest);
  // The decompressed tree, fetched from `source` if it is not here, or not as it was written; digest checked, then
  // kept.
  std::filesystem::path tree_file(const ImageIndexBlobs& index, oci::Repository& source);
  std::filesystem::path layout_dir() const;  // of repository()
  // Where trees lie, by names that others than tree_file() choose, too.
  std::filesystem::path trees_dir() const;
  // Who serves a blob of which parts are fetched when they are first needed (the windows of a gzip layer, a start-up
  // pack): this machine if it has it, else the source of the index.
  std::shared_ptr<oci::Repository> holder_of(const std::optional<oci::Descriptor>& blob,
                                             const std::shared_ptr<oci::Repository>& source) const;
  // What a mount has loaded is listed in the layout folder when a small start is over, as that waits for the disk: in
  // order, by a thread of all copies of this object, the last of which waits for it; failures are logged. Until then
  // other processes find it by its digest alone. `list` is given repository().
  void list_later(const Digest& image, std::function<void(oci::Repository& repository)> list);
  // Until that is done, of one image or of all. A process that ends without destructors calls it first.
  void wait_until_listed(const Digest& image) const;
  void wait_until_listed() const;
  // A whole blob: from here, else from `source`, then kept here.
  Bytes blob(const oci::Descriptor& blob, oci::Repository& source, std::uint64_t limit_bytes);

 private:
  struct Listing;

  std::filesystem::path root_;
  std::shared_ptr<oci::Repository> layout_;
  std::shared_ptr<LateSync> trees_ = std::make_shared<LateSync>();
  std::shared_ptr<trust::OriginRecords> origins_;
  std::shared_ptr<const trust::Judge> judge_;
  std::shared_ptr<Listing> listing_;
};

// The map in a blob, from `local` or else from `source`. Throws CorruptData, naming the blob.
LayerMap read_map(LocalIndex& local, const oci::Descriptor& blob, oci::Repository& source);

// Everything a mount needs before it is usable.
struct LoadedIndex {
  ImageIndexBlobs blobs;
  trust::Judgement judgement;               // why it is believed
  std::shared_ptr<oci::Repository> source;  // who serves those of its blobs that are not here yet
  MappedFile tree_mapping;
  std::filesystem::path tree_file;
  std::unique_ptr<ErofsReader> tree;
  RangesDevice ranges;
  std::vector<std::shared_ptr<const LayerMap>> maps;  // one per layer, base first
  ColdRanges cold;                                    // empty if the index marks nothing
  Profile profile;                                    // without ranges if the index has none
  StartPacks packs;                                   // without groups if the index has none
  std::uint64_t loaded_bytes = 0;                     // fetched from the repository for it; 0 if all was here
};

// Where load_index() looks first. kRepository: also beside the image, and in the further repositories of index-from,
// where an index is here already, as a newer one may have been published since; the one that is here is taken if they
// cannot be asked.
enum class IndexPlace : std::uint8_t { kHere, kRepository };

// The index that counts, before what it names is loaded.
struct ChosenIndex {
  TrustedIndex index;
  std::shared_ptr<EarlyBlobs> early = {};   // some of what it begins with; may be null
  std::shared_ptr<oci::Repository> source;  // who offers it; null: it is here
  bool other_notes_only = false;            // the content is that of the one that is here
};

// Finds the index here, in the image's repository or in one of index-from. Of those that the judge trusts the preferred
// one is taken, one that is vouched for before one that is only offered. Throws NotFound with what to do (`varve index
// IMAGE`) if there is none, trust::Untrusted if there is none that counts. The image's config is not looked at.
ChosenIndex choose_index(LocalIndex& local, const oci::Image& image, IndexPlace place = IndexPlace::kHere);

// Loads it and checks it against the image's manifest and config. Where it came from is recorded.
LoadedIndex load_index(const LocalIndex& local, const oci::Image& image, ChosenIndex chosen);
// The same for who goes on with it first: load_this_index() finds it from now on, and who looks for it by this
// LocalIndex waits until it is listed (list_later()). `meanwhile` is called when all but the tree is there, which is
// being unpacked.
using WithoutTree = std::function<void(const LoadedIndex& index)>;
LoadedIndex load_index_first(const LocalIndex& local, const oci::Image& image, ChosenIndex chosen,
                             const WithoutTree& meanwhile);
// Later, of what load_this_index() has found: whoever loaded it may have been killed before it was listed.
void list_this_index(LocalIndex& local, const LoadedIndex& index);
// choose_index() and load_index().
LoadedIndex load_index(LocalIndex& local, const oci::Image& image, IndexPlace place = IndexPlace::kHere);

}  // namespace varve::index
