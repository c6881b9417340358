#pragma once
#include <atomic>
#include <string_view>
#include <vector>

#include "core/oci/internal/manifest_client.h"

namespace varve::oci::internal {

// Who refers to a manifest: the referrers API where the registry has it, else an index under a tag made of the
// subject's digest (distribution-spec, "Listing Referrers", "Referrers Tag Schema"). Safe to use from any thread.
class Referrers {
 public:
  Referrers(RegistryEndpoint& endpoint, ManifestClient& manifests, bool use_api)
      : endpoint_(endpoint), manifests_(manifests), use_api_(use_api) {}

  // `whole`: the image that the subject is a part (a layer) of, if it is one. Without the API those of parts are listed
  // under the image's tag, each with the part's digest in an annotation of its entry.
  std::vector<Descriptor> list(const Digest& subject, const Digest* whole, std::string_view artifact_type);
  // Puts a manifest that was pushed without the registry noticing its subject into the index under the tag. What others
  // add at the same time is kept: the list is read again after it was written.
  void add(const Digest& subject, const Descriptor& referrer);
  // The same under the tag of `whole`.
  void add_part(const Digest& part, const Digest& whole, Descriptor referrer);

 private:
  struct Answer;
  Answer ask_api(const Digest& subject, std::string_view artifact_type);
  // Of the list under the tag of `tagged`, those about `part`; about `tagged` itself if that is null.
  std::vector<Descriptor> list_tag(const Digest& tagged, const Digest* part, std::string_view artifact_type);

  RegistryEndpoint& endpoint_;
  ManifestClient& manifests_;
  bool use_api_;
};

// "sha256-<hex>".
std::string referrers_tag(const Digest& subject);

}  // namespace varve::oci::internal
