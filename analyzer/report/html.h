#pragma once
// Pieces of the HTML page. Whatever comes from an image, a notebook or a session passes html() on its way into the
// page, numbers and our own words too.
#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>

#include "core/base/embedded.h"

namespace varve::report {

namespace page {
// The files of page/.
EmbeddedFiles page_files();
}  // namespace page

// Visible text (see text.h), escaped for element content and for attributes in double quotes.
std::string html(std::string_view text, std::size_t limit = 200);

// Replaces each {{name}} of the template once, left to right; what was put in is not looked at again. Throws
// std::logic_error for a slot without a value.
std::string fill(std::string_view page, const std::map<std::string, std::string, std::less<>>& slots);

// "'sha256-…'" of an inline script or style, as a Content-Security-Policy names it.
std::string policy_hash(std::string_view content);

template <typename... Args>
void put(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

}  // namespace varve::report
