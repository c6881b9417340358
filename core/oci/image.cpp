#include "core/oci/image.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <set>
#include <thread>

#include "core/base/errors.h"
#include "core/base/log.h"

namespace varve::oci {
namespace {

constexpr std::size_t kMaxNestedIndexes = 256;  // each costs a request
constexpr std::string_view kAttestationAnnotation = "vnd.docker.reference.type";

bool may_be_image(const Descriptor& entry) {
  if (!is_manifest_media_type(entry.media_type) || !entry.artifact_type.empty()) return false;
  if (entry.annotations.contains(std::string(kAttestationAnnotation))) return false;
  return !entry.platform || (entry.platform->os != "unknown" && entry.platform->architecture != "unknown");
}

std::string document_name(Repository& repository, const Digest& digest) {
  return repository.name() + " " + digest.to_string();
}

// All images of an index and the indexes in it, in the order they are listed.
class ImageList {
 public:
  explicit ImageList(Repository& repository) : repository_(repository) {}

  void add_index(const Document& document, int depth) {
    const auto what = document_name(repository_, document.descriptor.digest);
    if (depth > kMaxIndexDepth) fail<Unsupported>("{}: indexes nested deeper than {}", what, kMaxIndexDepth);
    if (!seen_.insert(document.descriptor.digest).second) return;
    if (seen_.size() > kMaxNestedIndexes)
      fail<Unsupported>("{}: more than {} indexes in one another", what, kMaxNestedIndexes);
    for (auto& entry : ImageIndex::parse(document.bytes, what).manifests) {
      if (is_index_media_type(entry.media_type)) {
        add_index(repository_.manifest(entry.digest.to_string()), depth + 1);
      } else if (may_be_image(entry)) {
        if (images_.size() == kMaxIndexEntries) fail<Unsupported>("{}: more than {} images", what, kMaxIndexEntries);
        images_.push_back(std::move(entry));
      }
    }
  }

  // The best fit; the first listed of equal ones. Absent if none fits.
  std::optional<Descriptor> choose(const Platform& wanted) {
    std::optional<Descriptor> best;
    int best_distance = -1;
    for (auto& image : images_) {
      if (!image.platform) image.platform = platform_of(image);
      const int distance = platform_distance(wanted, *image.platform);
      if (distance < 0 || (best && distance >= best_distance)) continue;
      best = image;
      best_distance = distance;
    }
    return best;
  }

  std::string platforms() const {
    std::string text;
    for (const auto& image : images_) {
      if (!text.empty()) text += ", ";
      text += image.platform ? image.platform->normalised().to_string() : "unknown";
    }
    return text.empty() ? "none" : text;
  }

 private:
  // For entries that do not say it: the config knows.
  Platform platform_of(const Descriptor& image) {
    const auto document = repository_.manifest(image.digest.to_string());
    const auto what = document_name(repository_, image.digest);
    const auto manifest = Manifest::parse(document.bytes, document.descriptor.media_type, what);
    const auto config = read_whole_blob(repository_, manifest.config, kMaxConfigBytes);
    return ImageConfig::parse(config, what + " config").platform;
  }

  Repository& repository_;
  std::vector<Descriptor> images_;
  std::set<Digest> seen_;
};

Document choose_image(Repository& repository, Document document, const Platform& platform) {
  if (!is_index_media_type(document.descriptor.media_type)) return document;
  ImageList images(repository);
  images.add_index(document, 1);
  const auto chosen = images.choose(platform);
  if (!chosen)
    fail<NotFound>("{}: no image for {}; there are: {}", document_name(repository, document.descriptor.digest),
                   platform.normalised().to_string(), images.platforms());
  return repository.manifest(chosen->digest.to_string());
}

void check_layers(const Image& image, std::string_view what) {
  const auto& manifest = image.manifest;
  for (const auto& layer : manifest.layers) {
    const auto type = parse_layer_media_type(layer.media_type);
    if (!type)
      fail<Unsupported>("{}: layer {} has media type '{}', which is no file system layer", what,
                        layer.digest.to_string(), layer.media_type);
    if (type->nondistributable)
      fail<Unsupported>(
          "{}: layer {} is nondistributable ({}): registries do not hold it; rebuild the image without it", what,
          layer.digest.to_string(), layer.media_type);
  }
  if (manifest.layers.size() != image.config.diff_ids.size())
    fail<CorruptData>("{}: {} layers, but its config names {} diff_ids", what, manifest.layers.size(),
                      image.config.diff_ids.size());
}

// A config that names no platform fits any.
void check_platform(const Image& image, const Platform& wanted) {
  const auto& offered = image.config.platform;
  if (offered.os.empty() || offered.architecture.empty() || platform_distance(wanted, offered) >= 0) return;
  fail<NotFound>("{}: image {} is for {}, not for {}; leave out --platform, or name an image for it", image.typed(),
                 image.digest().to_string(), offered.normalised().to_string(), wanted.normalised().to_string());
}

// Absent if it is not there, or broken.
std::optional<Bytes> config_kept(Repository* kept, const Descriptor& config) {
  if (kept == nullptr || !kept->has_blob(config)) return std::nullopt;
  try {
    return read_whole_blob(*kept, config, kMaxConfigBytes);
  } catch (const CorruptData& error) {
    log::warn("asking for it again: {}", error.what());
    return std::nullopt;
  }
}

// What is asked meanwhile is waited for, so it takes the connection that is open: a second one costs a round trip.
constexpr std::chrono::milliseconds kAfterOthers{3};

// Has done meanwhile what needs no config.
Bytes read_config(const Image& image, const ImageOpening& opening) {
  auto kept = config_kept(opening.kept, image.manifest.config);
  std::future<Bytes> fetched;
  if (!kept)
    fetched = std::async(opening.meanwhile ? std::launch::async : std::launch::deferred, [&image, &opening] {
      if (opening.meanwhile && !image.repository->is_local()) std::this_thread::sleep_for(kAfterOthers);
      return read_whole_blob(*image.repository, image.manifest.config, kMaxConfigBytes);
    });
  if (opening.meanwhile) opening.meanwhile(image);
  return kept ? std::move(*kept) : fetched.get();
}

// `image` has its repository, and what it was asked for by.
Image open_chosen(Image image, Document document, const ImageOpening& opening) {
  image.document = std::move(document);
  const auto what = document_name(*image.repository, image.document.descriptor.digest);
  image.manifest = Manifest::parse(image.document.bytes, image.document.descriptor.media_type, what);
  if (!image.manifest.artifact_type.empty() || image.manifest.config.media_type == kEmptyJsonType)
    fail<Unsupported>("{}: an artifact of type '{}', not an image", what, image.manifest.artifact_type);
  image.config_json = read_config(image, opening);
  image.config = ImageConfig::parse(image.config_json, what + " config " + image.manifest.config.digest.to_string());
  check_layers(image, what);
  return image;
}

}  // namespace

Image open_image(std::shared_ptr<Repository> repository, std::string_view selector, const Platform& platform) {
  auto chosen = choose_image(*repository, repository->manifest(selector), platform);
  Image image;
  image.repository = std::move(repository);
  image.selector = selector;
  return open_chosen(std::move(image), std::move(chosen), {});
}

ImageRequest ImageRequest::parse(std::string_view reference, const std::string& platform,
                                 const RegistryOptions& registry) {
  ImageRequest request{.reference = Reference::parse(reference), .registry = registry};
  request.text = reference;
  if (!platform.empty()) request.platform = Platform::parse(platform);
  return request;
}

Image open_image(const ImageRequest& request, const ImageOpening& opening) {
  Image image;
  image.repository = open_repository(request.reference, request.registry);
  image.selector = request.reference.selector();
  image.reference = request.text;
  image.registry = request.registry;
  auto& repository = *image.repository;
  if (opening.reads_follow) repository.expect_reads();
  auto document = repository.manifest(image.selector);
  const bool is_list = is_index_media_type(document.descriptor.media_type);
  auto chosen = choose_image(repository, std::move(document), request.platform.value_or(Platform::of_this_machine()));
  std::exception_ptr trouble;
  ImageOpening quiet{.kept = opening.kept};
  if (opening.meanwhile) {
    quiet.meanwhile = [&](const Image& known) {
      try {
        opening.meanwhile(known);
      } catch (...) {
        trouble = std::current_exception();
      }
    };
  }
  image = open_chosen(std::move(image), std::move(chosen), quiet);
  if (request.platform && !is_list) check_platform(image, *request.platform);
  if (trouble) std::rethrow_exception(trouble);
  return image;
}

std::string Image::typed() const {
  if (!reference.empty()) return reference;
  const auto separator = selector.empty() ? "" : selector.starts_with("sha256:") ? "@" : ":";
  return repository->name() + separator + selector;
}

}  // namespace varve::oci
