#pragma once
// Writes an image whose layers hold what is used together. The merged tree stays what it was, entry by entry, apart
// from what the placement removes and adds, and from times where RepackTimes lets them differ; the config stays but for
// diff_ids, history and labels of ours.
// docs/design/packing.md.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/work.h"
#include "core/index/local_index.h"
#include "core/index/merge/flat_tree.h"
#include "core/index/merge/placement.h"
#include "core/index/merge/repack_times.h"
#include "indexer/layer_writer.h"
#include "indexer/layout_record.h"
#include "indexer/pack_layers.h"

namespace varve::indexer {

struct RepackOptions {
  LayerWriterOptions writer;  // `jobs` also bounds the threads that decode
  PackLimits limits;
  std::optional<std::vector<std::uint32_t>>
      keep_as_is;  // layers that stay, by their place in the image, base = 0; absent: those that are worth it
  std::filesystem::path work_dir;  // remembers the layers that are finished, and keeps what cannot be written where it
                                   // belongs; made if it is not there
  std::map<std::string, std::string> labels;  // added to the config: ours
  bool index_layers = false;  // layers that are written are indexed on the way, and kept in the input's `local`:
                              // index_image() then reads none of them
  index::RepackTimes times = {};
};

struct RepackedLayer {
  Digest digest, diff_id;
  std::uint64_t bytes = 0;  // compressed
  std::uint64_t stream_bytes = 0;
  index::Tier tier = index::Tier::kSystem;
  bool kept_as_is = false;  // of the old image
  bool reused = false;      // of the previous version, or of a run that was stopped: nothing of it was written
  std::uint64_t files_with_previous_times = 0;  // files and links, if it was only alike but for times
  std::vector<std::string>
      components;  // empty for one kept as is, and for the last one: directories that others share, and whiteouts
  std::string without_table;  // WrittenLayer's
  double seconds = 0;
};

struct RepackReport {
  Digest old_image, image;
  std::vector<RepackedLayer> layers;  // base first
  std::uint64_t reused_bytes = 0;     // compressed, of blobs kept as is, reused, or at the destination already
  std::uint64_t copied_bytes = 0;     // of these: that were not at the destination before
  std::uint64_t new_bytes = 0;
};

struct RepackInput {
  const oci::Image& image;
  const index::LoadedIndex& index;
  index::LocalIndex& local;  // that it was loaded from
  const index::FlatTree& tree;
  index::Placement placement;  // its own: the lists of paths are let go once they are cut up
  const oci::Image* previous =
      nullptr;  // the image's last version as we wrote it, and how it was packed: its layers are used again
  const LayoutRecord* previous_layout = nullptr;
};

// Which layers of the image are worth being kept as they are: those below the first that carries distributions,
// and others that hold nearly only system files, or nearly only CUDA, and little that is hidden. Ascending.
std::vector<std::uint32_t> layers_worth_keeping(const RepackInput& input, const PackLimits& limits);

// The image is visible at the destination only when all of it is there, and under `tag` only if that is not "". Its
// layout record goes along. A run that was stopped does not write again what arrived. Every content is checked against
// its digest in the index on the way. Memory: some 100 MiB beside the tree, whatever the image's size. Throws
// CorruptData when a layer is not what the index says, Unsupported for what cannot be said in a layer above others
// (naming it), UsageError for a layer in `keep_as_is` that is not there or cannot stand without others,
// trust::Untrusted for an index that nothing vouches for (the layers were never read here), Cancelled.
RepackReport repack_image(RepackInput input, oci::Repository& destination, std::string_view tag,
                          const RepackOptions& options, const Work& work);

}  // namespace varve::indexer
