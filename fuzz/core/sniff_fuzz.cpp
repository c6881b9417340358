// First and last bytes of any blob. What is taken for a container must at least not contradict its magic.
#include <cstdint>
#include <cstdlib>

#include "core/codec/sniff.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::codec;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto container = sniff(bytes.first(std::min(size, kSniffBytes)));
  if (container == Container::kGzip && (size < 2 || data[0] != 0x1f || data[1] != 0x8b)) std::abort();
  const bool estargz = has_estargz_footer(bytes.last(std::min(size, kEstargzFooterBytes)));
  const bool chunked = has_zstd_chunked_footer(bytes.last(std::min(size, kZstdChunkedFooterBytes)));
  if (estargz && chunked) std::abort();
  return 0;
}
