#pragma once
// A key that signs, in the forms of cosign and skopeo.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/trust/public_key.h"

namespace varve::trust {

// Asked for only when a key is encrypted.
using Passphrase = std::function<std::string()>;

// A value; copies share the key. Safe to use from any thread.
class PrivateKey {
 public:
  static PrivateKey generate();  // ECDSA on P-256, as cosign and skopeo make them
  // cosign's and skopeo's encrypted PEM ("ENCRYPTED SIGSTORE|COSIGN PRIVATE KEY": scrypt, secretbox), or plain PKCS #8
  // ("PRIVATE KEY"). Throws CorruptData for what is none and for a passphrase that does not open it, Unsupported for
  // other forms and for scrypt parameters that those programs do not use.
  static PrivateKey parse(std::string_view pem, const Passphrase& passphrase, std::string_view what);
  static PrivateKey read(const std::filesystem::path& file, const Passphrase& passphrase);

  // As `cosign generate-key-pair` writes it.
  std::string encrypted_pem(std::string_view passphrase) const;
  PublicKey public_key() const;
  // What PublicKey::verify() takes.
  Bytes sign(ByteView message) const;

 private:
  explicit PrivateKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}
  static PrivateKey from_der(ByteView pkcs8, std::string_view what);

  std::shared_ptr<evp_pkey_st> key_;
};

// Throws UsageError if PREFIX.key or PREFIX.pub exists: a key that was lost cannot be made again.
void refuse_to_overwrite(const std::string& prefix);
// Writes PREFIX.key (0600, encrypted) and PREFIX.pub; refuses to overwrite.
void write_key_pair(const PrivateKey& key, const std::string& prefix, std::string_view passphrase);

}  // namespace varve::trust
