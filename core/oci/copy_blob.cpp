#include "core/oci/copy_blob.h"

namespace varve::oci {

bool copy_blob(Repository& source, Repository& destination, const Descriptor& blob, const std::function<void(std::uint64_t bytes)>& on_bytes) {
  bool sent = false;
  destination.put_blob(blob, [&](ByteRange range, const ByteSink& sink) {
    source.read_blob(blob, range, [&](ByteView bytes) {
      sink(bytes);
      sent = true;
      if (on_bytes) on_bytes(bytes.size());
    });
  });
  return sent;
}

}  // namespace varve::oci
