#pragma once
// One pass over a gzip blob of any producer: decodes it, checks it, and reports every place where decoding can be
// entered again. Formats: RFC 1951 (deflate), RFC 1952 (gzip). Built for indexing; reading single spans is
// span_decoder.h.
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/bytes.h"

namespace varve::codec {

inline constexpr std::size_t kDeflateWindowBytes = 32'768;

// A place between two deflate blocks, or the start of a member: then compressed_offset is where its gzip header begins,
// and bits is 0.
struct GzipBoundary {
  std::uint64_t compressed_offset = 0;  // first whole byte not yet consumed
  std::uint8_t bits = 0;                // 0..7: so many HIGH bits of the byte before belong to what follows
  std::uint64_t stream_offset = 0;      // bytes decoded so far, over all members
  bool member_start = false;            // nothing before it can be referred to: no window
};

class GzipListener {
 public:
  virtual ~GzipListener() = default;
  // Decoded bytes, in order; in large pieces where no boundary is reported between them.
  virtual void on_stream_bytes(ByteView bytes) = 0;
  // Whether on_boundary() shall be called for a boundary at this offset. Bytes before one are given first, so who
  // declines what he does not need is spared tiny pieces; bytes before stream_offset may not have been given yet.
  virtual bool wants_boundary(std::uint64_t /*stream_offset*/) { return true; }
  // All bytes before the boundary have been given. `window` holds the last min(32768, bytes of this member) decoded
  // bytes and is valid during the call only.
  virtual void on_boundary(const GzipBoundary& boundary, ByteView window) = 0;
};

// Push parser; memory is bounded (well under 1 MiB) whatever the input. Not shared between threads.
// Members follow each other; zero padding and trailing garbage after the last member are treated as `gzip -d` does.
// feed() and finish() throw CorruptData naming `what`, the compressed offset and the reason (bad block, CRC32 or length
// of a member does not match, the blob ends in the middle), and what the listener throws.
class GzipWalker {
 public:
  GzipWalker(std::string what, GzipListener& listener);
  ~GzipWalker();
  void feed(ByteView compressed);
  void finish();
  std::uint64_t members() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Keeps of a window only the bytes that decoding from a boundary can refer to and zeroes the others.
// `compressed` begins at the first byte needed (the shared byte if bits != 0) and must hold the compressed form of at
// least the next 32768 decoded bytes, or run to the end of the member. Returns a window of the same size. Throws
// CorruptData if `compressed` is too short or does not decode.
Bytes make_window_sparse(ByteView compressed, std::uint8_t bits, ByteView window);

}  // namespace varve::codec
