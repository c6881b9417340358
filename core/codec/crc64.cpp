#include "core/codec/crc64.h"

#include <isa-l/crc64.h>

namespace varve::codec {

std::uint64_t crc64_iso(std::uint64_t crc, ByteView bytes) {
  return ::crc64_iso_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace varve::codec
