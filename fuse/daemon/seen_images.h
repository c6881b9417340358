#pragma once
// What references meant when their registries last answered: a session on an image that is here starts also while its
// registry is away.
#include <filesystem>
#include <optional>

#include "fuse/daemon/handover.h"
#include "fuse/daemon/served_image.h"

namespace varve::fuse {

// Files ROOT/seen/HEX.json, each a record of one image as docs/staying-alive.md describes it, named by the digest of
// reference and platform. Safe to use from any thread.
class SeenImages {
 public:
  explicit SeenImages(std::filesystem::path dir) : dir_(std::move(dir)) {}

  // Nothing depends on it: failures are logged.
  void remember(const ServedImage& image) const;
  // Absent where the reference was never opened on this machine, or its file is damaged, which is logged.
  std::optional<HandoverImage> find(const ImageSpec& spec) const;

 private:
  std::filesystem::path file_of(const ImageSpec& spec) const;
  const std::filesystem::path dir_;
};

}  // namespace varve::fuse
