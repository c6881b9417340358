#include "analyzer/report/html.h"

#include <stdexcept>

#include "core/base/digest.h"
#include "core/base/text/base64.h"
#include "core/base/text/safe_text.h"

namespace varve::report {
std::string html(std::string_view text, std::size_t limit) {
  std::string escaped;
  for (const char c : visible(text, limit)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string fill(std::string_view page, const std::map<std::string, std::string, std::less<>>& slots) {
  std::string filled;
  for (auto open = page.find("{{"); open != std::string_view::npos; open = page.find("{{")) {
    const auto close = page.find("}}", open);
    if (close == std::string_view::npos) break;
    const auto name = page.substr(open + 2, close - open - 2);
    const auto slot = slots.find(name);
    if (slot == slots.end()) throw std::logic_error(fmt::format("page: no value for slot {}", name));
    filled += page.substr(0, open);
    filled += slot->second;
    page.remove_prefix(close + 2);
  }
  return filled.append(page);
}

std::string policy_hash(std::string_view content) {
  const auto digest = digest_of(content);
  return fmt::format("'sha256-{}'",
                     base64_encode({reinterpret_cast<const char*>(digest.raw().data()), Digest::kBytes}));
}

}  // namespace varve::report
