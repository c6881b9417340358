#pragma once
// What this room needs and the program carries.
#include "core/base/embedded.h"

namespace varve::prune::internal {

EmbeddedFiles rule_files();  // images/keep/notebook.toml

}  // namespace varve::prune::internal
