#include "fuse/daemon/served_image.h"

#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "core/index/prefix_tree.h"
#include "core/index/this_index.h"
#include "fuse/daemon/handover.h"
#include "fuse/daemon/loader/loader_ahead.h"

namespace varve::fuse {
namespace {

std::set<Digest> layers_in(const std::vector<StoredLayer>& store) {
  std::set<Digest> layers;
  for (const auto& stored : store) layers.insert(stored.layer);
  return layers;
}

}  // namespace

ServedImage::Layers ServedImage::open_layers(const index::LocalIndex& local, const oci::Image& image,
                                             const index::LoadedIndex& index, LayerStreams& streams, Layers open,
                                             const std::set<Digest>& later) {
  open.resize(index.maps.size());
  for (std::size_t i = 0; i < open.size(); ++i) {
    const auto& blobs = index.blobs.layers.at(i);
    if (open[i] || later.contains(blobs.layer_digest)) continue;
    const auto& descriptor = image.manifest.layers.at(i);
    const auto windows = local.holder_of(blobs.windows, index.source);
    open[i] = streams.stream(index.maps[i], descriptor, image.repository, blobs, windows);
    // For windows that this machine's disk has broken.
    if (windows != index.source) streams.stream(index.maps[i], descriptor, image.repository, blobs, index.source);
  }
  return open;
}

ServedImage::ServedImage(ImageSpec spec, const index::LocalIndex& local, oci::Image image, index::LoadedIndex index,
                         Layers layers, LayerStreams& streams, std::uint32_t tree_layers)
    : spec_(std::move(spec)),
      tree_layers_(tree_layers),
      opened_(local, std::move(image), std::move(index)),
      layers_(std::move(layers)),
      cold_(std::in_place, std::make_shared<const index::ColdRanges>(opened_.index().cold)),
      streams_(streams) {
  const auto& loaded = opened_.index();
  for (const auto& layer : layers_) devices_.push_back(std::make_shared<LayerFile>(layer));
  if (loaded.ranges.bytes > 0) devices_.push_back(std::make_shared<RangesFile>(loaded.ranges, layers_));
  if (devices_.size() != loaded.tree->device_count()) {
    fail<CorruptData>("index of {}: its tree names {} devices, the image has {}", digest().to_string(),
                      loaded.tree->device_count(), devices_.size());
  }
  for (const auto& layer : layers_) {
    if (std::find(distinct_.begin(), distinct_.end(), layer) != distinct_.end()) continue;
    distinct_.push_back(layer);
    before_.push_back(layer->stats());
    layer->note_cold(digest(), loaded.cold.of(layer->map().layer_digest));
  }
  mounted_devices_ = devices_;
  if (!loaded.packs.empty()) open_packs();
  for (auto& device : mounted_devices_) device = std::make_shared<SeededFile>(std::move(device), seeds_);
  loader_ahead_ = std::make_shared<LoaderAhead>(*loaded.tree, mounted_devices_);
  for (std::uint32_t i = 0; i < mounted_devices_.size(); ++i)
    mounted_devices_[i] = std::make_shared<WatchedFile>(std::move(mounted_devices_[i]), i + 1, loader_ahead_);
}

void ServedImage::run_ahead_of_loaders() const {
  loader_ahead_->begin(packs_ ? LoaderAhead::LookThrough::kAtFirstRead : LoaderAhead::LookThrough::kNow);
}

ServedImage::~ServedImage() { loader_ahead_->end(); }

void ServedImage::open_packs() {
  packs_ = std::make_shared<ImagePacks>(
      index().packs, distinct_, seeds_, [this](const index::StartPack& pack) { return open_pack(pack); },
      [this](const index::StartPack& pack) { keep_map(pack); });
  for (auto& device : mounted_devices_) device = std::make_shared<PackedFile>(std::move(device), packs_);
}

// With those of layers: by it the store is verified where no image is open.
void ServedImage::keep_map(const index::StartPack& pack) const {
  oci::put_bytes(opened_.local().repository(), pack.map().encode(), index::kLayerMapMediaType);
}

std::shared_ptr<LayerStream> ServedImage::open_pack(const index::StartPack& pack) const {
  auto map = std::make_shared<const index::LayerMap>(pack.map());
  const index::LayerIndexBlobs blobs{.layer_digest = pack.blob,
                                     .map = oci::descriptor_of(map->encode(), index::kLayerMapMediaType),
                                     .windows = std::nullopt,
                                     .entries = {}};
  const auto blob = pack.descriptor();
  const auto& source = index().source;
  return streams_.stream(std::move(map), blob, opened_.local().holder_of(blob, source), blobs, nullptr);
}

std::set<Digest> ServedImage::stored() const { return layers_in(streams_.stored_layers()); }

void ServedImage::use_packs() const {
  if (!packs_ || packs_->is_enabled()) return;
  packs_->enable([here = stored()](const index::StartPack& pack) { return here.contains(pack.blob); });
}

// What a source has, and what is cold, is not expected to be read of the layer.
void ServedImage::use_seeds(index::Seeds seeds, const std::vector<std::shared_ptr<LayerStream>>& sources,
                            ImageSeeds::Whole whole) const {
  for (const auto& layer : seeds.layers) {
    const auto stream = stream_to_fetch(layer.layer);
    const auto stream_bytes = stream->map().stream_bytes;
    auto unread = cold()->of(layer.layer);
    for (const auto& range : layer.ranges)
      if (const auto& [offset, length] = range.stream_range; sources.at(range.source))
        unread.push_back({.offset = offset, .length = std::min(length + kMostHeaderBytes, stream_bytes - offset)});
    stream->note_cold(digest(), joined_ranges(std::move(unread)));
  }
  seeds_->use(std::move(seeds), distinct_, sources, whole);
}

std::vector<std::shared_ptr<LayerStream>> ServedImage::streams_with_packs() const {
  auto streams = distinct_;
  const auto here = packs_ ? stored() : std::set<Digest>();
  for (const auto& group : index().packs.groups)
    if (here.contains(group.pack.blob)) streams.push_back(open_pack(group.pack));
  return streams;
}

std::shared_ptr<LayerStream> ServedImage::stream_to_fetch(const Digest& layer_or_pack) const {
  const auto layer =
      std::ranges::find(distinct_, layer_or_pack, [](const auto& one) { return one->map().layer_digest; });
  if (layer != distinct_.end()) return *layer;
  const auto& groups = index().packs.groups;
  const auto group = std::ranges::find(groups, layer_or_pack, [](const auto& one) { return one.pack.blob; });
  if (group == groups.end()) return nullptr;
  keep_map(group->pack);
  return open_pack(group->pack);
}

std::shared_ptr<const index::ColdRanges> ServedImage::cold() const {
  return cold_.with([](const auto& cold) { return cold; });
}

void ServedImage::take_marks_of(const ServedImage& opened_later) {
  auto marks = opened_later.cold();
  cold_.with([&](auto& cold) { cold = std::move(marks); });
}

std::shared_ptr<ServedImage> ServedImage::open(const ImageSpec& spec, oci::Image image, index::ChosenIndex chosen,
                                               const std::shared_ptr<index::LocalIndex>& local, LayerStreams& streams) {
  // To make the files of layers takes as long as to unpack the tree beside it. What the store has already is not
  // touched before it is known that tree and maps fit together.
  Layers layers;
  auto index = index::load_index_first(*local, image, std::move(chosen), [&](const index::LoadedIndex& without_tree) {
    layers = open_layers(*local, image, without_tree, streams, {}, layers_in(streams.stored_layers()));
  });
  layers = open_layers(*local, image, index, streams, std::move(layers));
  return std::shared_ptr<ServedImage>(
      new ServedImage(spec, *local, std::move(image), std::move(index), std::move(layers), streams));
}

std::shared_ptr<ServedImage> ServedImage::reopen(const ImageSpec& spec, oci::Image image, const Digest& index_manifest,
                                                 const std::shared_ptr<index::LocalIndex>& local,
                                                 LayerStreams& streams) {
  image.registry = spec.registry;
  auto index = index::load_this_index(*local, image, index_manifest);
  auto layers = open_layers(*local, image, index, streams);
  return std::shared_ptr<ServedImage>(
      new ServedImage(spec, *local, std::move(image), std::move(index), std::move(layers), streams));
}

std::shared_ptr<ServedImage> ServedImage::of_first_layers(const ServedImage& whole, std::uint32_t layers,
                                                          const std::shared_ptr<index::LocalIndex>& local,
                                                          LayerStreams& streams) {
  auto prefix = index::load_prefix(*local, whole.image(), whole.index(), layers);
  auto opened = open_layers(*local, prefix.image, prefix.index, streams);
  return std::shared_ptr<ServedImage>(new ServedImage(whole.spec(), *local, std::move(prefix.image),
                                                      std::move(prefix.index), std::move(opened), streams, layers));
}

Digest ServedImage::tree_name() const { return name_of_tree(index_digest(), tree_layers_); }

ImageStats ServedImage::stats() const {
  const auto marks = cold();
  ImageStats sum;
  sum.image = digest();
  sum.reference = spec_.reference;
  sum.layers = distinct_.size();
  sum.sources = image().repository->sources();
  sum.proved_layers = proved_layers_;
  StreamStats layers;
  for (std::size_t i = 0; i < distinct_.size(); ++i) {
    layers.add(distinct_[i]->stats(), before_[i]);
    const auto cold = cold_bytes_of(*distinct_[i], marks->of(distinct_[i]->map().layer_digest));
    sum.cold_bytes += cold.bytes;
    sum.cold_present_bytes += cold.present_bytes;
  }
  sum.image_stream_bytes = layers.stream_bytes;
  sum.present_bytes = layers.present_bytes;
  sum.copied_bytes = layers.copied_bytes + seeds_->read_bytes();
  // Counters that are read one after the other, while they grow.
  const auto local = std::min(layers.local_bytes, layers.fetched_bytes);
  const auto mirror = std::min(layers.mirror_bytes, layers.fetched_bytes - local);
  sum.bytes_from["registry"] = layers.fetched_bytes - local - mirror;
  sum.bytes_from["mirror"] = mirror;
  sum.bytes_from["local"] = local + sum.copied_bytes;
  auto all = packs_ ? packs_->stats() : StreamStats();
  if (packs_) sum.bytes_from["pack"] = all.fetched_bytes;
  all.add(layers, {});
  sum.fetched_bytes = all.fetched_bytes;
  sum.requests = all.requests;
  sum.decoded_bytes = all.decoded_bytes;
  sum.errors = all.errors;
  sum.fetching = all.fetching;
  sum.last_error = all.last_error;
  sum.waiting_seconds = all.waiting_seconds;
  sum.waiting_for = all.waiting_for;
  return sum;
}

}  // namespace varve::fuse
