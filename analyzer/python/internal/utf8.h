#pragma once
#include <string>
#include <string_view>

namespace varve::python {

// Well-formed UTF-8 unchanged; each byte that is not part of any becomes U+FFFD.
std::string repair_utf8(std::string_view text);

// The code point in UTF-8; U+FFFD for what is none.
std::string encode_utf8(char32_t code_point);

}  // namespace varve::python
