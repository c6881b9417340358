#pragma once
// The Python programs of this room (python/), which the program carries: name -> content.
#include <map>
#include <string_view>

namespace varve::prune::internal {

const std::map<std::string_view, std::string_view>& python_files();

}  // namespace varve::prune::internal
