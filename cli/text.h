#pragma once
// How commands print for people: columns that line up, and names from images that cannot play tricks on a terminal.
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace varve::cli {

// Control characters and bytes that are not UTF-8 as \xNN, backslashes doubled: what is printed is always one line of
// text.
std::string printable(std::string_view name);
// The same of a message that may have names in it: its backslashes stay, and of its lines those that go on with two
// spaces, as the longer ones of Varve do; others become one.
std::string message_text(std::string_view message);

// Rows of equal length; the first row is the heading. A column whose cells all begin with a digit is aligned to the
// right.
void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& rows);

}  // namespace varve::cli
