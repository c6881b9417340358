#include "analyzer/prune/apply/proof.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/text/json_document.h"
#include "core/oci/artifact.h"

namespace varve::prune {
namespace {

using nlohmann::json;

constexpr std::uint64_t kProofFormat = 1;

json gate_json(const GateResult& gate) {
  return {{"name", gate.name},     {"ok", gate.ok},         {"asked", gate.asked},
          {"waived", gate.waived}, {"detail", gate.detail}, {"findings", gate.findings}};
}

GateResult gate_of(const JsonValue& fields) {
  fields.only({"name", "ok", "asked", "waived", "detail", "findings"});
  GateResult gate;
  gate.name = fields["name"].text();
  gate.ok = fields["ok"].flag();
  gate.asked = fields["asked"].flag();
  gate.waived = fields["waived"].flag();
  gate.detail = fields["detail"].text();
  gate.findings = fields["findings"].texts();
  return gate;
}

std::string blob_text(oci::Repository& repository, const oci::Manifest& manifest, const Digest& digest,
                      std::string_view media_type, std::size_t limit, const std::string& what) {
  const auto found = std::ranges::find_if(manifest.layers, [&](const oci::Descriptor& blob) {
    return blob.digest == digest && blob.media_type == media_type;
  });
  if (found == manifest.layers.end())
    fail<CorruptData>("{}: names no blob {} of type {}", what, digest.to_string(), media_type);
  const auto bytes = oci::read_whole_blob(repository, *found, limit);
  return std::string(as_text(bytes));
}

Proof read_proof(const oci::Image& image, const oci::Descriptor& artifact) {
  const auto what = "proof " + artifact.digest.to_string();
  auto& repository = *image.repository;
  const auto read = oci::read_artifact(image, artifact, kProofArtifactType, kProofMediaType, kMaxProofBytes, what);
  auto proof = parse_proof(read.text, what);
  if (proof.image != image.digest())
    fail<CorruptData>("{}: is about {}, not {}", what, proof.image.to_string(), image.digest().to_string());
  proof.plan_text = blob_text(repository, read.manifest, proof.plan, kPlanMediaType, kMaxPlanBytes, what);
  proof.cuda_before_text =
      blob_text(repository, read.manifest, proof.cuda_before, kCudaManifestMediaType, cuda::kMaxManifestBytes, what);
  proof.cuda_after_text =
      blob_text(repository, read.manifest, proof.cuda_after, kCudaManifestMediaType, cuda::kMaxManifestBytes, what);
  return proof;
}

void compare_stored(std::string_view side, const std::string& stored_text, const cuda::Manifest& now,
                    GateResult& result) {
  const auto stored = cuda::parse_manifest(stored_text, fmt::format("the proof's CUDA manifest of the {} image", side));
  if (stored.image != now.image)
    result.findings.push_back(
        fmt::format("{} image: the proof's CUDA manifest is about {}", side, stored.image.to_string()));
  for (const auto& line : cuda::compare(stored, now))
    result.findings.push_back(fmt::format("{} image: {}", side, line));
}

}  // namespace

std::string to_json(const Proof& proof) {
  auto gates = json::array();
  for (const auto& gate : proof.gates) gates.push_back(gate_json(gate));
  const json document{{"format", kProofFormat},
                      {"old_image", proof.old_image.to_string()},
                      {"image", proof.image.to_string()},
                      {"tool", proof.tool},
                      {"written", proof.written},
                      {"plan", proof.plan.to_string()},
                      {"cuda_before", proof.cuda_before.to_string()},
                      {"cuda_after", proof.cuda_after.to_string()},
                      {"gates", std::move(gates)}};
  return document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Proof parse_proof(std::string_view text, std::string_view what) {
  const auto document = JsonValue::parse(text, what, {.bytes = kMaxProofBytes});
  document.only({"format", "old_image", "image", "tool", "written", "plan", "cuda_before", "cuda_after", "gates"});
  if (document["format"].number() != kProofFormat) document["format"].refuse("is of a later Varve");
  Proof proof;
  proof.old_image = document["old_image"].digest();
  proof.image = document["image"].digest();
  proof.tool = document["tool"].text();
  proof.written = document["written"].texts_by_name();
  proof.plan = document["plan"].digest();
  proof.cuda_before = document["cuda_before"].digest();
  proof.cuda_after = document["cuda_after"].digest();
  for (const auto& gate : document["gates"].items()) proof.gates.push_back(gate_of(gate));
  return proof;
}

void publish_proof(oci::Repository& repository, const oci::Descriptor& image, Proof& proof) {
  oci::put_bytes(repository, oci::empty_json(), oci::kEmptyJsonType);
  oci::ArtifactManifest manifest;
  manifest.artifact_type = kProofArtifactType;
  manifest.subject = oci::bare(image);
  std::vector<oci::Descriptor> blobs;
  const auto put = [&](const std::string& text, std::string_view media_type) {
    auto blob = oci::bare(oci::put_bytes(repository, as_bytes(text), media_type));
    if (std::ranges::find(blobs, blob.digest, &oci::Descriptor::digest) == blobs.end()) blobs.push_back(blob);
    return blob.digest;
  };
  proof.plan = put(proof.plan_text, kPlanMediaType);
  proof.cuda_before = put(proof.cuda_before_text, kCudaManifestMediaType);
  proof.cuda_after = put(proof.cuda_after_text, kCudaManifestMediaType);
  put(to_json(proof), kProofMediaType);
  std::ranges::rotate(blobs, std::prev(blobs.end()));
  manifest.layers = std::move(blobs);
  repository.put_manifest(manifest.to_json(), oci::kOciManifestType, "");
}

std::optional<Proof> find_proof(const oci::Image& image, const Digest& old_image) {
  std::optional<Proof> found;
  const auto damage = oci::visit_artifacts(image, kProofArtifactType, "a proof", [&](const oci::Descriptor& artifact) {
    auto proof = read_proof(image, artifact);
    if (proof.old_image == old_image) found = std::move(proof);
    return found.has_value();
  });
  if (!found && !damage.empty()) throw CorruptData(damage);
  return found;
}

void judge_proof(const Proof& proof, const cuda::Manifest& before, const cuda::Manifest& after, GateResult& result) {
  compare_stored("old", proof.cuda_before_text, before, result);
  compare_stored("new", proof.cuda_after_text, after, result);
  for (const auto& gate : proof.gates)
    if (!passes(gate)) result.findings.push_back(fmt::format("the gate {} had failed: {}", gate.name, gate.detail));
  result.detail = fmt::format("by {}, {} gates, plan {}: {} CUDA files are what they were", proof.tool,
                              proof.gates.size(), proof.plan.to_string(), after.files.size());
}

}  // namespace varve::prune
