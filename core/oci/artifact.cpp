#include "core/oci/artifact.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"

namespace varve::oci {

Descriptor bare(const Descriptor& descriptor) {
  Descriptor result;
  result.media_type = descriptor.media_type;
  result.digest = descriptor.digest;
  result.size = descriptor.size;
  return result;
}

ArtifactText read_artifact(const Image& image, const Descriptor& artifact, std::string_view type,
                           std::string_view content_type, std::size_t limit_bytes, const std::string& what) {
  auto& repository = *image.repository;
  const auto document = repository.manifest(artifact.digest.to_string());
  ArtifactText read{.manifest = Manifest::parse(document.bytes, document.descriptor.media_type, what), .text = {}};
  if (read.manifest.artifact_type != type)
    fail<CorruptData>("{}: artifact type \"{:.100}\" is not {}", what, read.manifest.artifact_type, type);
  if (!read.manifest.subject || read.manifest.subject->digest != image.digest())
    fail<CorruptData>("{}: is not about {}", what, image.digest().to_string());
  const auto content = std::ranges::find(read.manifest.layers, content_type, &Descriptor::media_type);
  if (content == read.manifest.layers.end()) fail<CorruptData>("{}: names no blob of type {}", what, content_type);
  read.text = as_text(read_whole_blob(repository, *content, limit_bytes));
  return read;
}

std::string visit_artifacts(const Image& image, std::string_view type, std::string_view kind,
                            const std::function<bool(const Descriptor& artifact)>& visit) {
  auto artifacts = image.repository->referrers(image.digest(), type);
  std::ranges::sort(artifacts, {}, &Descriptor::digest);
  std::string damage;
  for (const auto& artifact : artifacts) {
    const auto pass_over = [&](const Error& error) {
      log::warn("{}: passing over {}: {}", image.repository->name(), kind, error.what());
      if (damage.empty()) damage = error.what();
    };
    try {
      if (visit(artifact)) break;
    } catch (const CorruptData& error) {
      pass_over(error);
    } catch (const Unsupported& error) {
      pass_over(error);
    } catch (const NotFound& error) {
      pass_over(error);
    }
  }
  return damage;
}

}  // namespace varve::oci
