#include "core/oci/image.h"

#include <algorithm>

#include "core/base/errors.h"

namespace varve::oci {
namespace {

constexpr std::string_view kOciConfigType = "application/vnd.oci.image.config.v1+json";
constexpr std::string_view kDockerConfigType = "application/vnd.docker.container.image.v1+json";

std::string label(const Repository& repository, const Descriptor& descriptor) { return repository.name() + ": " + descriptor.digest.to_string(); }

ImageConfig read_config(Repository& repository, const Descriptor& descriptor, Bytes& json) {
  json = read_whole_blob(repository, descriptor, kMaxConfigBytes);
  return ImageConfig::parse(json, label(repository, descriptor));
}

// BuildKit lists its attestations beside the images, for a platform that nobody has.
bool is_attestation(const Descriptor& entry) {
  return entry.annotations.contains("vnd.docker.reference.type") || (entry.platform && entry.platform->os == "unknown");
}

// The platform an entry is for: stated, or else what its config says.
std::optional<Platform> platform_of(Repository& repository, const Descriptor& entry) {
  if (entry.platform && !entry.platform->os.empty()) return entry.platform;
  const auto document = repository.manifest(entry.digest.to_string());
  const auto manifest = Manifest::parse(document.bytes, document.descriptor.media_type, label(repository, entry));
  if (manifest.config.media_type != kOciConfigType && manifest.config.media_type != kDockerConfigType) return std::nullopt;
  Bytes json;
  return read_config(repository, manifest.config, json).platform;
}

struct Choice {
  Descriptor descriptor;
  int distance = -1;
};

// Looks through an index and those nested in it; the best fit wins, the first listed among equals.
void choose(Repository& repository, const ImageIndex& index, const Platform& wanted, int depth, Choice& best, std::string& seen) {
  if (depth > kMaxIndexDepth) fail<Unsupported>("{}: indexes nested deeper than {}", repository.name(), kMaxIndexDepth);
  for (const auto& entry : index.manifests) {
    if (is_attestation(entry)) continue;
    if (is_index_media_type(entry.media_type)) {
      const auto nested = repository.manifest(entry.digest.to_string());
      choose(repository, ImageIndex::parse(nested.bytes, label(repository, entry)), wanted, depth + 1, best, seen);
      continue;
    }
    if (!is_manifest_media_type(entry.media_type) || !entry.artifact_type.empty()) continue;
    const auto platform = platform_of(repository, entry);
    if (!platform) continue;
    seen += (seen.empty() ? "" : ", ") + platform->to_string();
    const int distance = platform_distance(wanted, *platform);
    if (distance >= 0 && (best.distance < 0 || distance < best.distance)) best = {entry, distance};
  }
}

void check_layers(const Repository& repository, const Document& document, const Manifest& manifest, const ImageConfig& config) {
  const auto what = label(repository, document.descriptor);
  for (std::size_t i = 0; i < manifest.layers.size(); ++i) {
    const auto& layer = manifest.layers[i];
    const auto type = parse_layer_media_type(layer.media_type);
    if (!type) fail<Unsupported>("{}: layer {} ({}) has the media type '{}', which is no image layer", what, i, layer.digest.to_string(), layer.media_type);
    if (type->nondistributable)
      fail<Unsupported>("{}: layer {} ({}) is nondistributable: it is not in the registry and cannot be indexed", what, i, layer.digest.to_string());
  }
  if (config.diff_ids.size() != manifest.layers.size())
    fail<CorruptData>("{}: {} layers, but its config lists {} diff_ids", what, manifest.layers.size(), config.diff_ids.size());
}

}  // namespace

Image open_image(std::shared_ptr<Repository> repository, std::string_view selector, const Platform& platform) {
  Image image;
  image.repository = std::move(repository);
  image.document = image.repository->manifest(selector);
  if (is_index_media_type(image.document.descriptor.media_type)) {
    Choice best;
    std::string seen;
    choose(*image.repository, ImageIndex::parse(image.document.bytes, label(*image.repository, image.document.descriptor)), platform, 1, best, seen);
    if (best.distance < 0)
      fail<NotFound>("{}: no image for {}; there is {} (choose with --platform)", label(*image.repository, image.document.descriptor), platform.to_string(),
                     seen.empty() ? "none at all" : seen);
    image.document = image.repository->manifest(best.descriptor.digest.to_string());
  }
  const auto what = label(*image.repository, image.document.descriptor);
  image.manifest = Manifest::parse(image.document.bytes, image.document.descriptor.media_type, what);
  if (!image.manifest.artifact_type.empty() || (image.manifest.config.media_type != kOciConfigType && image.manifest.config.media_type != kDockerConfigType))
    fail<Unsupported>("{}: not an image but an artifact of type '{}'", what,
                      image.manifest.artifact_type.empty() ? image.manifest.config.media_type : image.manifest.artifact_type);
  image.config = read_config(*image.repository, image.manifest.config, image.config_json);
  check_layers(*image.repository, image.document, image.manifest, image.config);
  return image;
}

Image open_image(const ImageRequest& request) {
  return open_image(open_repository(request.reference, request.registry), request.reference.selector(), request.platform);
}

}  // namespace varve::oci
