#pragma once
// What a machine should hold before anybody asks for it: which pieces of which images, in which order, within a budget.
// Pure: what is known comes in, a plan comes out. docs/guide/warm-machines.md.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/digest.h"
#include "core/index/format/cold_ranges.h"
#include "core/index/format/layer_map.h"
#include "core/index/format/profile.h"

namespace varve::prewarm {

struct LayerRange {
  Digest layer;
  ByteRange stream_range;
  bool operator==(const LayerRange&) const = default;
};

// A distribution of an image that sessions used.
struct Package {
  std::string name;
  std::uint64_t sessions = 0;       // that used it
  std::vector<LayerRange> content;  // where what they use of it lies
};

// A start-up pack, which machines fetch instead of what its start reads.
struct Pack {
  std::string name;                            // of its start
  bool is_program = false;                     // else an import
  LayerRange trigger;                          // whose read sends for it
  std::shared_ptr<const index::LayerMap> map;  // of the pack, as if it were a layer
};

struct Image {
  std::string name;                                          // as the user named it
  std::vector<std::shared_ptr<const index::LayerMap>> maps;  // of its layers; a layer may be named twice
  index::ColdRanges cold;
  index::Profile profile;      // without ranges: it has none
  std::vector<Pack> packs;     // who has these needs no profile
  std::uint64_t sessions = 0;  // that were started of it
  std::vector<Package> packages;
};

// Spans that are in the store already, whatever image they came with: stream side, in order. A layer that is not named
// has none.
using Present = std::map<Digest, std::vector<ByteRange>>;

struct PlanOptions {
  std::uint64_t budget_bytes = 0;         // to be downloaded, at most
  std::uint64_t window_block_bytes = 0;   // windows of gzip layers are fetched in blocks of so many bytes,
  std::uint64_t whole_windows_bytes = 0;  // or whole if there are not more than this of the layer
  std::uint64_t merge_gap_bytes = 0;      // between pieces that come in one request, fetched for nothing
};

enum class What : std::uint8_t { kProfile, kProgramPack, kImportPack, kPackage };
enum class Action : std::uint8_t {
  kFetch,     // all of it that is missing
  kPart,      // its beginning, as far as the budget goes: of what is in the order of reading
  kLocal,     // nothing of it is missing, or comes with something before it
  kTooLarge,  // left out: more than what is left of the budget
};

struct Item {
  What what = What::kProfile;
  std::size_t image = 0;       // in the list that was given
  std::string name;            // of the package or pack; "" for a profile
  std::uint64_t sessions = 0;  // of the image; or that used the package, or that of an import's trigger
  Action action = Action::kFetch;
  std::uint64_t download_bytes = 0;  // at most; of kTooLarge: what it would have taken
  std::vector<LayerRange>
      ranges;  // whole spans, neighbours joined, in the order in which they are to be fetched; of kTooLarge none
};

struct Plan {
  std::vector<Item> items;           // in order
  std::uint64_t download_bytes = 0;  // of all items that are fetched: never more than the budget
};

// How images start first, that with the most sessions before others (of equals in the order given): its profile, or its
// packs. Of those the programs', then the imports' by sessions per byte, or the smallest first where nothing is known
// of packages; then none comes of whose package nobody is known to have used. Each in its own order. Then packages by
// sessions per byte that they still lack, the best first, each with all that it lacks or not at all; what one brings is
// not counted again for the next, nor for another image with the same layer. Nothing that is marked cold all over in an
// image is fetched for it, and nothing that nobody is known to use. Throws CorruptData if a profile or package lies
// outside of its image's layers.
Plan make_plan(const std::vector<Image>& images, const Present& present, const PlanOptions& options);

}  // namespace varve::prewarm
