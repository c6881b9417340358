#include "core/oci/layout.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/oci/internal/descriptor_json.h"
#include "core/oci/internal/file_blob.h"
#include "core/oci/internal/file_stamp.h"

namespace varve::oci {
namespace {

using nlohmann::json;

constexpr std::string_view kAttestation = "vnd.docker.reference.type";
constexpr std::uint64_t kMaxLayoutFileBytes = 4096;

std::string annotation(const Descriptor& entry, std::string_view name) {
  const auto found = entry.annotations.find(std::string(name));
  return found == entry.annotations.end() ? std::string() : found->second;
}

// "latest" of "registry.example:5000/app:latest"; "" if the name has no tag.
std::string_view tag_part(std::string_view name) {
  const auto colon = name.rfind(':');
  return colon == std::string_view::npos || name.find('/', colon) != std::string_view::npos ? std::string_view()
                                                                                            : name.substr(colon + 1);
}

// How well an entry carries the tag: 0 by its OCI name, 1 by its containerd name, 2 by the tag part of either; absent
// if not.
std::optional<int> tag_match(const Descriptor& entry, std::string_view tag) {
  const auto name = annotation(entry, kRefNameAnnotation);
  const auto containerd_name = annotation(entry, kContainerdNameAnnotation);
  if (name == tag) return 0;
  if (containerd_name == tag) return 1;
  if (tag_part(name) == tag || tag_part(containerd_name) == tag) return 2;
  return std::nullopt;
}

std::string shown_tag(const Descriptor& entry) {
  const auto name = annotation(entry, kRefNameAnnotation);
  return name.empty() ? annotation(entry, kContainerdNameAnnotation) : name;
}

void check_layout_file(const std::filesystem::path& dir) {
  const auto name = "oci:" + dir.string();
  if (!std::filesystem::is_directory(dir)) fail<NotFound>("{}: there is no such folder", name);
  const auto content = read_file_if_there(dir / "oci-layout", kMaxLayoutFileBytes);
  if (!content) {
    if (std::filesystem::exists(dir / "index.json"))
      fail<NotFound>(
          "{}: the file oci-layout is missing; if the folder is an OCI layout, write "
          "{{\"imageLayoutVersion\":\"1.0.0\"}} into it",
          name);
    fail<NotFound>("{}: no OCI layout folder: the files oci-layout and index.json are missing", name);
  }
  if (!std::filesystem::exists(dir / "index.json")) fail<NotFound>("{}: the file index.json is missing", name);
  const auto layout = JsonValue::parse(*content, name + "/oci-layout", {.bytes = kMaxLayoutFileBytes});
  const auto version = layout.maybe("imageLayoutVersion").text();
  if (!version.starts_with("1."))
    fail<Unsupported>("{}: imageLayoutVersion '{}' is not supported, only 1.x", name, version.substr(0, 40));
}

// A lock on an open file keeps out other processes and other threads; it goes with the descriptor.
UniqueFd lock_file(UniqueFd fd, const std::filesystem::path& path) {
  while (::flock(fd.get(), LOCK_EX) != 0)
    if (errno != EINTR) fail_errno("lock {}", path.string());
  return fd;
}

// Takes the tag from whoever had it: an entry that was there under this name only goes, as with other tools.
void release_tag(json& manifests, std::string_view tag) {
  std::erase_if(manifests.get_ref<json::array_t&>(), [&](const json& item) {
    if (!item.is_object()) return false;
    const auto annotations = item.find("annotations");
    if (annotations == item.end() || !annotations->is_object()) return false;
    const auto name = annotations->find(kRefNameAnnotation);
    return name != annotations->end() && *name == tag;
  });
}

bool has_same_entry(const json& manifests, const json& wanted) {
  return std::any_of(manifests.begin(), manifests.end(), [&](const json& item) {
    return item.is_object() && item.contains("digest") && item["digest"] == wanted["digest"];
  });
}

// Also of a whole name of a layout folder with this tag: who looks for the list may find that.
bool is_pins_tag(std::string_view tag) { return tag == kPinsTag || tag_part(tag) == kPinsTag; }

}  // namespace

std::string_view use_of_tag(std::string_view tag) {
  if (is_pins_tag(tag)) return "the list of pinned images";
  for (const auto name : {tag, tag_part(tag)}) {
    if (name.starts_with(kReplacedPinsTag)) return "what took the place of the list of pinned images";
    if (tag_subject(name)) return "what belongs to that digest, indexes and signatures";
  }
  return "";
}

std::optional<Digest> tag_subject(std::string_view tag) {
  constexpr std::string_view kPrefix = "sha256-";
  if (!tag.starts_with(kPrefix)) return std::nullopt;
  for (const std::string_view suffix : {".sig", ".att", ".sbom"})
    if (tag.ends_with(suffix)) tag.remove_suffix(suffix.size());
  return Digest::try_parse("sha256:" + std::string(tag.substr(kPrefix.size())));
}

UniqueFd lock_layout(const std::filesystem::path& dir) try {
  return lock_file(open_file(dir / "oci-layout", O_RDWR), dir);
} catch (const std::system_error& error) {
  if (error.code() != std::errc::permission_denied && error.code() != std::errc::read_only_file_system) throw;
  fail<Error>("oci:{} cannot be written to: {}", dir.string(), error.code().message());
}

void drop_entries(const std::filesystem::path& dir, const std::set<Digest>& manifests) {
  const auto index = dir / "index.json";
  auto document =
      JsonValue::parse(read_file(index, kMaxIndexJsonBytes), index.string(), {.bytes = kMaxIndexJsonBytes}).raw();
  auto& listed = document["manifests"];
  if (!listed.is_array()) return;
  const auto dropped = std::erase_if(listed.get_ref<json::array_t&>(), [&](const json& entry) {
    const auto digest = Digest::try_parse(entry.is_object() ? entry.value("digest", "") : "");
    return digest && manifests.contains(*digest);
  });
  if (dropped > 0) write_file_atomically(index, as_bytes(document.dump()));
}

LayoutRepository::LayoutRepository(std::filesystem::path dir, std::shared_ptr<LateSync> later)
    : dir_(std::move(dir)), later_(std::move(later)) {
  check_layout_file(dir_);
}

std::shared_ptr<LayoutRepository> LayoutRepository::create(const std::filesystem::path& dir,
                                                           std::shared_ptr<LateSync> later) {
  std::filesystem::create_directories(dir / "blobs" / "sha256");
  // Two that make the same folder take turns, or the slower one would empty the index of the faster.
  const auto lock = lock_file(open_file(dir, O_RDONLY | O_DIRECTORY), dir);
  // The layout file comes last and makes the folder one: whoever sees it sees the index as well.
  if (!std::filesystem::exists(dir / "oci-layout")) {
    if (!std::filesystem::exists(dir / "index.json"))
      write_file_atomically(
          dir / "index.json",
          as_bytes(R"({"manifests":[],"mediaType":"application/vnd.oci.image.index.v1+json","schemaVersion":2})"));
    write_file_atomically(dir / "oci-layout", as_bytes(R"({"imageLayoutVersion":"1.0.0"})"));
  }
  return std::make_shared<LayoutRepository>(dir, std::move(later));
}

std::filesystem::path LayoutRepository::blob_path(const Digest& digest) const {
  return dir_ / "blobs" / "sha256" / digest.hex();
}

Bytes LayoutRepository::read_index_json() const {
  auto content = read_file_if_there(dir_ / "index.json", kMaxIndexJsonBytes);
  if (!content) fail<NotFound>("{}: the file index.json is missing", name());
  return std::move(*content);
}

JsonValue LayoutRepository::read_index() const {
  return JsonValue::parse(read_index_json(), name() + "/index.json", {.bytes = kMaxIndexJsonBytes});
}

// A machine that has many versions has a long list, and an image that is opened is looked for in it several times.
struct LayoutRepository::Listed {
  internal::FileStamp stamp;
  std::vector<Descriptor> entries;
};

std::shared_ptr<const LayoutRepository::Listed> LayoutRepository::listed() const {
  // Of before: where others change the file meanwhile, what is read is newer than the stamp, and read again next time.
  const auto stamp = internal::stamp_of(dir_ / "index.json");
  if (auto known = listed_.with([](const auto& listed) { return listed; }); known && known->stamp == stamp)
    return known;
  auto read = std::make_shared<Listed>(Listed{.stamp = stamp, .entries = {}});
  for (const auto& item : read_index().maybe("manifests").items()) {
    try {
      read->entries.push_back(internal::descriptor_from_json(item));
    } catch (const Unsupported&) {
      // An entry under another digest algorithm; nothing of ours refers to it.
    }
  }
  if (stamp.is_settled()) listed_.with([&](auto& listed) { listed = read; });
  return read;
}

std::vector<Descriptor> LayoutRepository::entries() const { return listed()->entries; }

Document LayoutRepository::read_document(const Descriptor& descriptor) const {
  const auto what = name() + " " + descriptor.digest.to_string();
  auto bytes = read_file_if_there(blob_path(descriptor.digest), kMaxManifestBytes);
  if (!bytes) fail<NotFound>("{}: no such manifest", what);
  if (digest_of(*bytes) != descriptor.digest) fail<CorruptData>("{}: the content does not match the digest", what);
  if (descriptor.size != 0 && bytes->size() != descriptor.size)
    fail<CorruptData>("{}: {} bytes, but it is listed with {}", what, bytes->size(), descriptor.size);
  Document document{.descriptor = descriptor, .bytes = std::move(*bytes)};
  document.descriptor.size = document.bytes.size();
  if (document.descriptor.media_type.empty()) {
    const auto parsed = JsonValue::parse(document.bytes, what, {.bytes = kMaxManifestBytes});
    document.descriptor.media_type = parsed.maybe("mediaType").text();
    if (document.descriptor.media_type.empty())
      document.descriptor.media_type = parsed.has("manifests") ? kOciIndexType : kOciManifestType;
  }
  return document;
}

template <typename Visit>
bool LayoutRepository::visit_list(const std::vector<Descriptor>& list, int depth, std::set<Digest>& seen,
                                  const Visit& visit) const {
  for (const auto& entry : list)
    if (visit(entry)) return true;
  if (depth == kMaxIndexDepth) return false;
  for (const auto& entry : list) {
    if (!is_index_media_type(entry.media_type) || !seen.insert(entry.digest).second) continue;
    std::vector<Descriptor> nested;
    try {
      nested = ImageIndex::parse(read_document(entry).bytes, name() + " " + entry.digest.to_string()).manifests;
    } catch (const Error& error) {
      log::debug("skipped a nested index: {}", error.what());
      continue;
    }
    if (visit_list(nested, depth + 1, seen, visit)) return true;
  }
  return false;
}

template <typename Visit>
bool LayoutRepository::visit_entries(const Visit& visit, int depth) const {
  std::set<Digest> seen;
  const auto list = listed();
  return visit_list(list->entries, depth, seen, visit);
}

Document LayoutRepository::by_digest(const Digest& digest) const {
  // The list knows the media type of manifests that do not say it themselves; a manifest that is not listed may still
  // be there.
  Descriptor descriptor;
  descriptor.digest = digest;
  visit_entries([&](const Descriptor& entry) {
    if (entry.digest != digest) return false;
    descriptor = entry;
    return true;
  });
  return read_document(descriptor);
}

std::optional<LayoutRepository::Relation> LayoutRepository::relation_of(const Descriptor& entry) {
  if (!is_manifest_media_type(entry.media_type)) return std::nullopt;
  const auto known = relations_.with([&](auto& relations) -> std::optional<Relation> {
    const auto found = relations.find(entry.digest);
    return found == relations.end() ? std::nullopt : std::optional(found->second);
  });
  if (known) return known;
  try {
    auto manifest =
        Manifest::parse(read_document(entry).bytes, entry.media_type, name() + " " + entry.digest.to_string());
    Relation relation;
    relation.is_artifact =
        manifest.subject || !manifest.artifact_type.empty() || manifest.config.media_type == kEmptyJsonType;
    relation.artifact_type = manifest.artifact_type.empty() ? manifest.config.media_type : manifest.artifact_type;
    relation.annotations = std::move(manifest.annotations);
    if (manifest.subject) relation.subject = manifest.subject->digest;
    relations_.with([&](auto& relations) { relations.emplace(entry.digest, relation); });
    return relation;
  } catch (const Error& error) {
    log::debug("skipped a manifest: {}", error.what());
    return std::nullopt;
  }
}

bool LayoutRepository::may_be_image(const Descriptor& entry) {
  if (!entry.artifact_type.empty() || !annotation(entry, kAttestation).empty()) return false;
  const auto tag = annotation(entry, kRefNameAnnotation);
  if (tag_subject(tag)) return false;
  if (entry.platform && (entry.platform->os == "unknown" || entry.platform->architecture == "unknown")) return false;
  if (is_index_media_type(entry.media_type)) return !is_pins_tag(tag);
  if (!is_manifest_media_type(entry.media_type)) return false;
  const auto relation = relation_of(entry);
  return !relation || !relation->is_artifact;  // one that cannot be read is reported when it is opened
}

Document LayoutRepository::only_image() {
  std::vector<Descriptor> images;
  std::set<Digest> known;
  const auto all = entries();
  for (const auto& entry : all)
    if (may_be_image(entry) && known.insert(entry.digest).second) images.push_back(entry);
  // Images that an index in the same list names are its platforms, unless somebody gave them a name of their own.
  std::set<Digest> children;
  for (const auto& image : images) {
    std::set<Digest> seen;
    if (is_index_media_type(image.media_type))
      visit_list({image}, 1, seen, [&](const Descriptor& entry) {
        if (entry.digest != image.digest) children.insert(entry.digest);
        return false;
      });
  }
  std::erase_if(images,
                [&](const Descriptor& image) { return children.contains(image.digest) && shown_tag(image).empty(); });

  if (images.empty()) fail<NotFound>("{}: there is no image in it", name());
  if (images.size() == 1) return read_document(images.front());
  // Some tools list the platforms of one image here, without an index of their own: then this is the index.
  if (std::all_of(images.begin(), images.end(),
                  [](const Descriptor& image) { return image.platform && shown_tag(image).empty(); })) {
    auto bytes = read_index_json();
    return {.descriptor = descriptor_of(bytes, kOciIndexType), .bytes = std::move(bytes)};
  }
  std::string choices;
  for (const auto& image : images)
    choices += (choices.empty() ? "" : ", ") +
               (shown_tag(image).empty() ? "@" + image.digest.to_string() : ":" + shown_tag(image));
  fail<NotFound>("{}: it holds {} images; name one of: {}", name(), images.size(), choices);
}

Document LayoutRepository::manifest(std::string_view selector) {
  if (selector.empty()) return only_image();
  if (selector.starts_with("sha256:")) return by_digest(Digest::parse(selector, name()));
  std::optional<Descriptor> best;
  int best_match = 3;
  std::string tags;
  visit_entries([&](const Descriptor& entry) {
    if (const auto tag = shown_tag(entry); !tag.empty() && use_of_tag(tag).empty())
      tags += (tags.empty() ? "" : ", ") + tag;
    const auto match = tag_match(entry, selector);
    if (!match || *match >= best_match) return false;
    best = entry;
    best_match = *match;
    return best_match == 0;
  });
  if (!best) fail<NotFound>("{}: no tag '{}'; there are: {}", name(), selector, tags.empty() ? "none" : tags);
  try {
    return read_document(*best);
  } catch (const NotFound& error) {  // the tag is there: this is damage, and no absence that somebody may fill
    fail<CorruptData>("{}, though the tag '{}' names it", error.what(), selector);
  }
}

void LayoutRepository::read_blob(const Descriptor& blob, ByteRange range, const ByteSink& sink) {
  const auto what = name() + " " + blob.digest.to_string();
  UniqueFd fd(::open(blob_path(blob.digest).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && (errno == ENOENT || errno == ENOTDIR)) fail<NotFound>("{}: no such blob", what);
  if (!fd) fail_errno("open {}", what);
  if (const auto size = file_size(fd.get(), what); size != blob.size)
    fail<CorruptData>("{}: {} bytes, but the manifest says {}", what, size, blob.size);
  internal::read_file_blob(fd.get(), 0, blob, range, sink, what);
}

bool LayoutRepository::has_blob(const Descriptor& blob) {
  struct stat status {};
  if (::stat(blob_path(blob.digest).c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    fail_errno("look for {} in {}", blob.digest.to_string(), name());
  }
  return S_ISREG(status.st_mode) && std::uint64_t(status.st_size) == blob.size;
}

// Written where it will be, so that it need not be copied.
class LayoutRepository::Draft final : public BlobDraft {
 public:
  explicit Draft(LayoutRepository& layout) : layout_(layout), file_(layout.dir_ / "blobs" / "sha256" / "draft") {}

  void write(ByteView bytes) override {
    write_all(file_.fd(), bytes, layout_.name());
    written_ += bytes.size();
  }
  bool commit(const Descriptor& blob) override {
    if (written_ != blob.size)
      fail<CorruptData>("put {} {}: {} bytes of the {} announced", layout_.name(), blob.digest.to_string(), written_,
                        blob.size);
    if (layout_.keep_if_there(blob)) return false;
    file_.commit(layout_.blob_path(blob.digest));
    return true;
  }

 private:
  LayoutRepository& layout_;
  AtomicFile file_;
  std::uint64_t written_ = 0;
};

std::unique_ptr<BlobDraft> LayoutRepository::draft_blob(const std::filesystem::path&) {
  std::filesystem::create_directories(dir_ / "blobs" / "sha256");
  return std::make_unique<Draft>(*this);
}

bool LayoutRepository::keep_if_there(const Descriptor& blob) {
  // Young again: whoever collects garbage leaves it until the manifest that needs it is here. If that happened a moment
  // ago it is gone now and must be sent.
  return has_blob(blob) && (::utimensat(AT_FDCWD, blob_path(blob.digest).c_str(), nullptr, 0) == 0 || errno != ENOENT);
}

// A damaged copy of the same size would pass for the right one.
void LayoutRepository::drop_if_damaged(const Descriptor& blob) {
  if (!has_blob(blob)) return;
  try {
    read_blob(blob, {.offset = 0, .length = blob.size}, [](ByteView) {});
  } catch (const CorruptData& error) {
    log::warn("written again: {}", error.what());
    ::unlink(blob_path(blob.digest).c_str());
  } catch (const NotFound&) {  // somebody else has dropped it, or collects garbage
  }
}

void LayoutRepository::put_blob(const Descriptor& blob, const ByteSource& content) {
  if (later_) drop_if_damaged(blob);  // by a power loss before it was on disk
  put_file(blob, content, later_.get());
}

void LayoutRepository::put_file(const Descriptor& blob, const ByteSource& content, LateSync* later) {
  if (keep_if_there(blob)) {
    if (!later_) return;
    // Perhaps it was put by somebody who did not wait for the disk. If it is gone again it must be sent.
    const auto path = blob_path(blob.digest);
    if (UniqueFd there(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); there) return later_->add(std::move(there), path);
  }
  const auto what = name() + " " + blob.digest.to_string();
  std::filesystem::create_directories(dir_ / "blobs" / "sha256");
  AtomicFile file(blob_path(blob.digest));
  Sha256 hash;
  std::uint64_t written = 0;
  content({.offset = 0, .length = blob.size}, [&](ByteView bytes) {
    if (bytes.size() > blob.size - written)
      fail<CorruptData>("put {}: more than the {} bytes announced", what, blob.size);
    hash.update(bytes);
    write_all(file.fd(), bytes, what);
    written += bytes.size();
  });
  if (written != blob.size) fail<CorruptData>("put {}: {} bytes of the {} announced", what, written, blob.size);
  if (hash.finish() != blob.digest) fail<CorruptData>("put {}: the content does not match the digest", what);
  if (later != nullptr)
    file.commit(*later);
  else
    file.commit();
}

bool LayoutRepository::link_blob(LayoutRepository& source, const Descriptor& blob, const ByteSink& on_bytes) {
  if (keep_if_there(blob)) return true;
  struct stat from {
  }, to{};
  std::filesystem::create_directories(dir_ / "blobs" / "sha256");
  if (::stat(source.blob_path(blob.digest).c_str(), &from) != 0 ||
      ::stat((dir_ / "blobs" / "sha256").c_str(), &to) != 0 || from.st_dev != to.st_dev)
    return false;
  source.read_blob(blob, {.offset = 0, .length = blob.size}, on_bytes);
  const auto path = blob_path(blob.digest);
  ::unlink(path.c_str());  // what is there has another size
  if (::linkat(AT_FDCWD, source.blob_path(blob.digest).c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0)
    return errno == EEXIST && has_blob(blob);
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // young, as a copy would be: see keep_if_there()
  return true;
}

Descriptor LayoutRepository::put_manifest(ByteView bytes, std::string_view media_type, std::string_view tag) {
  auto entry = descriptor_of(bytes, media_type);
  const auto what = name() + " " + entry.digest.to_string();
  if (is_index_media_type(media_type)) {
    ImageIndex::parse(bytes, what);
  } else {
    const auto manifest = Manifest::parse(bytes, media_type, what);
    if (manifest.subject || !manifest.artifact_type.empty()) {
      entry.artifact_type = manifest.artifact_type.empty() ? manifest.config.media_type : manifest.artifact_type;
      entry.annotations = manifest.annotations;
      entry.annotations.erase(std::string(kRefNameAnnotation));  // a manifest does not choose its own tag
      entry.annotations.erase(std::string(kContainerdNameAnnotation));
      entry.annotations[std::string(kSubjectAnnotation)] = manifest.subject ? manifest.subject->digest.to_string() : "";
    }
  }
  drop_if_damaged(entry);  // blobs of others are too large to be read again each time, documents are not
  put_file(
      entry, [&](ByteRange range, const ByteSink& sink) { sink(bytes.subspan(range.offset, range.length)); }, nullptr);
  if (later_) later_->wait();
  add_entry(entry, tag);
  return entry;
}

void LayoutRepository::add_entry(const Descriptor& entry, std::string_view tag) {
  auto object = internal::descriptor_to_json(entry);
  if (!tag.empty()) object["annotations"][kRefNameAnnotation] = tag;
  const auto lock = lock_layout(dir_);
  auto index = read_index().raw();
  auto& manifests = index["manifests"];
  if (!manifests.is_array()) manifests = json::array();
  if (tag.empty() && has_same_entry(manifests, object)) return;
  if (!tag.empty()) {
    release_tag(manifests, tag);
    // An entry of this digest without any name becomes the tagged one; with other names it stays beside it.
    std::erase_if(manifests.get_ref<json::array_t&>(), [&](const json& item) {
      if (!item.is_object() || item.value("digest", json()) != object["digest"]) return false;
      const auto annotations = item.find("annotations");
      return annotations == item.end() || !annotations->is_object() ||
             (!annotations->contains(kRefNameAnnotation) && !annotations->contains(kContainerdNameAnnotation));
    });
  }
  manifests.push_back(std::move(object));
  const auto text = index.dump();
  if (text.size() > kMaxIndexJsonBytes)
    fail<Unsupported>("{}/index.json: it would grow beyond {} bytes", name(), kMaxIndexJsonBytes);
  write_file_atomically(dir_ / "index.json", as_bytes(text));
}

std::vector<Descriptor> LayoutRepository::referrers(const Digest& subject, std::string_view artifact_type) {
  std::vector<Descriptor> found;
  std::set<Digest> known;
  const auto wanted = subject.to_string();
  // What put_manifest() notes saves reading the documents of all versions that are here.
  const auto visit = [&](const Descriptor& entry) {
    if (later_ && entry.artifact_type.empty()) return false;
    if (!artifact_type.empty() && !entry.artifact_type.empty() && entry.artifact_type != artifact_type) return false;
    const auto noted = entry.annotations.find(std::string(kSubjectAnnotation));
    if (noted != entry.annotations.end() && noted->second != wanted) return false;
    if (!known.insert(entry.digest).second) return false;
    const auto relation = relation_of(entry);
    if (!relation || relation->subject != subject) return false;
    if (!artifact_type.empty() && relation->artifact_type != artifact_type) return false;
    auto referrer = entry;
    referrer.artifact_type = relation->artifact_type;
    referrer.annotations = relation->annotations;
    found.push_back(std::move(referrer));
    return false;
  };
  visit_entries(visit, later_ ? kMaxIndexDepth : 1);
  return found;
}

std::shared_ptr<Repository> create_layout(const std::filesystem::path& dir, std::shared_ptr<LateSync> later) {
  return LayoutRepository::create(dir, std::move(later));
}

}  // namespace varve::oci
