#pragma once
// A repository of a registry (distribution-spec v1.1). What it does in which case: docs/design/registry.md.
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/oci/repository.h"

namespace varve::oci {

// What a registry was asked for so far.
struct RegistryStats {
  std::uint64_t requests = 0;        // to the registry and its storage; those to token servers are not counted
  std::uint64_t received_bytes = 0;  // of blobs, skipped ones included
  std::uint64_t retries = 0;
  std::uint64_t redirects = 0;
  std::uint64_t relocations = 0;     // storage URLs that had expired and were resolved again
  std::uint64_t ranges_ignored = 0;  // range requests answered with the whole blob
  std::uint64_t skipped_bytes = 0;   // received in front of a range for that reason
  std::uint64_t tokens = 0;          // fetched from the token server
};

namespace internal {
struct FirstAnswerWait;
struct Source;
}  // namespace internal

// A range was asked for, and the whole blob came; nothing of it was handed on.
class RangesNotServed : public TemporaryError {
 public:
  using TemporaryError::TemporaryError;
};

class RegistryRepository final : public Repository {
 public:
  // The registry that the reference names, whatever its mirrors. No request is made yet. `clock` must outlive it.
  RegistryRepository(const Reference& reference, const RegistryOptions& options, Clock& clock = Clock::system());
  // A repository where it is served.
  RegistryRepository(const internal::Source& source, const RegistryOptions& options, Clock& clock,
                     const internal::FirstAnswerWait& first_answer);
  ~RegistryRepository() override;

  std::string name() const override;
  std::string origin() const override;
  Document manifest(std::string_view selector) override;
  void read_blob(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) override;
  // The same for who can ask elsewhere: throws RangesNotServed rather than read on for a range, and takes the first
  // answer that is not what was asked for as final.
  void read_blob_or_refuse(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink);
  void expect_reads() override;
  bool serves_ranges() const override;
  bool has_blob(const Descriptor& blob) override;
  void put_blob(const Descriptor& blob, const ByteSource& content) override;
  Descriptor put_manifest(ByteView json, std::string_view media_type, std::string_view tag) override;
  std::vector<Descriptor> referrers(const Digest& subject, std::string_view artifact_type) override;
  Descriptor put_part_manifest(ByteView json, std::string_view media_type, const Digest& whole) override;
  std::vector<Descriptor> part_referrers(const Digest& part, const Digest& whole,
                                         std::string_view artifact_type) override;

  // Blobs pushed from now on are first looked for in this repository of the same registry, and mounted from there
  // without being sent. Set it before the repository is shared between threads.
  void set_mount_source(std::string repository);
  RegistryStats stats() const;

 private:
  // `whole`: the manifest under whose tag it is listed where its subject is a part of that.
  Descriptor put_and_list(ByteView json, std::string_view media_type, std::string_view tag, const Digest* whole);

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace varve::oci
