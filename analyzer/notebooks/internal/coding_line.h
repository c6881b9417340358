#pragma once
// In which encoding a Python file is written: PEP 263.
#include <string>
#include <string_view>

namespace varve::notebooks {

// What a comment in the first two lines says ("-*- coding: latin-1 -*-"), in lower case and with "-" for "_"; "" if
// none does.
std::string declared_coding(std::string_view text);

// One of Python's names for ISO 8859-1, as declared_coding() gives them.
bool is_latin1(std::string_view coding);
// Each byte is the character of its number.
std::string utf8_of_latin1(std::string_view text);

}  // namespace varve::notebooks
