#include "core/oci/registry_repository.h"

#include "core/base/errors.h"
#include "core/oci/internal/blob_reader.h"
#include "core/oci/internal/blob_writer.h"
#include "core/oci/internal/manifest_client.h"
#include "core/oci/internal/referrers.h"
#include "core/oci/manifest.h"

namespace varve::oci {

struct RegistryRepository::Parts {
  Parts(const internal::Source& source, const RegistryOptions& options, Clock& clock,
        const internal::FirstAnswerWait& first_answer)
      : name(source.name()),
        endpoint(source, options, clock, first_answer),
        manifests(endpoint),
        reader(endpoint),
        writer(endpoint, options.upload_chunk_bytes),
        referrers(endpoint, manifests, options.referrers_api),
        use_referrers_api(options.referrers_api) {}

  std::string name;
  internal::RegistryEndpoint endpoint;
  internal::ManifestClient manifests;
  internal::BlobReader reader;
  internal::BlobWriter writer;
  internal::Referrers referrers;
  bool use_referrers_api;
  std::string mount_source;
};

namespace {

// Beside the one that asks what a tag names. Of what a mount loads first these are the large blobs: the others come
// beside them, over connections of their own, before these have.
constexpr std::size_t kConnectionsAhead = 4;

// Errors leave this room with the repository's name in front and of a type that is known outside.
template <typename Operation>
decltype(auto) named(const std::string& name, Operation&& operation) {
  try {
    return operation();
  } catch (const internal::TransportError& error) {
    fail<TemporaryError>("{}: {}", name, error.what());
  }
}

}  // namespace

RegistryRepository::RegistryRepository(const Reference& reference, const RegistryOptions& options, Clock& clock)
    : RegistryRepository(internal::own_source(reference, options.plain_http), options, clock, {}) {}
RegistryRepository::RegistryRepository(const internal::Source& source, const RegistryOptions& options, Clock& clock,
                                       const internal::FirstAnswerWait& first_answer)
    : parts_(std::make_unique<Parts>(source, options, clock, first_answer)) {}
RegistryRepository::~RegistryRepository() = default;

std::string RegistryRepository::name() const { return parts_->name; }
std::string RegistryRepository::origin() const { return parts_->name.substr(0, parts_->name.find('/')); }

Document RegistryRepository::manifest(std::string_view selector) {
  return named(parts_->name, [&] {
    auto document = parts_->manifests.find(selector);
    if (!document) fail<NotFound>("{}: no manifest '{}'", parts_->name, selector);
    return std::move(*document);
  });
}

void RegistryRepository::read_blob(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) {
  named(parts_->name, [&] { parts_->reader.read(blob, compressed_range, sink); });
}

void RegistryRepository::read_blob_or_refuse(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) {
  named(parts_->name,
        [&] { parts_->reader.read(blob, compressed_range, sink, internal::BlobReader::WholeForRange::kRefuse); });
}

void RegistryRepository::expect_reads() { parts_->endpoint.open_connections(kConnectionsAhead); }

bool RegistryRepository::serves_ranges() const { return parts_->reader.serves_ranges(); }

bool RegistryRepository::has_blob(const Descriptor& blob) {
  return named(parts_->name, [&] { return parts_->writer.exists(blob, parts_->endpoint.pull_scope()); });
}

void RegistryRepository::put_blob(const Descriptor& blob, const ByteSource& content) {
  named(parts_->name, [&] { parts_->writer.put(blob, content, parts_->mount_source); });
}

Descriptor RegistryRepository::put_manifest(ByteView json, std::string_view media_type, std::string_view tag) {
  return put_and_list(json, media_type, tag, nullptr);
}

Descriptor RegistryRepository::put_part_manifest(ByteView json, std::string_view media_type, const Digest& whole) {
  return put_and_list(json, media_type, "", &whole);
}

Descriptor RegistryRepository::put_and_list(ByteView json, std::string_view media_type, std::string_view tag,
                                            const Digest* whole) {
  return named(parts_->name, [&] {
    const auto what = fmt::format("{}: manifest {}", parts_->name, digest_of(json).to_string());
    std::optional<Digest> subject;
    Descriptor referrer;
    if (is_index_media_type(media_type)) {
      ImageIndex::parse(json, what);
    } else {
      auto manifest = Manifest::parse(json, media_type, what);
      if (manifest.subject) subject = manifest.subject->digest;
      referrer.artifact_type = manifest.artifact_type.empty() ? manifest.config.media_type : manifest.artifact_type;
      referrer.annotations = std::move(manifest.annotations);
    }
    const auto put = parts_->manifests.put(json, media_type, tag, "");
    referrer.media_type = put.descriptor.media_type;
    referrer.digest = put.descriptor.digest;
    referrer.size = put.descriptor.size;
    if (subject && (!put.lists_subject || !parts_->use_referrers_api)) {
      if (whole != nullptr) {
        parts_->referrers.add_part(*subject, *whole, referrer);
      } else {
        parts_->referrers.add(*subject, referrer);
      }
    }
    return put.descriptor;
  });
}

std::vector<Descriptor> RegistryRepository::referrers(const Digest& subject, std::string_view artifact_type) {
  return named(parts_->name, [&] { return parts_->referrers.list(subject, nullptr, artifact_type); });
}

std::vector<Descriptor> RegistryRepository::part_referrers(const Digest& part, const Digest& whole,
                                                           std::string_view artifact_type) {
  return named(parts_->name, [&] { return parts_->referrers.list(part, &whole, artifact_type); });
}

void RegistryRepository::set_mount_source(std::string repository) { parts_->mount_source = std::move(repository); }

RegistryStats RegistryRepository::stats() const {
  const auto& counters = parts_->endpoint.counters();
  return {.requests = counters.requests,
          .received_bytes = counters.received_bytes,
          .retries = counters.retries,
          .redirects = counters.redirects,
          .relocations = counters.relocations,
          .ranges_ignored = counters.ranges_ignored,
          .skipped_bytes = counters.skipped_bytes,
          .tokens = parts_->endpoint.tokens_fetched()};
}

}  // namespace varve::oci
