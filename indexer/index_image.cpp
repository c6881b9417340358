#include "indexer/index_image.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/threads/parallel.h"
#include "core/index/merge/merge_layers.h"
#include "core/index/publish_index.h"
#include "core/oci/copy_blob.h"
#include "core/trust/tool_version.h"
#include "indexer/internal/keep_layer_index.h"
#include "indexer/layer_pass.h"

namespace varve::indexer {
namespace {

constexpr std::uint64_t kAllPassesMemoryBytes = 160ull * 1024 * 1024;
constexpr std::uint64_t kMaxEntriesBlobBytes = index::kMaxLayerEntriesBytes;

constexpr std::string_view kNoTag;

// What is kept of a layer while the others are read.
struct LayerState {
  oci::Descriptor descriptor;
  Digest diff_id;
  std::optional<index::LayerIndexBlobs> blobs;
  std::uint64_t stream_bytes = 0;
  LayerReport report;
};

class ImageIndexer {
 public:
  ImageIndexer(const oci::Image& image, oci::Repository& destination, index::LocalIndex& local,
               const IndexOptions& options, const Work& work)
      : image_(image), destination_(destination), local_(local), options_(options), work_(work) {}

  IndexReport run() {
    const Stopwatch watch;
    collect_layers();
    if (!options_.force) reuse_layers();
    read_layers();
    auto blobs = keep_blobs(merge());
    if (options_.earlier) add_seeds(blobs);
    keep_manifest(blobs);
    index::publish_index(image_, blobs, kept(), destination_, work_.cancel);
    return report(blobs, watch.seconds());
  }

 private:
  oci::Repository& kept() { return local_.repository(); }

  // An image may name a layer twice; it is read once.
  void collect_layers() {
    const auto& layers = image_.manifest.layers;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto media_type = oci::parse_layer_media_type(layers[i].media_type);
      if (media_type && media_type->nondistributable)
        fail<Unsupported>("layer {}: is nondistributable ({}): it is not in the repository",
                          layers[i].digest.to_string(), layers[i].media_type);
      // An index of it would be of use to nobody; asking costs nothing where the repository is a folder.
      if (image_.repository->is_local() && !image_.repository->has_blob(layers[i]))
        fail<NotFound>("{}: the blob of layer {} is not there", image_.repository->name(),
                       layers[i].digest.to_string());
      const auto& diff_id = image_.config.diff_ids.at(i);
      const auto [at, is_new] = layers_.try_emplace(layers[i].digest);
      auto& state = at->second;
      if (!is_new && state.diff_id != diff_id)
        fail<CorruptData>("layer {}: the image's config gives it two diff_ids", layers[i].digest.to_string());
      state.descriptor = layers[i];
      state.diff_id = diff_id;
      state.report.digest = layers[i].digest;
      state.report.compressed_bytes = layers[i].size;
    }
  }

  void reuse_layers() {
    for (auto& [digest, layer] : layers_) {
      work_.cancel.throw_if_cancelled();
      if (reuse_layer_of(layer, kept())) continue;
      reuse_layer_of(layer, destination_);
    }
  }

  // Who publishes an index says all that is in it: what others wrote is taken from nobody whose word does not count
  // here.
  bool reuse_layer_of(LayerState& layer, oci::Repository& source) {
    bool reused = false;
    const auto look_at = [&](const index::FoundLayerIndex& found) {
      const auto& digest = found.document.descriptor.digest;
      const trust::Request request{
          .repository = source.name(), .selector = digest.to_string(), .image = layer.descriptor.digest};
      const auto judgement = local_.judge().judge(request,
                                                  {.manifest = found.document,
                                                   .tool = found.blobs.tool,
                                                   .origin = local_.origins().of(digest),
                                                   .place = &source,
                                                   .kept = &kept()},
                                                  std::nullopt);
      if (!judgement.vouched && (!options_.reuse_foreign || local_.judge().is_denied(digest))) {
        log::info(
            "{}: the index {} of layer {} was made by others and no key that counts has signed it: reading the "
            "layer (--reuse-foreign takes it)",
            source.name(), digest.to_string(), layer.descriptor.digest.to_string());
        return false;
      }
      reused = reuse_layer(layer, source, found.blobs);
      if (reused && !judgement.vouched) all_vouched_ = false;
      return true;
    };
    index::visit_layer_indexes(source, layer.descriptor.digest, &image_.digest(), look_at);
    return reused;
  }

  // False, and the layer is read, if its index is not whole or not of this layer.
  bool reuse_layer(LayerState& layer, oci::Repository& source, const index::LayerIndexBlobs& blobs) {
    try {
      if (blobs.windows && !source.has_blob(*blobs.windows)) return false;
      const auto map = index::read_map(local_, blobs.map, source);
      if (map.layer_digest != layer.descriptor.digest || map.diff_id != layer.diff_id ||
          map.compressed_bytes != layer.descriptor.size) {
        log::warn("index blob {}: is not the map of layer {}", blobs.map.digest.to_string(),
                  layer.descriptor.digest.to_string());
        return false;
      }
      // Merging needs the entries from here; windows only pass through.
      if (!index::LayerEntries::has_elf_facts_in(local_.blob(blobs.entries, source, kMaxEntriesBlobBytes))) {
        log::info("layer {}: indexing again: {} kept no ELF facts of it", layer.descriptor.digest.to_string(),
                  blobs.tool.empty() ? "its tool" : blobs.tool);
        return false;
      }
      if (blobs.windows && &source != &kept()) oci::copy_blob(source, kept(), *blobs.windows);
      describe(layer, map);
      layer.report.reused = true;
      layer.blobs = blobs;
      if (&source != &kept()) keep_layer_manifest(local_, layer.descriptor, *layer.blobs);
      return true;
    } catch (const NotFound& error) {
      log::warn("layer {}: indexing again: {}", layer.descriptor.digest.to_string(), error.what());
    } catch (const CorruptData& error) {
      log::warn("layer {}: indexing again: {}", layer.descriptor.digest.to_string(), error.what());
    }
    return false;
  }

  static void describe(LayerState& layer, const index::LayerMap& map) {
    layer.stream_bytes = map.stream_bytes;
    layer.report.format = index::to_string(map.format);
    layer.report.stream_bytes = map.stream_bytes;
    layer.report.spans = map.spans.size();
  }

  void read_layers() {
    std::vector<LayerState*> unread;
    for (auto& [digest, layer] : layers_) {
      if (layer.blobs) continue;
      unread.push_back(&layer);
      work_.progress.expect(layer.descriptor.size);
    }
    // The largest first, so that no long one is left for the end.
    std::ranges::stable_sort(unread, std::ranges::greater(),
                             [](const LayerState* layer) { return layer->descriptor.size; });
    parallel_for(unread.size(), jobs(unread.size()), work_.cancel,
                 [&](std::size_t i, const CancelFlag& stop) { read_layer(*unread[i], stop); });
  }

  std::size_t jobs(std::size_t layers) const {
    const auto wanted = jobs_or_cores(options_.jobs);
    return std::min({std::size_t(wanted), layers, std::size_t(kAllPassesMemoryBytes / kPassMemoryBytes)});
  }

  void read_layer(LayerState& layer, const CancelFlag& stop) {
    const Stopwatch watch;
    LayerPassOptions options;
    options.max_stream_bytes = options_.max_stream_bytes;
    const auto indexed =
        index_layer(*image_.repository, layer.descriptor, layer.diff_id, options, {work_.progress, stop});
    describe(layer, indexed.map);
    layer.blobs = keep_layer_index(local_, layer.descriptor, indexed);
    layer.report.seconds = watch.seconds();
  }

  // One layer's entries at a time are in memory.
  index::ErofsImage merge() {
    index::LayerMerger merger;
    std::vector<std::string> tags;
    std::vector<std::uint64_t> stream_bytes;
    for (const auto& descriptor : image_.manifest.layers) {
      work_.cancel.throw_if_cancelled();
      const auto& layer = layers_.at(descriptor.digest);
      const auto& entries = layer.blobs->entries;
      merger.add(index::LayerEntries::decode(local_.blob(entries, kept(), kMaxEntriesBlobBytes),
                                             "index blob " + entries.digest.to_string()));
      tags.push_back(layer.diff_id.hex());
      stream_bytes.push_back(layer.stream_bytes);
    }
    return index::write_erofs(merger.finish(), tags, stream_bytes);
  }

  index::ImageIndexBlobs keep_blobs(const index::ErofsImage& tree) {
    index::ImageIndexBlobs blobs;
    blobs.image_digest = image_.digest();
    blobs.tool = trust::this_tool();
    blobs.tree = oci::put_bytes(kept(), index::pack_tree(tree), index::kTreeMediaType);
    blobs.tree_bytes = tree.bytes.size();
    if (tree.ranges.bytes != 0)
      blobs.ranges = oci::put_bytes(kept(), index::pack_ranges(tree.ranges), index::kRangesMediaType);
    for (const auto& descriptor : image_.manifest.layers) blobs.layers.push_back(*layers_.at(descriptor.digest).blobs);
    return blobs;
  }

  void add_seeds(index::ImageIndexBlobs& blobs) {
    index::LoadedIndex made;
    made.blobs = blobs;
    made.source = std::shared_ptr<oci::Repository>(std::shared_ptr<void>(), &kept());
    for (const auto& layer : blobs.layers)
      made.maps.push_back(std::make_shared<const index::LayerMap>(index::read_map(local_, layer.map, kept())));
    const auto seeds = find_seeds(image_, made, *options_.earlier, local_, work_);
    if (!seeds.empty()) blobs.seeds = oci::put_bytes(kept(), index::pack_seeds(seeds), index::kSeedsMediaType);
    seeded_bytes_ = seeds.bytes();
  }

  void keep_manifest(index::ImageIndexBlobs& blobs) {
    carry_marks(blobs);
    const auto manifest = index::make_index_manifest(image_, blobs).to_json();
    blobs.manifest = kept().put_manifest(manifest, oci::kOciManifestType, kNoTag);
    if (all_vouched_) local_.origins().note_built_here(blobs.manifest.digest);
    local_.origins().note_repository(blobs.manifest.digest, destination_.name());
  }

  // What was marked cold stays so when the image is indexed again, and its profile stays: both are about bytes of its
  // layers, which are the same. Packs are bytes of the image, and seeds say which they are: only from who is vouched
  // for.
  void carry_marks(index::ImageIndexBlobs& blobs) {
    std::optional<index::ImageIndexBlobs> current;
    bool trusted = false, vouched = false;
    index::visit_indexes(destination_, image_, [&](index::FoundIndex found) {
      const auto judgement = local_.judge(image_, found, destination_, true);
      trusted = judgement.trusted;
      vouched = judgement.vouched;
      current = std::move(found.blobs);
      return true;
    });
    oci::Repository* source = &destination_;
    std::vector<std::string> refusals;
    if (!current) {
      if (auto here = local_.find_trusted(image_, refusals)) {
        current = std::move(here->found.blobs);
        trusted = true;
        vouched = here->judgement.vouched;
      }
      source = &kept();
    }
    // So that it is taken before one without them, which says the same otherwise.
    if (blobs.seeds) blobs.generation = 1;
    if (!current) return;
    if (trusted && current->generation != 0) {
      if (current->cold) local_.blob(*current->cold, *source, index::kMaxColdBlobBytes);
      if (current->profile) local_.blob(*current->profile, *source, index::kMaxProfileBlobBytes);
      blobs.cold = current->cold;
      blobs.profile = current->profile;
      blobs.generation = current->generation;
      if (vouched && current->start_packs) carry_packs(blobs, *current, *source);
      if (vouched && current->seeds && !options_.earlier) {
        local_.blob(*current->seeds, *source, index::kMaxSeedsBlobBytes);
        blobs.seeds = current->seeds;
      }
    } else if (!options_.force) {
      return;
    }
    blobs.manifest.digest = digest_of(index::make_index_manifest(image_, blobs).to_json());
    if (blobs.manifest.digest == current->manifest.digest) return;
    // Another index of this generation has the marks already; and with --force its owner takes the image's index back
    // from whoever else published one.
    if (blobs.generation != 0 || index::is_preferred(*current, blobs))
      blobs.generation = std::min(current->generation + 1, index::kMaxGeneration);
  }

  void carry_packs(index::ImageIndexBlobs& blobs, const index::ImageIndexBlobs& from, oci::Repository& source) {
    local_.blob(*from.start_packs, source, index::kMaxStartPacksBlobBytes);
    for (const auto& pack : from.packs)
      if (!kept().has_blob(pack)) oci::copy_blob(source, kept(), pack);
    blobs.start_packs = from.start_packs;
    blobs.packs = from.packs;
  }

  IndexReport report(const index::ImageIndexBlobs& blobs, double seconds) const {
    IndexReport report;
    report.image = image_.digest();
    report.index = blobs.manifest.digest;
    for (const auto& descriptor : image_.manifest.layers) report.layers.push_back(layers_.at(descriptor.digest).report);
    report.tree_bytes = blobs.tree_bytes;
    report.index_bytes = blobs.index_bytes();
    report.first_load_bytes = blobs.first_load_bytes();
    report.seeded_bytes = seeded_bytes_;
    report.seconds = seconds;
    return report;
  }

  const oci::Image& image_;
  oci::Repository& destination_;
  index::LocalIndex& local_;
  const IndexOptions& options_;
  const Work work_;
  std::map<Digest, LayerState> layers_;
  std::uint64_t seeded_bytes_ = 0;
  bool all_vouched_ = true;  // no layer's index is only somebody else's word
};

}  // namespace

IndexReport index_image(const oci::Image& image, oci::Repository& destination, index::LocalIndex& local,
                        const IndexOptions& options, const Work& work) {
  return ImageIndexer(image, destination, local, options, work).run();
}

}  // namespace varve::indexer
