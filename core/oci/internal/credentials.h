#pragma once
// Who we are at a registry: credential files and helpers of docker, podman and skopeo (CLI.md "Everywhere";
// formats: docker's config.json, containers-auth.json(5), docker-credential-helpers).
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/threads/cancel.h"

namespace varve::oci::internal {

// Never printed, never logged.
struct Credential {
  std::string username;
  std::string password;
  std::string identity_token;  // instead of a password; only good for OAuth2 token requests
  bool operator==(const Credential&) const = default;
};

class CredentialProviders;

struct CredentialPlaces {
  std::filesystem::path required;                       // --authfile: must be there; the other files are not looked at
  std::vector<std::filesystem::path> files;             // in order
  std::filesystem::path machine = {};                   // comes last, and counts for those who may read it
  std::shared_ptr<CredentialProviders> providers = {};  // asked when no file knows the registry; null = none
  const CancelFlag* cancel = nullptr;
};

// --authfile, $REGISTRY_AUTH_FILE, $XDG_RUNTIME_DIR/containers/auth.json, ~/.config/containers/auth.json,
// $DOCKER_CONFIG/config.json or ~/.docker/config.json; the machine's own is /etc/varve/auth.json.
CredentialPlaces usual_credential_places(const std::filesystem::path& authfile);

// The first place that knows the registry wins; within a file: credHelpers, then credsStore, then auths (longest path
// first). Reads the files and asks the helpers each time; plugins are asked again if what they said was refused
// (`anew`). Absent: nobody knows it, so we are anonymous. Throws
// UsageError for a missing --authfile, CorruptData for a file that is no such JSON, Error for a helper that fails.
std::optional<Credential> find_credential(const CredentialPlaces& places, const std::string& host,
                                          const std::string& repository, bool anew = false);

// Runs docker-credential-NAME get; absent if it does not know the server.
std::optional<Credential> ask_credential_helper(const std::string& name, const std::string& server);

}  // namespace varve::oci::internal
