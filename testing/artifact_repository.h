#pragma once
// A repository in memory for tests of artifacts: manifests, referrers, and blobs that can be broken. Reading is safe
// from any thread, changing it is not.
#include <algorithm>
#include <map>
#include <vector>

#include "core/base/errors.h"
#include "core/oci/manifest.h"
#include "core/oci/repository.h"

namespace varve::test {

class ArtifactRepository final : public oci::Repository {
 public:
  explicit ArtifactRepository(std::string name = "memory:test") : name_(std::move(name)) {}
  std::string name() const override { return name_; }

  oci::Document manifest(std::string_view selector) override {
    const auto found = manifests_.find(Digest::parse(selector));
    if (found == manifests_.end()) fail<NotFound>("manifest {}", selector);
    return found->second;
  }
  void read_blob(const oci::Descriptor& blob, ByteRange range, const oci::ByteSink& sink) override {
    const auto found = blobs_.find(blob.digest);
    if (found == blobs_.end()) fail<NotFound>("blob {}", blob.digest.to_string());
    if (!range.fits_in(found->second.size())) fail<CorruptData>("blob {} is shorter", blob.digest.to_string());
    if (range == ByteRange{0, blob.size} && digest_of(found->second) != blob.digest)
      fail<CorruptData>("blob {} is broken", blob.digest.to_string());
    sink(ByteView(found->second).subspan(range.offset, range.length));
  }
  bool has_blob(const oci::Descriptor& blob) override { return blobs_.contains(blob.digest); }
  void put_blob(const oci::Descriptor& blob, const oci::ByteSource& content) override {
    Bytes bytes;
    content({0, blob.size}, [&](ByteView piece) { append(bytes, piece); });
    blobs_[blob.digest] = std::move(bytes);
  }
  oci::Descriptor put_manifest(ByteView json, std::string_view media_type, std::string_view) override {
    oci::Document document;
    document.descriptor.media_type = media_type;
    document.descriptor.digest = digest_of(json);
    document.descriptor.size = json.size();
    document.bytes = to_bytes(json);
    manifests_[document.descriptor.digest] = document;
    return document.descriptor;
  }
  std::vector<oci::Descriptor> referrers(const Digest& subject, std::string_view artifact_type) override {
    std::vector<oci::Descriptor> found;
    for (const auto& [digest, document] : manifests_) {
      const auto manifest = oci::Manifest::parse(document.bytes, document.descriptor.media_type, "manifest");
      if (!manifest.subject || manifest.subject->digest != subject || manifest.artifact_type != artifact_type) continue;
      found.push_back(document.descriptor);
      found.back().annotations = manifest.annotations;
    }
    std::ranges::reverse(found);  // in no particular order
    return found;
  }

  oci::Descriptor add_blob(ByteView bytes) {
    oci::Descriptor blob;
    blob.digest = digest_of(bytes);
    blob.size = bytes.size();
    blobs_[blob.digest] = to_bytes(bytes);
    return blob;
  }
  Bytes& blob(const Digest& digest) { return blobs_.at(digest); }
  void forget_blob(const Digest& digest) { blobs_.erase(digest); }

 private:
  const std::string name_;
  std::map<Digest, Bytes> blobs_;
  std::map<Digest, oci::Document> manifests_;
};

}  // namespace varve::test
