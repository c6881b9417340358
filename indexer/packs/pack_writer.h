#pragma once
// Writes start-up packs: bytes of layers, gathered by one pass over the spans that hold them, as zstd frames. The same
// contents give the same blobs with one version of the library.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/base/files/file.h"
#include "core/base/work.h"
#include "core/index/format/start_packs.h"
#include "core/index/opened_image.h"
#include "core/oci/repository.h"
#include "indexer/packs/stream_ranges.h"

namespace varve::indexer {

inline constexpr int kPackZstdLevel = 15;

// Whoever gives bytes of an image's layers. Called from several threads; must outlive what uses it.
struct LayerStreams {
  // As ContentReader::read_ranges(). May throw.
  std::function<void(std::size_t layer, const std::vector<ByteRange>& stream_ranges,
                     const index::ContentReader::RangeSink& sink)>
      read;
  // False for a layer that is decoded from its start at each call.
  std::function<bool(std::size_t layer)> can_be_entered;
};
// The image must outlive it.
LayerStreams layer_streams(const index::OpenedImage& image);

struct PackContent {
  std::vector<PackRange> ranges;    // in the order in which they are wanted; no byte twice
  std::vector<PackRange> literals;  // in none of the ranges
};

// Memory: a few frames for each thread. Not shared between threads.
class PackWriter {
 public:
  // `scratch_dir`: for the bytes of all packs that are written in one go, and the blobs until they are put; made if it
  // is not there, and nothing stays in it. `jobs` 0: as many as cores.
  PackWriter(LayerStreams streams, std::filesystem::path scratch_dir, unsigned jobs);
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // One pack for each, the layers of its ranges and literals by their places in the image. Work is counted in bytes of
  // streams, twice: read, and compressed.
  std::vector<index::StartPack> write(const std::vector<PackContent>& contents, const Work& work);
  // Of packs that this one wrote.
  void put(const index::StartPack& pack, oci::Repository& repository) const;

  // For each whether the bytes where it places its stream are those of its frames. Its literals are set to what the
  // layers have.
  std::vector<bool> fits(std::vector<index::StartPack>& packs, const Work& work);

 private:
  struct Gathered;
  Gathered gather(std::vector<index::StartPack>& packs, const Work& work) const;
  void compress(const Gathered& gathered, std::uint64_t begin, index::StartPack& pack, const Work& work);

  const LayerStreams streams_;
  const std::filesystem::path scratch_dir_;
  const unsigned jobs_;
  AtomicFile blobs_;  // one after the other
  std::uint64_t blobs_end_ = 0;
  std::map<Digest, std::uint64_t> blob_offsets_;
};

// The list of packs: their layers, by places in the image until now, become those of the list; groups are put in order.
index::StartPacks list_packs(std::vector<index::StartGroup> groups, const std::vector<oci::Descriptor>& layers);
// The other way: groups whose layers are places in the image. Throws CorruptData for a layer that is none of it.
std::vector<index::StartGroup> groups_by_place(const index::StartPacks& packs,
                                               const std::vector<oci::Descriptor>& layers);

}  // namespace varve::indexer
