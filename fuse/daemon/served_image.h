#pragma once
// An image that is open in the daemon: its tree and the streams of its layers, mounted or not.
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/threads/guarded.h"
#include "core/index/opened_image.h"
#include "core/oci/image.h"
#include "fuse/control/control_messages.h"
#include "fuse/mount/image_packs.h"
#include "fuse/mount/image_seeds.h"
#include "fuse/mount/stream_file.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

class LoaderAhead;

// Safe to use from any thread once it is open.
class ServedImage {
 public:
  // Loads the index (from here or from the repository) and opens the streams. Goes to the network.
  static std::shared_ptr<ServedImage> open(const ImageSpec& spec, oci::Image image, index::ChosenIndex chosen,
                                           const std::shared_ptr<index::LocalIndex>& local, LayerStreams& streams);

  // An image that is open in an earlier daemon, with the same index (by the digest of its manifest): needs neither
  // repository nor registry, as far as all that a mount loads is on this machine.
  static std::shared_ptr<ServedImage> reopen(const ImageSpec& spec, oci::Image image, const Digest& index_manifest,
                                             const std::shared_ptr<index::LocalIndex>& local, LayerStreams& streams);

  // The tree of its lowest layers alone, without what start-ups read (prefix_tree.h). May go to the network for the
  // entries of layers.
  static std::shared_ptr<ServedImage> of_first_layers(const ServedImage& whole, std::uint32_t layers,
                                                      const std::shared_ptr<index::LocalIndex>& local,
                                                      LayerStreams& streams);

  ~ServedImage();  // the kernel may have its files open for longer
  ServedImage(const ServedImage&) = delete;
  ServedImage& operator=(const ServedImage&) = delete;

  const Digest& digest() const { return opened_.digest(); }
  const ImageSpec& spec() const { return spec_; }
  const oci::Image& image() const { return opened_.image(); }
  // Of the manifest of the index that it was opened with.
  const Digest& index_digest() const { return index().blobs.manifest.digest; }
  // So many of the image's layers its tree shows; 0: all. The image() of such a tree has no others.
  std::uint32_t tree_layers() const { return tree_layers_; }
  // Tells it from others whose streams and files are not the same (handover.h).
  Digest tree_name() const;
  // True if both show the same: the same image by indexes of one content. What is cold and the profile may differ.
  bool shows_the_same_as(const ServedImage& other) const {
    return digest() == other.digest() && tree_layers_ == other.tree_layers_ &&
           index::same_content(index().blobs, other.index().blobs);
  }
  const std::string& reference() const { return spec_.reference; }
  const index::LoadedIndex& index() const { return opened_.index(); }
  // One per layer, base first; an image may repeat a layer.
  const std::vector<std::shared_ptr<LayerStream>>& layers() const { return layers_; }
  // Each stream once.
  const std::vector<std::shared_ptr<LayerStream>>& distinct_layers() const { return distinct_; }
  // devices()[i] is device i+1 of the tree.
  const std::vector<std::shared_ptr<StreamFile>>& devices() const { return devices_; }
  bool has_ranges_device() const { return devices_.size() > layers_.size(); }
  // The same for mounts: reading from start-up packs what comes faster from there, and seen by run_ahead_of_loaders().
  const std::vector<std::shared_ptr<StreamFile>>& mounted_devices() const { return mounted_devices_; }
  // From now on what loaders are about to read is fetched before they ask (loader/loader_ahead.h).
  void run_ahead_of_loaders() const;
  // From now on starts send for their packs. Nothing if it has none.
  void use_packs() const;
  std::shared_ptr<ImagePacks> packs() const { return packs_; }  // null if it has none
  // From now on what earlier versions have of its layers is read there. `sources` as ImageSeeds has them.
  void use_seeds(index::Seeds seeds, const std::vector<std::shared_ptr<LayerStream>>& sources,
                 ImageSeeds::Whole whole) const;
  bool uses_seeds() const { return seeds_->is_enabled(); }
  const ImageSeeds& seeds() const { return *seeds_; }
  // The layers', each once, and those of packs that the store has something of.
  std::vector<std::shared_ptr<LayerStream>> streams_with_packs() const;
  // Of one of its layers or packs; what is fetched of a pack is kept as if a start had asked for it. Null if it has
  // none of this digest.
  std::shared_ptr<LayerStream> stream_to_fetch(const Digest& layer_or_pack) const;

  // What is cold of it; by layer digest. Another opening of the same image may have learned of newer marks.
  std::shared_ptr<const index::ColdRanges> cold() const;
  void take_marks_of(const ServedImage& opened_later);

  // How many of distinct_layers() were found to be what the image says, and how many were complete when they were
  // looked at (layer_proofs.h).
  void note_proved_layers(std::size_t count) const { proved_layers_ = count; }
  void note_looked_at_layers(std::size_t count) const { looked_at_layers_ = count; }
  std::size_t looked_at_layers() const { return looked_at_layers_; }
  // Until then it is not looked at again: its layers were damaged in the store. Used by one thread.
  void not_looked_at_before(std::chrono::steady_clock::time_point then) const { not_looked_at_before_ = then; }
  std::chrono::steady_clock::time_point not_looked_at_before() const { return not_looked_at_before_; }

  // From memory; fetched and requested since this was opened.
  ImageStats stats() const;

 private:
  using Layers = std::vector<std::shared_ptr<LayerStream>>;  // base first
  // And those that are open already; null for `later`. The tree of the index need not be there yet.
  static Layers open_layers(const index::LocalIndex& local, const oci::Image& image, const index::LoadedIndex& index,
                            LayerStreams& streams, Layers open = {}, const std::set<Digest>& later = {});
  ServedImage(ImageSpec spec, const index::LocalIndex& local, oci::Image image, index::LoadedIndex index, Layers layers,
              LayerStreams& streams, std::uint32_t tree_layers = 0);
  void open_packs();
  std::shared_ptr<LayerStream> open_pack(const index::StartPack& pack) const;
  void keep_map(const index::StartPack& pack) const;
  std::set<Digest> stored() const;

  ImageSpec spec_;
  std::uint32_t tree_layers_ = 0;
  index::OpenedImage opened_;
  Layers layers_;
  std::vector<std::shared_ptr<LayerStream>> distinct_;
  mutable Guarded<std::shared_ptr<const index::ColdRanges>> cold_;
  mutable std::atomic<std::size_t> proved_layers_ = 0;
  mutable std::atomic<std::size_t> looked_at_layers_ = 0;
  mutable std::chrono::steady_clock::time_point not_looked_at_before_;
  std::vector<StreamStats> before_;  // of distinct_, when this was opened
  std::vector<std::shared_ptr<StreamFile>> devices_;
  std::vector<std::shared_ptr<StreamFile>> mounted_devices_;
  LayerStreams& streams_;
  const std::shared_ptr<ImageSeeds> seeds_ = std::make_shared<ImageSeeds>();
  std::shared_ptr<ImagePacks> packs_;
  std::shared_ptr<LoaderAhead> loader_ahead_;
};

}  // namespace varve::fuse
