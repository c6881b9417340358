#include "fuse/daemon/served_image.h"

#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "core/index/prefix_tree.h"
#include "core/index/this_index.h"
#include "fuse/daemon/handover.h"

namespace varve::fuse {
ServedImage::ServedImage(ImageSpec spec, const index::LocalIndex& local, oci::Image image, index::LoadedIndex index,
                         LayerStreams& streams, std::uint32_t tree_layers)
    : spec_(std::move(spec)),
      tree_layers_(tree_layers),
      opened_(local, std::move(image), std::move(index)),
      cold_(std::in_place, std::make_shared<const index::ColdRanges>(opened_.index().cold)),
      streams_(streams) {
  const auto& loaded = opened_.index();
  for (std::size_t i = 0; i < loaded.maps.size(); ++i) {
    const auto& blobs = loaded.blobs.layers.at(i);
    const auto& descriptor = this->image().manifest.layers.at(i);
    const auto& repository = this->image().repository;
    const auto windows = local.holder_of(blobs.windows, loaded.source);
    layers_.push_back(streams.stream(loaded.maps[i], descriptor, repository, blobs, windows));
    // For windows that this machine's disk has broken.
    if (windows != loaded.source) streams.stream(loaded.maps[i], descriptor, repository, blobs, loaded.source);
    devices_.push_back(std::make_shared<LayerFile>(layers_.back()));
  }
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
  packed_devices_ = devices_;
  if (!loaded.packs.empty()) open_packs();
}

void ServedImage::open_packs() {
  packs_ = std::make_shared<ImagePacks>(index().packs, distinct_,
                                        [this](const index::StartPack& pack) { return open_pack(pack); });
  for (auto& device : packed_devices_) device = std::make_shared<PackedFile>(std::move(device), packs_);
}

// The map is kept with those of layers: by it the store is verified where no image is open.
std::shared_ptr<LayerStream> ServedImage::open_pack(const index::StartPack& pack) const {
  auto& kept = opened_.local().repository();
  auto map = std::make_shared<const index::LayerMap>(pack.map());
  oci::Descriptor blob;
  blob.media_type = index::kPackMediaType;
  blob.digest = pack.blob;
  blob.size = map->compressed_bytes;
  const index::LayerIndexBlobs blobs{.layer_digest = pack.blob,
                                     .map = oci::put_bytes(kept, map->encode(), index::kLayerMapMediaType),
                                     .windows = std::nullopt,
                                     .entries = {}};
  const auto& source = index().source;
  return streams_.stream(std::move(map), blob, opened_.local().holder_of(blob, source), blobs, nullptr);
}

void ServedImage::use_packs() const {
  if (!packs_) return;
  std::set<Digest> here;
  for (const auto& stored : streams_.stored_layers()) here.insert(stored.layer);
  packs_->enable([&](const index::StartPack& pack) { return here.contains(pack.blob); });
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
  auto index = index::load_index(*local, image, std::move(chosen));
  return std::shared_ptr<ServedImage>(new ServedImage(spec, *local, std::move(image), std::move(index), streams));
}

std::shared_ptr<ServedImage> ServedImage::reopen(const ImageSpec& spec, oci::Image image, const Digest& index_manifest,
                                                 const std::shared_ptr<index::LocalIndex>& local,
                                                 LayerStreams& streams) {
  image.registry = spec.registry;
  auto index = index::load_this_index(*local, image, index_manifest);
  return std::shared_ptr<ServedImage>(new ServedImage(spec, *local, std::move(image), std::move(index), streams));
}

std::shared_ptr<ServedImage> ServedImage::of_first_layers(const ServedImage& whole, std::uint32_t layers,
                                                          const std::shared_ptr<index::LocalIndex>& local,
                                                          LayerStreams& streams) {
  auto prefix = index::load_prefix(*local, whole.image(), whole.index(), layers);
  return std::shared_ptr<ServedImage>(
      new ServedImage(whole.spec(), *local, std::move(prefix.image), std::move(prefix.index), streams, layers));
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
  if (packs_) {
    const auto packs = packs_->stats();
    sum.fetched_bytes += packs.fetched_bytes;
    sum.bytes_from["pack"] = packs.fetched_bytes;
    sum.requests += packs.requests;
    sum.decoded_bytes += packs.decoded_bytes;
    sum.errors += packs.errors;
    sum.fetching += packs.fetching;
    sum.last_error = packs.last_error;
    sum.waiting_seconds = packs.waiting_seconds;
    sum.waiting_for = packs.waiting_for;
  }
  for (std::size_t i = 0; i < distinct_.size(); ++i) {
    const auto now = distinct_[i]->stats();
    const auto& before = before_[i];
    sum.image_stream_bytes += now.stream_bytes;
    sum.present_bytes += now.present_bytes;
    const auto cold = cold_bytes_of(*distinct_[i], marks->of(distinct_[i]->map().layer_digest));
    sum.cold_bytes += cold.bytes;
    sum.cold_present_bytes += cold.present_bytes;
    const auto fetched = now.fetched_bytes - before.fetched_bytes;
    const auto local = now.local_bytes - before.local_bytes;
    sum.fetched_bytes += fetched;
    const auto mirror = std::min(now.mirror_bytes - before.mirror_bytes, fetched - std::min(local, fetched));
    sum.bytes_from["registry"] += fetched - std::min(local + mirror, fetched);
    sum.bytes_from["mirror"] += mirror;
    const auto copied = now.copied_bytes - before.copied_bytes;
    sum.copied_bytes += copied;
    sum.bytes_from["local"] += local + copied;
    sum.requests += now.requests - before.requests;
    sum.decoded_bytes += now.decoded_bytes - before.decoded_bytes;
    sum.errors += now.errors - before.errors;
    sum.fetching += now.fetching;
    if (now.errors > before.errors || now.last_error != before.last_error) sum.last_error = now.last_error;
    if (now.waiting_for.empty() || now.waiting_seconds < sum.waiting_seconds) continue;
    sum.waiting_seconds = now.waiting_seconds;
    sum.waiting_for = now.waiting_for;
  }
  return sum;
}

}  // namespace varve::fuse
