#pragma once
// From a reference to the one image it means on this platform.
#include <functional>
#include <memory>
#include <optional>

#include "core/oci/manifest.h"
#include "core/oci/repository.h"

namespace varve::oci {

// Named by the digest of its manifest; `document` holds the exact bytes.
struct Image {
  std::shared_ptr<Repository> repository;
  Document document;
  Manifest manifest;
  ImageConfig config;
  Bytes config_json;
  std::string selector;      // as it was asked for: a tag, the digest of a manifest or of a list, or "" where the
                             // repository holds one image
  std::string reference;     // the same with its repository, as it was typed; "" if it was opened without one
  RegistryOptions registry;  // for further repositories: its index may come from another one

  const Digest& digest() const { return document.descriptor.digest; }
  // What to type for this very image: `reference`, or what means the same.
  std::string typed() const;
};

struct ImageRequest {
  // As users write them; `platform` "" = this machine's. Throws UsageError.
  static ImageRequest parse(std::string_view reference, const std::string& platform, const RegistryOptions& registry);

  Reference reference;
  std::string text = {};                  // the reference as it was typed
  std::optional<Platform> platform = {};  // absent: this machine's, or whatever the only image there is for
  RegistryOptions registry;
};

// What may be spared, and done meanwhile, when an image is opened.
struct ImageOpening {
  Repository* kept = nullptr;  // of this machine; a config that is there is not asked for
  // Called once, before the config is here and while it is fetched, with the image without it. What it throws is thrown
  // unless the image cannot be opened.
  std::function<void(const Image&)> meanwhile = {};
  bool reads_follow = false;  // Repository::expect_reads()
};

// Resolves tag and platform (through nested indexes up to kMaxIndexDepth), reads and checks manifest and config: number
// of diff_ids equals number of layers, nondistributable layers named in the error, schema 1 refused. Throws NotFound
// listing the platforms that are there if none fits; a platform that was asked for must fit an image without a list,
// too.
Image open_image(const ImageRequest& request, const ImageOpening& opening = {});
// The same where the repository is open already.
Image open_image(std::shared_ptr<Repository> repository, std::string_view selector, const Platform& platform);

}  // namespace varve::oci
