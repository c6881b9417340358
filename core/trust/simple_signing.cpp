#include "core/trust/simple_signing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/base64.h"
#include "core/base/text/json_document.h"
#include "core/oci/manifest.h"

namespace varve::trust {
namespace {

using nlohmann::json;

constexpr std::string_view kPayloadType = "cosign container image signature";
constexpr std::string_view kConfigType = "application/vnd.oci.image.config.v1+json";
constexpr std::string_view kTagPrefix = "sha256-";
constexpr std::string_view kTagSuffix = ".sig";
constexpr std::size_t kMaxSignatureText = 16 * 1024;
constexpr int kAddAttempts = 3;

void check_optional(const JsonValue& optional) {
  if (optional.raw().is_null()) return;  // as cosign writes it
  if (optional.has("creator")) optional["creator"].text();
  if (!optional.has("timestamp")) return;
  const auto time =
      optional["timestamp"].real(std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max());
  if (std::trunc(time) != time) optional["timestamp"].refuse("must be a whole number");
}

// The manifest under the tag, as it is; absent if there is none.
std::optional<oci::Document> document_of(oci::Repository& repository, const Digest& manifest) {
  try {
    return repository.manifest(signature_tag(manifest));
  } catch (const NotFound&) {
    return std::nullopt;
  }
}

std::optional<Bytes> signature_of(const oci::Descriptor& layer) {
  const auto found = layer.annotations.find(std::string(kSignatureAnnotation));
  if (layer.media_type != kSimpleSigningType || found == layer.annotations.end() ||
      found->second.size() > kMaxSignatureText)
    return std::nullopt;
  const auto decoded = base64_decode(found->second);
  if (!decoded || decoded->empty()) return std::nullopt;
  return to_bytes(as_bytes(*decoded));
}

json layer_json(const oci::Descriptor& payload, const SimpleSignature& added) {
  return {{"mediaType", kSimpleSigningType},
          {"digest", payload.digest.to_string()},
          {"size", payload.size},
          {"annotations", {{kSignatureAnnotation, base64_encode(as_text(added.signature))}}}};
}

// The config that says nothing but which layers there are: readers never look at it, registries want one.
json config_json(const json& layers) {
  auto diff_ids = json::array();
  for (const auto& layer : layers) diff_ids.push_back(layer.at("digest"));
  return {{"architecture", ""},
          {"config", json::object()},
          {"os", ""},
          {"rootfs", {{"type", "layers"}, {"diff_ids", std::move(diff_ids)}}}};
}

// The layers as they stand there, with all that others wrote into them.
json layers_of(const std::optional<oci::Document>& document, std::string_view what) {
  if (!document) return json::array();
  const auto manifest =
      oci::Manifest::parse(document->bytes, document->descriptor.media_type, what);  // within limits, and in form
  if (manifest.layers.size() >= kMaxSignatures)
    fail<Unsupported>("{}: holds {} signatures, {} are looked at; remove those that nobody needs any more", what,
                      manifest.layers.size(), kMaxSignatures);
  return json::parse(as_text(document->bytes)).at("layers");
}

}  // namespace

SignedPayload SignedPayload::parse(ByteView bytes, std::string_view what) {
  const auto document = JsonValue::parse(bytes, what, JsonLimits::strict(kMaxPayloadBytes));
  document.only({"critical", "optional"});
  check_optional(document["optional"]);
  const auto critical = document["critical"], image = critical["image"], identity = critical["identity"];
  critical.only({"type", "image", "identity"});
  image.only({"docker-manifest-digest"});
  identity.only({"docker-reference"});
  if (critical["type"].text() != kPayloadType) fail<CorruptData>("{}: not of type \"{}\"", what, kPayloadType);
  return {.docker_reference = identity["docker-reference"].text(),
          .manifest = image["docker-manifest-digest"].digest()};
}

std::string SignedPayload::to_json(std::string_view creator, std::int64_t timestamp) const {
  const json document = {{"critical",
                          {{"identity", {{"docker-reference", docker_reference}}},
                           {"image", {{"docker-manifest-digest", manifest.to_string()}}},
                           {"type", kPayloadType}}},
                         {"optional", {{"creator", creator}, {"timestamp", timestamp}}}};
  return document.dump();
}

std::string signature_tag(const Digest& manifest) {
  return std::string(kTagPrefix) + manifest.hex() + std::string(kTagSuffix);
}

FoundSimpleSignatures find_simple_signatures(oci::Repository& repository, const Digest& manifest) {
  FoundSimpleSignatures found;
  const auto document = document_of(repository, manifest);
  if (!document) return found;
  const auto what = repository.name() + ":" + signature_tag(manifest);
  const auto parsed = oci::Manifest::parse(document->bytes, document->descriptor.media_type, what);
  std::map<Digest, Bytes> payloads;  // several keys often sign one payload
  for (const auto& layer : parsed.layers) {
    if (found.signatures.size() + found.unreadable == kMaxSignatures) break;
    const auto signature = signature_of(layer);
    if (!signature || layer.size > kMaxPayloadBytes) {
      ++found.unreadable;
      continue;
    }
    try {
      auto [at, is_new] = payloads.try_emplace(layer.digest);
      if (is_new) at->second = oci::read_whole_blob(repository, layer, kMaxPayloadBytes);
      if (at->second.size() == layer.size) found.signatures.push_back({.payload = at->second, .signature = *signature});
    } catch (const NotFound& error) {
      log::debug("{}: {}", what, error.what());
      ++found.unreadable;
    } catch (const CorruptData& error) {
      log::debug("{}: {}", what, error.what());
      ++found.unreadable;
    }
  }
  return found;
}

std::vector<oci::Descriptor> simple_signature_blobs(oci::Repository& repository, const Digest& manifest) {
  std::vector<oci::Descriptor> blobs;
  const auto document = document_of(repository, manifest);
  if (!document) return blobs;
  const auto what = repository.name() + ":" + signature_tag(manifest);
  const auto parsed = oci::Manifest::parse(document->bytes, document->descriptor.media_type, what);
  for (const auto& layer : parsed.layers)
    if (blobs.size() < kMaxSignatures && signature_of(layer)) blobs.push_back(layer);
  return blobs;
}

oci::Descriptor add_simple_signature(oci::Repository& repository, const Digest& manifest,
                                     const SimpleSignature& added) {
  const auto tag = signature_tag(manifest);
  const auto what = repository.name() + ":" + tag;
  const auto payload = oci::put_bytes(repository, added.payload, kSimpleSigningType);
  const auto layer = layer_json(payload, added);
  const auto is_this = [&](const json& other) {
    return json(other.value("digest", "")) == layer["digest"] && other.contains("annotations") &&
           other["annotations"].is_object() &&
           json(other["annotations"].value(kSignatureAnnotation, "")) == layer["annotations"][kSignatureAnnotation];
  };
  for (int attempt = 0; attempt < kAddAttempts; ++attempt) {
    const auto document = document_of(repository, manifest);
    auto layers = layers_of(document, what);
    if (document && std::ranges::any_of(layers, is_this)) return document->descriptor;
    layers.push_back(layer);
    const auto config = oci::put_bytes(repository, as_bytes(config_json(layers).dump()), kConfigType);
    const json put = {
        {"schemaVersion", 2},
        {"mediaType", oci::kOciManifestType},
        {"config", {{"mediaType", kConfigType}, {"digest", config.digest.to_string()}, {"size", config.size}}},
        {"layers", std::move(layers)}};
    repository.put_manifest(as_bytes(put.dump()), oci::kOciManifestType, tag);
    // Who wrote at the same time may have replaced it: the loop looks again.
  }
  const auto last = document_of(repository, manifest);
  if (last && std::ranges::any_of(
                  JsonValue::parse(last->bytes, what, {.bytes = oci::kMaxManifestBytes})["layers"].raw(), is_this))
    return last->descriptor;
  fail<TemporaryError>("{}: others write signatures there at the same time; try again", what);
}

}  // namespace varve::trust
