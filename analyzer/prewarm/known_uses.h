#pragma once
// What the usage database says of images, as a plan of what to keep warm needs it.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "analyzer/prewarm/used_content.h"
#include "analyzer/usage/snapshot.h"
#include "core/base/digest.h"

namespace varve::prewarm {

// Of one image where its sessions were heard, else of all: a new version is used as the ones before it. Not shared
// between threads.
class KnownUses {
 public:
  // What is known of one window of time: of one image, or of all.
  using Ask = std::function<usage::Snapshot(const std::optional<Digest>& image)>;

  // Asks for all images at once, and later for one image where distributions_of() needs it. Throws what `ask` throws.
  explicit KnownUses(Ask ask);

  // That were started of it in the window; 0 of an image that is not known.
  std::uint64_t sessions_of(const Digest& image) const;
  // By normalised name. A session counts that imported something of a distribution or opened its files.
  std::map<std::string, KnownUse> distributions_of(const Digest& image) const;

 private:
  const usage::ImageFacts* facts_of(const Digest& image) const;

  Ask ask_;
  usage::Snapshot all_;
};

}  // namespace varve::prewarm
