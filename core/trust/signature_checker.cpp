// Who has signed an index, or an image: signatures that were kept here first, then those in the repository. What counts
// is kept, so that it can be verified again when the repository is away; nothing else is, or whoever writes there could
// fill this machine.
#include <algorithm>
#include <functional>
#include <future>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/trust/bundle.h"
#include "core/trust/containers_policy.h"
#include "core/trust/docker_name.h"
#include "core/trust/judge.h"
#include "core/trust/public_key.h"
#include "core/trust/simple_signing.h"

namespace varve::trust {
namespace {

// Folders and files of this machine, by the names of containers' transports.
constexpr std::string_view kLocalTransports[] = {"oci", "docker-archive", "dir"};

// "docker" for a registry.
std::string_view transport_of(std::string_view repository) {
  for (const auto transport : kLocalTransports)
    if (repository.starts_with(transport) && repository.substr(transport.size()).starts_with(':')) return transport;
  return "docker";
}

bool is_local(const std::string& repository) { return transport_of(repository) != "docker"; }

std::vector<PublicKey> read_keys(const std::vector<std::filesystem::path>& files, const std::string& place) {
  std::vector<PublicKey> keys;
  for (const auto& file : files) {
    try {
      keys.push_back(PublicKey::read(file));
    } catch (const std::exception& error) {
      fail<UsageError>("{}[trust] keys: {}", place.empty() ? "" : place + ": ", error.what());
    }
  }
  return keys;
}

void add_unique(std::vector<std::string>& list, const std::string& text) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(text);
}

// Whether a payload is of this repository. A layout folder has no name that others know: there the key alone counts, as
// with bundles.
bool is_for(const SignedPayload& payload, const std::string& repository) {
  if (is_local(repository)) return true;
  const auto name = DockerName::parse(payload.docker_reference);
  return name && name->repository == repository;
}

// Which signatures of a manifest satisfy, and what is wrong with the others.
class Verdicts {
 public:
  using Accepts = std::function<bool(const SignedPayload&)>;

  explicit Verdicts(const Digest& manifest) : manifest_(manifest) {}

  // The keys of `keys` that have signed; `accepts` says whether what they have signed is what was asked for.
  std::vector<std::string> signers_of(const SimpleSignature& signature, const std::vector<PublicKey>& keys,
                                      const Accepts& accepts) {
    const auto key = std::ranges::find_if(
        keys, [&](const PublicKey& one) { return one.verify(signature.payload, signature.signature); });
    if (key == keys.end()) return {};
    try {
      const auto payload = SignedPayload::parse(signature.payload, "its payload");
      if (payload.manifest != manifest_) {
        trouble = fmt::format("{} has signed {}, which this is not", key->id(), payload.manifest.to_string());
      } else if (!accepts(payload)) {
        trouble = fmt::format("{} has signed it for {:.200}", key->id(), payload.docker_reference);
      } else {
        return {key->id()};
      }
    } catch (const Error& error) {
      trouble = error.what();
    }
    return {};
  }

  std::vector<std::string> signers_of(const Bundle& bundle, const std::vector<PublicKey>& keys) const {
    for (const auto& key : keys)
      if (bundle.vouches_for(manifest_, key)) return {key.id()};
    return {};
  }

  std::string trouble;  // why a good signature does not count

 private:
  const Digest& manifest_;
};

void keep(oci::Repository& kept, const Digest& manifest, const SimpleSignature& signature) {
  try {
    add_simple_signature(kept, manifest, signature);
  } catch (const std::exception& error) {
    log::warn("a signature of {} could not be kept: {}", manifest.to_string(), error.what());
  }
}

class Checker final : public SignatureChecker {
 public:
  explicit Checker(const TrustSettings& settings)
      : settings_(settings), keys_(read_keys(settings.keys, settings.place)) {
    for (const auto& scope : settings_.scopes) scope_keys_.push_back(read_keys(scope.keys, scope.place));
    try {
      policy_ = settings.policy.empty() ? ContainersPolicy::find() : ContainersPolicy::find({settings.policy});
      if (!policy_ && !settings.policy.empty()) broken_policy_ = settings.policy.string() + ": there is no such file";
    } catch (const std::exception& error) {
      broken_policy_ = error.what();
    }
  }

  bool has_keys(const Request& request) const override {
    return !own_keys(request).empty() || !policy_of(request).empty();
  }

  std::string demand(const Request& request) const override {
    if (!broken_policy_.empty()) return broken_policy_;
    if (policy_of(request).empty()) return {};
    return match_of(request, name_of(request))->place;
  }

  SignatureFindings check(const Request& request, const Candidate& candidate) const override {
    const auto& digest = candidate.manifest.descriptor.digest;
    SignatureFindings findings;
    for (const auto& key : own_keys(request)) add_unique(findings.keys_tried, key.id());
    for (const auto& requirement : policy_of(request))
      for (const auto& key : requirement.keys) add_unique(findings.keys_tried, key.id());
    std::vector<oci::Repository*> places;
    if (candidate.kept != nullptr) places.push_back(candidate.kept);
    if (candidate.place != nullptr && candidate.place != candidate.kept) places.push_back(candidate.place);
    for (auto* place : places) {
      try {
        look_in(*place, place == candidate.kept ? nullptr : candidate.kept, request, digest,
                candidate.manifest.descriptor, findings);
      } catch (const std::exception& error) {
        findings.trouble = error.what();
      }
      if (!findings.signers.empty()) break;
    }
    return findings;
  }

  ImageVerdict check_image(const Request& request, oci::Repository& place, oci::Repository* kept) const override {
    ImageVerdict verdict;
    if (!broken_policy_.empty()) {
      verdict.accepted = false;
      verdict.refusal = broken_policy_ + "; podman would refuse every image";
      return verdict;
    }
    const auto match = match_of(request, name_of(request));
    verdict.accepted = true;
    if (!match) return verdict;
    verdict.rule = match->place;
    for (const auto& requirement : match->requirements) {
      verdict.refusal = refusal_of(requirement, request, place, kept, verdict.signers);
      verdict.accepted = verdict.refusal.empty();
      if (!verdict.accepted) break;
    }
    return verdict;
  }

 private:
  const std::vector<PublicKey>& own_keys(const Request& request) const {
    const auto* scope = settings_.scope_of(request.repository);
    if (scope == nullptr) return keys_;
    const auto& keys = scope_keys_[std::size_t(scope - settings_.scopes.data())];
    return keys.empty() ? keys_ : keys;
  }

  // What containers/image calls it, which has no scheme and always a tag or a digest.
  static std::string name_of(const Request& request) { return full_name(request.repository, request.selector); }
  static std::string full_name(const std::string& repository, const std::string& selector) {
    const auto name = is_local(repository) ? repository.substr(transport_of(repository).size() + 1) : repository;
    if (selector.empty()) return name;
    return name + (selector.starts_with("sha256:") ? '@' : ':') + selector;
  }

  std::optional<ContainersPolicy::Match> match_of(const Request& request, const std::string& name) const {
    if (!policy_) return std::nullopt;
    return policy_->requirements_for(transport_of(request.repository), name);
  }

  // Its requirements that demand signatures we can check.
  std::vector<PolicyRequirement> policy_of(const Request& request) const {
    auto match = match_of(request, name_of(request));
    if (!match) return {};
    std::erase_if(match->requirements,
                  [](const PolicyRequirement& one) { return one.kind != PolicyRequirement::Kind::kSigned; });
    return std::move(match->requirements);
  }

  // The intended name of `requirement` for what is always asked for by digest; layout folders have none.
  static Verdicts::Accepts identity_of(const PolicyRequirement& requirement, const Request& request,
                                       const std::string& selector) {
    const auto intended = is_local(request.repository) ? std::string() : full_name(request.repository, selector);
    return [&requirement, intended](const SignedPayload& payload) {
      return requirement.identity.accepts(intended, payload.docker_reference);
    };
  }

  void look_in(oci::Repository& place, oci::Repository* keep_in, const Request& request, const Digest& digest,
               const oci::Descriptor& manifest, SignatureFindings& findings) const {
    const auto requirements = policy_of(request);
    const auto& own = own_keys(request);
    Verdicts verdicts(digest);
    // Each kind costs several round trips: both are looked for at once.
    std::future<FoundBundles> bundles;
    if (!own.empty())
      bundles = std::async(place.is_local() ? std::launch::deferred : std::launch::async,
                           [&] { return find_bundles(place, digest); });
    const auto found = find_simple_signatures(place, digest);
    findings.seen += found.signatures.size() + found.unreadable;
    std::vector<bool> met(requirements.size());
    std::vector<std::string> by_policy;
    for (const auto& signature : found.signatures) {
      auto signers = verdicts.signers_of(
          signature, own, [&](const SignedPayload& payload) { return is_for(payload, request.repository); });
      bool counts = !signers.empty();
      for (const auto& id : signers) add_unique(findings.signers, id);
      for (std::size_t i = 0; i < requirements.size(); ++i) {
        for (const auto& id : verdicts.signers_of(signature, requirements[i].keys,
                                                  identity_of(requirements[i], request, digest.to_string()))) {
          met[i] = counts = true;
          add_unique(by_policy, id);
        }
      }
      if (counts && keep_in != nullptr) keep(*keep_in, digest, signature);
    }
    if (!requirements.empty() && std::ranges::all_of(met, std::identity()))
      for (const auto& id : by_policy) add_unique(findings.signers, id);
    if (findings.signers.empty() && !own.empty())
      look_at_bundles(bundles.get(), keep_in, digest, manifest, own, verdicts, findings);
    if (findings.signers.empty() && !verdicts.trouble.empty()) findings.trouble = verdicts.trouble;
  }

  static void look_at_bundles(const FoundBundles& found, oci::Repository* keep_in, const Digest& digest,
                              const oci::Descriptor& manifest, const std::vector<PublicKey>& keys,
                              const Verdicts& verdicts, SignatureFindings& findings) {
    findings.seen += found.bundles.size() + found.unreadable;
    for (const auto& bundle : found.bundles) {
      const auto signers = verdicts.signers_of(bundle, keys);
      for (const auto& id : signers) add_unique(findings.signers, id);
      if (signers.empty() || keep_in == nullptr) continue;
      try {
        put_bundle(*keep_in, manifest, bundle);
      } catch (const std::exception& error) {
        log::warn("a signature of {} could not be kept: {}", digest.to_string(), error.what());
      }
    }
  }

  // "" if the image meets the requirement.
  static std::string refusal_of(const PolicyRequirement& requirement, const Request& request, oci::Repository& place,
                                oci::Repository* kept, std::vector<std::string>& signers) {
    using Kind = PolicyRequirement::Kind;
    if (requirement.kind == Kind::kAcceptAnything) return {};
    if (requirement.kind == Kind::kReject) return "it rejects the image";
    if (requirement.kind == Kind::kUncheckable || requirement.keys.empty()) return requirement.why;
    Verdicts verdicts(request.image);
    std::size_t seen = 0;
    const auto accepts = identity_of(requirement, request, request.selector);
    const auto meets = [&](oci::Repository& where, oci::Repository* keep_in) {
      const auto found = find_simple_signatures(where, request.image);
      seen += found.signatures.size() + found.unreadable;
      for (const auto& signature : found.signatures) {
        const auto ids = verdicts.signers_of(signature, requirement.keys, accepts);
        if (ids.empty()) continue;
        for (const auto& id : ids) add_unique(signers, id);
        if (keep_in != nullptr) keep(*keep_in, request.image, signature);
        return true;
      }
      return false;
    };
    try {
      if ((kept != nullptr && meets(*kept, nullptr)) || meets(place, kept)) return {};
    } catch (const std::exception& error) {
      verdicts.trouble = error.what();
    }
    std::string tried;
    for (const auto& key : requirement.keys) tried += (tried.empty() ? "" : ", ") + key.id();
    return fmt::format("it wants the image signed by {}; {} signature{} seen, none counts{}", tried, seen,
                       seen == 1 ? "" : "s", verdicts.trouble.empty() ? "" : ": " + verdicts.trouble);
  }

  const TrustSettings settings_;
  const std::vector<PublicKey> keys_;
  std::vector<std::vector<PublicKey>> scope_keys_;  // of settings_.scopes
  std::optional<ContainersPolicy> policy_;
  std::string broken_policy_;  // why it cannot be read, "" if it can
};

}  // namespace

std::shared_ptr<const SignatureChecker> make_signature_checker(const TrustSettings& settings) {
  return std::make_shared<Checker>(settings);
}

}  // namespace varve::trust
