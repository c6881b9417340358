#include "core/oci/internal/url.h"

#include <algorithm>
#include <memory>

#include <curl/curl.h>

namespace varve::oci::internal {
namespace {

constexpr std::size_t kMaxUrlBytes = 16 * 1024;  // signed storage URLs have a few kB

struct UrlHandleFree {
  void operator()(CURLU* handle) const noexcept { ::curl_url_cleanup(handle); }
};
using UrlHandle = std::unique_ptr<CURLU, UrlHandleFree>;

std::optional<std::string> part(CURLU* handle, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (::curl_url_get(handle, which, &text, flags) != CURLUE_OK) return std::nullopt;
  std::string copy(text);
  ::curl_free(text);
  return copy;
}

std::optional<Url> from_handle(CURLU* handle) {
  if (part(handle, CURLUPART_USER) || part(handle, CURLUPART_PASSWORD)) return std::nullopt;
  ::curl_url_set(handle, CURLUPART_FRAGMENT, nullptr, 0);
  const auto text = part(handle, CURLUPART_URL);
  const auto scheme = part(handle, CURLUPART_SCHEME);
  auto host = part(handle, CURLUPART_HOST);
  const auto port = part(handle, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  const auto path = part(handle, CURLUPART_PATH);
  if (!text || !scheme || !host || host->empty() || !port || !path || (*scheme != "http" && *scheme != "https"))
    return std::nullopt;
  std::transform(host->begin(), host->end(), host->begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return Url{.text = *text, .scheme = *scheme, .host = *host, .port = *port, .path = *path};
}

bool is_plain(std::string_view text) {
  return text.size() <= kMaxUrlBytes &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c != 0x7f; });
}

std::string unescaped(std::string_view text) {
  int length = 0;
  char* plain = ::curl_easy_unescape(nullptr, text.data(), int(text.size()), &length);
  if (plain == nullptr) return {};
  std::string copy(plain, std::size_t(length));
  ::curl_free(plain);
  return copy;
}

}  // namespace

std::optional<Url> Url::parse(std::string_view text) {
  if (!is_plain(text)) return std::nullopt;
  const UrlHandle handle(::curl_url());
  if (!handle || ::curl_url_set(handle.get(), CURLUPART_URL, std::string(text).c_str(), 0) != CURLUE_OK)
    return std::nullopt;
  return from_handle(handle.get());
}

std::optional<Url> Url::resolve(std::string_view reference) const {
  if (reference.empty() || !is_plain(reference)) return std::nullopt;
  const UrlHandle handle(::curl_url());
  if (!handle || ::curl_url_set(handle.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return std::nullopt;
  if (::curl_url_set(handle.get(), CURLUPART_URL, std::string(reference).c_str(), 0) != CURLUE_OK) return std::nullopt;
  return from_handle(handle.get());
}

std::string url_escape(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string escaped;
  for (const unsigned char c : text) {
    const bool unreserved = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                            c == '.' || c == '_' || c == '~';
    if (unreserved) {
      escaped += char(c);
    } else {
      escaped += '%';
      escaped += kDigits[c >> 4];
      escaped += kDigits[c & 15];
    }
  }
  return escaped;
}

std::optional<std::string> query_parameter(const std::string& url, std::string_view name) {
  const auto question = url.find('?');
  if (question == std::string::npos) return std::nullopt;
  for (auto rest = std::string_view(url).substr(question + 1); !rest.empty();) {
    const auto end = rest.find('&');
    const auto item = rest.substr(0, end);
    const auto equals = item.find('=');
    if (equals != std::string_view::npos && item.substr(0, equals) == name) return unescaped(item.substr(equals + 1));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return std::nullopt;
}

std::string with_query(std::string url, std::string_view name, std::string_view value) {
  url += url.find('?') == std::string::npos ? '?' : '&';
  url += name;
  url += '=';
  return url += url_escape(value);
}

}  // namespace varve::oci::internal
