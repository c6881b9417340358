#pragma once
// PEM blocks (RFC 7468).
#include <string>
#include <string_view>

#include "core/base/bytes.h"

namespace varve::trust::internal {

struct PemBlock {
  std::string label;  // "PUBLIC KEY"
  Bytes content;
};

// The first block of a text, as Go's and OpenSSL's readers take it. Throws CorruptData if there is none, or if it has
// headers.
PemBlock read_pem(std::string_view text, std::string_view what);
std::string write_pem(std::string_view label, ByteView content);

// The library's last words on why something failed, for messages; empties its list.
std::string openssl_error();

}  // namespace varve::trust::internal
