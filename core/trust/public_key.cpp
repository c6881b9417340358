#include "core/trust/public_key.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>

#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/free_with.h"
#include "core/base/text/base64.h"
#include "core/trust/internal/pem.h"

namespace varve::trust {
namespace {

constexpr int kMinRsaBits = 2048;
constexpr int kMaxRsaBits = 16'384;  // what a verification may cost
constexpr std::size_t kIdDigits = 12;
constexpr std::size_t kMaxSignatureBytes = kMaxRsaBits / 8;

Bytes der_of(EVP_PKEY* key, std::string_view what) {
  unsigned char* der = nullptr;
  const int length = ::i2d_PUBKEY(key, &der);
  if (length <= 0) fail<CorruptData>("{}: {}", what, internal::openssl_error());
  auto bytes = to_bytes(std::as_bytes(std::span(der, std::size_t(length))));
  ::OPENSSL_free(der);
  return bytes;
}

// Also refuses what we do not verify with.
std::string kind_of(EVP_PKEY* key, std::string_view what) {
  if (::EVP_PKEY_is_a(key, "ED25519") == 1) return "Ed25519";
  if (::EVP_PKEY_is_a(key, "RSA") == 1) {
    const int bits = ::EVP_PKEY_get_bits(key);
    if (bits < kMinRsaBits || bits > kMaxRsaBits)
      fail<Unsupported>("{}: an RSA key of {} bits; {} to {} are accepted", what, bits, kMinRsaBits, kMaxRsaBits);
    return fmt::format("RSA {}", bits);
  }
  if (::EVP_PKEY_is_a(key, "EC") == 1) {
    std::array<char, 64> group{};
    int is_explicit = 0;
    ::EVP_PKEY_get_int_param(key, OSSL_PKEY_PARAM_EC_DECODED_FROM_EXPLICIT_PARAMS, &is_explicit);
    ::EVP_PKEY_get_group_name(key, group.data(), group.size(), nullptr);
    const std::string_view name = group.data();
    if (is_explicit == 0 && name == "prime256v1") return "ECDSA P-256";
    if (is_explicit == 0 && name == "secp384r1") return "ECDSA P-384";
    fail<Unsupported>("{}: an EC key on {}; P-256 and P-384 are accepted", what,
                      name.empty() ? "a curve of its own" : name);
  }
  const char* name = ::EVP_PKEY_get0_type_name(key);
  fail<Unsupported>("{}: a key of kind {}; ECDSA (P-256, P-384), RSA and Ed25519 are accepted", what,
                    name ? name : "unknown");
}

bool verifies(EVP_PKEY* key, const EVP_MD* hash, ByteView message, ByteView signature) {
  const std::unique_ptr<EVP_MD_CTX, FreeWith<::EVP_MD_CTX_free>> context(::EVP_MD_CTX_new());
  if (!context) throw std::bad_alloc();
  const auto* signature_bytes = reinterpret_cast<const unsigned char*>(signature.data());
  const auto* message_bytes = reinterpret_cast<const unsigned char*>(message.data());
  const bool good =
      ::EVP_DigestVerifyInit(context.get(), nullptr, hash, nullptr, key) == 1 &&
      ::EVP_DigestVerify(context.get(), signature_bytes, signature.size(), message_bytes, message.size()) == 1;
  ::ERR_clear_error();
  return good;
}

}  // namespace

PublicKey::PublicKey(std::shared_ptr<evp_pkey_st> key, std::string_view what) : key_(std::move(key)) {
  kind_ = kind_of(key_.get(), what);
  const auto sum = digest_of(der_of(key_.get(), what));
  fingerprint_ = base64_encode(as_text(sum.raw()));
  id_ = sum.hex().substr(0, kIdDigits);
}

PublicKey PublicKey::parse(std::string_view pem, std::string_view what) {
  const auto block = internal::read_pem(pem, what);
  if (block.label != "PUBLIC KEY") fail<CorruptData>("{}: holds a {:.60}; a PUBLIC KEY is expected", what, block.label);
  const auto* at = reinterpret_cast<const unsigned char*>(block.content.data());
  const auto* end = at + block.content.size();
  EVP_PKEY* key = ::d2i_PUBKEY(nullptr, &at, long(block.content.size()));
  if (key == nullptr) fail<CorruptData>("{}: no public key: {}", what, internal::openssl_error());
  ::ERR_clear_error();
  std::shared_ptr<evp_pkey_st> owned(key, ::EVP_PKEY_free);
  if (at != end) fail<CorruptData>("{}: bytes behind the public key", what);
  return PublicKey(std::move(owned), what);
}

PublicKey PublicKey::read(const std::filesystem::path& file) {
  const auto bytes = read_file(file, kMaxKeyFileBytes);
  return parse(as_text(bytes), file.string());
}

std::string PublicKey::pem() const { return internal::write_pem("PUBLIC KEY", der_of(key_.get(), "public key")); }

bool PublicKey::verify(ByteView message, ByteView signature) const {
  if (signature.empty() || signature.size() > kMaxSignatureBytes) return false;
  if (kind_ == "Ed25519") return verifies(key_.get(), nullptr, message, signature);
  if (verifies(key_.get(), ::EVP_sha256(), message, signature)) return true;
  return kind_ == "ECDSA P-384" && verifies(key_.get(), ::EVP_sha384(), message, signature);
}

}  // namespace varve::trust
