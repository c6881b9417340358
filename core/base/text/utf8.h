#pragma once
// Whether bytes are text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace varve {

// Editors of Windows put it at the start of a file.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Length in bytes of the well-formed UTF-8 character at the start of `text`, 0 if there is none (Unicode, table 3-7).
std::size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);
// Each byte that is not part of a well-formed character becomes U+FFFD.
std::string repair_utf8(std::string_view text);

// Appends a code point of up to 0x10FFFF. Surrogates are written as they are, which is no UTF-8: callers that may have
// some look first.
void append_utf8(std::uint32_t code, std::string& out);

}  // namespace varve
