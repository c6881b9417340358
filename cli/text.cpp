#include "cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ostream>

#include "core/base/utf8.h"

namespace varve::cli {
namespace {

// C0, DEL, and C1 (which begin with C2 in UTF-8): what a terminal may obey instead of showing.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0);
}

std::string escaped(std::string_view name, bool backslashes) {
  std::string text;
  while (!name.empty()) {
    const auto length = utf8_length(name);
    if (length == 0 || is_control(name)) {
      for (std::size_t i = 0; i < std::max<std::size_t>(length, 1); ++i)
        text += fmt::format("\\x{:02x}", static_cast<unsigned char>(name[i]));
    } else if (backslashes && name[0] == '\\') {
      text += "\\\\";
    } else {
      text += name.substr(0, length);
    }
    name.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text;
}

}  // namespace

std::string printable(std::string_view name) { return escaped(name, true); }
std::string message_text(std::string_view message) {
  constexpr std::string_view kGoesOn = "\n  ";
  std::string text;
  for (auto end = message.find(kGoesOn);; end = message.find(kGoesOn)) {
    std::string line(message.substr(0, end));
    std::ranges::replace(line, '\n', ' ');
    text += escaped(line, false);
    if (end == message.npos) return text;
    text += kGoesOn;
    message.remove_prefix(end + kGoesOn.size());
  }
}

void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return;
  const auto columns = rows.front().size();
  std::vector<std::size_t> width(columns);
  std::vector<bool> numbers(columns, rows.size() > 1);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      width[c] = std::max(width[c], rows[r][c].size());
      if (r > 0 && (rows[r][c].empty() || std::isdigit(static_cast<unsigned char>(rows[r][c][0])) == 0))
        numbers[c] = false;
    }
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c)
      line += fmt::format(fmt::runtime(numbers[c] ? "{:>{}}  " : "{:<{}}  "), row[c], width[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
}

}  // namespace varve::cli
