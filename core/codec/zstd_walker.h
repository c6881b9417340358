#pragma once
// One pass over a zstd blob (RFC 8878): decodes and checks it and reports where frames begin. Skippable frames
// (zstd:chunked TOC, seekable table, footer) give no stream bytes.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/bytes.h"

namespace varve::codec {

inline constexpr int kMaxZstdWindowLog = 27;  // 128 MiB, as `zstd -d` allows without --long

class ZstdListener {
 public:
  virtual ~ZstdListener() = default;
  virtual void on_stream_bytes(ByteView bytes) = 0;
  // A content frame begins here: decoding can be entered.
  virtual void on_frame(std::uint64_t compressed_offset, std::uint64_t stream_offset) = 0;
  // A content frame ended before this offset, its checksum included. Skippable frames may follow.
  virtual void on_frame_end(std::uint64_t /*compressed_offset*/) {}
};

// Push parser with bounded memory (the frame's window, at most 2^kMaxZstdWindowLog). Not shared between threads. Throws
// CorruptData or Unsupported (window too large) naming `what`, and what the listener throws.
class ZstdWalker {
 public:
  ZstdWalker(std::string what, ZstdListener& listener);
  ~ZstdWalker();
  void feed(ByteView compressed);
  void finish();
  std::uint64_t frames() const;  // content frames only

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::codec
