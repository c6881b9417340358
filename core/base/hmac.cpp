#include "core/base/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>

#include "core/base/errors.h"

namespace varve {

Digest hmac_sha256(ByteView key, std::string_view message) {
  std::array<unsigned char, Digest::kBytes> sum{};
  unsigned length = 0;
  if (::HMAC(::EVP_sha256(), key.data(), int(key.size()), reinterpret_cast<const unsigned char*>(message.data()),
             message.size(), sum.data(), &length) == nullptr ||
      length != sum.size())
    fail<Error>("HMAC-SHA-256 failed");
  return Digest::from_raw(std::as_bytes(std::span(sum)));
}

}  // namespace varve
