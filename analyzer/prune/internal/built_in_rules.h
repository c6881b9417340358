#pragma once
// The text of images/keep/notebook.toml: the program carries it.
#include <string_view>

namespace varve::prune::internal {

extern const std::string_view kNotebookRules;

}  // namespace varve::prune::internal
