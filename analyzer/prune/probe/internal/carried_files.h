#pragma once
// The programs that run inside the image.
#include "core/base/embedded.h"

namespace varve::prune::internal {

EmbeddedFiles probe_files();  // of python/

}  // namespace varve::prune::internal
