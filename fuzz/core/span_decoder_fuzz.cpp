// Spans that may hold anything: decoding must fill the buffer or throw, and never touch what lies beside it.
#include <algorithm>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/codec/span_decoder.h"

namespace {

using namespace varve;
using namespace varve::codec;

constexpr std::size_t kGuard = 64;
constexpr auto kGuardByte = std::byte(0xa5);

// The decoders are other people's, partly in assembly that sanitizers do not see, so the guards are looked at by hand.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t size) : bytes_(size + 2 * kGuard, kGuardByte) {}
  std::span<std::byte> inner() { return std::span(bytes_).subspan(kGuard, bytes_.size() - 2 * kGuard); }
  void check() const {
    const auto intact = [](ByteView guard) {
      return std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == kGuardByte; });
    };
    if (!intact(ByteView(bytes_).first(kGuard)) || !intact(ByteView(bytes_).last(kGuard))) std::abort();
  }

 private:
  Bytes bytes_;
};

void decode(const std::uint8_t* data, std::size_t size) {
  static SpanDecoder decoder;  // used again and again, as a thread does
  const auto mode = data[0];
  const std::size_t stream_bytes = (data[1] | data[2] << 8) * (mode & 0x80 ? 16u : 1u);
  auto rest = std::as_bytes(std::span(data + 4, size - 4));
  GuardedBuffer buffer(stream_bytes);
  try {
    if ((mode & 1) != 0) {
      decoder.decode_zstd(rest, buffer.inner(), "span");
    } else {
      const auto window_bytes = std::min<std::size_t>(rest.size(), data[3] * 16u);
      const auto window = rest.first(window_bytes);
      decoder.decode_gzip({.compressed = rest.subspan(window_bytes),
                           .bits = std::uint8_t(mode >> 1 & 7),
                           .window = window,
                           .member_header = (mode & 0x10) != 0},
                          buffer.inner(), "span");
    }
  } catch (const CorruptData&) {
  }
  buffer.check();
  if ((mode & 0x20) == 0) return;
  try {
    decompress_zstd(rest, 1 << 20, "blob");
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size >= 4) decode(data, size);
  return 0;
}
