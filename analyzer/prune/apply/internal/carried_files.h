#pragma once
// What this room needs and the program carries.
#include "core/base/embedded.h"

namespace varve::prune::internal {

EmbeddedFiles python_files();  // of python/

}  // namespace varve::prune::internal
