#include "core/trust/private_key.h"

#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/free_with.h"
#include "core/base/random.h"
#include "core/base/text/base64.h"
#include "core/base/text/json_document.h"
#include "core/trust/internal/pem.h"
#include "core/trust/internal/secretbox.h"

namespace varve::trust {
namespace {

using nlohmann::json;

constexpr std::string_view kSigstoreLabel = "ENCRYPTED SIGSTORE PRIVATE KEY";  // cosign
constexpr std::string_view kCosignLabel =
    "ENCRYPTED COSIGN PRIVATE KEY";  // skopeo, and cosign of old: the same content
constexpr std::uint64_t kWrittenN = 65'536;
constexpr std::uint64_t kScryptR = 8;
constexpr std::uint64_t kScryptP = 1;
constexpr std::uint64_t kMaxScryptBytes = 160ull << 20;  // N = 131072 needs 128 MiB and a little
constexpr std::size_t kMinSaltBytes = 16;
constexpr std::size_t kMaxSaltBytes = 64;
constexpr std::size_t kSaltBytes = 32;

// Bytes that are wiped when they go.
struct Secret {
  Bytes bytes;
  Secret() = default;
  explicit Secret(Bytes content) : bytes(std::move(content)) {}
  ~Secret() { ::OPENSSL_cleanse(bytes.data(), bytes.size()); }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
};

void derive_key(std::string_view passphrase, ByteView salt, std::uint64_t n, Secret& key) {
  key.bytes.resize(internal::kBoxKeyBytes);
  if (::EVP_PBE_scrypt(passphrase.data(), passphrase.size(), reinterpret_cast<const unsigned char*>(salt.data()),
                       salt.size(), n, kScryptR, kScryptP, kMaxScryptBytes,
                       reinterpret_cast<unsigned char*>(key.bytes.data()), key.bytes.size()) != 1)
    fail<Error>("scrypt: {}", internal::openssl_error());
}

internal::BoxKey box_key(const Secret& key) { return internal::BoxKey(key.bytes.data(), internal::kBoxKeyBytes); }

struct Envelope {
  std::uint64_t n = 0;
  Bytes salt, nonce, ciphertext;
};

// Anything but what cosign and skopeo write is refused: the parameters are the file's word, and scrypt does what it is
// told.
Envelope parse_envelope(ByteView text, std::string_view what) {
  const auto document = JsonValue::parse(text, what, JsonLimits::strict(kMaxKeyFileBytes));
  document.only({"kdf", "cipher", "ciphertext"});
  const auto kdf = document["kdf"], cipher = document["cipher"], params = kdf["params"];
  kdf.only({"name", "params", "salt"});
  cipher.only({"name", "nonce"});
  params.only({"N", "r", "p"});
  if (kdf["name"].text() != "scrypt") fail<Unsupported>("{}: the key is not derived by scrypt", what);
  if (cipher["name"].text() != "nacl/secretbox") fail<Unsupported>("{}: the cipher is not nacl/secretbox", what);
  const auto r = params["r"].number(), p = params["p"].number();
  Envelope envelope{.n = params["N"].number(),
                    .salt = kdf["salt"].base64(),
                    .nonce = cipher["nonce"].base64(),
                    .ciphertext = document["ciphertext"].base64()};
  const bool known_n = envelope.n == 32'768 || envelope.n == 65'536 || envelope.n == 131'072;
  if (!known_n || r != kScryptR || p != kScryptP)
    fail<Unsupported>("{}: scrypt with N={}, r={}, p={}; keys have N=32768, 65536 or 131072 with r=8, p=1", what,
                      envelope.n, r, p);
  if (envelope.salt.size() < kMinSaltBytes || envelope.salt.size() > kMaxSaltBytes ||
      envelope.nonce.size() != internal::kBoxNonceBytes)
    fail<CorruptData>("{}: a salt of {} bytes, a nonce of {}", what, envelope.salt.size(), envelope.nonce.size());
  return envelope;
}

Bytes decrypt(ByteView text, const Passphrase& passphrase, std::string_view what) {
  const auto envelope = parse_envelope(text, what);
  auto words = passphrase();
  Secret key;
  derive_key(words, envelope.salt, envelope.n, key);
  ::OPENSSL_cleanse(words.data(), words.size());
  auto opened = internal::open_box(box_key(key), internal::BoxNonce(envelope.nonce.data(), internal::kBoxNonceBytes),
                                   envelope.ciphertext);
  if (!opened) fail<CorruptData>("{}: the passphrase does not open it", what);
  return std::move(*opened);
}

std::string to_base64(ByteView bytes) { return base64_encode(as_text(bytes)); }

void write_new_file(const std::string& path, std::string_view text, mode_t mode) {
  const auto fd = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  if (::fchmod(fd.get(), mode) != 0) fail_errno("{}", path);
  write_all(fd.get(), as_bytes(text), path);
  if (::fsync(fd.get()) != 0) fail_errno("{}", path);
}

}  // namespace

PrivateKey PrivateKey::generate() {
  EVP_PKEY* key = ::EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
  if (key == nullptr) fail<Error>("make a key: {}", internal::openssl_error());
  return PrivateKey(std::shared_ptr<evp_pkey_st>(key, ::EVP_PKEY_free));
}

PrivateKey PrivateKey::from_der(ByteView pkcs8, std::string_view what) {
  const auto* at = reinterpret_cast<const unsigned char*>(pkcs8.data());
  const std::unique_ptr<PKCS8_PRIV_KEY_INFO, FreeWith<::PKCS8_PRIV_KEY_INFO_free>> info(
      ::d2i_PKCS8_PRIV_KEY_INFO(nullptr, &at, long(pkcs8.size())));
  EVP_PKEY* key = info ? ::EVP_PKCS82PKEY(info.get()) : nullptr;
  if (key == nullptr) fail<CorruptData>("{}: no private key: {}", what, internal::openssl_error());
  ::ERR_clear_error();
  PrivateKey made(std::shared_ptr<evp_pkey_st>(key, ::EVP_PKEY_free));
  made.public_key();  // of a kind that can be verified
  return made;
}

PrivateKey PrivateKey::parse(std::string_view pem, const Passphrase& passphrase, std::string_view what) {
  auto block = internal::read_pem(pem, what);
  const Secret content(std::move(block.content));
  if (block.label == "PRIVATE KEY") return from_der(content.bytes, what);
  if (block.label == kSigstoreLabel || block.label == kCosignLabel) {
    const Secret der(decrypt(content.bytes, passphrase, what));
    return from_der(der.bytes, what);
  }
  if (block.label == "PUBLIC KEY") fail<CorruptData>("{}: holds a public key; a private one signs", what);
  fail<Unsupported>("{}: a {:.60}; `openssl pkcs8 -topk8 -nocrypt` makes a PRIVATE KEY of it, `varve keygen` a new one",
                    what, block.label);
}

PrivateKey PrivateKey::read(const std::filesystem::path& file, const Passphrase& passphrase) {
  const Secret bytes(read_file(file, kMaxKeyFileBytes));
  return parse(as_text(bytes.bytes), passphrase, file.string());
}

std::string PrivateKey::encrypted_pem(std::string_view passphrase) const {
  const std::unique_ptr<PKCS8_PRIV_KEY_INFO, FreeWith<::PKCS8_PRIV_KEY_INFO_free>> info(::EVP_PKEY2PKCS8(key_.get()));
  unsigned char* der = nullptr;
  const int length = info ? ::i2d_PKCS8_PRIV_KEY_INFO(info.get(), &der) : -1;
  if (length <= 0) fail<Error>("write a private key: {}", internal::openssl_error());
  const Secret plain(to_bytes(std::as_bytes(std::span(der, std::size_t(length)))));
  ::OPENSSL_clear_free(der, std::size_t(length));

  const auto salt = random_bytes(kSaltBytes);
  const auto nonce = random_bytes(internal::kBoxNonceBytes);
  Secret key;
  derive_key(passphrase, salt, kWrittenN, key);
  const auto box =
      internal::seal_box(box_key(key), internal::BoxNonce(nonce.data(), internal::kBoxNonceBytes), plain.bytes);
  const json document = {{"kdf",
                          {{"name", "scrypt"},
                           {"params", {{"N", kWrittenN}, {"r", kScryptR}, {"p", kScryptP}}},
                           {"salt", to_base64(salt)}}},
                         {"cipher", {{"name", "nacl/secretbox"}, {"nonce", to_base64(nonce)}}},
                         {"ciphertext", to_base64(box)}};
  return internal::write_pem(kSigstoreLabel, as_bytes(document.dump()));
}

PublicKey PrivateKey::public_key() const { return PublicKey(key_, "private key"); }

Bytes PrivateKey::sign(ByteView message) const {
  const std::unique_ptr<EVP_MD_CTX, FreeWith<::EVP_MD_CTX_free>> context(::EVP_MD_CTX_new());
  if (!context) throw std::bad_alloc();
  const auto* hash = ::EVP_PKEY_is_a(key_.get(), "ED25519") == 1 ? nullptr : ::EVP_sha256();
  const auto* bytes = reinterpret_cast<const unsigned char*>(message.data());
  std::size_t length = 0;
  if (::EVP_DigestSignInit(context.get(), nullptr, hash, nullptr, key_.get()) != 1 ||
      ::EVP_DigestSign(context.get(), nullptr, &length, bytes, message.size()) != 1)
    fail<Error>("sign: {}", internal::openssl_error());
  Bytes signature(length);
  if (::EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &length, bytes,
                       message.size()) != 1)
    fail<Error>("sign: {}", internal::openssl_error());
  signature.resize(length);
  return signature;
}

void refuse_to_overwrite(const std::string& prefix) {
  for (const auto& path : {prefix + ".key", prefix + ".pub"})
    if (std::filesystem::exists(std::filesystem::symlink_status(path)))
      fail<UsageError>("{}: is there already and is not written over; name another pair with -o PREFIX", path);
}

void write_key_pair(const PrivateKey& key, const std::string& prefix, std::string_view passphrase) {
  refuse_to_overwrite(prefix);
  write_new_file(prefix + ".key", key.encrypted_pem(passphrase), 0600);
  write_new_file(prefix + ".pub", key.public_key().pem(), 0644);
}

}  // namespace varve::trust
