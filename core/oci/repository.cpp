#include "core/oci/repository.h"

#include "core/base/errors.h"

namespace varve::oci {

Bytes read_whole_blob(Repository& repository, const Descriptor& blob, std::uint64_t limit_bytes) {
  if (blob.size > limit_bytes)
    fail<Unsupported>("{}: {}: {} bytes, more than the limit of {}", repository.name(), blob.digest.to_string(), blob.size, limit_bytes);
  Bytes content;
  content.reserve(blob.size);
  repository.read_blob(blob, {0, blob.size}, [&](ByteView bytes) { append(content, bytes); });
  return content;
}

Descriptor put_bytes(Repository& repository, ByteView content, std::string_view media_type) {
  Descriptor descriptor;
  descriptor.media_type = media_type;
  descriptor.digest = digest_of(content);
  descriptor.size = content.size();
  repository.put_blob(descriptor, [&](ByteRange range, const ByteSink& sink) {
    if (!range.fits_in(content.size())) fail<Error>("a part of a pushed blob lies outside it");
    sink(content.subspan(range.offset, range.length));
  });
  return descriptor;
}

}  // namespace varve::oci
