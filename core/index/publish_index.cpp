#include "core/index/publish_index.h"

#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "core/oci/copy_blob.h"

namespace varve::index {
namespace {

constexpr std::string_view kNoTag;

// Everything but the manifests. `source_of` says who has a blob.
template <typename SourceOf>
void copy_index_blobs(const ImageIndexBlobs& index, SourceOf&& source_of, oci::Repository& destination, const CancelFlag& cancel) {
  const auto copy = [&](const std::optional<oci::Descriptor>& blob) {
    cancel.throw_if_cancelled();
    if (!blob) return;
    oci::Repository& source = source_of(*blob);
    if (&source != &destination) oci::copy_blob(source, destination, *blob);
  };
  oci::put_bytes(destination, oci::empty_json(), oci::kEmptyJsonType);
  std::set<Digest> copied;
  for (const auto& layer : index.layers) {
    if (!copied.insert(layer.layer_digest).second) continue;
    copy(layer.map);
    copy(layer.windows);
    copy(layer.entries);
  }
  copy(index.tree);
  copy(index.ranges);
  copy(index.cold);
}

// The manifests of layers, then the image's: what others look for last.
void put_manifests(const oci::Image& image, const ImageIndexBlobs& index, oci::Repository& destination, const CancelFlag& cancel) {
  std::set<Digest> put;
  for (std::size_t i = 0; i < index.layers.size(); ++i) {
    cancel.throw_if_cancelled();
    auto blobs = index.layers[i];
    if (!put.insert(blobs.layer_digest).second) continue;  // a layer that the image repeats is published once
    if (blobs.tool.empty()) blobs.tool = index.tool;       // known only to the image's index
    destination.put_manifest(make_layer_manifest(image.manifest.layers.at(i), blobs).to_json(), oci::kOciManifestType, kNoTag);
  }
  cancel.throw_if_cancelled();
  destination.put_manifest(make_index_manifest(image, index).to_json(), oci::kOciManifestType, kNoTag);
}

bool same_but_for_cold(const ImageIndexBlobs& a, const ImageIndexBlobs& b) {
  const auto digest = [](const std::optional<oci::Descriptor>& blob) { return blob ? blob->digest : Digest(); };
  return a.tree.digest == b.tree.digest && digest(a.ranges) == digest(b.ranges) &&
         std::ranges::equal(a.layers, b.layers, [&](const LayerIndexBlobs& x, const LayerIndexBlobs& y) {
           return x.map.digest == y.map.digest && digest(x.windows) == digest(y.windows) && x.entries.digest == y.entries.digest;
         });
}

}  // namespace

void publish_index(const oci::Image& image, const ImageIndexBlobs& index, oci::Repository& source, oci::Repository& destination,
                   const CancelFlag& cancel) {
  copy_index_blobs(index, [&](const oci::Descriptor&) -> oci::Repository& { return source; }, destination, cancel);
  put_manifests(image, index, destination, cancel);
}

ImageIndexBlobs publish_cold(const oci::Image& image, const LoadedIndex& index, const ColdRanges& cold, LocalIndex& local, oci::Repository& destination,
                             const CancelFlag& cancel) {
  cold.check(index.maps, "cold ranges of image " + image.digest().to_string());
  const auto published = find_index(destination, image);
  auto blobs = index.blobs;
  blobs.cold.reset();
  if (!cold.empty()) {
    blobs.cold = oci::put_bytes(local.repository(), cold.encode(), kColdMediaType);
  }
  const auto marks = blobs.cold ? blobs.cold->digest : Digest();
  const auto published_marks = published && published->cold ? published->cold->digest : Digest();
  if (published && marks == published_marks && same_but_for_cold(blobs, *published)) return *published;

  blobs.generation = std::max(index.blobs.generation, published ? published->generation : 0) + 1;
  // Entries and windows may never have been fetched to this machine; most often the destination has all but the marks already.
  const auto source_of = [&](const oci::Descriptor& blob) -> oci::Repository& {
    if (destination.has_blob(blob)) return destination;
    return local.repository().has_blob(blob) ? local.repository() : *image.repository;
  };
  copy_index_blobs(blobs, source_of, destination, cancel);
  if (published) {
    destination.put_manifest(make_index_manifest(image, blobs).to_json(), oci::kOciManifestType, kNoTag);
  } else {
    put_manifests(image, blobs, destination, cancel);
  }
  auto preferred = find_index(destination, image);
  if (!preferred || (preferred->cold ? preferred->cold->digest : Digest()) != marks)
    fail<TemporaryError>("{}: another index of image {} was published meanwhile; try again", destination.name(), image.digest().to_string());
  oci::put_bytes(local.repository(), oci::empty_json(), oci::kEmptyJsonType);
  local.repository().put_manifest(make_index_manifest(image, blobs).to_json(), oci::kOciManifestType, kNoTag);
  return *preferred;
}

}  // namespace varve::index
