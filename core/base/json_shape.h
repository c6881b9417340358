#pragma once
// One look over a JSON text before a parser builds anything, so that a small document cannot ask for much memory or
// stack.
#include <cstddef>
#include <string_view>

namespace varve {

// Strings are skipped; what is no JSON at all is for the parser to say. Throws Unsupported naming `what` and the limit.
void check_json_shape(std::string_view text, int max_depth, std::size_t max_values, std::string_view what);

}  // namespace varve
