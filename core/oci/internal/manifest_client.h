#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/base/threads/guarded.h"
#include "core/oci/internal/registry_endpoint.h"

namespace varve::oci::internal {

// Manifests and indexes of one repository, by tag or digest. Each is fetched once and kept under its digest: registries
// count these requests. Safe to use from any thread.
class ManifestClient {
 public:
  explicit ManifestClient(RegistryEndpoint& endpoint) : endpoint_(endpoint) {}

  // Absent if the registry does not know it.
  std::optional<Document> find(std::string_view selector);
  // The document a tag names right now, with the ETag to replace it by; never from memory.
  struct Tagged {
    Document document;
    std::string etag;  // "" if there was none
  };
  std::optional<Tagged> find_tagged(const std::string& tag);

  struct Put {
    Descriptor descriptor;
    bool lists_subject = false;  // the registry keeps the list of referrers itself (OCI-Subject)
    bool overtaken = false;      // If-Match did not match: somebody else was faster, nothing was stored
  };
  // `reference`: a tag, or "" for the digest. `if_match`: an ETag or "".
  Put put(ByteView json, std::string_view media_type, std::string_view reference, const std::string& if_match);

 private:
  std::optional<Tagged> fetch(const std::string& reference, const std::optional<Digest>& expected);
  std::optional<Digest> digest_of_tag(const std::string& tag);
  std::optional<Document> remembered(const Digest& digest);
  void remember(const Document& document, const std::string& tag);

  RegistryEndpoint& endpoint_;
  struct Known {
    std::map<Digest, Document> documents;
    std::set<std::string> tags;  // that named one of them
  };
  Guarded<Known> known_;
};

}  // namespace varve::oci::internal
