#include "cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ostream>

namespace varve::cli {
namespace {

// Length in bytes of the well-formed UTF-8 character at the start of `text`, 0 if there is none (Unicode, table 3-7).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const auto first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
    return continues(1) && continues(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
    return continues(1) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

// C0, DEL, and C1 (which begin with C2 in UTF-8): what a terminal may obey instead of showing.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0);
}

}  // namespace

std::string printable(std::string_view name) {
  std::string text;
  while (!name.empty()) {
    const auto length = utf8_length(name);
    if (length == 0 || is_control(name)) {
      for (std::size_t i = 0; i < std::max<std::size_t>(length, 1); ++i) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(name[i]));
    } else if (name[0] == '\\') {
      text += "\\\\";
    } else {
      text += name.substr(0, length);
    }
    name.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return;
  const auto columns = rows.front().size();
  std::vector<std::size_t> width(columns);
  std::vector<bool> numbers(columns, rows.size() > 1);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      width[c] = std::max(width[c], rows[r][c].size());
      if (r > 0 && (rows[r][c].empty() || std::isdigit(static_cast<unsigned char>(rows[r][c][0])) == 0)) numbers[c] = false;
    }
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) line += fmt::format(fmt::runtime(numbers[c] ? "{:>{}}  " : "{:<{}}  "), row[c], width[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
}

}  // namespace varve::cli
