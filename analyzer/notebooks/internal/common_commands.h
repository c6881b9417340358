#pragma once
#include <string_view>

namespace varve::notebooks {

// Programs of the system and words of the shell: that a notebook calls them says nothing of Python's distributions.
bool is_common_command(std::string_view program);

}  // namespace varve::notebooks
