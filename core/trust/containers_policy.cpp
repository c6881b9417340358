#include "core/trust/containers_policy.h"

#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "core/base/base64.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/trust/docker_name.h"
#include "core/trust/internal/strict_json.h"

namespace varve::trust {
namespace {

using nlohmann::json;
using Kind = PolicyRequirement::Kind;
using Match = SignedIdentity::Match;

constexpr std::size_t kMaxPolicyKeys = 64;
constexpr std::string_view kMemberSeparator = ", ";

// "team/app" is below "team" and "team/app", not below "te".
bool is_at_or_below(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) && (name.size() == prefix.size() || name[prefix.size()] == '/');
}

bool accepts_repo_digest_or_exact(const DockerName& intended, const DockerName& signed_name) {
  if (!intended.tag.empty()) return signed_name.to_string() == intended.to_string();
  if (intended.digest.empty()) return false;
  return !signed_name.is_name_only() && signed_name.repository == intended.repository;
}

SignedIdentity parse_identity(const json& value, const std::string& what) {
  if (!value.is_object()) fail<CorruptData>("{}: \"signedIdentity\" must be an object", what);
  const auto type = internal::text_member(value, "type", what);
  SignedIdentity identity;
  const auto named = [&](Match match, std::string_view member) {
    internal::check_members(value, {"type", member}, {}, what);
    identity.match = match;
    identity.name = internal::text_member(value, member, what);
    const auto name = DockerName::parse(identity.name);
    if (!name || (match == Match::kExactReference && name->is_name_only()))
      fail<CorruptData>("{}: \"{}\" is no {}", what, member,
                        match == Match::kExactReference ? "name with a tag or a digest" : "repository name");
  };
  if (type == "exactReference") {
    named(Match::kExactReference, "dockerReference");
  } else if (type == "exactRepository") {
    named(Match::kExactRepository, "dockerRepository");
  } else if (type == "remapIdentity") {
    internal::check_members(value, {"type", "prefix", "signedPrefix"}, {}, what);
    identity.match = Match::kRemap;
    identity.prefix = internal::text_member(value, "prefix", what);
    identity.signed_prefix = internal::text_member(value, "signedPrefix", what);
    if (identity.prefix.empty() || identity.signed_prefix.empty()) fail<CorruptData>("{}: an empty prefix", what);
  } else {
    internal::check_members(value, {"type"}, {}, what);
    if (type == "matchExact")
      identity.match = Match::kExact;
    else if (type == "matchRepository")
      identity.match = Match::kRepository;
    else if (type != "matchRepoDigestOrExact")
      fail<CorruptData>("{}: the identity \"{:.60}\" is not known", what, type);
  }
  return identity;
}

std::vector<std::string> texts_of(const json& value, std::string_view member, const std::string& what) {
  if (value.is_string()) return {value.get<std::string>()};
  std::vector<std::string> texts;
  if (!value.is_array() || value.empty() || value.size() > kMaxPolicyKeys)
    fail<CorruptData>("{}: \"{}\" must be 1 to {} strings", what, member, kMaxPolicyKeys);
  for (const auto& one : value) {
    if (!one.is_string()) fail<CorruptData>("{}: \"{}\" must hold strings only", what, member);
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

Bytes base64_of(const std::string& text, std::string_view member, const std::string& what) {
  const auto decoded = base64_decode(text);
  if (!decoded) fail<CorruptData>("{}: \"{}\" is no base64", what, member);
  return to_bytes(as_bytes(*decoded));
}

// Keys that cannot be read fail the requirement, not the file: others do not need them.
void read_keys(const json& value, std::string_view member, PolicyRequirement& requirement, const std::string& what) {
  const bool is_path = member.starts_with("keyPath");
  const auto texts = texts_of(value, member, what);
  try {
    for (const auto& text : texts) {
      if (is_path) {
        requirement.keys.push_back(PublicKey::read(text));
      } else {
        requirement.keys.push_back(
            PublicKey::parse(as_text(base64_of(text, member, what)), what + " " + std::string(member)));
      }
    }
  } catch (const std::exception& error) {
    requirement.keys.clear();
    requirement.why = error.what();
  }
}

PolicyRequirement uncheckable(std::string why) {
  PolicyRequirement requirement;
  requirement.kind = Kind::kUncheckable;
  requirement.why = std::move(why);
  return requirement;
}

// Of members of which a requirement has exactly one: which.
std::string_view only_member(const json& value, std::initializer_list<std::string_view> names,
                             const std::string& what) {
  std::string_view found;
  std::string all;
  for (const auto name : names) {
    all += (all.empty() ? "" : std::string(kMemberSeparator)) + std::string(name);
    if (!value.contains(name)) continue;
    if (!found.empty()) fail<CorruptData>("{}: both \"{}\" and \"{}\"", what, found, name);
    found = name;
  }
  if (found.empty()) fail<CorruptData>("{}: needs one of {}", what, all);
  return found;
}

PolicyRequirement parse_sigstore(const json& value, const std::string& what) {
  internal::check_members(value, {"type"},
                          {"keyPath", "keyPaths", "keyData", "keyDatas", "fulcio", "pki", "rekorPublicKeyPath",
                           "rekorPublicKeyPaths", "rekorPublicKeyData", "rekorPublicKeyDatas", "signedIdentity"},
                          what);
  PolicyRequirement requirement;
  requirement.kind = Kind::kSigned;
  if (value.contains("signedIdentity")) requirement.identity = parse_identity(value["signedIdentity"], what);
  const auto member = only_member(value, {"keyPath", "keyPaths", "keyData", "keyDatas", "fulcio", "pki"}, what);
  if (member == "fulcio" || member == "pki")
    return uncheckable(fmt::format("it wants certificates (\"{}\"), which are not checked here", member));
  for (const auto& [name, one] : value.items())
    if (name.starts_with("rekor"))
      return uncheckable("it wants an entry in a transparency log (\"" + name + "\"), which is not checked here");
  read_keys(value[member], member, requirement, what);
  return requirement;
}

PolicyRequirement parse_requirement(const json& value, const std::string& what) {
  if (!value.is_object()) fail<CorruptData>("{}: a requirement must be an object", what);
  const auto type = internal::text_member(value, "type", what);
  PolicyRequirement requirement;
  if (type == "insecureAcceptAnything" || type == "reject") {
    internal::check_members(value, {"type"}, {}, what);
    requirement.kind = type == "reject" ? Kind::kReject : Kind::kAcceptAnything;
    return requirement;
  }
  if (type == "sigstoreSigned") return parse_sigstore(value, what);
  if (type == "signedBy") {
    internal::check_members(value, {"type", "keyType"}, {"keyPath", "keyPaths", "keyData", "signedIdentity"}, what);
    only_member(value, {"keyPath", "keyPaths", "keyData"}, what);
    if (value.contains("signedIdentity")) parse_identity(value["signedIdentity"], what);
    return uncheckable("it wants a GPG signature (\"signedBy\"), which is not checked here");
  }
  if (type == "signedBaseLayer") return uncheckable("it wants a signed base layer, which is not checked here");
  fail<CorruptData>("{}: the requirement \"{:.60}\" is not known", what, type);
}

std::vector<PolicyRequirement> parse_requirements(const json& value, const std::string& what) {
  if (!value.is_array() || value.empty()) fail<CorruptData>("{}: a list of requirements must not be empty", what);
  std::vector<PolicyRequirement> requirements;
  for (const auto& one : value) requirements.push_back(parse_requirement(one, what));
  return requirements;
}

}  // namespace

bool SignedIdentity::accepts(std::string_view intended_text, std::string_view docker_reference) const {
  const auto signed_name = DockerName::parse(docker_reference);
  if (!signed_name) return false;
  if (match == Match::kExactReference || match == Match::kExactRepository) {
    const auto wanted = DockerName::parse(name);
    if (!wanted) return false;
    if (match == Match::kExactRepository) return signed_name->repository == wanted->repository;
    return !signed_name->is_name_only() && signed_name->to_string() == wanted->to_string();
  }
  auto intended = DockerName::parse(intended_text);
  if (!intended) return false;
  switch (match) {
    case Match::kRepository:
      return signed_name->repository == intended->repository;
    case Match::kExact:
      return !intended->is_name_only() && !signed_name->is_name_only() &&
             signed_name->to_string() == intended->to_string();
    case Match::kRemap:
      if (is_at_or_below(intended->repository, prefix)) intended->repository.replace(0, prefix.size(), signed_prefix);
      break;
    default:
      break;
  }
  return accepts_repo_digest_or_exact(*intended, *signed_name);
}

ContainersPolicy ContainersPolicy::parse(ByteView bytes, const std::string& file) {
  const auto document = internal::parse_strict_json(bytes, kMaxPolicyBytes, file);
  internal::check_members(document, {"default"}, {"transports"}, file);
  ContainersPolicy policy;
  policy.file_ = file;
  policy.default_ = parse_requirements(document["default"], file + ": default");
  if (!document.contains("transports")) return policy;
  if (!document["transports"].is_object()) fail<CorruptData>("{}: \"transports\" must be an object", file);
  for (const auto& [transport, scopes] : document["transports"].items()) {
    if (!scopes.is_object()) fail<CorruptData>("{}: transport \"{:.60}\" must be an object", file, transport);
    for (const auto& [scope, requirements] : scopes.items()) {
      const auto what = fmt::format("{}: {} \"{:.200}\"", file, transport, scope);
      if (transport == "oci" && !scope.empty() && !scope.starts_with('/'))
        fail<CorruptData>("{}: must be an absolute path", what);
      policy.transports_[transport][scope] = parse_requirements(requirements, what);
    }
  }
  return policy;
}

std::optional<ContainersPolicy> ContainersPolicy::find(const std::vector<std::filesystem::path>& files) {
  for (const auto& file : files)
    if (const auto bytes = read_file_if_there(file, kMaxPolicyBytes)) return parse(*bytes, file.string());
  return std::nullopt;
}

std::optional<ContainersPolicy> ContainersPolicy::find() {
  std::vector<std::filesystem::path> files;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    files.push_back(std::filesystem::path(home) / ".config/containers/policy.json");
  files.emplace_back("/etc/containers/policy.json");
  return find(files);
}

std::vector<std::string> policy_scopes(std::string_view transport, std::string_view image) {
  std::vector<std::string> scopes;
  std::string name(image);
  if (transport == "docker") {
    const auto parsed = DockerName::parse(image);
    if (!parsed) return scopes;
    if (!parsed->is_name_only())
      scopes.push_back(parsed->repository + (parsed->tag.empty() ? '@' + parsed->digest : ':' + parsed->tag));
    name = parsed->repository;
  } else {
    scopes.push_back(name);
    if (const auto colon = name.rfind(':'); colon != std::string::npos && name.find('/', colon) == std::string::npos)
      name.resize(colon);
  }
  for (;;) {
    if (name.empty()) return scopes;
    if (scopes.empty() || scopes.back() != name) scopes.push_back(name);
    const auto slash = name.rfind('/');
    if (slash == std::string::npos) break;
    name.resize(slash);
  }
  if (transport != "docker") return scopes;
  // What is left is the host; its domains, without the port.
  name.resize(std::min(name.find(':'), name.size()));
  for (auto dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) {
    name.erase(0, dot + 1);
    scopes.push_back("*." + name);
  }
  return scopes;
}

ContainersPolicy::Match ContainersPolicy::requirements_for(std::string_view transport, std::string_view image) const {
  if (const auto found = transports_.find(transport); found != transports_.end()) {
    auto scopes = policy_scopes(transport, image);
    scopes.emplace_back();
    for (const auto& scope : scopes)
      if (const auto at = found->second.find(scope); at != found->second.end())
        return {fmt::format("{}, {} \"{}\"", file_, transport, scope), at->second};
  }
  return {file_ + ", default", default_};
}

}  // namespace varve::trust
