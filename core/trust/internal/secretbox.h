#pragma once
// NaCl's secretbox: XSalsa20 with Poly1305 (Bernstein, "Cryptography in NaCl"). How cosign and skopeo encrypt private
// keys; OpenSSL has Poly1305 alone.
#include <cstddef>
#include <optional>
#include <span>

#include "core/base/bytes.h"

namespace varve::trust::internal {

inline constexpr std::size_t kBoxKeyBytes = 32;
inline constexpr std::size_t kBoxNonceBytes = 24;
inline constexpr std::size_t kBoxTagBytes = 16;  // stands before the cipher text

using BoxKey = std::span<const std::byte, kBoxKeyBytes>;
using BoxNonce = std::span<const std::byte, kBoxNonceBytes>;

// Tag and cipher text. A nonce is used once with a key.
Bytes seal_box(BoxKey key, BoxNonce nonce, ByteView message);
// Absent if the box was not made with this key and nonce, or was changed.
std::optional<Bytes> open_box(BoxKey key, BoxNonce nonce, ByteView box);

}  // namespace varve::trust::internal
