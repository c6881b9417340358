// Any blob through the zstd walker, in two ways of cutting it: the result must not depend on the cuts.
#include <algorithm>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/codec/zstd_walker.h"

namespace {

using namespace varve;
using namespace varve::codec;

constexpr std::size_t kMaxStreamBytes = 1 << 20;  // highly compressible frames would keep the fuzzer busy with nothing

struct TooMuch {};

struct Listener final : ZstdListener {
  void on_stream_bytes(ByteView bytes) override {
    append(stream, bytes);
    if (stream.size() > kMaxStreamBytes) throw TooMuch();
  }
  void on_frame(std::uint64_t compressed_offset, std::uint64_t stream_offset) override {
    if (stream_offset != stream.size()) std::abort();
    frames.push_back(compressed_offset);
  }
  bool operator==(const Listener& other) const {
    return stream == other.stream && frames == other.frames && accepted == other.accepted;
  }
  Bytes stream;
  std::vector<std::uint64_t> frames;
  bool accepted = false;
};

Listener walk(ByteView blob, std::size_t step) {
  Listener listener;
  try {
    ZstdWalker walker("blob", listener);
    for (std::size_t at = 0; at < blob.size(); at += step)
      walker.feed(blob.subspan(at, std::min(step, blob.size() - at)));
    walker.finish();
    listener.accepted = true;
  } catch (const Error&) {
  }
  return listener;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto blob = std::as_bytes(std::span(data + 1, size - 1));
  try {
    const auto whole = walk(blob, blob.size() + 1);
    const auto pieces = walk(blob, 1 + data[0]);
    if (whole.accepted != pieces.accepted || whole.frames != pieces.frames) std::abort();
    if (whole.accepted && !(whole == pieces)) std::abort();
  } catch (const TooMuch&) {
  }
  return 0;
}
