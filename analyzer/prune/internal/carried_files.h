#pragma once
// What this room needs and the program carries.
#include "core/base/embedded.h"

namespace varve::prune::internal {

EmbeddedFiles python_files();  // of python/
EmbeddedFiles rule_files();    // images/keep/notebook.toml

}  // namespace varve::prune::internal
