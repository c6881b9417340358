#pragma once
// Base64 with the standard alphabet and padding (RFC 4648, section 4).
#include <optional>
#include <string>
#include <string_view>

namespace varve {

std::string base64_encode(std::string_view bytes);
// Absent for what is none.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace varve
