#pragma once
#include <future>

#include "core/base/bytes.h"
#include "fuse/stream/layer_stream.h"

namespace varve::test {

// LayerStream::read() for who has nothing else to do. Throws its error.
inline void read_and_wait(fuse::LayerStream& stream, std::uint64_t offset, std::span<std::byte> into) {
  std::promise<void> promise;
  stream.read(offset, into, [&](std::exception_ptr error) {
    if (error)
      promise.set_exception(error);
    else
      promise.set_value();
  });
  promise.get_future().get();
}

inline Bytes read_and_wait(fuse::LayerStream& stream, std::uint64_t offset, std::size_t length) {
  Bytes bytes(length, std::byte{0xee});
  read_and_wait(stream, offset, std::span(bytes));
  return bytes;
}

}  // namespace varve::test
