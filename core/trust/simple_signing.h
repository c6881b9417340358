#pragma once
// cosign's first scheme: a small JSON document that names a manifest and a repository, and signatures of its exact
// bytes as the layers of an image under the tag "sha256-HEX.sig". Byte tables: docs/formats/signatures.md.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/oci/descriptor.h"
#include "core/oci/repository.h"

namespace varve::trust {

inline constexpr std::string_view kSimpleSigningType = "application/vnd.dev.cosign.simplesigning.v1+json";
inline constexpr std::string_view kSignatureAnnotation = "dev.cosignproject.cosign/signature";
inline constexpr std::uint64_t kMaxPayloadBytes = 64 * 1024;
inline constexpr std::size_t kMaxSignatures = 64;  // of one manifest; what is beyond is not looked at

// What is signed.
struct SignedPayload {
  std::string docker_reference;  // as it stands there: a name, with a tag or a digest or neither
  Digest manifest;

  // As strict as containers/image: no unknown member, none twice, none missing; anything in "optional" but a "creator"
  // that is no string or a "timestamp" that is no whole number. Throws CorruptData, Unsupported.
  static SignedPayload parse(ByteView json, std::string_view what);
  // Deterministic for its arguments; `timestamp` in seconds since 1970.
  std::string to_json(std::string_view creator, std::int64_t timestamp) const;
};

// A payload and one signature of it, neither checked.
struct SimpleSignature {
  Bytes payload;
  Bytes signature;
};

// "sha256-HEX.sig".
std::string signature_tag(const Digest& manifest);

// Signatures of a manifest that lie in the repository, at most kMaxSignatures; those that cannot be read are counted in
// `unreadable` and passed over. Two requests and one for each further payload. Empty if there is none. Throws
// TemporaryError and what else the repository throws, but for NotFound.
struct FoundSimpleSignatures {
  std::vector<SimpleSignature> signatures;
  std::size_t unreadable = 0;
};
FoundSimpleSignatures find_simple_signatures(oci::Repository& repository, const Digest& manifest);

// The payloads of those signatures as the manifest under the tag names them, there or not: one for each signature, so
// that a payload that several keys signed is named several times. Throws CorruptData for a tag that is no such
// manifest.
std::vector<oci::Descriptor> simple_signature_blobs(oci::Repository& repository, const Digest& manifest);

// Puts a signature beside those that are there, which stay as they are; one that is there already is not put again.
// Returns the manifest under the tag. Two writers at the same time: the last one wins, as with cosign and skopeo; tries
// again until its own is there, then throws TemporaryError.
oci::Descriptor add_simple_signature(oci::Repository& repository, const Digest& manifest, const SimpleSignature& added);

}  // namespace varve::trust
