#include "core/oci/reference.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/base/errors.h"
#include "core/oci/internal/archive_name.h"

namespace varve::oci {
namespace {

constexpr std::size_t kMaxTagBytes = 128;
constexpr std::size_t kMaxNameBytes = 255;  // host and repository together, as the distribution spec advises
constexpr std::size_t kMaxReferenceBytes = 4096;

// Transports of skopeo and podman that we do not read; without this they would be taken for repositories of docker.io.
constexpr std::array<std::string_view, 6> kForeignTransports = {
    "docker-daemon:", "containers-storage:", "oci-archive:", "tarball:", "ostree:", "sif:"};
constexpr std::string_view kDockerArchive = "docker-archive:";
constexpr std::string_view kDirectory = "dir:";

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// [a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*
bool is_name_component(std::string_view part) {
  if (part.empty() || !is_lower_or_digit(part.front()) || !is_lower_or_digit(part.back())) return false;
  for (std::size_t at = 0; at < part.size();) {
    if (is_lower_or_digit(part[at])) {
      ++at;
      continue;
    }
    auto end = at;
    while (end < part.size() && part[end] == part[at]) ++end;
    const auto run = end - at;
    const bool allowed = part[at] == '-' || (part[at] == '.' && run == 1) || (part[at] == '_' && run <= 2);
    if (!allowed || !is_lower_or_digit(part[end])) return false;
    at = end;
  }
  return true;
}

bool is_tag(std::string_view tag) {
  if (tag.empty() || tag.size() > kMaxTagBytes || (!is_alnum(tag.front()) && tag.front() != '_')) return false;
  return std::all_of(tag.begin(), tag.end(), [](char c) { return is_alnum(c) || c == '_' || c == '.' || c == '-'; });
}

// Names in a layout folder may be whole image names (image-spec annotations.md, "org.opencontainers.image.ref.name").
bool is_layout_tag(std::string_view tag) {
  return !tag.empty() && tag.size() <= kMaxNameBytes + kMaxTagBytes && is_alnum(tag.front()) &&
         std::all_of(tag.begin(), tag.end(), [](char c) {
           return is_alnum(c) || std::string_view("-._:@/+").find(c) != std::string_view::npos;
         });
}

bool is_port(std::string_view port) {
  if (port.empty() || port.size() > 5 ||
      !std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return false;
  const auto number = std::stoi(std::string(port));
  return number >= 1 && number <= 65535;
}

bool is_host(std::string_view host) {
  std::string_view name = host;
  if (host.starts_with('[')) {  // an IPv6 address
    const auto close = host.find(']');
    if (close == std::string_view::npos) return false;
    name = host.substr(1, close - 1);
    const auto rest = host.substr(close + 1);
    if (!rest.empty() && (rest.front() != ':' || !is_port(rest.substr(1)))) return false;
    return name.find(':') != std::string_view::npos && std::all_of(name.begin(), name.end(), [](char c) {
             return std::isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.';
           });
  }
  if (const auto colon = host.find(':'); colon != std::string_view::npos) {
    if (!is_port(host.substr(colon + 1))) return false;
    name = host.substr(0, colon);
  }
  return !name.empty() && is_alnum(name.front()) && is_alnum(name.back()) &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_alnum(c) || c == '.' || c == '-'; });
}

// Cuts "@sha256:..." off the end of `text`.
std::optional<Digest> take_digest(std::string_view& text, std::string_view whole) {
  const auto at = text.rfind('@');
  if (at == std::string_view::npos) return std::nullopt;
  const auto digest = Digest::try_parse(text.substr(at + 1));
  if (!digest)
    fail<UsageError>("'{}': '{}' is no digest; write @sha256: and 64 lower-case hex digits", whole,
                     text.substr(at + 1));
  text = text.substr(0, at);
  return digest;
}

// Where the tag of a layout reference begins. The last part of the path decides, so that folders may hold colons; but
// where what stands before the first colon is a layout folder, the rest is a name such as other tools give, slashes
// included.
std::size_t tag_colon(std::string_view text) {
  const auto first = text.find(':');
  if (first == std::string_view::npos) return first;
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::path(text.substr(0, first)) / "oci-layout", ignored)) return first;
  const auto last = text.rfind(':');
  return text.find('/', last) == std::string_view::npos ? last : std::string_view::npos;
}

std::filesystem::path absolute_path(std::string_view text) {
  auto path = std::filesystem::absolute(std::filesystem::path(text)).lexically_normal();
  return path.has_filename() || path == path.root_path() ? path : path.parent_path();
}

Reference parse_layout(std::string_view text, std::string_view whole) {
  Reference reference{
      .kind = Reference::Kind::kLayout, .layout_dir = {}, .host = {}, .repository = {}, .tag = {}, .digest = {}};
  if (text.rfind("@sha256:") != std::string_view::npos) reference.digest = take_digest(text, whole);
  if (const auto colon = tag_colon(text); colon != std::string_view::npos) {
    const auto tag = text.substr(colon + 1);
    if (!is_layout_tag(tag)) fail<UsageError>("'{}': '{}' is no valid tag", whole, tag);
    reference.tag = std::string(tag);
    text = text.substr(0, colon);
  }
  if (text.empty()) fail<UsageError>("'{}' names no folder; write oci:DIR or oci:DIR:TAG", whole);
  reference.layout_dir = absolute_path(text);
  return reference;
}

// True where a user has most likely forgotten the "oci:".
bool names_layout_folder(std::string_view text) {
  text = text.substr(0, text.find('@'));
  const auto dir = text.substr(0, tag_colon(text));
  std::error_code ignored;
  return !dir.empty() && std::filesystem::exists(std::filesystem::path(dir) / "oci-layout", ignored);
}

// Docker's rule: the first component is a host if it looks like one, else the image is at Docker Hub.
void take_host(std::string_view& text, Reference& reference, std::string_view whole) {
  const auto slash = text.find('/');
  const auto first = text.substr(0, slash);
  const bool is_first_host =
      slash != std::string_view::npos && (first.find_first_of(".:") != std::string_view::npos || first == "localhost");
  if (!is_first_host) {
    reference.host = "docker.io";
    return;
  }
  if (!is_host(first)) fail<UsageError>("'{}': '{}' is no valid registry host", whole, first);
  reference.host = first == "index.docker.io" ? "docker.io" : std::string(first);
  text.remove_prefix(slash + 1);
}

void check_repository(const std::string& name, std::string_view whole) {
  for (std::string_view rest = name;;) {
    const auto slash = rest.find('/');
    if (!is_name_component(rest.substr(0, slash)))
      fail<UsageError>(
          "'{}': '{}' is no valid repository name (lower-case letters, digits and single . _ - between them)", whole,
          name);
    if (slash == std::string_view::npos) return;
    rest.remove_prefix(slash + 1);
  }
}

Reference parse_registry(std::string_view text, std::string_view whole) {
  Reference reference;
  reference.digest = take_digest(text, whole);
  const auto colon = text.rfind(':');
  if (colon != std::string_view::npos && text.find('/', colon) == std::string_view::npos) {
    const auto tag = text.substr(colon + 1);
    if (!is_tag(tag)) fail<UsageError>("'{}': '{}' is no valid tag", whole, tag);
    reference.tag = std::string(tag);
    text = text.substr(0, colon);
  }
  take_host(text, reference, whole);
  reference.repository = std::string(text);
  if (reference.host == "docker.io" && reference.repository.find('/') == std::string::npos)
    reference.repository.insert(0, "library/");
  check_repository(reference.repository, whole);
  if (reference.host.size() + 1 + reference.repository.size() > kMaxNameBytes)
    fail<UsageError>("'{}': host and repository are longer than {} bytes", whole, kMaxNameBytes);
  if (!reference.tag && !reference.digest) reference.tag = "latest";
  return reference;
}

// FILE[:NAME[:TAG]], as skopeo has it: the file's name ends at the first colon.
Reference parse_docker_archive(std::string_view text, std::string_view whole) {
  Reference reference;
  reference.kind = Reference::Kind::kDockerArchive;
  if (text.rfind("@sha256:") != std::string_view::npos) reference.digest = take_digest(text, whole);
  const auto colon = text.find(':');
  if (colon != std::string_view::npos) reference.tag = internal::archive_name(text.substr(colon + 1));
  text = text.substr(0, colon);
  if (text.empty())
    fail<UsageError>("'{}' names no file; write docker-archive:FILE or docker-archive:FILE:NAME:TAG", whole);
  reference.path = absolute_path(text);
  return reference;
}

Reference parse_directory(std::string_view text, std::string_view whole) {
  Reference reference;
  reference.kind = Reference::Kind::kDirectory;
  if (text.rfind("@sha256:") != std::string_view::npos) reference.digest = take_digest(text, whole);
  if (text.empty()) fail<UsageError>("'{}' names no folder; write dir:DIR", whole);
  reference.path = absolute_path(text);
  return reference;
}

}  // namespace

std::string internal::archive_name(std::string_view text) {
  const auto reference = parse_registry(text, text);
  if (reference.digest) fail<UsageError>("'{}': images in a docker-archive have names, not digests", text);
  return reference.host + "/" + reference.repository + ":" + *reference.tag;
}

Reference Reference::parse(std::string_view text) {
  const auto shown = text.substr(0, 300);
  if (text.empty()) throw UsageError("an empty image reference");
  if (text.size() > kMaxReferenceBytes)
    fail<UsageError>("'{}...': a reference longer than {} bytes", shown, kMaxReferenceBytes);
  if (text.find('\0') != std::string_view::npos) throw UsageError("an image reference holds a NUL byte");
  if (text.starts_with("oci:")) return parse_layout(text.substr(4), shown);
  if (text.starts_with(kDockerArchive)) return parse_docker_archive(text.substr(kDockerArchive.size()), shown);
  if (text.starts_with(kDirectory)) return parse_directory(text.substr(kDirectory.size()), shown);
  for (const auto transport : kForeignTransports)
    if (text.starts_with(transport))
      fail<UsageError>("'{}': {} is not supported; write oci:DIR, docker-archive:FILE, dir:DIR or docker://HOST/REPO",
                       shown, transport);
  if (text.starts_with("docker://")) return parse_registry(text.substr(9), shown);
  if (text.find("://") != std::string_view::npos)
    fail<UsageError>("'{}': write the registry without a scheme, or with docker://", shown);
  if (names_layout_folder(text))
    fail<UsageError>(
        "'{0}' names an image of a registry, and there is a layout folder of that name: did you mean "
        "oci:{0}? (docker://NAME means the registry)",
        shown);
  return parse_registry(text, shown);
}

std::string Reference::to_string() const {
  auto text = (kind == Kind::kRegistry ? "docker://" : "") + repository_name();
  if (tag) text += ':' + *tag;
  if (kind == Kind::kLayout && !tag && layout_dir.filename().string().find(':') != std::string::npos)
    text += '/';  // else the end of the folder's name would be a tag
  if (digest) text += '@' + digest->to_string();
  return text;
}

std::string Reference::repository_name() const {
  switch (kind) {
    case Kind::kLayout:
      return "oci:" + layout_dir.string();
    case Kind::kDockerArchive:
      return std::string(kDockerArchive) + path.string();
    case Kind::kDirectory:
      return std::string(kDirectory) + path.string();
    case Kind::kRegistry:
      break;
  }
  return host + "/" + repository;
}

std::string Reference::selector() const {
  if (digest) return digest->to_string();
  return tag.value_or("");
}

}  // namespace varve::oci
