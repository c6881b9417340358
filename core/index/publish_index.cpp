#include "core/index/publish_index.h"

#include <map>
#include <utility>

#include "core/oci/copy_blob.h"

namespace varve::index {
namespace {

constexpr std::string_view kNoTag;

void copy_if_named(oci::Repository& source, oci::Repository& destination, const std::optional<oci::Descriptor>& blob) {
  if (blob && &source != &destination) oci::copy_blob(source, destination, *blob);
}

}  // namespace

void publish_index(const oci::Image& image, const ImageIndexBlobs& index, oci::Repository& source, oci::Repository& destination,
                   const CancelFlag& cancel) {
  // A layer that the image repeats is published once.
  std::map<Digest, std::pair<const oci::Descriptor*, const LayerIndexBlobs*>> layers;
  for (std::size_t i = 0; i < index.layers.size(); ++i)
    layers.emplace(index.layers[i].layer_digest, std::pair(&image.manifest.layers[i], &index.layers[i]));

  oci::put_bytes(destination, oci::empty_json(), oci::kEmptyJsonType);
  for (const auto& [digest, layer] : layers) {
    cancel.throw_if_cancelled();
    copy_if_named(source, destination, layer.second->map);
    copy_if_named(source, destination, layer.second->windows);
    copy_if_named(source, destination, layer.second->entries);
  }
  copy_if_named(source, destination, index.tree);
  copy_if_named(source, destination, index.ranges);
  for (const auto& [digest, layer] : layers) {
    cancel.throw_if_cancelled();
    auto blobs = *layer.second;
    if (blobs.tool.empty()) blobs.tool = index.tool;  // known only to the image's index
    destination.put_manifest(make_layer_manifest(*layer.first, blobs).to_json(), oci::kOciManifestType, kNoTag);
  }
  cancel.throw_if_cancelled();
  destination.put_manifest(make_index_manifest(image, index).to_json(), oci::kOciManifestType, kNoTag);
}

}  // namespace varve::index
