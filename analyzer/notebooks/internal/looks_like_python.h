#pragma once
#include <string_view>

namespace varve::notebooks {

// Whether the body of a magic that nobody knows may be Python: no words side by side that Python would not let stand
// so, no signs that it does not have, brackets and strings that end. Asked for unknown magics only.
bool looks_like_python(std::string_view text);

}  // namespace varve::notebooks
