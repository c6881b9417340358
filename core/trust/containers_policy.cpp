#include "core/trust/containers_policy.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/ranges.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/json_document.h"
#include "core/trust/docker_name.h"

namespace varve::trust {
namespace {

using Kind = PolicyRequirement::Kind;
using Match = SignedIdentity::Match;

constexpr std::size_t kMaxPolicyKeys = 64;

// "team/app" is below "team" and "team/app", not below "te".
bool is_at_or_below(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) && (name.size() == prefix.size() || name[prefix.size()] == '/');
}

bool accepts_repo_digest_or_exact(const DockerName& intended, const DockerName& signed_name) {
  if (!intended.tag.empty()) return signed_name.to_string() == intended.to_string();
  if (intended.digest.empty()) return false;
  return !signed_name.is_name_only() && signed_name.repository == intended.repository;
}

SignedIdentity parse_identity(const JsonValue& value) {
  const auto type = value["type"].text();
  SignedIdentity identity;
  const auto named = [&](Match match, std::string_view member) {
    value.only({"type", member});
    identity.match = match;
    identity.name = value[member].text();
    const auto name = DockerName::parse(identity.name);
    if (!name || (match == Match::kExactReference && name->is_name_only()))
      value[member].refuse(match == Match::kExactReference ? "is no name with a tag or a digest"
                                                           : "is no repository name");
  };
  if (type == "exactReference") {
    named(Match::kExactReference, "dockerReference");
  } else if (type == "exactRepository") {
    named(Match::kExactRepository, "dockerRepository");
  } else if (type == "remapIdentity") {
    value.only({"type", "prefix", "signedPrefix"});
    identity.match = Match::kRemap;
    identity.prefix = value["prefix"].text();
    identity.signed_prefix = value["signedPrefix"].text();
    if (identity.prefix.empty() || identity.signed_prefix.empty()) value.refuse("has an empty prefix");
  } else {
    value.only({"type"});
    if (type == "matchExact")
      identity.match = Match::kExact;
    else if (type == "matchRepository")
      identity.match = Match::kRepository;
    else if (type != "matchRepoDigestOrExact")
      value.refuse(fmt::format("is of the kind \"{:.60}\", which is not known", type));
  }
  return identity;
}

// Keys that cannot be read fail the requirement, not the file: others do not need them.
void read_keys(const JsonValue& value, bool are_paths, PolicyRequirement& requirement) {
  const auto keys = value.is_text() ? std::vector{value} : value.items(kMaxPolicyKeys);
  if (keys.empty()) value.refuse("must not be empty");
  for (const auto& key : keys) key.text();  // the file's fault, unlike a key that cannot be read
  try {
    for (const auto& key : keys)
      requirement.keys.push_back(are_paths ? PublicKey::read(key.text())
                                           : PublicKey::parse(as_text(key.base64()), key.where()));
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
std::string_view only_member(const JsonValue& value, std::initializer_list<std::string_view> names) {
  std::string_view found;
  for (const auto name : names) {
    if (!value.has(name)) continue;
    if (!found.empty()) value.refuse(fmt::format("has both \"{}\" and \"{}\"", found, name));
    found = name;
  }
  if (found.empty()) value.refuse(fmt::format("needs one of {}", fmt::join(names, ", ")));
  return found;
}

PolicyRequirement parse_sigstore(const JsonValue& value) {
  value.only({"type", "keyPath", "keyPaths", "keyData", "keyDatas", "fulcio", "pki", "rekorPublicKeyPath",
              "rekorPublicKeyPaths", "rekorPublicKeyData", "rekorPublicKeyDatas", "signedIdentity"});
  PolicyRequirement requirement;
  requirement.kind = Kind::kSigned;
  if (value.has("signedIdentity")) requirement.identity = parse_identity(value["signedIdentity"]);
  const auto member = only_member(value, {"keyPath", "keyPaths", "keyData", "keyDatas", "fulcio", "pki"});
  if (member == "fulcio" || member == "pki")
    return uncheckable(fmt::format("it wants certificates (\"{}\"), which are not checked here", member));
  for (const auto& [name, one] : value.members())
    if (name.starts_with("rekor"))
      return uncheckable("it wants an entry in a transparency log (\"" + name + "\"), which is not checked here");
  read_keys(value[member], member.starts_with("keyPath"), requirement);
  return requirement;
}

PolicyRequirement parse_requirement(const JsonValue& value) {
  const auto type = value["type"].text();
  PolicyRequirement requirement;
  if (type == "insecureAcceptAnything" || type == "reject") {
    value.only({"type"});
    requirement.kind = type == "reject" ? Kind::kReject : Kind::kAcceptAnything;
    return requirement;
  }
  if (type == "sigstoreSigned") return parse_sigstore(value);
  if (type == "signedBy") {
    value.only({"type", "keyType", "keyPath", "keyPaths", "keyData", "signedIdentity"});
    if (!value.has("keyType")) value.refuse("has no \"keyType\"");
    only_member(value, {"keyPath", "keyPaths", "keyData"});
    if (value.has("signedIdentity")) parse_identity(value["signedIdentity"]);
    return uncheckable("it wants a GPG signature (\"signedBy\"), which is not checked here");
  }
  if (type == "signedBaseLayer") return uncheckable("it wants a signed base layer, which is not checked here");
  value.refuse(fmt::format("is of the kind \"{:.60}\", which is not known", type));
}

std::vector<PolicyRequirement> parse_requirements(const JsonValue& value) {
  std::vector<PolicyRequirement> requirements;
  for (const auto& one : value.items()) requirements.push_back(parse_requirement(one));
  if (requirements.empty()) value.refuse("must not be empty");
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
  const auto document = JsonValue::parse(bytes, file, JsonLimits::strict(kMaxPolicyBytes));
  document.only({"default", "transports"});
  ContainersPolicy policy;
  policy.file_ = file;
  policy.default_ = parse_requirements(document["default"]);
  if (!document.has("transports")) return policy;
  for (const auto& [transport, scopes] : document["transports"].members()) {
    for (const auto& [scope, requirements] : scopes.members()) {
      if (transport == "oci" && !scope.empty() && !scope.starts_with('/'))
        requirements.refuse("must be an absolute path");
      policy.transports_[transport][scope] = parse_requirements(requirements);
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
