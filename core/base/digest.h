#pragma once
// SHA-256 digests in the grammar of the OCI image spec (descriptor.md, "Digests").
#include <array>
#include <compare>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/bytes.h"

namespace varve {

// A SHA-256 digest; a value. Other algorithms of the spec are refused by parse() with Unsupported.
class Digest {
 public:
  static constexpr std::size_t kBytes = 32;

  Digest() = default;  // all zero: equal to no digest of content in practice
  static Digest from_raw(ByteView thirty_two_bytes);
  // "sha256:" and 64 lower-case hex digits. Throws CorruptData naming `what` otherwise.
  static Digest parse(std::string_view text, std::string_view what = "digest");
  static std::optional<Digest> try_parse(std::string_view text);

  std::string to_string() const;  // "sha256:..."
  std::string hex() const;
  ByteView raw() const { return bytes_; }
  auto operator<=>(const Digest&) const = default;

 private:
  std::array<std::byte, kBytes> bytes_{};
};

// One running SHA-256. Not shared between threads.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(ByteView bytes);
  // Returns the digest of everything so far and starts anew.
  Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest digest_of(ByteView bytes);
Digest digest_of(std::string_view text);

}  // namespace varve

template <>
struct std::hash<varve::Digest> {
  std::size_t operator()(const varve::Digest& digest) const noexcept {
    return varve::load_le<std::size_t>(digest.raw().data());
  }
};
