// The record that one daemon leaves to the next, with any content: refused, or it crosses once more as it is.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "fuse/daemon/handover.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  try {
    const auto text = fuse::encode_handover(fuse::decode_handover(as_text(std::as_bytes(std::span(data, size)))));
    if (fuse::encode_handover(fuse::decode_handover(text)) != text) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
