#include "core/oci/internal/credentials.h"

#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "core/base/base64.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/oci/internal/json.h"

namespace varve::oci::internal {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxAuthFileBytes = 1024 * 1024;
constexpr std::string_view kDockerHubKey = "https://index.docker.io/v1/";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// "https://host/v1/" -> "host"; "host/team/" -> "host/team". Keys with a scheme name a host only.
std::string normalised_key(std::string_view key) {
  const auto scheme = key.find("://");
  if (scheme != std::string_view::npos) {
    key.remove_prefix(scheme + 3);
    key = key.substr(0, key.find('/'));
  }
  while (!key.empty() && key.back() == '/') key.remove_suffix(1);
  return std::string(key);
}

// What the registry may be called in a file, the most exact name first.
std::vector<std::string> names_of(const std::string& host, const std::string& repository) {
  std::vector<std::string> names;
  for (auto path = host + "/" + repository; path.size() > host.size(); path.resize(path.rfind('/')))
    names.push_back(path);
  names.push_back(host);
  if (host == "docker.io") names.insert(names.end(), {"index.docker.io", "registry-1.docker.io"});
  return names;
}

std::optional<Credential> from_auth_entry(const json& entry, std::string_view what) {
  if (!entry.is_object()) fail<CorruptData>("{}: an entry of \"auths\" is no object", what);
  Credential credential;
  credential.identity_token = string_member(entry, "identitytoken", what);
  const auto encoded = string_member(entry, "auth", what);
  if (!encoded.empty()) {
    auto decoded = base64_decode(encoded);
    if (!decoded) fail<CorruptData>("{}: \"auth\" is no base64", what);
    while (!decoded->empty() && decoded->back() == '\0') decoded->pop_back();
    const auto colon = decoded->find(':');
    if (colon == std::string::npos) fail<CorruptData>("{}: \"auth\" holds no user and password", what);
    credential.username = decoded->substr(0, colon);
    credential.password = decoded->substr(colon + 1);
  } else {
    credential.username = string_member(entry, "username", what);
    credential.password = string_member(entry, "password", what);
  }
  // Docker leaves an empty entry where a credential store holds the secret.
  if (credential.username.empty() && credential.password.empty() && credential.identity_token.empty())
    return std::nullopt;
  return credential;
}

std::optional<Credential> find_in_file(const json& file, const std::vector<std::string>& names, const std::string& host,
                                       std::string_view what) {
  const auto server = host == "docker.io" ? std::string(kDockerHubKey) : host;
  if (const auto* helpers = object_member(file, "credHelpers", what)) {
    for (const auto& name : names)
      for (const auto& [key, helper] : helpers->items())
        if (helper.is_string() && normalised_key(key) == name)
          if (auto found = ask_credential_helper(helper.get<std::string>(), name == host ? server : name)) return found;
  }
  if (const auto store = string_member(file, "credsStore", what); !store.empty())
    if (auto found = ask_credential_helper(store, server)) return found;
  const auto* auths = object_member(file, "auths", what);
  if (auths == nullptr) return std::nullopt;
  for (const auto& name : names)
    for (const auto& [key, entry] : auths->items())
      if (normalised_key(key) == name)
        if (auto found = from_auth_entry(entry, what)) return found;
  return std::nullopt;
}

}  // namespace

CredentialPlaces usual_credential_places(const std::filesystem::path& authfile) {
  CredentialPlaces places;
  if (!authfile.empty()) {
    places.required = authfile;
    return places;
  }
  if (const auto file = environment("REGISTRY_AUTH_FILE"); !file.empty()) {
    places.files.emplace_back(file);
    return places;
  }
  const std::filesystem::path home = environment("HOME");
  if (const auto run = environment("XDG_RUNTIME_DIR"); !run.empty())
    places.files.push_back(std::filesystem::path(run) / "containers/auth.json");
  if (!home.empty()) places.files.push_back(home / ".config/containers/auth.json");
  if (const auto docker = environment("DOCKER_CONFIG"); !docker.empty()) {
    places.files.push_back(std::filesystem::path(docker) / "config.json");
  } else if (!home.empty()) {
    places.files.push_back(home / ".docker/config.json");
  }
  return places;
}

std::optional<Credential> find_credential(const CredentialPlaces& places, const std::string& host,
                                          const std::string& repository) {
  const auto names = names_of(host, repository);
  auto files = places.files;
  if (!places.required.empty()) files = {places.required};
  for (const auto& path : files) {
    const auto content = read_file_if_there(path, kMaxAuthFileBytes);
    if (!content) {
      if (!places.required.empty()) fail<UsageError>("{}: there is no such credential file", path.string());
      continue;
    }
    const auto file = parse_json_object(*content, kMaxAuthFileBytes, path.string());
    if (auto found = find_in_file(file, names, host, path.string())) return found;
  }
  return std::nullopt;
}

}  // namespace varve::oci::internal
