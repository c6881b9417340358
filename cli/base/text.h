#pragma once
// How commands print for people: columns that line up.
#include <iosfwd>
#include <string>
#include <vector>

namespace varve::cli {

// Rows of equal length; the first row is the heading. A column whose cells all begin with a digit is aligned to the
// right.
void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& rows);

// "8 s", "3 min", "2 h 5 min", "3 d 4 h".
std::string human_seconds(double seconds);

}  // namespace varve::cli
