#pragma once
// Patterns over names and paths, as rule files write them.
#include <string_view>

namespace varve {

// `?` is any byte but "/", `*` any number of these, `**` any number of any bytes, "**/" any number of whole parts, none
// too; everything else stands for itself. The whole text must match. Time: at most length of text times length of
// pattern.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace varve
