#include "core/base/json_shape.h"

#include "core/base/errors.h"

namespace varve {

void check_json_shape(std::string_view text, int max_depth, std::size_t max_values, std::string_view what) {
  int depth = 0;
  std::size_t values = 1;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == '[' || c == '{' || c == ',') ++values;
    if (depth > max_depth) fail<Unsupported>("{}: nested deeper than {} at byte {}", what, max_depth, at);
    if (values > max_values) fail<Unsupported>("{}: more than {} JSON values", what, max_values);
  }
}

}  // namespace varve
