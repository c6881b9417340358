#pragma once
// YAML that others wrote, as the JSON it would be. The only place that knows the library.
#include <cstddef>
#include <string_view>

#include "core/base/text/json_document.h"

namespace varve {

struct YamlLimits {
  int depth = 32;                // of maps and lists within each other
  std::size_t values = 200'000;  // aliases counted each time
};

// Every scalar is a string, as only whoever reads it knows what is a number. Throws CorruptData "WHAT:LINE: why" for
// text that is no YAML or no UTF-8, or is beyond the limits.
JsonValue parse_yaml(std::string_view text, std::string_view what, const YamlLimits& limits = {});

}  // namespace varve
