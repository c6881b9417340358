#pragma once
// A key that may vouch: what cosign, skopeo and OpenSSL write as "PUBLIC KEY".
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/bytes.h"

struct evp_pkey_st;

namespace varve::trust {

inline constexpr std::size_t kMaxKeyFileBytes = 64 * 1024;

// A value; copies share the key. Safe to use from any thread.
class PublicKey {
 public:
  // PEM of a SubjectPublicKeyInfo: ECDSA on P-256 or P-384, RSA of 2048 to 16384 bits, Ed25519. `what` names it in
  // messages. Throws CorruptData for what is no public key, Unsupported for other kinds.
  static PublicKey parse(std::string_view pem, std::string_view what);
  static PublicKey read(const std::filesystem::path& file);

  std::string pem() const;
  // Base64 of the SHA-256 of the key's DER: the hint of a sigstore bundle.
  const std::string& fingerprint() const { return fingerprint_; }
  // How messages name it: the first 12 hex digits of that SHA-256.
  const std::string& id() const { return id_; }
  const std::string& kind() const { return kind_; }  // "ECDSA P-256"

  // Whether `signature` is one of this message by this key: with SHA-256 (on P-384 also with SHA-384, as cosign 3
  // signs), ECDSA in DER, RSA with PKCS #1 v1.5, Ed25519 of the message itself.
  bool verify(ByteView message, ByteView signature) const;

  bool operator==(const PublicKey& other) const { return fingerprint_ == other.fingerprint_; }

 private:
  friend class PrivateKey;
  PublicKey(std::shared_ptr<evp_pkey_st> key, std::string_view what);

  std::shared_ptr<evp_pkey_st> key_;
  std::string fingerprint_, id_, kind_;
};

}  // namespace varve::trust
