#pragma once
// An image that is open in the daemon: its tree and the streams of its layers, mounted or not.
#include <memory>
#include <string>
#include <vector>

#include "core/base/guarded.h"
#include "core/index/local_index.h"
#include "core/index/this_index.h"
#include "core/oci/image.h"
#include "fuse/control_client.h"
#include "fuse/layer_stream.h"
#include "fuse/stream_file.h"

namespace varve::fuse {

// Safe to use from any thread once it is open.
class ServedImage {
 public:
  // Resolves the reference, loads the index (from here or from the repository) and opens the streams. Goes to the network.
  // kRepository: asks there for a newer index, too.
  static std::shared_ptr<ServedImage> open(const ImageSpec& spec, const std::shared_ptr<index::LocalIndex>& local, LayerStreams& streams,
                                           index::IndexPlace place = index::IndexPlace::kHere);

  // An image that is open in an earlier daemon, with the same index (by the digest of its manifest): needs neither
  // repository nor registry, as far as all that a mount loads is on this machine.
  static std::shared_ptr<ServedImage> reopen(const ImageSpec& spec, oci::Image image, const Digest& index_manifest, index::Judged judged,
                                             const std::shared_ptr<index::LocalIndex>& local, LayerStreams& streams);

  const Digest& digest() const { return image_.digest(); }
  const ImageSpec& spec() const { return spec_; }
  const oci::Image& image() const { return image_; }
  const std::string& reference() const { return spec_.reference; }
  const index::LoadedIndex& index() const { return index_; }
  // One per layer, base first; an image may repeat a layer.
  const std::vector<std::shared_ptr<LayerStream>>& layers() const { return layers_; }
  // Each stream once.
  const std::vector<std::shared_ptr<LayerStream>>& distinct_layers() const { return distinct_; }
  // devices()[i] is device i+1 of the tree.
  const std::vector<std::shared_ptr<StreamFile>>& devices() const { return devices_; }
  bool has_ranges_device() const { return devices_.size() > layers_.size(); }

  // What is cold of it; by layer digest. Another opening of the same image may have learned of newer marks.
  std::shared_ptr<const index::ColdRanges> cold() const;
  void take_marks_of(const ServedImage& opened_later);

  // From memory; fetched and requested since this was opened.
  ImageStats stats() const;

 private:
  ServedImage(ImageSpec spec, oci::Image image, index::LoadedIndex index);
  static std::shared_ptr<ServedImage> serve(std::shared_ptr<ServedImage> served,
                                            const std::shared_ptr<index::LocalIndex>& local, LayerStreams& streams);
  ImageSpec spec_;
  oci::Image image_;
  index::LoadedIndex index_;
  std::vector<std::shared_ptr<LayerStream>> layers_;
  std::vector<std::shared_ptr<LayerStream>> distinct_;
  mutable Guarded<std::shared_ptr<const index::ColdRanges>> cold_;
  std::vector<StreamStats> before_;  // of distinct_, when this was opened
  std::vector<std::shared_ptr<StreamFile>> devices_;
};

}  // namespace varve::fuse
