#pragma once
// A repository in front of another: a test, or a benchmark, says of one call what is different there.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/oci/repository.h"

namespace varve::test {

// Safe to use from any thread if the other is.
class ForwardingRepository : public oci::Repository {
 public:
  explicit ForwardingRepository(std::shared_ptr<oci::Repository> real) : real_(std::move(real)) {}

  std::string name() const override { return real_->name(); }
  oci::Document manifest(std::string_view selector) override { return real_->manifest(selector); }
  void read_blob(const oci::Descriptor& blob, ByteRange range, const oci::ByteSink& sink) override {
    real_->read_blob(blob, range, sink);
  }
  bool has_blob(const oci::Descriptor& blob) override { return real_->has_blob(blob); }
  void put_blob(const oci::Descriptor& blob, const oci::ByteSource& content) override {
    real_->put_blob(blob, content);
  }
  std::unique_ptr<oci::BlobDraft> draft_blob(const std::filesystem::path& scratch_dir) override {
    return real_->draft_blob(scratch_dir);
  }
  oci::Descriptor put_manifest(ByteView json, std::string_view media_type, std::string_view tag) override {
    return real_->put_manifest(json, media_type, tag);
  }
  std::vector<oci::Descriptor> referrers(const Digest& subject, std::string_view artifact_type) override {
    return real_->referrers(subject, artifact_type);
  }

 protected:
  const std::shared_ptr<oci::Repository> real_;
};

}  // namespace varve::test
