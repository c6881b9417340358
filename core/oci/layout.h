#pragma once
// An OCI layout folder (OCI image-spec image-layout.md) as a repository; also folders that other tools wrote.
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/base/files/late_sync.h"
#include "core/base/files/unique_fd.h"
#include "core/base/text/json_document.h"
#include "core/base/threads/guarded.h"
#include "core/oci/manifest.h"
#include "core/oci/repository.h"

namespace varve::oci {

// The tag of the list of pinned images (indexer/pins.h), which is an index but no image.
inline constexpr std::string_view kPinsTag = "varve-pins";
// What lay in the list's place when it was written anew; a number follows where several did.
inline constexpr std::string_view kReplacedPinsTag = "varve-pins-replaced";
// What Varve and other tools keep under such a tag, in words; "" = nothing: it may be an image's. Also of whole names.
std::string_view use_of_tag(std::string_view tag);

inline constexpr std::uint64_t kMaxIndexJsonBytes = 16 * 1024 * 1024;  // thousands of artifacts beside 150 images

// The names that entries of index.json carry: the OCI image spec's (image-layout.md), and containerd's.
inline constexpr std::string_view kRefNameAnnotation = "org.opencontainers.image.ref.name";
inline constexpr std::string_view kContainerdNameAnnotation = "io.containerd.image.name";
// And that of artifacts which we put there: the digest of what they belong to, "" if that is nothing. A hint: what the
// manifest says counts.
inline constexpr std::string_view kSubjectAnnotation = "dev.varve.subject";

// The manifest that a tag is about, if it is made of a digest: a list of referrers (distribution-spec, "Referrers Tag
// Schema"), or what cosign attaches
// ("sha256-HEX.sig", ".att", ".sbom"). What carries such a tag is no image.
std::optional<Digest> tag_subject(std::string_view tag);

// Keeps other processes that put manifests into a layout folder, or collect its garbage, waiting until it is closed.
UniqueFd lock_layout(const std::filesystem::path& dir);

// Takes these manifests out of index.json; everything else in it stays as it is. For who has locked the folder.
void drop_entries(const std::filesystem::path& dir, const std::set<Digest>& manifests);

// Several threads and processes may read and write one folder at once: blobs appear whole, index.json is replaced by
// rename while `oci-layout` is locked (flock), so no entry is lost. Nothing is kept open between calls.
class LayoutRepository final : public Repository {
 public:
  // Throws NotFound or Unsupported, naming what is missing, if the folder is no OCI layout. With `later` it is
  // our own, and only put_manifest() adds to its list: put_blob() does not wait for the disk (put_manifest() does, for
  // all blobs before it), and what the list does not call an artifact is taken to be none.
  explicit LayoutRepository(std::filesystem::path dir, std::shared_ptr<LateSync> later = nullptr);
  // Makes the folder and an empty layout where there is none.
  static std::shared_ptr<LayoutRepository> create(const std::filesystem::path& dir,
                                                  std::shared_ptr<LateSync> later = nullptr);

  std::string name() const override { return "oci:" + dir_.string(); }
  bool is_local() const override { return true; }
  // A tag is looked for as org.opencontainers.image.ref.name, then as io.containerd.image.name, then as the tag part of
  // either; in index.json first, then in the indexes it names.
  Document manifest(std::string_view selector) override;
  void read_blob(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) override;
  bool has_blob(const Descriptor& blob) override;
  void put_blob(const Descriptor& blob, const ByteSource& content) override;
  std::unique_ptr<BlobDraft> draft_blob(const std::filesystem::path& scratch_dir) override;
  // Takes a blob of another folder as a hard link, after its bytes were checked, unless it is here. False if that
  // cannot be: other file system, not allowed, too many links.
  bool link_blob(LayoutRepository& source, const Descriptor& blob, const ByteSink& on_bytes);
  Descriptor put_manifest(ByteView json, std::string_view media_type, std::string_view tag) override;
  std::vector<Descriptor> referrers(const Digest& subject, std::string_view artifact_type) override;
  // What index.json lists, but for what has another kind of digest.
  std::vector<Descriptor> entries() const;
  // Of one of them, or of what one names; checked as by manifest().
  Document read_document(const Descriptor& descriptor) const;

 private:
  class Draft;
  // True if it is here, and safe from the garbage collector for a while.
  bool keep_if_there(const Descriptor& blob);

  // What a manifest says about itself; immutable under its digest, so remembered.
  struct Relation {
    bool is_artifact = false;
    std::string artifact_type;  // or the config's media type, as the distribution spec has it for referrers
    std::optional<Digest> subject;
    std::map<std::string, std::string> annotations;
  };

  struct Listed;

  std::filesystem::path blob_path(const Digest& digest) const;
  Bytes read_index_json() const;
  JsonValue read_index() const;
  // Read again only once the file is another one.
  std::shared_ptr<const Listed> listed() const;
  Document by_digest(const Digest& digest) const;
  Document only_image();
  // Calls visit(entry) for all entries of index.json and of the indexes below it until it returns true. With
  // kMaxIndexDepth for those of index.json alone.
  template <typename Visit>
  bool visit_entries(const Visit& visit, int depth = 1) const;
  template <typename Visit>
  bool visit_list(const std::vector<Descriptor>& list, int depth, std::set<Digest>& seen, const Visit& visit) const;
  // Absent if the manifest is not here or cannot be read: other tools leave such entries behind.
  std::optional<Relation> relation_of(const Descriptor& manifest);
  bool may_be_image(const Descriptor& entry);
  void drop_if_damaged(const Descriptor& blob);
  void put_file(const Descriptor& blob, const ByteSource& content, LateSync* later);
  void add_entry(const Descriptor& entry, std::string_view tag);

  std::filesystem::path dir_;
  const std::shared_ptr<LateSync> later_;
  mutable Guarded<std::shared_ptr<const Listed>> listed_;
  Guarded<std::map<Digest, Relation>> relations_;
};

}  // namespace varve::oci
