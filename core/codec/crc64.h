#pragma once
// CRC-64 of ISO 3309 as Go's hash/crc64 computes it with its ISO table (reflected polynomial 0xD800000000000000): what
// tar-split keeps of a file.
#include <cstdint>

#include "core/base/bytes.h"

namespace varve::codec {

// `crc` is that of what came before; 0 at the start.
std::uint64_t crc64_iso(std::uint64_t crc, ByteView bytes);

}  // namespace varve::codec
