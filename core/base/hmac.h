#pragma once
// HMAC-SHA-256 (RFC 2104).
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/digest.h"

namespace varve {

Digest hmac_sha256(ByteView key, std::string_view message);

}  // namespace varve
