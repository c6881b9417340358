#include "analyzer/notebooks/internal/utf8_text.h"

#include <algorithm>
#include <string_view>

#include <simdjson.h>

#include "core/base/utf8.h"

namespace varve::notebooks {

bool repair_utf8(std::string& text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return false;
  std::string out;
  out.reserve(text.size() + 16);
  for (std::string_view rest = text; !rest.empty();) {
    const auto length = utf8_length(rest);
    if (length != 0) {
      out += rest.substr(0, length);
    } else {
      append_utf8(0xfffd, out);
    }
    rest.remove_prefix(std::max<std::size_t>(length, 1));
  }
  text = std::move(out);
  return true;
}

}  // namespace varve::notebooks
