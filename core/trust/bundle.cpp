#include "core/trust/bundle.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/base64.h"
#include "core/base/text/json_document.h"
#include "core/oci/artifact.h"
#include "core/oci/manifest.h"

namespace varve::trust {
namespace {

using nlohmann::json;

constexpr std::string_view kInTotoType = "application/vnd.in-toto+json";
constexpr std::string_view kStatementTypes[] = {"https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"};
constexpr std::string_view kContentAnnotation = "dev.sigstore.bundle.content";
constexpr std::string_view kPredicateAnnotation = "dev.sigstore.bundle.predicateType";
constexpr std::size_t kMaxSubjects = 64;

// What is signed (DSSE, "PAE"): lengths, so that type and payload cannot be moved against each other.
std::string signed_text(ByteView payload) {
  auto text = fmt::format("DSSEv1 {} {} {} ", kInTotoType.size(), kInTotoType, payload.size());
  text += as_text(payload);
  return text;
}

bool names(const json& subject, const Digest& manifest) {
  if (!subject.is_object()) return false;
  const auto digests = subject.find("digest");
  if (digests == subject.end() || !digests->is_object()) return false;
  const auto sha256 = digests->find("sha256");
  return sha256 != digests->end() && *sha256 == manifest.hex();
}

bool states(ByteView payload, const Digest& manifest) {
  const auto statement = JsonValue::parse(payload, "statement", JsonLimits::strict(kMaxBundleBytes));
  if (std::ranges::find(kStatementTypes, statement["_type"].text()) == std::end(kStatementTypes)) return false;
  if (statement["predicateType"].text() != kSignPredicate) return false;
  return std::ranges::any_of(statement["subject"].items(kMaxSubjects),
                             [&](const JsonValue& subject) { return names(subject.raw(), manifest); });
}

// The bundle in a manifest that refers to something; absent if it holds none.
std::optional<oci::Descriptor> bundle_blob(oci::Repository& repository, const oci::Descriptor& referrer,
                                           const Digest& subject) {
  const auto what = repository.name() + " " + referrer.digest.to_string();
  const auto document = repository.manifest(referrer.digest.to_string());
  const auto manifest = oci::Manifest::parse(document.bytes, document.descriptor.media_type, what);
  if (!manifest.subject || manifest.subject->digest != subject) return std::nullopt;
  const auto layer = std::ranges::find(manifest.layers, kBundleType, &oci::Descriptor::media_type);
  return layer == manifest.layers.end() ? std::nullopt : std::optional(*layer);
}

// Those that say to be bundles first, so that no number of others hides them. Our own kinds are not looked into. A
// folder would have to read each of its manifests to say what refers to one; whoever writes bundles there lists them as
// such.
std::vector<oci::Descriptor> candidates_of(oci::Repository& repository, const Digest& manifest) {
  constexpr std::string_view kOurs = "application/vnd.varve.";
  auto referrers = repository.referrers(manifest, repository.name().starts_with("oci:") ? kBundleType : "");
  std::erase_if(referrers, [&](const oci::Descriptor& referrer) { return referrer.artifact_type.starts_with(kOurs); });
  std::ranges::sort(referrers, {}, [](const oci::Descriptor& referrer) {
    return std::pair(referrer.artifact_type != kBundleType, referrer.digest);
  });
  if (referrers.size() > kMaxBundleCandidates) referrers.resize(kMaxBundleCandidates);
  return referrers;
}

}  // namespace

Bundle Bundle::parse(ByteView bytes, std::string_view what) {
  const auto document = JsonValue::parse(bytes, what, JsonLimits::strict(kMaxBundleBytes));
  if (document["mediaType"].text() != kBundleType) fail<Unsupported>("{}: no sigstore bundle v0.3", what);
  const auto envelope = document["dsseEnvelope"];
  if (envelope["payloadType"].text() != kInTotoType) fail<Unsupported>("{}: its payload is no in-toto statement", what);
  const auto signatures = envelope["signatures"].items();
  if (signatures.size() != 1) fail<CorruptData>("{}: not one signature", what);
  Bundle bundle;
  bundle.payload = envelope["payload"].base64();
  bundle.signature = signatures.front()["sig"].base64();
  if (const auto key = document["verificationMaterial"].maybe("publicKey"); key.is_object())
    bundle.hint = key.maybe("hint").text();
  return bundle;
}

Bundle Bundle::make(const Digest& manifest, const PrivateKey& key) {
  const json statement = {{"_type", kStatementTypes[0]},
                          {"subject", {{{"digest", {{"sha256", manifest.hex()}}}}}},
                          {"predicateType", kSignPredicate},
                          {"predicate", json::object()}};
  Bundle bundle;
  bundle.hint = key.public_key().fingerprint();
  bundle.payload = to_bytes(as_bytes(statement.dump()));
  bundle.signature = key.sign(as_bytes(signed_text(bundle.payload)));
  return bundle;
}

std::string Bundle::to_json() const {
  const json document = {{"mediaType", kBundleType},
                         {"verificationMaterial", {{"publicKey", {{"hint", hint}}}}},
                         {"dsseEnvelope",
                          {{"payload", base64_encode(as_text(payload))},
                           {"payloadType", kInTotoType},
                           {"signatures", {{{"sig", base64_encode(as_text(signature))}}}}}}};
  return document.dump();
}

bool Bundle::vouches_for(const Digest& manifest, const PublicKey& key) const {
  if (!key.verify(as_bytes(signed_text(payload)), signature)) return false;
  try {
    return states(payload, manifest);
  } catch (const Error&) {
    return false;  // signed, and no statement of ours
  }
}

FoundBundles find_bundles(oci::Repository& repository, const Digest& manifest) {
  FoundBundles found;
  for (const auto& referrer : candidates_of(repository, manifest)) {
    try {
      const auto blob = bundle_blob(repository, referrer, manifest);
      if (!blob) continue;
      found.bundles.push_back(
          Bundle::parse(oci::read_whole_blob(repository, *blob, kMaxBundleBytes), blob->digest.to_string()));
    } catch (const TemporaryError&) {
      throw;
    } catch (const Error& error) {
      log::debug("{}: passing over a bundle: {}", repository.name(), error.what());
      ++found.unreadable;
    }
  }
  return found;
}

std::vector<oci::Descriptor> bundle_blobs(oci::Repository& repository, const Digest& manifest) {
  std::vector<oci::Descriptor> blobs;
  for (const auto& referrer : candidates_of(repository, manifest)) {
    try {
      if (const auto blob = bundle_blob(repository, referrer, manifest)) blobs.push_back(*blob);
    } catch (const TemporaryError&) {
      throw;
    } catch (const Error& error) {
      log::debug("{}: passing over a bundle: {}", repository.name(), error.what());
    }
  }
  return blobs;
}

oci::Descriptor put_bundle(oci::Repository& repository, const oci::Descriptor& subject, const Bundle& bundle) {
  oci::ArtifactManifest manifest;
  manifest.artifact_type = kBundleType;
  manifest.subject = oci::bare(subject);
  manifest.layers.push_back(oci::put_bytes(repository, as_bytes(bundle.to_json()), kBundleType));
  manifest.annotations[std::string(kContentAnnotation)] = "dsse-envelope";
  manifest.annotations[std::string(kPredicateAnnotation)] = kSignPredicate;
  oci::put_bytes(repository, oci::empty_json(), oci::kEmptyJsonType);
  return repository.put_manifest(manifest.to_json(), oci::kOciManifestType, "");
}

}  // namespace varve::trust
