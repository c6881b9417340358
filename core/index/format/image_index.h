#pragma once
// The index of an image as an OCI artifact: what is published, found and checked. On disk: docs/formats/index.md.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/base/files/file.h"
#include "core/index/format/erofs.h"
#include "core/index/format/layer_map.h"
#include "core/index/format/start_packs.h"
#include "core/oci/image.h"
#include "core/trust/judge.h"

namespace varve::index {

inline constexpr std::string_view kIndexArtifactType = "application/vnd.varve.index.v1";  // subject: the image manifest
inline constexpr std::string_view kLayerArtifactType =
    "application/vnd.varve.layer-index.v1";                                               // subject: the layer blob
inline constexpr std::string_view kTreeMediaType = "application/vnd.varve.tree.v2+zstd";  // tree_columns.h
// The EROFS image as it lies; read, not written any more.
inline constexpr std::string_view kPlainTreeMediaType = "application/vnd.varve.tree.v1+zstd";
inline constexpr std::string_view kRangesMediaType = "application/vnd.varve.ranges.v1+zstd";
inline constexpr std::string_view kLayerMapMediaType = "application/vnd.varve.layer-map.v1";
inline constexpr std::string_view kWindowsMediaType = "application/vnd.varve.windows.v1";
inline constexpr std::string_view kColdMediaType = "application/vnd.varve.cold.v1";
inline constexpr std::string_view kProfileMediaType = "application/vnd.varve.profile.v1";
inline constexpr std::string_view kStartPacksMediaType = "application/vnd.varve.start-packs.v1+zstd";
inline constexpr std::string_view kPlainStartPacksMediaType =
    "application/vnd.varve.start-packs.v1";                                               // read, not written any more
inline constexpr std::string_view kPackMediaType = "application/vnd.varve.pack.v1+zstd";  // one of those that it names
inline constexpr std::string_view kSeedsMediaType = "application/vnd.varve.seeds.v1+zstd";
inline constexpr std::string_view kEntriesMediaType = "application/vnd.varve.layer-entries.v1";
inline constexpr std::string_view kLayerAnnotation = "dev.varve.layer";  // on map, windows, entries: the layer's digest
inline constexpr std::string_view kUncompressedBytesAnnotation = "dev.varve.uncompressed-bytes";  // on the tree
inline constexpr std::string_view kToolAnnotation = "dev.varve.tool";  // "varve 0.2.0": by whom it was indexed

inline constexpr std::string_view kGenerationAnnotation =
    "dev.varve.generation";  // of the image's index, decimal; absent = 0

// On the manifest of an image's index, and so in the list of referrers: what first_load() says, "HEX:SIZE" each. A
// hint.
inline constexpr std::string_view kFirstLoadAnnotation = "dev.varve.first-load";
inline constexpr std::size_t kMaxHintedBlobs = 64;  // of more none is hinted

inline constexpr std::uint64_t kMaxGeneration = 1'000'000'000;
inline constexpr std::uint64_t kMaxMapBlobBytes = 2ull << 30;   // kMaxSpans spans
inline constexpr std::uint64_t kMaxRangesBytes = 256ull << 20;  // decompressed
inline constexpr int kIndexZstdLevel = 9;  // of tree and ranges; higher ones gain little: docs/formats/tree.md

// The blobs that describe one layer.
struct LayerIndexBlobs {
  Digest layer_digest;
  oci::Descriptor map;
  std::optional<oci::Descriptor> windows;  // absent when no span needs one
  oci::Descriptor entries;
  std::string tool = {};  // by whom the layer was indexed; "" = not said, or read from an image's index
};

struct ImageIndexBlobs {
  oci::Descriptor manifest;      // of the index artifact itself
  Digest image_digest;           // subject
  oci::Descriptor tree;          // its media type says in which form
  std::uint64_t tree_bytes = 0;  // of the EROFS image
  std::optional<oci::Descriptor> ranges;
  std::optional<oci::Descriptor> cold;     // cold_ranges.h; absent: nothing is cold
  std::optional<oci::Descriptor> profile;  // profile.h; absent: nothing is known of start-ups
  // start_packs.h, its media type says in which form; absent: nothing was learnt.
  std::optional<oci::Descriptor> start_packs;
  std::vector<oci::Descriptor> packs;    // that it names, by digest, each once
  std::optional<oci::Descriptor> seeds;  // seeds.h; absent: made without an earlier version
  std::uint64_t generation =
      0;  // how often its cold marks or its profile were changed: of two indexes of one tool the later one is taken
  std::vector<LayerIndexBlobs> layers;  // in the image's order, one per layer, repeated where the image repeats a layer
  std::string tool;
  std::optional<std::string> hint;  // kFirstLoadAnnotation as it was read, "" = none; absent: as first_load() has it

  std::uint64_t index_bytes() const;  // all blobs, each counted once, and the manifest
  // Tree, ranges, cold, profile, start packs, maps, each once: with the manifest what a mount needs before it is
  // usable.
  std::vector<oci::Descriptor> first_load() const;
  std::uint64_t first_load_bytes() const;
};

// Tree, ranges and list of start-up packs as they are published.
Bytes pack_tree(const ErofsImage& image);  // kTreeMediaType
Bytes pack_ranges(const RangesDevice& ranges);
Bytes pack_start_packs(const StartPacks& packs);  // kStartPacksMediaType
// Back again. Throw CorruptData (a tree must have exactly `tree_bytes` and pass ErofsReader::check; in columns, but for
// the UUID, as tree_columns.h says) or Unsupported. A tree is written into the file, which is not committed: the blob's
// author chooses how large it is, so it is never in memory.
void unpack_tree(std::string_view media_type, ByteView blob, std::uint64_t tree_bytes, std::string_view what,
                 AtomicFile& file);
RangesDevice unpack_ranges(ByteView blob, std::string_view what);
StartPacks unpack_start_packs(std::string_view media_type, ByteView blob, std::string_view what);

// Of either form.
bool is_tree(std::string_view media_type);

// Artifact manifests, deterministic. A layer that the image repeats is named once.
oci::ArtifactManifest make_index_manifest(const oci::Image& image, const ImageIndexBlobs& blobs);
oci::ArtifactManifest make_layer_manifest(const oci::Descriptor& layer, const LayerIndexBlobs& blobs);

// Reads an index manifest and checks that it is for this image and names one set of blobs per layer. Throws
// CorruptData.
ImageIndexBlobs parse_index_manifest(const oci::Document& document, const oci::Image& image);
LayerIndexBlobs parse_layer_manifest(const oci::Document& document, const Digest& layer_digest);

// True if `index` is taken rather than `other` where both are found and both are trusted: the newest tool, then the
// highest generation, then the smallest digest, so that all machines choose the same. A tool later than this program
// comes after all that it knows: a version is only a claim.
bool is_preferred(const ImageIndexBlobs& index, const ImageIndexBlobs& other);
// True if they say the same of the image, though not of what is cold and what a start-up reads. Packs are bytes of the
// image, and seeds say which they are, so both belong to what is said of it.
bool same_content(const ImageIndexBlobs& index, const ImageIndexBlobs& other);

// At most so many of the indexes that are listed for a subject are looked at, the preferred ones first: who may push
// must not make mounts slow.
inline constexpr std::size_t kMaxCandidates = 64;

// An index with the manifest that names it.
struct FoundIndex {
  ImageIndexBlobs blobs;
  oci::Document document;
};
struct FoundLayerIndex {
  LayerIndexBlobs blobs;
  oci::Document document;
};
// Shows those that are published and parse, preferred ones first by what the list says of them, until `visit` returns
// true. Whether any may be believed is for trust::Judge to say.
// `hinted`: what the one that is read first is said to begin with; called at most once, before its manifest is read.
using OnHinted = std::function<void(std::vector<oci::Descriptor> first_load)>;
void visit_indexes(oci::Repository& repository, const oci::Image& image, const std::function<bool(FoundIndex)>& visit,
                   const OnHinted& hinted = {});
// `image`: whose layer it is, as a registry may list layers' indexes with the image's. Null: of whatever image.
void visit_layer_indexes(oci::Repository& repository, const Digest& layer_digest, const Digest* image,
                         const std::function<bool(FoundLayerIndex)>& visit);

// The first of them, believed or not; absent if there is none.
std::optional<ImageIndexBlobs> find_index(oci::Repository& repository, const oci::Image& image);
// The index of one layer, published for this or another image.
std::optional<LayerIndexBlobs> find_layer_index(oci::Repository& repository, const Digest& layer_digest);

}  // namespace varve::index
