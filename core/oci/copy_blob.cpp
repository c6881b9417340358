#include "core/oci/copy_blob.h"

#include "core/oci/layout.h"
#include "core/oci/source_turns.h"

namespace varve::oci {

bool copy_blob(Repository& source, Repository& destination, const Descriptor& blob,
               const std::function<void(std::uint64_t bytes)>& on_bytes) {
  bool sent = false;
  auto* from = dynamic_cast<LayoutRepository*>(&source);
  auto* to = dynamic_cast<LayoutRepository*>(&destination);
  if (from != nullptr && to != nullptr) {
    const bool linked = to->link_blob(*from, blob, [&](ByteView bytes) {
      sent = true;
      if (on_bytes) on_bytes(bytes.size());
    });
    if (linked) return sent;
  }
  for (SourceTurns sources(source, blob);;) {
    try {
      destination.put_blob(blob, [&](ByteRange range, const ByteSink& sink) {
        source.read_blob(blob, range, [&](ByteView bytes) {
          sink(bytes);
          sent = true;
          if (on_bytes) on_bytes(bytes.size());
        });
      });
      return sent;
    } catch (const CorruptData& error) {
      if (!sources.next(error)) throw;
    }
  }
}

}  // namespace varve::oci
