#pragma once
// A destination that keeps no blob: for writing an image only to learn its digest.
#include <map>
#include <set>

#include "core/base/threads/guarded.h"
#include "core/oci/repository.h"

namespace varve::oci {

// Has the blobs that it is told it has, and any blob that was put, by digest; none can be read. Manifests are kept.
// Safe to use from any thread.
class DiscardingRepository final : public Repository {
 public:
  explicit DiscardingRepository(std::set<Digest> has);

  std::string name() const override { return "nowhere"; }
  // Of what was put here. Throws NotFound.
  Document manifest(std::string_view digest) override;
  void read_blob(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) override;  // throws NotFound
  bool has_blob(const Descriptor& blob) override;
  // Reads all of it, and checks its size.
  void put_blob(const Descriptor& blob, const ByteSource& content) override;
  std::unique_ptr<BlobDraft> draft_blob(const std::filesystem::path& scratch_dir) override;
  Descriptor put_manifest(ByteView json, std::string_view media_type, std::string_view tag) override;
  std::vector<Descriptor> referrers(const Digest&, std::string_view) override { return {}; }

 private:
  Guarded<std::set<Digest>> has_;
  Guarded<std::map<Digest, Document>> manifests_;
};

}  // namespace varve::oci
