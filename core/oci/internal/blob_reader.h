#pragma once
#include <atomic>

#include "core/oci/internal/blob_locations.h"
#include "core/oci/internal/registry_endpoint.h"

namespace varve::oci::internal {

// Reads blobs, whole or by single ranges, from a registry and the storage it redirects to. Broken transfers go on where
// they stopped. Safe to use from any thread.
class BlobReader {
 public:
  explicit BlobReader(RegistryEndpoint& endpoint) : endpoint_(endpoint) {}

  // kRefuse, for who can ask elsewhere: throws RangesNotServed where the whole blob comes instead of a later range, and
  // CorruptData at the first answer that is not what was asked for.
  enum class WholeForRange { kSkip, kRefuse };
  void read(const Descriptor& blob, ByteRange range, const ByteSink& sink, WholeForRange policy = WholeForRange::kSkip);
  // False once a range request was answered with the whole blob; true again after a 206.
  bool serves_ranges() const { return serves_ranges_; }

 private:
  struct Transfer;
  void read_all(Transfer& transfer);
  bool attempt(Transfer& transfer, Backoff& waits);
  void check_head(Transfer& transfer, const HttpHead& head);
  bool deliver(Transfer& transfer, ByteView bytes);

  RegistryEndpoint& endpoint_;
  BlobLocations locations_;
  std::atomic<bool> serves_ranges_ = true;
};

}  // namespace varve::oci::internal
