#include "core/oci/internal/file_blob.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve::oci::internal {
namespace {

constexpr std::size_t kReadBytes = 256 * 1024;

}  // namespace

void read_file_blob(int fd, std::uint64_t begin, const Descriptor& blob, ByteRange range, const ByteSink& sink,
                    const std::string& what) {
  if (!range.fits_in(blob.size))
    fail<CorruptData>("{}: range {}+{} lies outside its {} bytes", what, range.offset, range.length, blob.size);
  const bool whole = range.length == blob.size;
  Sha256 hash;
  Bytes buffer(std::min<std::uint64_t>(range.length, kReadBytes));
  for (std::uint64_t done = 0; done < range.length;) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), range.length - done));
    pread_exactly(fd, begin + range.offset + done, part, what);
    if (whole) hash.update(part);
    done += part.size();
    sink(part);
  }
  if (whole && hash.finish() != blob.digest) fail<CorruptData>("{}: the content does not match the digest", what);
}

}  // namespace varve::oci::internal
