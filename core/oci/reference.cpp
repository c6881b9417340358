#include "core/oci/reference.h"

#include <algorithm>
#include <cctype>

#include "core/base/errors.h"

namespace varve::oci {
namespace {

constexpr std::size_t kMaxNameBytes = 255;  // host, "/" and repository (distribution-spec, "Pulling manifests")
constexpr std::size_t kMaxTagBytes = 128;

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_alnum(char c) { return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z'); }

bool is_tag(std::string_view tag) {
  if (tag.empty() || tag.size() > kMaxTagBytes || !(is_alnum(tag[0]) || tag[0] == '_')) return false;
  return std::ranges::all_of(tag, [](char c) { return is_alnum(c) || c == '_' || c == '.' || c == '-'; });
}

// One component of a repository name: runs of [a-z0-9] joined by ".", "_", "__" or any number of "-".
bool is_name_component(std::string_view part) {
  if (part.empty() || !is_lower_or_digit(part.front()) || !is_lower_or_digit(part.back())) return false;
  for (std::size_t i = 0; i < part.size();) {
    if (is_lower_or_digit(part[i])) {
      ++i;
      continue;
    }
    const auto end = std::min(part.find_first_not_of(part[i], i), part.size());
    const auto length = end - i;
    const bool allowed = (part[i] == '.' && length == 1) || (part[i] == '_' && length <= 2) || part[i] == '-';
    if (!allowed || !is_lower_or_digit(part[end])) return false;
    i = end;
  }
  return true;
}

bool is_repository(std::string_view name) {
  while (true) {
    const auto slash = name.find('/');
    if (!is_name_component(name.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

bool is_host(std::string_view host) {
  const auto bracket = host.starts_with('[') ? host.find(']') : std::string_view::npos;  // an IPv6 address
  const auto colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  const auto name = host.substr(0, colon);
  if (name.empty()) return false;
  if (colon != std::string_view::npos) {
    const auto port = host.substr(colon + 1);
    if (port.empty() || port.size() > 5 || !std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; })) return false;
  }
  return std::ranges::all_of(name, [](char c) { return is_alnum(c) || c == '.' || c == '-' || c == '[' || c == ']' || c == ':'; });
}

bool looks_like_host(std::string_view first) { return first.find_first_of(".:") != std::string_view::npos || first == "localhost"; }

Reference parse_layout(std::string_view rest, std::string_view text) {
  Reference reference;
  reference.kind = Reference::Kind::kLayout;
  if (const auto at = rest.rfind("@sha256:"); at != std::string_view::npos) {
    reference.digest = Digest::try_parse(rest.substr(at + 1));
    if (!reference.digest) fail<UsageError>("'{}': what follows '@' is not a sha256 digest", text);
    rest = rest.substr(0, at);
  }
  // A colon after the last slash begins the tag: folders may hold colons in their other parts.
  const auto colon = rest.rfind(':');
  if (colon != std::string_view::npos && rest.find('/', colon) == std::string_view::npos) {
    if (colon + 1 == rest.size()) fail<UsageError>("'{}': the tag is empty", text);
    reference.tag = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
  }
  if (rest.empty()) fail<UsageError>("'{}': no folder is named", text);
  reference.layout_dir = std::filesystem::absolute(std::filesystem::path(rest)).lexically_normal();
  if (!reference.layout_dir.has_filename()) reference.layout_dir = reference.layout_dir.parent_path();
  return reference;
}

Reference parse_registry(std::string_view rest, std::string_view text) {
  Reference reference;
  if (const auto at = rest.find('@'); at != std::string_view::npos) {
    reference.digest = Digest::try_parse(rest.substr(at + 1));
    if (!reference.digest) fail<UsageError>("'{}': what follows '@' is not a sha256 digest", text);
    rest = rest.substr(0, at);
  }
  const auto last_slash = rest.rfind('/');
  const auto colon = rest.rfind(':');
  if (colon != std::string_view::npos && (last_slash == std::string_view::npos || colon > last_slash)) {
    reference.tag = rest.substr(colon + 1);
    if (!is_tag(*reference.tag)) fail<UsageError>("'{}': '{}' is not a tag", text, *reference.tag);
    rest = rest.substr(0, colon);
  }
  const auto slash = rest.find('/');
  if (slash != std::string_view::npos && looks_like_host(rest.substr(0, slash))) {
    reference.host = rest.substr(0, slash);
    reference.repository = rest.substr(slash + 1);
  } else {
    reference.host = "docker.io";
    reference.repository = rest;
  }
  if (reference.host == "index.docker.io") reference.host = "docker.io";
  if (reference.host == "docker.io" && reference.repository.find('/') == std::string::npos) reference.repository = "library/" + reference.repository;
  if (!is_host(reference.host)) fail<UsageError>("'{}': '{}' is not a registry host", text, reference.host);
  if (!is_repository(reference.repository))
    fail<UsageError>("'{}': '{}' is not a repository name (lower-case words joined by '/', '.', '_' or '-')", text, reference.repository);
  if (reference.host.size() + 1 + reference.repository.size() > kMaxNameBytes) fail<UsageError>("'{}': longer than {} bytes", text, kMaxNameBytes);
  if (!reference.tag && !reference.digest) reference.tag = "latest";
  return reference;
}

}  // namespace

Reference Reference::parse(std::string_view text) {
  if (text.empty()) throw UsageError("an image reference is empty");
  if (text.find('\0') != std::string_view::npos) throw UsageError("an image reference holds a NUL byte");
  if (text.starts_with("oci:")) return parse_layout(text.substr(4), text);
  if (text.starts_with("docker://")) return parse_registry(text.substr(9), text);
  for (const std::string_view other : {"docker-archive:", "oci-archive:", "containers-storage:", "dir:", "docker-daemon:"})
    if (text.starts_with(other)) fail<UsageError>("'{}': {} references are not supported here; use oci:DIR[:TAG] or docker://HOST/REPO[:TAG]", text, other);
  return parse_registry(text, text);
}

std::string Reference::to_string() const {
  std::string text = kind == Kind::kLayout ? "oci:" + layout_dir.string() : "docker://" + host + "/" + repository;
  if (tag) text += ":" + *tag;
  if (digest) text += "@" + digest->to_string();
  return text;
}

std::string Reference::selector() const {
  if (digest) return digest->to_string();
  return tag.value_or("");
}

}  // namespace varve::oci
