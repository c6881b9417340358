// A message to the keeper with any content: refused, or the same when it is written again.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "fuse/daemon/keeper_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto message = fuse::decode_keeper_message(bytes);
    if (size <= fuse::kMaxKeeperMessageBytes && fuse::encode(message) != to_bytes(bytes)) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
