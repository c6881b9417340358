#pragma once
// Signs manifests beside where they lie.
#include <string>

#include "core/oci/descriptor.h"
#include "core/oci/repository.h"
#include "core/trust/private_key.h"

namespace varve::trust {

// What signatures made in a layout folder are for, unless somebody says better: a folder has no name that others know.
inline constexpr std::string_view kLayoutIdentity = "localhost/oci-layout";

struct Signer {
  const PrivateKey& key;
  bool bundle = false;  // also as a sigstore bundle
};

// The name that a signature is for: that of a registry's repository, kLayoutIdentity for a folder.
std::string identity_of(const oci::Repository& repository);

// Signs a manifest of the repository as `docker_reference` ("registry.example/team/app@sha256:…"), in cosign's tag
// scheme and, if asked for, as a bundle. What this key has signed so before is not signed again, so that signatures do
// not pile up. False if nothing was to be done.
bool sign_manifest(oci::Repository& repository, const oci::Descriptor& manifest, const std::string& docker_reference,
                   const Signer& signer);

// The blobs that hold signatures of `manifest`, there or not, in both forms; by digest. One is named as often as keys
// have signed it. Throws CorruptData for signatures that no reader can find a beginning of.
std::vector<oci::Descriptor> signature_blobs(oci::Repository& repository, const Digest& manifest);

// The signatures of `manifest` that lie in `from` go along to `to`. Returns how many.
std::size_t copy_signatures(oci::Repository& from, oci::Repository& to, const oci::Descriptor& manifest);

}  // namespace varve::trust
