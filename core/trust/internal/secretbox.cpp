#include "core/trust/internal/secretbox.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>

#include "core/base/errors.h"
#include "core/base/free_with.h"

namespace varve::trust::internal {
namespace {

constexpr std::size_t kBlockBytes = 64;
constexpr std::size_t kPolyKeyBytes = 32;

using Words = std::array<std::uint32_t, 16>;

// "expand 32-byte k", at the corners of the square.
constexpr std::array<std::uint32_t, 4> kConstants = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};

void quarter_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d) {
  b ^= std::rotl(a + d, 7);
  c ^= std::rotl(b + a, 9);
  d ^= std::rotl(c + b, 13);
  a ^= std::rotl(d + c, 18);
}

void twenty_rounds(Words& x) {
  for (int i = 0; i < 10; ++i) {
    quarter_round(x[0], x[4], x[8], x[12]);
    quarter_round(x[5], x[9], x[13], x[1]);
    quarter_round(x[10], x[14], x[2], x[6]);
    quarter_round(x[15], x[3], x[7], x[11]);
    quarter_round(x[0], x[1], x[2], x[3]);
    quarter_round(x[5], x[6], x[7], x[4]);
    quarter_round(x[10], x[11], x[8], x[9]);
    quarter_round(x[15], x[12], x[13], x[14]);
  }
}

// The square that both functions start from: `middle` is the nonce of HSalsa20, or nonce and block counter of Salsa20.
Words square_of(BoxKey key, std::span<const std::byte, 16> middle) {
  Words words{};
  for (std::size_t i = 0; i < 4; ++i) {
    words[5 * i] = kConstants[i];
    words[1 + i] = load_le<std::uint32_t>(key.data() + 4 * i);
    words[11 + i] = load_le<std::uint32_t>(key.data() + 16 + 4 * i);
    words[6 + i] = load_le<std::uint32_t>(middle.data() + 4 * i);
  }
  return words;
}

std::array<std::byte, kBoxKeyBytes> hsalsa20(BoxKey key, std::span<const std::byte, 16> nonce) {
  auto words = square_of(key, nonce);
  twenty_rounds(words);
  std::array<std::byte, kBoxKeyBytes> derived{};
  for (std::size_t i = 0; i < 4; ++i) {
    store_le(derived.data() + 4 * i, words[5 * i]);
    store_le(derived.data() + 16 + 4 * i, words[6 + i]);
  }
  ::OPENSSL_cleanse(words.data(), sizeof words);
  return derived;
}

std::array<std::byte, kBlockBytes> salsa20_block(BoxKey key, std::span<const std::byte, 8> nonce, std::uint64_t block) {
  std::array<std::byte, 16> middle{};
  std::memcpy(middle.data(), nonce.data(), nonce.size());
  store_le(middle.data() + 8, block);
  const auto start = square_of(key, middle);
  auto words = start;
  twenty_rounds(words);
  std::array<std::byte, kBlockBytes> stream{};
  for (std::size_t i = 0; i < words.size(); ++i) store_le(stream.data() + 4 * i, words[i] + start[i]);
  ::OPENSSL_cleanse(words.data(), sizeof words);
  return stream;
}

// The key stream, of which the first 32 bytes are the key of Poly1305 and what follows meets the message.
class XSalsa20 {
 public:
  XSalsa20(BoxKey key, BoxNonce nonce) : key_(hsalsa20(key, nonce.first<16>())) {
    std::memcpy(nonce_.data(), nonce.data() + 16, nonce_.size());
    block_ = salsa20_block(key_, nonce_, 0);
  }
  ~XSalsa20() {
    ::OPENSSL_cleanse(key_.data(), key_.size());
    ::OPENSSL_cleanse(block_.data(), block_.size());
  }
  XSalsa20(const XSalsa20&) = delete;
  XSalsa20& operator=(const XSalsa20&) = delete;

  std::span<const std::byte, kPolyKeyBytes> poly_key() const { return std::span(block_).first<kPolyKeyBytes>(); }

  Bytes meet(ByteView text) const {
    Bytes out(text.size());
    auto block = block_;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto at = i + kPolyKeyBytes;
      if (at % kBlockBytes == 0) block = salsa20_block(key_, nonce_, at / kBlockBytes);
      out[i] = text[i] ^ block[at % kBlockBytes];
    }
    ::OPENSSL_cleanse(block.data(), block.size());
    return out;
  }

 private:
  std::array<std::byte, kBoxKeyBytes> key_;
  std::array<std::byte, 8> nonce_{};
  std::array<std::byte, kBlockBytes> block_{};
};

std::array<std::byte, kBoxTagBytes> poly1305(std::span<const std::byte, kPolyKeyBytes> key, ByteView text) {
  const std::unique_ptr<EVP_MAC, FreeWith<::EVP_MAC_free>> mac(::EVP_MAC_fetch(nullptr, "POLY1305", nullptr));
  const std::unique_ptr<EVP_MAC_CTX, FreeWith<::EVP_MAC_CTX_free>> context(mac ? ::EVP_MAC_CTX_new(mac.get())
                                                                               : nullptr);
  std::array<std::byte, kBoxTagBytes> tag{};
  std::size_t length = 0;
  const auto* key_bytes = reinterpret_cast<const unsigned char*>(key.data());
  const auto* text_bytes = reinterpret_cast<const unsigned char*>(text.data());
  auto* tag_bytes = reinterpret_cast<unsigned char*>(tag.data());
  if (!context || ::EVP_MAC_init(context.get(), key_bytes, key.size(), nullptr) != 1 ||
      ::EVP_MAC_update(context.get(), text_bytes, text.size()) != 1 ||
      ::EVP_MAC_final(context.get(), tag_bytes, &length, tag.size()) != 1 || length != tag.size())
    throw Error("OpenSSL's Poly1305 failed");
  return tag;
}

}  // namespace

Bytes seal_box(BoxKey key, BoxNonce nonce, ByteView message) {
  const XSalsa20 stream(key, nonce);
  const auto cipher = stream.meet(message);
  const auto tag = poly1305(stream.poly_key(), cipher);
  Bytes box(kBoxTagBytes + cipher.size());
  std::ranges::copy(cipher, std::ranges::copy(tag, box.begin()).out);
  return box;
}

std::optional<Bytes> open_box(BoxKey key, BoxNonce nonce, ByteView box) {
  if (box.size() < kBoxTagBytes) return std::nullopt;
  const XSalsa20 stream(key, nonce);
  const auto cipher = box.subspan(kBoxTagBytes);
  const auto tag = poly1305(stream.poly_key(), cipher);
  if (::CRYPTO_memcmp(tag.data(), box.data(), tag.size()) != 0) return std::nullopt;
  return stream.meet(cipher);
}

}  // namespace varve::trust::internal
