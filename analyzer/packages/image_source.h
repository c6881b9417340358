#pragma once
// The files of an OCI image, with or without an index.
#include <cstdint>
#include <memory>

#include "analyzer/packages/file_source.h"
#include "core/base/work.h"
#include "core/index/local_index.h"
#include "core/oci/image.h"

namespace varve::packages {

inline constexpr std::uint64_t kMaxKeptBytes =
    256u << 20;  // contents kept from the pass over the layers; others are read in a second one

struct FetchTally {
  std::uint64_t bytes = 0;     // compressed side, of layers and index blobs; what lay here already is not counted
  std::uint64_t requests = 0;  // of layers and windows
};

// A source that says what it cost.
class ImageSource : public FileSource {
 public:
  virtual FetchTally fetched() const = 0;
};

// Reads every layer once from its start, and layers again for contents that were not kept. Memory: the names, and
// kMaxKeptBytes. Image, progress and cancel flag must outlive it. Throws CorruptData naming the layer, Unsupported
// beyond the limits, Cancelled, and what the repository throws.
std::unique_ptr<ImageSource> read_image(const oci::Image& image, const Work& work);

// Names, sizes and digests from the index's layer entries, contents by fetching the spans that hold them. All arguments
// must outlive it; `windows` serves the windows of gzip layers. Throws as the index's readers do.
std::unique_ptr<ImageSource> open_indexed_image(const oci::Image& image, const index::LoadedIndex& index,
                                                index::LocalIndex& local, oci::Repository& windows);

}  // namespace varve::packages
