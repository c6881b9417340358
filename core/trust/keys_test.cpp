#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/free_with.h"
#include "core/base/text/base64.h"
#include "core/trust/private_key.h"
#include "core/trust/public_key.h"
#include "testing/temp_dir.h"

namespace varve::trust {
namespace {

const Passphrase kNoneAsked = []() -> std::string { throw std::logic_error("a passphrase was asked for"); };
Passphrase words(const std::string& text) {
  return [text] { return text; };
}

// A plain PKCS #8 key, made by OpenSSL.
std::string plain_pem(EVP_PKEY* made) {
  const std::unique_ptr<EVP_PKEY, FreeWith<::EVP_PKEY_free>> key(made);
  const std::unique_ptr<BIO, FreeWith<::BIO_free_all>> bio(::BIO_new(::BIO_s_mem()));
  EXPECT_EQ(::PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
  const char* text = nullptr;
  const long length = ::BIO_get_mem_data(bio.get(), &text);
  return {text, std::size_t(length)};
}
std::string ec(const char* curve) { return plain_pem(::EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", curve)); }
std::string rsa(std::size_t bits) { return plain_pem(::EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", bits)); }
std::string ed25519() { return plain_pem(::EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")); }

const Bytes kMessage = to_bytes(as_bytes("what is signed"));

TEST(Keys, SignAndVerifyInEveryKindThatIsAccepted) {
  for (const auto& [pem, kind] : {std::pair(ec("P-256"), "ECDSA P-256"),
                                  {ec("P-384"), "ECDSA P-384"},
                                  {rsa(2048), "RSA 2048"},
                                  {ed25519(), "Ed25519"}}) {
    const auto key = PrivateKey::parse(pem, kNoneAsked, "key");
    const auto signature = key.sign(kMessage);
    const auto read_again = PublicKey::parse(key.public_key().pem(), "public");
    EXPECT_EQ(read_again.kind(), kind);
    EXPECT_EQ(read_again, key.public_key());
    EXPECT_TRUE(read_again.verify(kMessage, signature)) << kind;
    EXPECT_FALSE(read_again.verify(as_bytes("what is not signed"), signature)) << kind;
    auto broken = signature;
    broken.back() ^= std::byte{1};
    EXPECT_FALSE(read_again.verify(kMessage, broken)) << kind;
    EXPECT_FALSE(read_again.verify(kMessage, {})) << kind;
    EXPECT_FALSE(PrivateKey::generate().public_key().verify(kMessage, signature)) << kind;
  }
}

TEST(Keys, OfOtherKindsAreRefusedByName) {
  EXPECT_THROW(PrivateKey::parse(rsa(1024), kNoneAsked, "key"), Unsupported);
  EXPECT_THROW(PrivateKey::parse(ec("secp256k1"), kNoneAsked, "key"), Unsupported);
  EXPECT_THROW(PrivateKey::parse(plain_pem(::EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519")), kNoneAsked, "key"),
               Unsupported);
}

TEST(Keys, AreNamedByTheHashOfTheirDer) {
  // openssl pkey -pubin -outform DER | sha256sum
  const auto key = PublicKey::parse(
      "-----BEGIN PUBLIC KEY-----\n"
      "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n"
      "-----END PUBLIC KEY-----\n",
      "RFC 8410, section 10.1");
  EXPECT_EQ(key.kind(), "Ed25519");
  EXPECT_EQ(key.fingerprint().size(), 44u);
  EXPECT_EQ(key.id().size(), 12u);
  const auto raw = *base64_decode(key.fingerprint());
  EXPECT_EQ(key.id().substr(0, 2), fmt::format("{:02x}", static_cast<unsigned char>(raw[0])));
}

TEST(Keys, ThatAreEncryptedOpenWithTheirPassphraseAlone) {
  const auto key = PrivateKey::generate();
  for (const std::string phrase : {"", "pass\nwörd"}) {
    const auto pem = key.encrypted_pem(phrase);
    EXPECT_TRUE(pem.starts_with("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n")) << pem;
    EXPECT_EQ(PrivateKey::parse(pem, words(phrase), "key").public_key(), key.public_key());
    EXPECT_THROW(PrivateKey::parse(pem, words(phrase + "x"), "key"), CorruptData);
  }
}

TEST(Keys, AreReadUnderSkopeosHeaderToo) {
  auto pem = PrivateKey::generate().encrypted_pem("x");
  for (auto at = pem.find("SIGSTORE"); at != std::string::npos; at = pem.find("SIGSTORE")) pem.replace(at, 8, "COSIGN");
  EXPECT_NO_THROW(PrivateKey::parse(pem, words("x"), "key"));
}

std::string encrypted_with(const std::string& from, const std::string& to) {
  static const auto pem = PrivateKey::generate().encrypted_pem("");
  const auto begin = pem.find('\n') + 1;
  auto body = pem.substr(begin, pem.find("-----END") - begin);
  std::erase(body, '\n');
  auto json = *base64_decode(body);
  const auto at = json.find(from);
  EXPECT_NE(at, std::string::npos) << json;
  json.replace(at, from.size(), to);
  return "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n" + base64_encode(json) +
         "\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n";
}

TEST(Keys, WhoseParametersWouldCostMoreThanThoseOfCosignAreRefused) {
  EXPECT_THROW(PrivateKey::parse(encrypted_with("65536", "1048576"), words(""), "key"), Unsupported);
  EXPECT_THROW(PrivateKey::parse(encrypted_with("65536", "2"), words(""), "key"), Unsupported);
  EXPECT_THROW(PrivateKey::parse(encrypted_with("\"r\":8", "\"r\":800"), words(""), "key"), Unsupported);
  EXPECT_THROW(PrivateKey::parse(encrypted_with("\"p\":1", "\"p\":99"), words(""), "key"), Unsupported);
  EXPECT_THROW(PrivateKey::parse(encrypted_with("65536", "-65536"), words(""), "key"), CorruptData);
  EXPECT_THROW(PrivateKey::parse(encrypted_with("scrypt", "argon2"), words(""), "key"), Unsupported);
  EXPECT_THROW(PrivateKey::parse(encrypted_with("nacl/secretbox", "aes"), words(""), "key"), Unsupported);
  EXPECT_THROW(PrivateKey::parse(encrypted_with("\"salt\"", "\"pepper\""), words(""), "key"), CorruptData);
}

TEST(Keys, ThatAreNoneAreRefusedWithoutAskingForAPassphrase) {
  const auto is_refused = [](std::string_view text) {
    EXPECT_THROW(PrivateKey::parse(text, kNoneAsked, "key"), Error) << text;
    EXPECT_THROW(PublicKey::parse(text, "key"), Error) << text;
  };
  is_refused({});
  is_refused("");
  is_refused("not a key");
  is_refused("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n");
  is_refused("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
  is_refused("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  is_refused(
      "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n"
      "-----END RSA PRIVATE KEY-----\n");
  is_refused(std::string(kMaxKeyFileBytes + 1, '-'));
  EXPECT_THROW(PublicKey::parse(ed25519(), "key"), CorruptData);
  EXPECT_THROW(PrivateKey::parse(PrivateKey::generate().public_key().pem(), kNoneAsked, "key"), CorruptData);
}

TEST(Keys, AreWrittenForTheirOwnerAloneAndNeverOver) {
  const test::TempDir dir;
  const auto prefix = (dir / "ci").string();
  const auto key = PrivateKey::generate();
  write_key_pair(key, prefix, "");
  struct stat status {};
  ASSERT_EQ(::stat((prefix + ".key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(PublicKey::read(prefix + ".pub"), key.public_key());
  EXPECT_EQ(PrivateKey::read(prefix + ".key", words("")).public_key(), key.public_key());
  EXPECT_THROW(write_key_pair(PrivateKey::generate(), prefix, ""), UsageError);
  std::filesystem::remove(prefix + ".key");
  EXPECT_THROW(write_key_pair(PrivateKey::generate(), prefix, ""), UsageError);
  EXPECT_FALSE(std::filesystem::exists(prefix + ".key"));
  EXPECT_EQ(PublicKey::read(prefix + ".pub"), key.public_key());
}

}  // namespace
}  // namespace varve::trust
