#pragma once
// An additional image store of podman and CRI-O: a folder that containers/storage reads beside its own (its store.go,
// images.go, layers.go, drivers/overlay). Each image has as many layers there as its manifest, since what is committed
// or built on it counts them; all are empty but the top one, which is the image's merged tree, mounted.
//
//   STORE/overlay-images/images.json, ID/...      the images; manifest and config of each
//   STORE/overlay-layers/layers.json              the layers
//   STORE/overlay/LAYER/diff, link, lower, l/...  their content; `diff` of a top layer is where the tree is mounted
//   STORE/varve/ID.json                           ours: of what the lists are made, and how it is mounted again
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/files/unique_fd.h"
#include "core/oci/reference.h"
#include "fuse/control/control_messages.h"

namespace varve::fuse::podman {

struct StoredImage {
  Digest config;                   // podman's ID of the image is its hex
  std::vector<Digest> manifests;   // of equal content; the first is the one that is mounted
  std::vector<std::string> names;  // as podman has them: HOST/REPO:TAG, HOST/REPO@DIGEST; none once they have moved on
  std::size_t layers = 0;          // of the manifest; at least one
  std::uint64_t bytes = 0;         // of all layers, uncompressed
  std::string created;             // RFC 3339, of the image
  MountMode mode = MountMode::kAuto;  // as it was asked for
  ImageSpec spec;                     // as it was asked for: what its tag names may have changed since

  std::string id() const { return config.hex(); }
  // Base first, made of the layers' contents and their parents as containers/image does: so what is committed on the
  // image shares them. No image of others has such layers.
  std::vector<std::string> layer_ids() const;
  std::string top_layer() const { return layer_ids().back(); }
};

// One record. Throws CorruptData or Unsupported for what is none.
StoredImage parse_stored_image(std::string_view json, std::string_view what);
std::string stored_image_json(const StoredImage& image);

// "HOST/REPO:TAG" or "HOST/REPO@DIGEST", as podman keeps names. Throws UsageError for what is in no registry and so has
// no such name of itself.
std::string podman_name(const oci::Reference& reference);
// The same of what a person calls an image; a name without a host is of localhost, as in `podman tag`. Throws
// UsageError for a name that podman would not take.
std::string parse_podman_name(const std::string& typed);

// The 26 letters by which the driver knows a layer in mount options.
std::string link_of(std::string_view layer_id);

// The files. One object at a time has a store (flock); not shared between threads. Errors of the disk are
// std::system_error.
class ImageStore {
 public:
  // Makes what is missing, and waits for others to be done. Throws UsageError for a folder that others may write to, or
  // with a symbolic link in a folder's place.
  explicit ImageStore(std::filesystem::path dir);

  const std::filesystem::path& dir() const { return dir_; }
  // By names. A damaged record, or one whose manifest or config is not what it says, is left out, and a warning names
  // it.
  std::vector<StoredImage> images() const;
  // Where the tree of the image is to be mounted; made with the image's other folders.
  std::filesystem::path make_folders(const StoredImage& image) const;
  std::filesystem::path tree_dir(const StoredImage& image) const;
  // Keeps the record, manifest (of the last of `image.manifests`) and config. Not in the lists yet.
  void put(const StoredImage& image, ByteView manifest, ByteView config) const;
  // Changes a record whose documents are here.
  void update(const StoredImage& image) const;
  // Takes its files away; nothing may be mounted there.
  void remove(const StoredImage& image) const;
  // Writes the lists of those images whose tree is mounted, layers before images, so that what podman finds is there.
  // Lists that say so already stay untouched.
  void publish(const std::function<bool(const std::filesystem::path& tree)>& is_mounted) const;

 private:
  std::filesystem::path record_file(const StoredImage& image) const;
  std::filesystem::path document_file(const StoredImage& image, std::string_view name) const;
  bool is_whole(const StoredImage& image) const;
  bool replace(const std::filesystem::path& list, const std::string& content) const;

  std::filesystem::path dir_;
  UniqueFd lock_;
};

}  // namespace varve::fuse::podman
