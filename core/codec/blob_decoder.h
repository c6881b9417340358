#pragma once
// A layer blob of any kind to its stream, from the start, for who needs neither places to enter nor both sides.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/bytes.h"

namespace varve::codec {

// Push decoder; the first bytes decide how it decodes, not a media type. Memory is bounded as the walkers' is. Not
// shared between threads.
class BlobDecoder {
 public:
  using OnStream = std::function<void(ByteView)>;
  // `on_stream` gets the stream in order. Throws as the walkers do, Unsupported beyond `max_stream_bytes`, and what
  // `on_stream` throws.
  BlobDecoder(std::string what, std::uint64_t max_stream_bytes, OnStream on_stream);
  ~BlobDecoder();
  void feed(ByteView compressed);
  void finish();
  std::uint64_t stream_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::codec
