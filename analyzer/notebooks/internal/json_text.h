#pragma once
#include <string>
#include <string_view>

namespace varve::notebooks {

// Appends what a JSON string literal (quotes included, the closing one certainly there) says, as UTF-8. A lone
// surrogate becomes U+FFFD, an escape that JSON does not know the character itself; returns false for the latter. Bytes
// that are not UTF-8 stay: see repair_utf8.
bool append_json_string(std::string_view literal, std::string& out);

// What a literal or a list of literals says: lists are joined as notebooks mean it. False if something in it was
// neither. `old_lines`: lists of formats 2 and 3, whose lines may lack their line ends; then they are given back.
bool append_json_lines(std::string_view value, bool old_lines, std::string& out);

bool is_valid_utf8(std::string_view text);

}  // namespace varve::notebooks
