#include "core/oci/repository.h"

#include "core/base/errors.h"
#include "core/oci/layout.h"
#include "core/oci/registry_repository.h"

namespace varve::oci {

std::shared_ptr<Repository> open_repository(const Reference& reference, const RegistryOptions& options) {
  if (reference.kind == Reference::Kind::kLayout) return std::make_shared<LayoutRepository>(reference.layout_dir);
  return std::make_shared<RegistryRepository>(reference, options);
}

Bytes read_whole_blob(Repository& repository, const Descriptor& blob, std::uint64_t limit_bytes) {
  if (blob.size > limit_bytes)
    fail<Unsupported>("{} {}: {} bytes, the limit is {}", repository.name(), blob.digest.to_string(), blob.size, limit_bytes);
  Bytes content;
  content.reserve(blob.size);
  repository.read_blob(blob, {.offset = 0, .length = blob.size}, [&](ByteView bytes) { append(content, bytes); });
  return content;
}

Descriptor put_bytes(Repository& repository, ByteView content, std::string_view media_type) {
  Descriptor blob;
  blob.media_type = media_type;
  blob.digest = digest_of(content);
  blob.size = content.size();
  repository.put_blob(blob, [&](ByteRange range, const ByteSink& sink) { sink(content.subspan(range.offset, range.length)); });
  return blob;
}

}  // namespace varve::oci
