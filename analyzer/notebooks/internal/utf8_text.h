#pragma once
#include <string>

namespace varve::notebooks {

// Makes each byte that begins no whole UTF-8 sequence U+FFFD. False if there was none.
bool repair_utf8(std::string& text);

}  // namespace varve::notebooks
