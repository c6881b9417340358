#pragma once
// What `prune apply` leaves beside an image that it wrote: from which image, by which plan, what the gates said, and
// what CUDA was. An artifact whose subject is the new image; docs/formats/proof.md.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/cuda/manifest.h"
#include "analyzer/prune/apply/gates.h"
#include "core/oci/image.h"

namespace varve::prune {

inline constexpr std::string_view kProofArtifactType = "application/vnd.varve.proof.v1";
inline constexpr std::string_view kProofMediaType = "application/vnd.varve.proof.v1+json";
inline constexpr std::string_view kPlanMediaType = "application/vnd.varve.plan.v1+json";
inline constexpr std::string_view kCudaManifestMediaType = "application/vnd.varve.cuda-manifest.v1+json";
inline constexpr std::size_t kMaxProofBytes = 16u << 20;

struct Proof {
  Digest old_image, image;
  std::string tool;                            // "varve 0.1.0"
  std::map<std::string, std::string> written;  // how: "format", "level" …, as text
  std::vector<GateResult> gates;               // without seconds: the same run gives the same bytes
  Digest plan;                                 // of the plan's text
  Digest cuda_before, cuda_after;              // of the manifests' text
  std::string plan_text;                       // these three are blobs of their own
  std::string cuda_before_text, cuda_after_text;
};

std::string to_json(const Proof& proof);                          // without the texts
Proof parse_proof(std::string_view json, std::string_view what);  // throws CorruptData naming what is wrong

// Put beside the image, the manifest last. Sets the digests from the texts.
void publish_proof(oci::Repository& repository, const oci::Descriptor& image, Proof& proof);
// The proof of this image against that old one; of several the one with the smallest digest. Absent if there is none;
// throws CorruptData if all that there are are broken.
std::optional<Proof> find_proof(const oci::Image& image, const Digest& old_image);

// "proof": what it holds is what was computed now from both images.
void judge_proof(const Proof& proof, const cuda::Manifest& before, const cuda::Manifest& after, GateResult& result);

}  // namespace varve::prune
