#pragma once
// Copies an image as it is to where other tools take it from. Manifest, config and layers keep every byte and so their
// digests; only a docker-archive, which holds plain tars, unpacks the layers.
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/work.h"
#include "core/index/format/image_index.h"
#include "core/oci/image.h"

namespace varve::indexer {

struct ExportOptions {
  unsigned jobs = 4;  // blobs on their way at the same time
  bool with_index =
      false;  // the image's index goes along, so that it can be mounted from there; throws NotFound if it has none
};

struct ExportReport {
  Digest image;
  std::uint64_t copied_bytes = 0;  // sent; for a docker-archive the bytes of the file
  std::uint64_t reused_bytes = 0;  // of blobs that were there already
};

// Into a layout folder or registry. The manifest is put last, so what can be found is whole; a run that was stopped
// goes on with the blobs that are there. Blobs are checked against their digests on the way.
ExportReport export_image(const oci::Image& image, oci::Repository& destination, std::string_view tag,
                          const ExportOptions& options, const Work& work);

// Into one file that `docker load`, `podman load` and `skopeo copy docker-archive:` read
// (docs/guide/pins-and-export.md). Layers are unpacked and checked against their diff_ids. `name`: "repo:tag" for what
// it is loaded as, "" = none. The file appears whole or not at all.
ExportReport export_docker_archive(const oci::Image& image, const std::filesystem::path& file, const std::string& name,
                                   const Work& work);

}  // namespace varve::indexer
