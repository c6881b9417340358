#include "core/oci/internal/http_headers.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <curl/curl.h>

#include "core/base/text/strings.h"

namespace varve::oci::internal {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

// Reads tokens and quoted strings off the front of a field value.
class FieldScanner {
 public:
  explicit FieldScanner(std::string_view text) : rest_(text) {}

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }
  bool take(char c) {
    skip_spaces();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // A token of RFC 9110; "" if there is none. "/" and "=" may end a token68.
  std::string_view token() {
    skip_spaces();
    std::size_t end = 0;
    while (end < rest_.size() && is_token_char(rest_[end])) ++end;
    const auto token = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return token;
  }
  std::optional<std::string> quoted() {
    if (!take('"')) return std::nullopt;
    std::string value;
    while (!rest_.empty()) {
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return value;
      if (c == '\\') {
        if (rest_.empty()) break;
        c = rest_.front();
        rest_.remove_prefix(1);
      }
      value += c;
    }
    return std::nullopt;  // it never ends
  }
  // Everything up to the next comma outside quotes: a token68 or what we do not understand.
  void skip_to_comma() {
    while (!rest_.empty() && rest_.front() != ',') {
      if (rest_.front() == '"') {
        if (!quoted()) rest_ = {};
      } else {
        rest_.remove_prefix(1);
      }
    }
  }
  bool next_is(char c) {
    skip_spaces();
    return !rest_.empty() && rest_.front() == c;
  }
  std::string_view rest() const { return rest_; }

 private:
  static bool is_token_char(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  }
  void skip_spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }
  std::string_view rest_;
};

}  // namespace

void HttpHeaders::add_line(std::string_view line) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return;
  fields_.emplace_back(lower_case(trimmed(line.substr(0, colon))), std::string(trimmed(line.substr(colon + 1))));
}

std::optional<std::string_view> HttpHeaders::find(std::string_view name) const {
  for (const auto& [field, value] : fields_)
    if (equal_ignoring_case(field, name)) return value;
  return std::nullopt;
}

std::vector<std::string_view> HttpHeaders::all(std::string_view name) const {
  std::vector<std::string_view> values;
  for (const auto& [field, value] : fields_)
    if (equal_ignoring_case(field, name)) values.emplace_back(value);
  return values;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::vector<Challenge> parse_challenges(std::string_view value) {
  std::vector<Challenge> challenges;
  FieldScanner scanner(value);
  while (!scanner.at_end()) {
    if (scanner.take(',')) continue;
    const auto name = scanner.token();
    if (name.empty()) break;
    // "name =" is a parameter of the current challenge, a name alone begins the next one.
    if (scanner.take('=')) {
      if (challenges.empty()) break;
      if (scanner.next_is('"')) {
        auto text = scanner.quoted();
        if (!text) break;
        challenges.back().parameters.emplace(lower_case(name), std::move(*text));
      } else {
        challenges.back().parameters.emplace(lower_case(name), std::string(scanner.token()));
        scanner.skip_to_comma();
      }
    } else {
      challenges.push_back({.scheme = lower_case(name), .parameters = {}});
    }
  }
  return challenges;
}

std::optional<ContentRange> parse_content_range(std::string_view value) {
  value = trimmed(value);
  if (value.size() < 6 || !equal_ignoring_case(value.substr(0, 6), "bytes ")) return std::nullopt;
  value = trimmed(value.substr(6));
  const auto dash = value.find('-');
  const auto slash = value.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) return std::nullopt;
  const auto first = parse_decimal(value.substr(0, dash));
  const auto last = parse_decimal(value.substr(dash + 1, slash - dash - 1));
  if (!first || !last || *last < *first) return std::nullopt;
  ContentRange range{.first = *first, .last = *last, .total = {}};
  const auto total = value.substr(slash + 1);
  if (total == "*") return range;
  range.total = parse_decimal(total);
  if (!range.total || *range.total <= range.last) return std::nullopt;
  return range;
}

std::optional<std::uint64_t> parse_unsatisfied_range(std::string_view value) {
  value = trimmed(value);
  constexpr std::string_view kStart = "bytes */";
  if (value.size() < kStart.size() || !equal_ignoring_case(value.substr(0, kStart.size()), kStart)) return std::nullopt;
  return parse_decimal(value.substr(kStart.size()));
}

std::optional<std::uint64_t> parse_upload_range(std::string_view value) {
  value = trimmed(value);
  if (value.starts_with("bytes=")) value.remove_prefix(6);
  if (!value.starts_with("0-")) return std::nullopt;
  return parse_decimal(value.substr(2));
}

std::optional<std::string> parse_next_link(std::string_view value) {
  FieldScanner scanner(value);
  while (scanner.take('<')) {
    const auto target = scanner.rest();
    const auto close = target.find('>');
    if (close == std::string_view::npos) return std::nullopt;
    scanner = FieldScanner(target.substr(close + 1));
    bool is_next = false;
    while (scanner.take(';')) {
      const auto name = scanner.token();
      if (!scanner.take('=')) continue;
      const auto text = scanner.next_is('"') ? scanner.quoted() : std::optional<std::string>(scanner.token());
      if (!text) return std::nullopt;
      if (equal_ignoring_case(name, "rel") && equal_ignoring_case(*text, "next")) is_next = true;
    }
    if (is_next) return std::string(target.substr(0, close));
    if (!scanner.take(',')) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::chrono::seconds> parse_retry_after(std::string_view value,
                                                      std::chrono::system_clock::time_point now) {
  value = trimmed(value);
  constexpr std::uint64_t kMaxSeconds = 365 * 24 * 3600;
  if (const auto seconds = parse_decimal(value)) return std::chrono::seconds(std::min(*seconds, kMaxSeconds));
  const auto date = ::curl_getdate(std::string(value).c_str(), nullptr);
  if (date == -1) return std::nullopt;
  const auto wait = std::int64_t(date) - std::int64_t(std::chrono::system_clock::to_time_t(now));
  return std::chrono::seconds(std::clamp<std::int64_t>(wait, 0, kMaxSeconds));
}

}  // namespace varve::oci::internal
