#pragma once
// Which file of an image a byte of its layers belongs to.
#include <cstdint>
#include <string>
#include <vector>

#include "core/index/merge/flat_tree.h"
#include "core/oci/manifest.h"
#include "indexer/packs/stream_ranges.h"

namespace varve::indexer {

// A run of a file's content.
struct FilePlace {
  PackRange content;              // without padding
  std::uint64_t file_offset = 0;  // of its first byte
  const std::string* path = nullptr;
  const index::FlatEntry* file = nullptr;

  // With the padding to a whole tar block, which is read with it.
  std::uint64_t padded_end() const { return (content.stream_range.end() + 511) / 512 * 512; }
};

// The first place of each layer's digest: an image may repeat a layer.
std::vector<std::uint32_t> first_places(const std::vector<oci::Descriptor>& layers);

// Of the files that the image shows. Safe to use from several threads.
class FilePlaces {
 public:
  // `tree` must outlive it. `first_places`: of the image's layers.
  FilePlaces(const index::FlatTree& tree, const std::vector<std::uint32_t>& first_places);

  // The file that has the byte in its content or in the padding behind it; null if none has.
  const FilePlace* at(std::uint32_t layer, std::uint64_t stream_offset) const;
  // A range cut at the borders of files; what belongs to none is left out. Ascending.
  struct Piece {
    PackRange range;
    const FilePlace* place = nullptr;
  };
  std::vector<Piece> pieces(const PackRange& range) const;
  // The runs of a file by path, in the order of its content; empty for one that is none.
  std::vector<FilePlace> runs_of(const std::string& path) const;

 private:
  std::vector<FilePlace>::const_iterator first_behind(std::uint32_t layer, std::uint64_t stream_offset) const;
  FilePlace place_of(const std::string& path, const index::FlatEntry& file, const index::TreeRun& run) const;

  const index::FlatTree& tree_;
  const std::vector<std::uint32_t> first_places_;
  std::vector<FilePlace> places_;  // by layer and offset
};

// Time and size of the source in compiled Python: what of these ranges must not be in a pack, as it differs where the
// same files are installed again. Cut out of `ranges`, and given.
std::vector<PackRange> take_out_times(std::vector<PackRange>& ranges, const FilePlaces& places);

}  // namespace varve::indexer
