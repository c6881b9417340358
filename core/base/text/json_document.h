#pragma once
// JSON that others wrote: parsed within limits, then read member by member. Every error names the document and the
// place in it: index.json: "manifests[3].digest" is missing.
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/base/bytes.h"
#include "core/base/digest.h"

namespace varve {

struct JsonLimits {
  std::uint64_t bytes = 1 << 20;
  int depth = 64;                  // of objects and lists within each other
  std::size_t values = 1'000'000;  // bounds the memory that a small document can ask for
  bool repeated_members = true;    // false: an object that has a member twice is CorruptData

  // As containers/image reads what it must trust.
  static JsonLimits strict(std::uint64_t bytes) {
    return {.bytes = bytes, .depth = 16, .values = 20'000, .repeated_members = false};
  }
};

// A value of a document, or an optional member that is not there: false, and it reads as "", 0 or an empty list.
// Copies are cheap; the document lives as long as one of them. What is of another type, missing or out of range throws
// CorruptData; what is too large, Unsupported.
class JsonValue {
 public:
  // Throws Unsupported beyond the limits, and CorruptData for what is no JSON. `what` names the document.
  static JsonValue parse(std::string_view text, std::string_view what, const JsonLimits& limits = {});
  static JsonValue parse(ByteView text, std::string_view what, const JsonLimits& limits = {}) {
    return parse(as_text(text), what, limits);
  }
  // A document that was not read as JSON text.
  JsonValue(nlohmann::json document, std::string_view what);

  explicit operator bool() const { return value_ != nullptr; }
  bool is_text() const;
  bool is_object() const;

  // Of objects. [] must be there; maybe() may be absent or null; has() says whether it is there, be it null.
  bool has(std::string_view name) const;
  JsonValue operator[](std::string_view name) const;
  JsonValue maybe(std::string_view name) const;
  std::vector<std::pair<std::string, JsonValue>> members() const;  // by name
  std::map<std::string, std::string> texts_by_name() const;
  // Refuses members of other names.
  void only(std::initializer_list<std::string_view> names) const;

  // Of lists.
  std::vector<JsonValue> items(std::size_t limit = std::numeric_limits<std::size_t>::max()) const;
  std::vector<std::string> texts(std::size_t limit = std::numeric_limits<std::size_t>::max()) const;

  std::string text(std::size_t limit_bytes = std::numeric_limits<std::size_t>::max()) const;
  bool flag() const;
  double real(double least, double most) const;
  template <std::integral Number = std::uint64_t>
  Number number(Number least = std::numeric_limits<Number>::min(),
                Number most = std::numeric_limits<Number>::max()) const {
    if constexpr (std::is_signed_v<Number>) return Number(signed_number(least, most));
    return Number(unsigned_number(least, most));
  }
  Digest digest() const;
  Bytes base64() const;

  // The document and the place in it, as errors name them.
  std::string where() const;
  // For what only the caller can see to be wrong.
  [[noreturn]] void refuse(std::string_view why) const;
  // As it stands there, for what is handed on or looked at without claims; null if it is not there.
  const nlohmann::json& raw() const;

 private:
  struct Document;
  JsonValue(std::shared_ptr<const Document> document, const nlohmann::json* value, std::string place)
      : document_(std::move(document)), value_(value), place_(std::move(place)) {}
  std::string place_of(std::string_view member) const;
  const nlohmann::json* of_type(std::uint8_t type, std::string_view name) const;
  std::uint64_t unsigned_number(std::uint64_t least, std::uint64_t most) const;
  std::int64_t signed_number(std::int64_t least, std::int64_t most) const;

  std::shared_ptr<const Document> document_;
  const nlohmann::json* value_;
  std::string place_;  // "manifests[3].digest"; "" is the whole document
};

}  // namespace varve
