#pragma once
// The sigstore bundle v0.3 with a key: an in-toto statement in a DSSE envelope, found as a referrer of what it is
// about. Byte tables: docs/formats/signatures.md.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/oci/descriptor.h"
#include "core/oci/repository.h"
#include "core/trust/private_key.h"
#include "core/trust/public_key.h"

namespace varve::trust {

inline constexpr std::string_view kBundleType = "application/vnd.dev.sigstore.bundle.v0.3+json";
inline constexpr std::string_view kSignPredicate = "https://sigstore.dev/cosign/sign/v1";
inline constexpr std::uint64_t kMaxBundleBytes = 256 * 1024;
inline constexpr std::size_t kMaxBundleCandidates =
    64;  // manifests that are looked at, of whatever refers to one subject

struct Bundle {
  std::string hint;  // the fingerprint of the key, by its own word
  Bytes payload;     // the statement
  Bytes signature;

  // A bundle whose content is a DSSE envelope with one signature. Throws CorruptData, Unsupported (other content, other
  // versions).
  static Bundle parse(ByteView json, std::string_view what);
  // A statement that `manifest` is signed.
  static Bundle make(const Digest& manifest, const PrivateKey& key);
  std::string to_json() const;

  // Whether `key` has signed the envelope and it states that just this manifest is signed. A statement of another kind
  // (an SBOM by the same key) is none.
  bool vouches_for(const Digest& manifest, const PublicKey& key) const;
};

// Bundles that refer to a manifest; those that cannot be read are counted in `unreadable` and passed over. Whatever
// refers to it is looked at, since cosign 2.5 lists its bundles in registries under another type. Throws TemporaryError
// and what else the repository throws, but for NotFound.
struct FoundBundles {
  std::vector<Bundle> bundles;
  std::size_t unreadable = 0;
};
FoundBundles find_bundles(oci::Repository& repository, const Digest& manifest);

// Where those bundles lie, there or not; what names none is passed over.
std::vector<oci::Descriptor> bundle_blobs(oci::Repository& repository, const Digest& manifest);

// Puts the bundle as a referrer of `subject`. Returns its manifest.
oci::Descriptor put_bundle(oci::Repository& repository, const oci::Descriptor& subject, const Bundle& bundle);

}  // namespace varve::trust
