// The manifests of our artifacts, as any repository may serve them. What is accepted must come back the same when
// written again.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/format/image_index.h"

namespace {

using namespace varve;

// Of two layers; the corpus names the same digests.
oci::Image image() {
  oci::Image image;
  for (const char* name : {"layer a", "layer b"}) {
    oci::Descriptor layer;
    layer.digest = digest_of(name);
    layer.size = 1000;
    image.manifest.layers.push_back(layer);
    image.config.diff_ids.push_back(digest_of(std::string("stream of ") + name));
  }
  image.document.descriptor.media_type = oci::kOciManifestType;
  image.document.descriptor.digest = digest_of("image");
  image.document.descriptor.size = 500;
  return image;
}

oci::Document document_of(Bytes json) {
  oci::Document document;
  document.descriptor.media_type = oci::kOciManifestType;
  document.descriptor.digest = digest_of(json);
  document.descriptor.size = json.size();
  document.bytes = std::move(json);
  return document;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const oci::Image kImage = image();
  const auto document = document_of(to_bytes(std::as_bytes(std::span(data, size))));
  try {
    const auto blobs = index::parse_index_manifest(document, kImage);
    const auto json = index::make_index_manifest(kImage, blobs).to_json();
    const auto again = index::parse_index_manifest(document_of(json), kImage);
    if (index::make_index_manifest(kImage, again).to_json() != json) std::abort();
  } catch (const Error&) {
  }
  try {
    index::parse_layer_manifest(document, kImage.manifest.layers[0].digest);
  } catch (const Error&) {
  }
  return 0;
}
