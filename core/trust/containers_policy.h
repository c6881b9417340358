#pragma once
// policy.json of podman and skopeo (containers-policy.json(5)): what it asks of an image, as far as it can be checked
// here. The rest is refused with its reason, never passed over. docs/guide/trust.md has the table.
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/trust/public_key.h"

namespace varve::trust {

inline constexpr std::uint64_t kMaxPolicyBytes = 1 << 20;

// What a signature's docker-reference must be.
struct SignedIdentity {
  enum class Match : std::uint8_t {
    kRepoDigestOrExact,
    kExact,
    kRepository,
    kExactReference,
    kExactRepository,
    kRemap
  };
  Match match = Match::kRepoDigestOrExact;
  std::string name;           // kExactReference, kExactRepository
  std::string prefix;         // kRemap
  std::string signed_prefix;  // kRemap

  // `intended` is what was asked for, in full ("docker.io/library/app:v1"), "" where it has no such name (a layout
  // folder).
  bool accepts(std::string_view intended, std::string_view docker_reference) const;
};

struct PolicyRequirement {
  enum class Kind : std::uint8_t { kAcceptAnything, kReject, kSigned, kUncheckable };
  Kind kind = Kind::kReject;
  std::vector<PublicKey> keys;  // kSigned: any of them
  SignedIdentity identity;
  std::string why;  // kUncheckable: what cannot be checked; kSigned: why its keys cannot be read, "" if they can
};

// Immutable; safe to use from any thread.
class ContainersPolicy {
 public:
  // Strict as podman: an unknown or repeated member, requirement or identity refuses the file. Key files are read here.
  // Throws CorruptData, Unsupported.
  static ContainersPolicy parse(ByteView json, const std::string& file);
  // ~/.config/containers/policy.json, else /etc/containers/policy.json; absent if there is neither.
  static std::optional<ContainersPolicy> find();
  static std::optional<ContainersPolicy> find(const std::vector<std::filesystem::path>& files);

  // The one list that counts for an image, all of which must hold. `transport` is "docker" or "oci"; `image` the full
  // name with its tag or digest ("registry.example/team/app:v1"; "/srv/layout:v1").
  struct Match {
    std::string place;  // "/etc/containers/policy.json docker "registry.example/team""
    std::vector<PolicyRequirement> requirements;
  };
  Match requirements_for(std::string_view transport, std::string_view image) const;
  const std::string& file() const { return file_; }

 private:
  using Requirements = std::vector<PolicyRequirement>;
  std::string file_;
  Requirements default_;
  std::map<std::string, std::map<std::string, Requirements, std::less<>>, std::less<>> transports_;
};

// The scopes that may hold for an image, the most specific first, without the transport's own ("").
std::vector<std::string> policy_scopes(std::string_view transport, std::string_view image);

}  // namespace varve::trust
