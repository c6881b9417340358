#pragma once
// Which images were opened on this machine, by which names and when, so that what lies in the store by layers can be
// told, and removed, by images. ROOT/opened: docs/formats/store.md "Images".
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/files/late_sync.h"
#include "core/index/local_index.h"
#include "fuse/control/control_messages.h"

namespace varve::fuse {

struct OpenedImage {
  std::string reference;  // as Reference::to_string() writes it
  std::string platform;   // "" = this machine's
  Digest image;
  std::int64_t last_used = 0;  // seconds since 1970
  bool current = true;         // false: the reference has meant another image since
};

// A folder of small files, one for each name and image. Safe to use from any thread and by several processes. A file
// that is damaged counts as none, which is logged.
class OpenedImages {
 public:
  explicit OpenedImages(std::filesystem::path root) : dir_(std::move(root) / "opened") {}

  // Used now. Nothing depends on it but what `varve images` says: failures are logged, and nobody waits for the disk.
  void note(const ImageSpec& spec, const Digest& image) const;
  // The last used first.
  std::vector<OpenedImage> list() const;
  // All names of the image. Throws std::system_error.
  void forget(const Digest& image) const;

 private:
  std::filesystem::path file_of(const std::string& reference, const std::string& platform, const Digest& image) const;

  std::filesystem::path dir_;
  std::shared_ptr<LateSync> later_ = std::make_shared<LateSync>();
};

// An image of which something is in the store.
struct StoredImage {
  Digest image;
  std::vector<OpenedImage> names;                   // the last used first; at least one
  std::optional<std::uint64_t> image_stream_bytes;  // of all layers; absent if a layer map is not on this machine
  std::uint64_t disk_bytes = 0;                     // what its layers take, windows and logs included
  std::uint64_t own_bytes = 0;                      // of those, of layers that no other of these images has
};
struct StoredImages {
  std::vector<StoredImage> images;  // the last used first
  std::uint64_t other_bytes = 0;    // on disk, of layers of no image that is known
};

// From the folders alone: needs no daemon, and disturbs none.
StoredImages find_stored_images(const DaemonPaths& paths, index::LocalIndex& local);

// Of an image that was opened here. Throws NotFound, or CorruptData for a manifest that is damaged.
std::set<Digest> layers_of(index::LocalIndex& local, const Digest& image);

// The layers of the image that no other opened image has. Throws NotFound if its manifest is not on this machine.
std::vector<Digest> layers_of_its_own(const OpenedImages& opened, index::LocalIndex& local, const Digest& image);

}  // namespace varve::fuse
