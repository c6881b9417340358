#pragma once
// Compression into pieces that can each be decoded alone. The same input gives the same bytes with one version of the
// library.
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/bytes.h"

namespace varve::codec {

enum class FrameFormat : std::uint8_t { kZstd, kGzip };
std::string encoder_library(FrameFormat format);  // "libzstd 1.5.4": another version may give other bytes
inline constexpr int kMaxZstdLevel = 19;          // beyond it windows exceed the 8 MiB that every decoder takes
inline constexpr int kMaxGzipLevel = 9;

// Holds the encoder's state so that it is allocated once; one per thread.
class FrameEncoder {
 public:
  // `level`: 1 to kMaxZstdLevel or kMaxGzipLevel.
  FrameEncoder(FrameFormat format, int level);
  ~FrameEncoder();
  FrameEncoder(FrameEncoder&&) noexcept;
  FrameEncoder& operator=(FrameEncoder&&) noexcept;

  // Appends one zstd frame with its content size (RFC 8878), or one gzip member without name and time (RFC 1952).
  void encode(ByteView content, Bytes& into);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One zstd frame of unknown length that grows in memory as it is fed.
class ZstdStreamEncoder {
 public:
  explicit ZstdStreamEncoder(int level);
  ~ZstdStreamEncoder();
  void feed(ByteView content);
  // The whole frame; nothing may be fed after it.
  Bytes finish();
  std::uint64_t content_bytes() const { return content_bytes_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  Bytes frame_;
  std::uint64_t content_bytes_ = 0;
};

}  // namespace varve::codec
