#include "cli/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ostream>

namespace varve::cli {
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
