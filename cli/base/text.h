#pragma once
// How commands print for people: columns that line up.
#include <iosfwd>
#include <string>
#include <vector>

namespace varve::cli {

// Rows of equal length; the first row is the heading. A column whose cells all begin with a digit is aligned to the
// right.
void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& rows);

}  // namespace varve::cli
