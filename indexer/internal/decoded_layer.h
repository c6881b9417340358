#pragma once
// A layer blob's stream, read and decoded on a thread of its own while the caller works on what came before.
#include <exception>
#include <string>
#include <thread>

#include "core/base/bytes.h"
#include "core/base/threads/bounded_queue.h"
#include "core/base/work.h"
#include "core/oci/image.h"

namespace varve::indexer {

class DecodedLayer {
 public:
  // Repository and layer must outlive it. `progress` hears of compressed bytes.
  DecodedLayer(oci::Repository& repository, const oci::Descriptor& layer, std::string what, const Work& work);
  ~DecodedLayer();
  // The next bytes of the stream; empty at its end, when the blob's digest was right. Throws what reading and decoding
  // threw.
  Bytes next();

 private:
  void decode(oci::Repository& repository, const oci::Descriptor& layer, const std::string& what, const Work& work);

  static constexpr std::size_t kPieces = 24;
  BoundedQueue<Bytes> pieces_{kPieces};
  std::exception_ptr failure_;  // read after the last piece
  std::jthread thread_;         // last: it ends first
};

}  // namespace varve::indexer
