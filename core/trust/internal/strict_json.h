#pragma once
// JSON of strangers, read as containers/image reads what it must trust: no member twice, none that is not expected.
#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "core/base/bytes.h"

namespace varve::trust::internal {

inline constexpr int kMaxStrictDepth = 16;
inline constexpr std::size_t kMaxStrictValues = 20'000;

// An object. Throws Unsupported above the limits, CorruptData for what is no JSON object or names a member twice.
nlohmann::json parse_strict_json(ByteView text, std::uint64_t limit_bytes, std::string_view what);

// Throws CorruptData if `value` is no object, lacks one of `required`, or has another than those and `optional`.
void check_members(const nlohmann::json& value, std::initializer_list<std::string_view> required,
                   std::initializer_list<std::string_view> optional, std::string_view what);
// Throws CorruptData if it is there and no string; "" if absent.
std::string text_member(const nlohmann::json& object, std::string_view name, std::string_view what);
// The bytes of a base64 string member. Throws CorruptData if it is none.
Bytes base64_member(const nlohmann::json& object, std::string_view name, std::string_view what);

}  // namespace varve::trust::internal
