#include "core/base/digest.h"

#include <openssl/evp.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/text/strings.h"

namespace varve {
namespace {

constexpr std::string_view kPrefix = "sha256:";

// Fetched once: looking an algorithm up by name at each digest costs more than hashing a small chunk.
const EVP_MD* sha256_algorithm() {
  static EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return algorithm;
}

}  // namespace

Digest Digest::from_raw(ByteView thirty_two_bytes) {
  if (thirty_two_bytes.size() != kBytes) fail<CorruptData>("a digest of {} bytes", thirty_two_bytes.size());
  Digest digest;
  std::copy(thirty_two_bytes.begin(), thirty_two_bytes.end(), digest.bytes_.begin());
  return digest;
}

std::optional<Digest> Digest::try_parse(std::string_view text) {
  if (!text.starts_with(kPrefix) || text.size() != kPrefix.size() + 2 * kBytes) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  Digest digest;
  for (std::size_t i = 0; i < kBytes; ++i) {
    const int high = hex_digit(text[2 * i]);
    const int low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest.bytes_[i] = std::byte(high * 16 + low);
  }
  return digest;
}

Digest Digest::parse(std::string_view text, std::string_view what) {
  if (const auto digest = try_parse(text)) return *digest;
  const auto shown = text.substr(0, 100);
  if (const auto colon = shown.find(':'); colon != std::string_view::npos && shown.substr(0, colon) != "sha256")
    fail<Unsupported>("{}: digest algorithm '{}' is not supported, only sha256", what, shown.substr(0, colon));
  fail<CorruptData>("{}: '{}' is not a sha256 digest", what, shown);
}

std::string Digest::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * kBytes);
  for (const auto byte : bytes_) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

std::string Digest::to_string() const { return std::string(kPrefix) + hex(); }

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() { start(); }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  void start() {
    if (context == nullptr || EVP_DigestInit_ex(context, sha256_algorithm(), nullptr) != 1)
      throw Error("the crypto library offers no SHA-256");
  }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(ByteView bytes) {
  if (EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) != 1) throw Error("SHA-256 update failed");
}

Digest Sha256::finish() {
  std::array<std::byte, Digest::kBytes> raw;
  if (EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(raw.data()), nullptr) != 1)
    throw Error("SHA-256 failed");
  state_->start();
  return Digest::from_raw(raw);
}

Digest digest_of(ByteView bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Digest digest_of(std::string_view text) { return digest_of(as_bytes(text)); }

}  // namespace varve
