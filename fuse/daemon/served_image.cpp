#include "fuse/daemon/served_image.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/index/this_index.h"
#include "core/oci/platform.h"
#include "core/oci/reference.h"

namespace varve::fuse {
namespace {

oci::Image open_image(const ImageSpec& spec) {
  oci::ImageRequest request{.reference = oci::Reference::parse(spec.reference), .registry = spec.registry};
  if (!spec.platform.empty()) request.platform = oci::Platform::parse(spec.platform);
  return oci::open_image(request);
}

// Windows are fetched by range when a span is first needed: from here if this machine built the index, else from beside
// the image.
std::shared_ptr<oci::Repository> windows_repository(const index::LayerIndexBlobs& blobs,
                                                    const std::shared_ptr<index::LocalIndex>& local,
                                                    const std::shared_ptr<oci::Repository>& beside_the_image) {
  if (!blobs.windows || !local->repository().has_blob(*blobs.windows)) return beside_the_image;
  return {local, &local->repository()};
}

}  // namespace

ServedImage::ServedImage(ImageSpec spec, oci::Image image, index::LoadedIndex index)
    : spec_(std::move(spec)),
      image_(std::move(image)),
      index_(std::move(index)),
      cold_(std::in_place, std::make_shared<const index::ColdRanges>(index_.cold)) {}

std::shared_ptr<const index::ColdRanges> ServedImage::cold() const {
  return cold_.with([](const auto& cold) { return cold; });
}

void ServedImage::take_marks_of(const ServedImage& opened_later) {
  auto marks = opened_later.cold();
  cold_.with([&](auto& cold) { cold = std::move(marks); });
}

std::shared_ptr<ServedImage> ServedImage::open(const ImageSpec& spec, const std::shared_ptr<index::LocalIndex>& local,
                                               LayerStreams& streams, index::IndexPlace place) {
  return open(spec, open_image(spec), local, streams, place);
}

std::shared_ptr<ServedImage> ServedImage::open(const ImageSpec& spec, oci::Image image,
                                               const std::shared_ptr<index::LocalIndex>& local, LayerStreams& streams,
                                               index::IndexPlace place) {
  auto index = index::load_index(*local, image, place);
  return serve(std::shared_ptr<ServedImage>(new ServedImage(spec, std::move(image), std::move(index))), local, streams);
}

std::shared_ptr<ServedImage> ServedImage::reopen(const ImageSpec& spec, oci::Image image, const Digest& index_manifest,
                                                 const std::shared_ptr<index::LocalIndex>& local,
                                                 LayerStreams& streams) {
  auto index = index::load_this_index(*local, image, index_manifest);
  return serve(std::shared_ptr<ServedImage>(new ServedImage(spec, std::move(image), std::move(index))), local, streams);
}

std::shared_ptr<ServedImage> ServedImage::serve(std::shared_ptr<ServedImage> served,
                                                const std::shared_ptr<index::LocalIndex>& local,
                                                LayerStreams& streams) {
  const auto& loaded = served->index_;
  for (std::size_t i = 0; i < loaded.maps.size(); ++i) {
    const auto& blobs = loaded.blobs.layers.at(i);
    const auto& descriptor = served->image_.manifest.layers.at(i);
    const auto& repository = served->image_.repository;
    const auto windows = windows_repository(blobs, local, repository);
    served->layers_.push_back(streams.stream(loaded.maps[i], descriptor, repository, blobs, windows));
    // For windows that this machine's disk has broken.
    if (windows != repository) streams.stream(loaded.maps[i], descriptor, repository, blobs, repository);
    served->devices_.push_back(std::make_shared<LayerFile>(served->layers_.back()));
  }
  if (loaded.ranges.bytes > 0) served->devices_.push_back(std::make_shared<RangesFile>(loaded.ranges, served->layers_));
  if (served->devices_.size() != loaded.tree->device_count()) {
    fail<CorruptData>("index of {}: its tree names {} devices, the image has {}", served->digest().to_string(),
                      loaded.tree->device_count(), served->devices_.size());
  }
  for (const auto& layer : served->layers_) {
    if (std::find(served->distinct_.begin(), served->distinct_.end(), layer) != served->distinct_.end()) continue;
    served->distinct_.push_back(layer);
    served->before_.push_back(layer->stats());
    layer->note_cold(served->digest(), loaded.cold.of(layer->map().layer_digest));
  }
  return served;
}

ImageStats ServedImage::stats() const {
  const auto marks = cold();
  ImageStats sum;
  sum.image = digest();
  sum.reference = spec_.reference;
  sum.layers = distinct_.size();
  sum.proved_layers = proved_layers_;
  for (std::size_t i = 0; i < distinct_.size(); ++i) {
    const auto now = distinct_[i]->stats();
    const auto& before = before_[i];
    sum.image_stream_bytes += now.stream_bytes;
    sum.present_bytes += now.present_bytes;
    const auto cold = cold_bytes_of(*distinct_[i], marks->of(distinct_[i]->map().layer_digest));
    sum.cold_bytes += cold.bytes;
    sum.cold_present_bytes += cold.present_bytes;
    sum.fetched_bytes += now.fetched_bytes - before.fetched_bytes;
    sum.requests += now.requests - before.requests;
    sum.decoded_bytes += now.decoded_bytes - before.decoded_bytes;
    sum.errors += now.errors - before.errors;
    sum.fetching += now.fetching;
    if (now.errors > before.errors) sum.last_error = now.last_error;
  }
  return sum;
}

}  // namespace varve::fuse
