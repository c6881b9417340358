#include "core/base/embedded.h"

#include "core/base/errors.h"

namespace varve {

std::string_view embedded_file(EmbeddedFiles files, std::string_view name) {
  for (const auto& file : files)
    if (file.name == name) return file.content;
  fail<NotFound>("the program carries no file {}", name);
}

}  // namespace varve
