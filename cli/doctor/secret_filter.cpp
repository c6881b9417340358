#include "cli/doctor/secret_filter.h"

#include <algorithm>
#include <array>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

constexpr std::size_t kLeastSecret = 4;
constexpr std::size_t kFoundAnywhere = 8;    // shorter ones may be part of an ordinary word
constexpr std::size_t kLeastTokenTail = 12;  // behind the letters that tell its kind
constexpr int kDeepest = 100;                // of a document; ours are flat

constexpr std::array<std::string_view, 9> kSecretNames = {"password", "passwd",  "passphrase", "secret",       "token",
                                                          "apikey",   "api_key", "api-key",    "authorization"};
constexpr std::array<std::string_view, 6> kSecretNamesWhole = {"auth",      "access_key", "accesskey",
                                                               "secretkey", "cookie",     "private_key"};
constexpr std::array<std::string_view, 21> kTokenBeginnings = {
    "ghp_", "gho_",  "ghu_",  "ghs_",  "ghr_",  "github_pat_", "glpat-", "dckr_pat_", "dckr_oat_", "AKIA", "ASIA",
    "eyJ",  "xoxb-", "xoxa-", "xoxp-", "xoxr-", "xoxs-",       "hf_",    "npm_",      "AIza",      "ya29."};

bool is_letter_or_digit(char c) { return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z'); }
bool is_name_character(char c) { return is_letter_or_digit(c) || c == '_' || c == '-' || c == '.'; }
bool is_token_character(char c) { return is_name_character(c) || c == '~' || c == '+' || c == '/' || c == '='; }
bool is_quote(char c) { return c == '"' || c == '\''; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool ends_word(char c) {
  return is_space(c) || is_quote(c) || c == '<' || c == '>' || c == '`' || c == '(' || c == ')' || c == '[' ||
         c == ']' || c == '{' || c == '}' || c == ',' || c == ';' || c == '|';
}

std::size_t skip(std::string_view text, std::size_t at, bool (*passes)(char)) {
  while (at < text.size() && passes(text[at])) ++at;
  return at;
}
std::size_t word_end(std::string_view text, std::size_t at) {
  while (at < text.size() && !ends_word(text[at])) ++at;
  return at;
}

bool is_digest_algorithm(std::string_view text) {
  return text.starts_with("sha256:") || text.starts_with("sha512:") || text.starts_with("sha384:");
}

// A stretch of the text that is masked.
struct Range {
  std::size_t begin = 0, end = 0;
};
using Ranges = std::vector<Range>;

// "host:5000" has a port; "user:p" of "user:p/q@host" has none, so that its slash is one of a password.
bool is_host_and_port(std::string_view authority) {
  const auto colon = authority.rfind(':');
  if (colon == authority.npos) return true;
  return std::ranges::all_of(authority.substr(colon + 1), [](char c) { return c >= '0' && c <= '9'; });
}

// Of "scheme://user:password@host/path?query": user and password, and the query.
void find_url_secrets(std::string_view text, Ranges& found) {
  for (auto at = text.find("://"); at != text.npos; at = text.find("://", at + 3)) {
    const auto begin = at + 3;
    const auto end = word_end(text, begin);
    const auto url = text.substr(begin, end - begin);
    const auto authority = url.substr(0, url.find_first_of("/?#"));
    auto sign = authority.rfind('@');
    if (sign == authority.npos && !is_host_and_port(authority)) sign = url.rfind('@');
    if (sign != url.npos && !is_digest_algorithm(url.substr(sign + 1))) found.push_back({begin, begin + sign});
    if (const auto query = url.find('?'); query != url.npos) found.push_back({begin + query + 1, end});
  }
}

// "user:password@host" without a scheme; not the "name:tag@sha256:..." of an image.
void find_bare_logins(std::string_view text, Ranges& found) {
  for (auto at = text.find('@'); at != text.npos; at = text.find('@', at + 1)) {
    if (is_digest_algorithm(text.substr(at + 1))) continue;
    auto begin = at;
    while (begin > 0 && !ends_word(text[begin - 1])) --begin;
    const auto login = text.substr(begin, at - begin);
    if (login.find(':') != login.npos && login.find("://") == login.npos) found.push_back({begin, at});
  }
}

// What stands behind a name: in quotes to their end, else a word; of "Basic abc" both.
std::optional<Range> value_at(std::string_view text, std::size_t at) {
  at = skip(text, at, [](char c) { return c == ' ' || c == '\t' || c == '\\'; });
  if (at >= text.size()) return std::nullopt;
  if (is_quote(text[at])) {
    const auto end = text.find(text[at], at + 1);
    return Range{at + 1, end == text.npos ? text.size() : end};
  }
  const auto to_word_end = [&](std::size_t from) {
    return std::min(text.find_first_of(" \t\r\n\"'&,;", from), text.size());
  };
  auto end = to_word_end(at);
  const auto word = to_lower(text.substr(at, end - at));
  if (word == "basic" || word == "bearer" || word == "digest") end = to_word_end(skip(text, end, is_space));
  return end == at ? std::nullopt : std::optional(Range{at, end});
}

// password=..., "token": "...", Authorization: Basic ..., --secret ...
void find_named_secrets(std::string_view text, Ranges& found) {
  for (std::size_t at = 0; at < text.size();) {
    if (!is_name_character(text[at])) {
      ++at;
      continue;
    }
    const auto end = skip(text, at, is_name_character);
    const auto name = text.substr(at, end - at);
    at = end;
    if (!names_a_secret(name)) continue;
    auto behind = skip(text, end, [](char c) { return is_quote(c) || c == '\\' || c == ' '; });
    const bool is_option = name.starts_with("--") && behind > end;
    if (behind < text.size() && (text[behind] == '=' || text[behind] == ':'))
      ++behind;
    else if (!is_option)
      continue;
    if (const auto value = value_at(text, behind)) found.push_back(*value);
  }
}

// "basic authentication" is no credential.
bool is_plain_word(std::string_view text) {
  return std::ranges::all_of(varve::trimmed(text, ".:"), [](char c) { return c >= 'a' && c <= 'z'; });
}

void find_http_credentials(std::string_view text, Ranges& found) {
  for (const std::string_view scheme : {"basic ", "bearer "}) {
    const auto lowered = to_lower(text);
    for (auto at = lowered.find(scheme); at != lowered.npos; at = lowered.find(scheme, at + 1)) {
      const auto begin = at + scheme.size();
      const auto end = skip(text, begin, is_token_character);
      if (end - begin >= kFoundAnywhere && !is_plain_word(text.substr(begin, end - begin)))
        found.push_back({begin, end});
    }
  }
}

void find_known_tokens(std::string_view text, Ranges& found) {
  for (const auto beginning : kTokenBeginnings)
    for (auto at = text.find(beginning); at != text.npos; at = text.find(beginning, at + 1)) {
      if (at > 0 && is_letter_or_digit(text[at - 1])) continue;
      const auto end = skip(text, at, is_token_character);
      if (end - at >= beginning.size() + kLeastTokenTail) found.push_back({at, end});
    }
}

void find_private_keys(std::string_view text, Ranges& found) {
  constexpr std::string_view kBegin = "-----BEGIN ", kEnd = "-----END ", kPrivate = "PRIVATE KEY-----";
  for (auto at = text.find(kBegin); at != text.npos; at = text.find(kBegin, at + 1)) {
    const auto title_end = text.find("-----", at + kBegin.size());
    if (title_end == text.npos || text.substr(at, title_end + 5 - at).find(kPrivate) == text.npos) continue;
    found.push_back({title_end + 5, std::min(text.find(kEnd, title_end), text.size())});
  }
}

void find_literal(std::string_view text, std::string_view secret, Ranges& found) {
  for (auto at = text.find(secret); at != text.npos; at = text.find(secret, at + 1)) {
    const auto end = at + secret.size();
    const bool inside =
        (at > 0 && is_letter_or_digit(text[at - 1])) || (end < text.size() && is_letter_or_digit(text[end]));
    if (secret.size() >= kFoundAnywhere || !inside) found.push_back({at, end});
  }
}

std::string masked(std::string_view text, Ranges found) {
  std::ranges::sort(found, {}, &Range::begin);
  std::string out;
  std::size_t at = 0;
  for (const auto& range : found) {
    if (range.begin >= at && range.end > range.begin) out.append(text.substr(at, range.begin - at)).append(kMasked);
    at = std::max(at, range.end);
  }
  return out.append(text.substr(std::min(at, text.size())));
}

}  // namespace

bool names_a_secret(std::string_view name) {
  const auto lowered = to_lower(name);
  const auto word = varve::trimmed(lowered, "-_.");
  return std::ranges::any_of(kSecretNames, [&](auto one) { return word.find(one) != word.npos; }) ||
         std::ranges::any_of(kSecretNamesWhole, [&](auto one) {
           return word == one || (word.ends_with(one) && !is_letter_or_digit(word[word.size() - one.size() - 1]));
         });
}

void SecretFilter::add(std::string_view secret) {
  if (secret.size() >= kLeastSecret) known_.insert(std::string(secret));
}

std::string SecretFilter::text(std::string_view text) const {
  Ranges found;
  for (const auto find : {find_url_secrets, find_bare_logins, find_named_secrets, find_http_credentials,
                          find_known_tokens, find_private_keys})
    find(text, found);
  for (const auto& secret : known_) find_literal(text, secret, found);
  return masked(text, std::move(found));
}

nlohmann::json SecretFilter::document(const nlohmann::json& document) const {
  const auto walk = [this](const auto& self, const nlohmann::json& value, int depth) -> nlohmann::json {
    if (value.is_string()) return text(value.get_ref<const std::string&>());
    if (!value.is_structured()) return value;
    if (depth == 0) return kMasked;
    if (value.is_array()) {
      auto list = nlohmann::json::array();
      for (const auto& one : value) list.push_back(self(self, one, depth - 1));
      return list;
    }
    auto object = nlohmann::json::object();
    for (const auto& [name, one] : value.items()) {
      const bool hidden = one.is_string() && names_a_secret(name);
      object[text(name)] = hidden ? nlohmann::json(kMasked) : self(self, one, depth - 1);
    }
    return object;
  };
  return walk(walk, document, kDeepest);
}

}  // namespace varve::cli
