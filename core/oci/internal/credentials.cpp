#include "core/oci/internal/credentials.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/base64.h"
#include "core/base/text/json_document.h"
#include "core/oci/internal/credential_providers.h"

namespace varve::oci::internal {
namespace {

constexpr std::uint64_t kMaxAuthFileBytes = 1024 * 1024;
constexpr const char* kMachineAuthFile = "/etc/varve/auth.json";
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

std::optional<Credential> from_auth_entry(const JsonValue& entry) {
  Credential credential;
  credential.identity_token = entry.maybe("identitytoken").text();
  if (const auto encoded = entry.maybe("auth"); !encoded.text().empty()) {
    const auto bytes = encoded.base64();
    auto decoded = as_text(bytes);
    while (decoded.ends_with('\0')) decoded.remove_suffix(1);
    const auto colon = decoded.find(':');
    if (colon == std::string_view::npos) encoded.refuse("holds no user and password");
    credential.username = decoded.substr(0, colon);
    credential.password = decoded.substr(colon + 1);
  } else {
    credential.username = entry.maybe("username").text();
    credential.password = entry.maybe("password").text();
  }
  // Docker leaves an empty entry where a credential store holds the secret.
  if (credential.username.empty() && credential.password.empty() && credential.identity_token.empty())
    return std::nullopt;
  return credential;
}

std::optional<Credential> find_in_file(const JsonValue& file, const std::vector<std::string>& names,
                                       const std::string& host) {
  const auto server = host == "docker.io" ? std::string(kDockerHubKey) : host;
  const auto helpers = file.maybe("credHelpers").members();
  for (const auto& name : names)
    for (const auto& [key, helper] : helpers)
      if (helper.is_text() && normalised_key(key) == name)
        if (auto found = ask_credential_helper(helper.text(), name == host ? server : name)) return found;
  if (const auto store = file.maybe("credsStore").text(); !store.empty())
    if (auto found = ask_credential_helper(store, server)) return found;
  const auto auths = file.maybe("auths").members();
  for (const auto& name : names)
    for (const auto& [key, entry] : auths)
      if (normalised_key(key) == name)
        if (auto found = from_auth_entry(entry)) return found;
  return std::nullopt;
}

// Mostly root's alone: for others it is not there.
std::optional<Bytes> machine_file(const std::filesystem::path& path) {
  if (path.empty()) return std::nullopt;
  try {
    return read_file_if_there(path, kMaxAuthFileBytes);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::permission_denied) throw;
    return std::nullopt;
  }
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
  places.machine = kMachineAuthFile;
  return places;
}

std::optional<Credential> find_credential(const CredentialPlaces& places, const std::string& host,
                                          const std::string& repository, bool anew) {
  const auto names = names_of(host, repository);
  auto files = places.files;
  if (!places.required.empty()) files = {places.required};
  for (const auto& path : files) {
    const auto content = read_file_if_there(path, kMaxAuthFileBytes);
    if (!content) {
      if (!places.required.empty()) fail<UsageError>("{}: there is no such credential file", path.string());
      continue;
    }
    const auto file = JsonValue::parse(*content, path.string(), {.bytes = kMaxAuthFileBytes});
    if (auto found = find_in_file(file, names, host)) return found;
  }
  if (const auto content = machine_file(places.machine)) {
    const auto file = JsonValue::parse(*content, places.machine.string(), {.bytes = kMaxAuthFileBytes});
    if (auto found = find_in_file(file, names, host)) return found;
  }
  if (!places.providers) return std::nullopt;
  return places.providers->find(host + "/" + repository, anew, places.cancel);
}

}  // namespace varve::oci::internal
