#include "core/base/text/base64.h"

#include <openssl/evp.h>

#include "core/base/errors.h"

namespace varve {
namespace {

constexpr std::size_t kMaxBytes = std::size_t(1) << 30;  // OpenSSL counts in int

}  // namespace

std::string base64_encode(std::string_view bytes) {
  if (bytes.size() > kMaxBytes) fail<Unsupported>("base64 of {} bytes", bytes.size());
  std::string encoded((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                                       reinterpret_cast<const unsigned char*>(bytes.data()), int(bytes.size()));
  encoded.resize(std::size_t(length));
  return encoded;
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0 || text.size() > kMaxBytes) return std::nullopt;
  std::string decoded(text.size() / 4 * 3, '\0');
  const int length = ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(decoded.data()),
                                       reinterpret_cast<const unsigned char*>(text.data()), int(text.size()));
  if (length < 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && text.size() > padding && text[text.size() - 1 - padding] == '=') ++padding;
  decoded.resize(std::size_t(length) - padding);
  return decoded;
}

}  // namespace varve
