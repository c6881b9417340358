#pragma once
// One repository of manifests and blobs: an OCI layout folder or a registry repository behind one interface.
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/files/late_sync.h"
#include "core/base/threads/cancel.h"
#include "core/oci/descriptor.h"
#include "core/oci/known_hosts.h"
#include "core/oci/mirror_settings.h"
#include "core/oci/reference.h"

namespace varve::oci {

// A manifest or index with the exact bytes that its digest names (already checked).
struct Document {
  Descriptor descriptor;  // media type, digest, size
  Bytes bytes;
};

// Takes the next bytes of a blob, in order. May throw to stop the transfer; what it throws reaches the caller of
// read_blob.
using ByteSink = std::function<void(ByteView)>;
// Gives the bytes [offset, offset+length) of what is being pushed; may be asked again for the same range when a push is
// retried.
using ByteSource = std::function<void(ByteRange, const ByteSink&)>;

// A blob that is written before its digest is known. Dropped before commit() it leaves nothing behind. Not shared
// between threads.
class BlobDraft {
 public:
  virtual ~BlobDraft() = default;
  virtual void write(ByteView bytes) = 0;
  // Makes it a blob of the repository, whole or not at all. The caller vouches for the digest: it has seen all bytes go
  // by. Returns false if the repository had it. Throws CorruptData if another number of bytes was written.
  virtual bool commit(const Descriptor& blob) = 0;
};

// One of the places that serve a repository: its own registry, or a mirror of it. A snapshot.
struct SourceStatus {
  std::string host;            // "cache.example:5000"
  bool mirror = false;         // else the registry that the image's name names
  std::string state = "good";  // "resting": failed, and is asked again by itself after a while
  std::uint64_t bytes = 0;     // of blobs, handed to readers since the repository was opened
  std::uint64_t failures = 0;  // requests that failed, absent blobs not counted
  std::uint64_t wrong = 0;     // of those, for bytes that were not the blob's
  std::string last_error;      // "" = none
};

// Safe to use from any thread. Errors: NotFound (manifest or blob is not there), CorruptData (digest, size or form is
// wrong), TemporaryError (still failing after the retries), Error with the registry's final answer (denied, refused).
class Repository {
 public:
  virtual ~Repository() = default;

  // For messages and status: "oci:/srv/image" or "registry.example/team/app". Holds no credentials.
  virtual std::string name() const = 0;
  // Who answers: a registry's host and port. What is silent there is silent for all of its repositories.
  virtual std::string origin() const { return name(); }
  // True for files of this machine, which need no network.
  virtual bool is_local() const { return false; }

  // By tag, or by digest ("sha256:..."). "" in a layout folder means its only image (our own artifacts are not
  // counted).
  virtual Document manifest(std::string_view selector) = 0;

  // Reads a range of a blob as stored (compressed side). The digest of a part cannot be checked here: callers check
  // what they get against the index. A read of the whole blob (range == 0..size) is checked and throws CorruptData
  // after the last byte.
  virtual void read_blob(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) = 0;

  // Several blobs are about to be read at once: connections for that are opened meanwhile, as they take round trips.
  // Returns at once, and what fails is not told: the reads say so.
  virtual void expect_reads() {}

  // False once the server has answered a range request with the whole blob. From then on a range costs all bytes in
  // front of it as well: who needs many ranges of a large blob does better to read it once, whole.
  virtual bool serves_ranges() const { return true; }

  // What read_blob gave of that range was found to be wrong: where the repository has several sources, the one that
  // gave it is asked last for the blob from now on. `why` is logged.
  virtual void note_wrong_bytes(const Descriptor& /*blob*/, ByteRange /*compressed_range*/,
                                const std::string& /*why*/) {}
  // How many sources may have a copy each; a wrong copy is worth so many further tries.
  virtual unsigned source_count() const { return 1; }
  // In the order in which they are asked; empty for what is no registry.
  virtual std::vector<SourceStatus> sources() const { return {}; }
  // Of the bytes of this blob that were read, those that a mirror gave.
  virtual std::uint64_t mirror_bytes(const Digest& /*blob*/) const { return 0; }

  // What was made for other tools to read: putting something there throws Unsupported.
  virtual bool is_read_only() const { return false; }

  virtual bool has_blob(const Descriptor& blob) = 0;
  // Uploads a blob unless it is there already. Visible whole or not at all; its digest is checked on the way.
  virtual void put_blob(const Descriptor& blob, const ByteSource& content) = 0;
  // Where the repository keeps blobs, if that is a folder of this machine; else in `scratch_dir` until it is whole and
  // sent.
  virtual std::unique_ptr<BlobDraft> draft_blob(const std::filesystem::path& scratch_dir);
  // Puts a manifest under its digest (and `tag` if not empty). If it has a subject, referrers() of the subject will
  // list it, by the referrers API or, where the registry lacks it, by the tag fallback (distribution-spec, "Referrers
  // Tag Schema").
  virtual Descriptor put_manifest(ByteView json, std::string_view media_type, std::string_view tag) = 0;

  // Manifests whose subject is `subject`, with that artifact type; in no particular order. Empty if none.
  virtual std::vector<Descriptor> referrers(const Digest& subject, std::string_view artifact_type) = 0;

  // The same for a manifest about a part (a layer) of the image `whole`. A registry without the referrers API lists it
  // under the image's tag, so that an image has one such tag however many layers it has.
  virtual Descriptor put_part_manifest(ByteView json, std::string_view media_type, const Digest& /*whole*/) {
    return put_manifest(json, media_type, "");
  }
  // referrers() of a part, those included that were put as about a part of `whole`.
  virtual std::vector<Descriptor> part_referrers(const Digest& part, const Digest& /*whole*/,
                                                 std::string_view artifact_type) {
    return referrers(part, artifact_type);
  }
};

// Told, by any thread, what went wrong at a registry or mirror: `host` is the one that was asked.
class SourceWatch {
 public:
  enum class Failure : std::uint8_t { kTemporary, kRefused, kWrongBytes };
  virtual ~SourceWatch() = default;
  virtual void failed(const std::string& host, Failure failure) noexcept = 0;
};

namespace internal {
class CredentialProviders;
}
// Credential provider plugins, as the kubelet is told of them (--image-credential-provider-config and -bin-dir).
struct CredentialProviderSettings {
  std::filesystem::path config;   // CredentialProviderConfig, JSON or YAML
  std::filesystem::path bin_dir;  // of the programs that it names
};
// For RegistryOptions. What plugins say is kept in it, in memory alone. The file is read when a plugin is needed.
std::shared_ptr<internal::CredentialProviders> open_credential_providers(const CredentialProviderSettings& settings);

// A mirror that never answered in this process is waited for so long where somebody else can be asked.
inline constexpr int kFirstAnswerMs = 200;

struct RegistryOptions {
  std::filesystem::path authfile;  // --authfile; "" = the usual places (CLI.md)
  std::filesystem::path ca_file;   // "" = the system's
  bool plain_http = false;         // loopback hosts may always use it
  int max_attempts = 6;            // of one request, with back-off
  int connect_timeout_ms = 10'000;
  int stall_timeout_ms = 20'000;         // less than 1 KiB/s for so long = broken transfer, tried again
  int first_answer_ms = kFirstAnswerMs;  // of this process: not handed to others
  std::uint64_t upload_chunk_bytes = 0;  // 0 = monolithic; else PATCH chunks
  bool referrers_api = true;             // false: use the tag fallback only
  // Further repositories where indexes of images lie (core/index), as users name them; asked after the image's own.
  std::vector<std::string> index_from = {};
  MirrorSettings mirrors = {};
  // What is known of hosts, shared by all repositories that are opened with it; null: each finds out itself.
  std::shared_ptr<KnownHosts> known_hosts = {};
  // Once it is set, what waits for a registry ends with Cancelled within a second or so; null = nothing ends it. It
  // outlives all repositories.
  const CancelFlag* cancel = nullptr;
  std::shared_ptr<SourceWatch> watch = nullptr;  // null = nobody wants to know
  // Asked for registries that no file of credentials knows; null = none. Of this process: not handed to others.
  std::shared_ptr<internal::CredentialProviders> credential_providers = {};
};

// Opens what the reference names; a registry with its mirrors. Throws UsageError or NotFound for a layout folder that
// is none, naming what is missing, and UsageError naming file and line for a file of mirrors that cannot be read.
std::shared_ptr<Repository> open_repository(const Reference& reference, const RegistryOptions& options);

// Loads what talks to registries (10 ms), for who will do so soon and has nothing else to do. Safe from any thread.
void prepare_for_registries() noexcept;
// Makes an empty OCI layout folder if there is none, then opens it (layout.h says what `later` is for).
std::shared_ptr<Repository> create_layout(const std::filesystem::path& dir, std::shared_ptr<LateSync> later = nullptr);

// Reads a whole blob into memory, digest checked. Throws Unsupported above `limit_bytes`.
Bytes read_whole_blob(Repository& repository, const Descriptor& blob, std::uint64_t limit_bytes);
// Pushes a blob that is in memory; where its descriptor is known it need not be found again.
void put_bytes(Repository& repository, const Descriptor& blob, ByteView content);
Descriptor put_bytes(Repository& repository, ByteView content, std::string_view media_type);

}  // namespace varve::oci
