#include "core/trust/sign.h"

#include <algorithm>
#include <ctime>

#include "core/base/errors.h"
#include "core/trust/bundle.h"
#include "core/trust/docker_name.h"
#include "core/trust/simple_signing.h"
#include "core/trust/tool_version.h"

namespace varve::trust {
namespace {

bool is_same(const SimpleSignature& signature, const oci::Descriptor& manifest, const std::string& docker_reference,
             const PublicKey& key) {
  if (!key.verify(signature.payload, signature.signature)) return false;
  try {
    const auto payload = SignedPayload::parse(signature.payload, "payload");
    return payload.manifest == manifest.digest && payload.docker_reference == docker_reference;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string identity_of(const oci::Repository& repository) {
  const auto name = repository.name();
  return DockerName::parse(name) ? name : std::string(kLayoutIdentity);
}

bool sign_manifest(oci::Repository& repository, const oci::Descriptor& manifest, const std::string& docker_reference,
                   const Signer& signer) {
  const auto key = signer.key.public_key();
  bool done = false;
  const auto there = find_simple_signatures(repository, manifest.digest).signatures;
  if (std::ranges::none_of(there,
                           [&](const SimpleSignature& one) { return is_same(one, manifest, docker_reference, key); })) {
    const SignedPayload payload{.docker_reference = docker_reference, .manifest = manifest.digest};
    const auto text = payload.to_json(this_tool(), std::time(nullptr));
    add_simple_signature(repository, manifest.digest,
                         {.payload = to_bytes(as_bytes(text)), .signature = signer.key.sign(as_bytes(text))});
    done = true;
  }
  if (!signer.bundle) return done;
  const auto bundles = find_bundles(repository, manifest.digest).bundles;
  if (std::ranges::any_of(bundles, [&](const Bundle& bundle) { return bundle.vouches_for(manifest.digest, key); }))
    return done;
  put_bundle(repository, manifest, Bundle::make(manifest.digest, signer.key));
  return true;
}

std::vector<oci::Descriptor> signature_blobs(oci::Repository& repository, const Digest& manifest) {
  auto blobs = simple_signature_blobs(repository, manifest);
  std::ranges::move(bundle_blobs(repository, manifest), std::back_inserter(blobs));
  std::ranges::sort(blobs, {}, &oci::Descriptor::digest);
  return blobs;
}

std::size_t copy_signatures(oci::Repository& from, oci::Repository& to, const oci::Descriptor& manifest) {
  const auto simple = find_simple_signatures(from, manifest.digest).signatures;
  for (const auto& signature : simple) add_simple_signature(to, manifest.digest, signature);
  const auto bundles = find_bundles(from, manifest.digest).bundles;
  for (const auto& bundle : bundles) put_bundle(to, manifest, bundle);
  return simple.size() + bundles.size();
}

}  // namespace varve::trust
