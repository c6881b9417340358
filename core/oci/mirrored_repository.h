#pragma once
// A repository of a registry with its mirrors (docs/design/registry.md, "Mirrors"): what one source cannot give comes
// from the next.
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/oci/repository.h"

namespace varve::oci {

// Its name is that of the image's own registry, wherever the bytes come from. Content by digest is read from any
// source, tags and referrers from those that may say them; what is put goes to the registry itself. Files that name
// mirrors are looked at again while it is open.
class MirroredRepository final : public Repository {
 public:
  // No request is made yet. Throws UsageError for a file of mirrors that cannot be read. `clock` must outlive it.
  MirroredRepository(const Reference& reference, const RegistryOptions& options, Clock& clock = Clock::system());
  ~MirroredRepository() override;  // waits for a probe of a mirror that is under way, a second or so

  std::string name() const override;
  std::string origin() const override;
  Document manifest(std::string_view selector) override;
  void read_blob(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) override;
  void expect_reads() override;
  bool serves_ranges() const override;
  void note_wrong_bytes(const Descriptor& blob, ByteRange compressed_range, const std::string& why) override;
  unsigned source_count() const override;
  std::vector<SourceStatus> sources() const override;
  std::uint64_t mirror_bytes(const Digest& blob) const override;
  bool has_blob(const Descriptor& blob) override;
  void put_blob(const Descriptor& blob, const ByteSource& content) override;
  Descriptor put_manifest(ByteView json, std::string_view media_type, std::string_view tag) override;
  std::vector<Descriptor> referrers(const Digest& subject, std::string_view artifact_type) override;
  Descriptor put_part_manifest(ByteView json, std::string_view media_type, const Digest& whole) override;
  std::vector<Descriptor> part_referrers(const Digest& part, const Digest& whole,
                                         std::string_view artifact_type) override;

 private:
  // `whole`: the image that `subject` is a part of; null if it is none.
  std::vector<Descriptor> list_referrers(const Digest& subject, const Digest* whole, std::string_view artifact_type);

  struct Member;
  struct Parts;
  class BlobTransfer;
  std::unique_ptr<Parts> parts_;
};

}  // namespace varve::oci
