#include "analyzer/report/html.h"

#include <stdexcept>

#include "analyzer/report/text.h"
#include "core/base/digest.h"

namespace varve::report {
namespace {

// RFC 4648, section 4.
std::string base64(ByteView bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) { return i + k < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0u; };
    const auto group = at(0) << 16 | at(1) << 8 | at(2);
    for (std::size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : kAlphabet[group >> (18 - 6 * k) & 63];
  }
  return text;
}

}  // namespace

std::string html(std::string_view text, std::size_t limit) {
  std::string escaped;
  for (const char c : visible(text, limit)) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\'': escaped += "&#39;"; break;
      default: escaped += c;
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

std::string policy_hash(std::string_view content) { return fmt::format("'sha256-{}'", base64(digest_of(content).raw())); }

}  // namespace varve::report
