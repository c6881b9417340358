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

std::string human_seconds(double seconds) {
  const auto all = static_cast<long long>(std::max(0.0, seconds));
  if (all < 60) return fmt::format("{} s", all);
  if (all < 3'600) return fmt::format("{} min", all / 60);
  if (all < 86'400) return fmt::format("{} h {} min", all / 3'600, all % 3'600 / 60);
  return fmt::format("{} d {} h", all / 86'400, all % 86'400 / 3'600);
}

}  // namespace varve::cli
