#include "gpu/frameworks.h"

#include "core/base/embedded.h"

namespace varve::gpu {

EmbeddedFiles framework_files();

std::string framework_script(std::string_view step) {
  return std::string(embedded_file(framework_files(), "prelude.py")) +
         std::string(embedded_file(framework_files(), std::string(step) + ".py"));
}

}  // namespace varve::gpu
