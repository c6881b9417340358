#pragma once
// Text for both databases: PostgreSQL takes neither a zero byte nor bytes that are not UTF-8, and names of files may
// have both.
#include <string>
#include <string_view>
#include <vector>

namespace varve::usage {

// What is no UTF-8 becomes U+FFFD.
std::string clean_text(std::string_view text);

// Lists in one column, as JSON. The reader takes anything: what is no such list is empty.
std::string list_text(const std::vector<std::string>& items);
std::vector<std::string> parse_texts(const std::string& text);
std::string list_text(const std::vector<std::uint32_t>& items);
std::vector<std::uint32_t> parse_numbers(const std::string& text);

}  // namespace varve::usage
