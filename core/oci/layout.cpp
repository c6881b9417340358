#include "core/oci/layout.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/oci/internal/json.h"
#include "core/oci/manifest.h"

namespace varve::oci {
namespace {

constexpr std::uint64_t kMaxIndexJsonBytes = 64 * 1024 * 1024;  // a folder of many images is larger than one manifest may be
constexpr std::size_t kCopyBytes = 1024 * 1024;
constexpr const char* kRefName = "org.opencontainers.image.ref.name";
constexpr const char* kContainerdName = "io.containerd.image.name";

// Only one process at a time changes index.json. The folder itself is locked, so that no file of ours is left in it.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& dir) : fd_(open_file(dir, O_RDONLY | O_DIRECTORY)) {
    while (::flock(fd_.get(), LOCK_EX) != 0)
      if (errno != EINTR) fail_errno("lock {}", dir.string());
  }

 private:
  UniqueFd fd_;
};

std::string annotation(const Descriptor& entry, const char* key) {
  const auto found = entry.annotations.find(key);
  return found == entry.annotations.end() ? "" : found->second;
}

// Tools write the bare tag, or the whole name as containerd and buildkit do ("docker.io/library/app:tag").
bool is_named(const Descriptor& entry, std::string_view tag) {
  for (const auto* key : {kRefName, kContainerdName}) {
    const auto name = annotation(entry, key);
    if (name == tag) return true;
    const auto colon = name.rfind(':');
    if (colon != std::string::npos && name.find('/', colon) == std::string::npos && std::string_view(name).substr(colon + 1) == tag) return true;
  }
  return false;
}

bool is_index(const Document& document) { return is_index_media_type(document.descriptor.media_type); }

// Some tools leave media types out or write another tool's: what the document itself says decides, then its shape.
std::string media_type_of(const nlohmann::json& json, const std::string& claimed, std::string_view what) {
  auto own = internal::string_field(json, "mediaType", what);
  if (!own.empty()) return own;
  if (is_index_media_type(claimed) || is_manifest_media_type(claimed)) return claimed;
  return std::string(internal::field(json, "manifests") != nullptr ? kOciIndexType : kOciManifestType);
}

}  // namespace

LayoutRepository::LayoutRepository(std::filesystem::path dir) : dir_(std::move(dir)) {
  if (!std::filesystem::is_directory(dir_)) fail<NotFound>("{}: there is no such folder", name());
  const auto marker = read_file_if_there(dir_ / "oci-layout", kMaxManifestBytes);
  if (!marker) fail<NotFound>("{}: no file 'oci-layout': the folder is not an OCI image layout", name());
  const auto what = name() + ": oci-layout";
  const auto version = internal::string_field(internal::parse_object(*marker, what), "imageLayoutVersion", what);
  if (!version.starts_with("1.")) fail<Unsupported>("{}: imageLayoutVersion '{}', only 1.x is known", what, version);
  if (!std::filesystem::exists(dir_ / "index.json")) fail<NotFound>("{}: no file 'index.json': the folder is not an OCI image layout", name());
}

std::shared_ptr<LayoutRepository> LayoutRepository::create(const std::filesystem::path& dir) {
  std::filesystem::create_directories(dir / "blobs" / "sha256");
  {
    const FolderLock lock(dir);
    if (!std::filesystem::exists(dir / "index.json"))
      write_file_atomically(dir / "index.json", as_bytes(R"({"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]})"));
    if (!std::filesystem::exists(dir / "oci-layout")) write_file_atomically(dir / "oci-layout", as_bytes(R"({"imageLayoutVersion":"1.0.0"})"));
  }
  return std::make_shared<LayoutRepository>(dir);
}

std::filesystem::path LayoutRepository::blob_path(const Digest& digest) const { return dir_ / "blobs" / "sha256" / digest.hex(); }

Bytes LayoutRepository::read_index_json() const { return read_file(dir_ / "index.json", kMaxIndexJsonBytes); }

Document LayoutRepository::read_document(Descriptor descriptor) {
  const auto what = fmt::format("{}: {}", name(), descriptor.digest.to_string());
  auto bytes = read_file_if_there(blob_path(descriptor.digest), kMaxManifestBytes);
  if (!bytes) fail<NotFound>("{}: the blob is not there", what);
  if (descriptor.size != 0 && bytes->size() != descriptor.size) fail<CorruptData>("{}: {} bytes, expected {}", what, bytes->size(), descriptor.size);
  if (digest_of(*bytes) != descriptor.digest) fail<CorruptData>("{}: the content does not match the digest", what);
  const auto json = internal::parse_object(*bytes, what);
  descriptor.media_type = media_type_of(json, descriptor.media_type, what);
  descriptor.size = bytes->size();
  return {std::move(descriptor), std::move(*bytes)};
}

Document LayoutRepository::manifest(std::string_view selector) {
  if (selector.empty()) return read_document(only_image());
  if (const auto digest = Digest::try_parse(selector)) {
    Descriptor descriptor;
    descriptor.digest = *digest;
    return read_document(descriptor);
  }
  return read_document(find_tag(selector));
}

Descriptor LayoutRepository::find_tag(std::string_view tag) {
  std::vector<Descriptor> level = ImageIndex::parse(read_index_json(), name() + ": index.json").manifests;
  for (int depth = 0; depth < kMaxIndexDepth && !level.empty(); ++depth) {
    for (const auto& entry : level)
      if (is_named(entry, tag)) return entry;
    std::vector<Descriptor> next;
    for (const auto& entry : level) {
      if (!is_index_media_type(entry.media_type) || !has_blob(entry)) continue;
      const auto nested = ImageIndex::parse(read_document(entry).bytes, fmt::format("{}: {}", name(), entry.digest.to_string()));
      next.insert(next.end(), nested.manifests.begin(), nested.manifests.end());
    }
    level = std::move(next);
  }
  fail<NotFound>("{}: no image is tagged '{}'", name(), tag);
}

bool LayoutRepository::is_image(const Descriptor& entry) {
  if (is_index_media_type(entry.media_type)) return true;
  if (!is_manifest_media_type(entry.media_type) || !entry.artifact_type.empty()) return false;
  if (!has_blob(entry)) return true;  // counted, so that its absence is reported
  const auto document = read_document(entry);
  if (is_index(document)) return true;
  const auto manifest = Manifest::parse(document.bytes, document.descriptor.media_type, name());
  return manifest.artifact_type.empty() && !manifest.subject && manifest.config.media_type != kEmptyJsonType;
}

Descriptor LayoutRepository::only_image() {
  std::vector<Descriptor> images;
  for (const auto& entry : ImageIndex::parse(read_index_json(), name() + ": index.json").manifests)
    if (is_image(entry)) images.push_back(entry);
  if (images.empty()) fail<NotFound>("{}: the folder holds no image", name());
  // The same image under several tags is one image.
  if (std::ranges::all_of(images, [&](const Descriptor& image) { return image.digest == images.front().digest; })) return images.front();
  std::string tags;
  for (const auto& image : images) {
    const auto tag = annotation(image, kRefName);
    tags += (tags.empty() ? "" : ", ") + (tag.empty() ? "@" + image.digest.to_string() : ":" + tag);
    if (tags.size() > 400) {
      tags += ", ...";
      break;
    }
  }
  fail<NotFound>("{}: it holds {} images, say which one: {}", name(), images.size(), tags);
}

void LayoutRepository::read_blob(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) {
  const auto what = fmt::format("{}: {}", name(), blob.digest.to_string());
  if (!compressed_range.fits_in(blob.size))
    fail<CorruptData>("{}: range {}+{} lies outside its {} bytes", what, compressed_range.offset, compressed_range.length, blob.size);
  UniqueFd fd(::open(blob_path(blob.digest).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT) fail<NotFound>("{}: the blob is not there", what);
    fail_errno("open {}", what);
  }
  if (const auto size = file_size(fd.get(), what); size != blob.size) fail<CorruptData>("{}: {} bytes, expected {}", what, size, blob.size);
  const bool whole = compressed_range.length == blob.size;
  Sha256 hash;
  Bytes buffer(std::min<std::uint64_t>(kCopyBytes, compressed_range.length));
  for (auto at = compressed_range.offset; at < compressed_range.end();) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), compressed_range.end() - at));
    pread_exactly(fd.get(), at, part, what);
    if (whole) hash.update(part);
    sink(part);
    at += part.size();
  }
  if (whole && hash.finish() != blob.digest) fail<CorruptData>("{}: the content does not match the digest", what);
}

bool LayoutRepository::has_blob(const Descriptor& blob) {
  struct stat status{};
  if (::stat(blob_path(blob.digest).c_str(), &status) != 0) return false;
  return S_ISREG(status.st_mode) && std::uint64_t(status.st_size) == blob.size;
}

void LayoutRepository::put_blob(const Descriptor& blob, const ByteSource& content) {
  if (has_blob(blob)) return;
  std::filesystem::create_directories(dir_ / "blobs" / "sha256");
  AtomicFile file(blob_path(blob.digest));
  Sha256 hash;
  std::uint64_t written = 0;
  content({0, blob.size}, [&](ByteView bytes) {
    hash.update(bytes);
    file.write(bytes);
    written += bytes.size();
  });
  if (written != blob.size || hash.finish() != blob.digest)
    fail<CorruptData>("{}: {}: what was to be stored ({} of {} bytes) does not match the digest", name(), blob.digest.to_string(), written, blob.size);
  file.commit();
}

Descriptor LayoutRepository::put_manifest(ByteView json, std::string_view media_type, std::string_view tag) {
  const auto parsed = internal::parse_object(json, name() + ": a new manifest");
  Descriptor descriptor = put_bytes(*this, json, media_type);
  descriptor.artifact_type = internal::string_field(parsed, "artifactType", name());
  if (!tag.empty()) descriptor.annotations[kRefName] = tag;

  const FolderLock lock(dir_);
  // The other entries stay as they were written, fields we do not know included.
  auto index = internal::parse_object(read_index_json(), name() + ": index.json");
  auto manifests = internal::array_field(index, "manifests", name() + ": index.json");
  nlohmann::json kept = nlohmann::json::array();
  const auto digest_text = descriptor.digest.to_string();
  for (auto& entry : manifests) {
    if (!entry.is_object()) fail<CorruptData>("{}: index.json: an entry is not an object", name());
    const auto annotations = internal::string_map_field(entry, "annotations", name());
    const auto named = annotations.find(kRefName);
    const bool same = entry.value("digest", "") == digest_text;
    if (same && (tag.empty() || named == annotations.end() || named->second == tag)) {
      if (tag.empty()) return descriptor;  // listed already, perhaps under a tag
      continue;                            // listed again below, with the tag
    }
    if (!tag.empty() && named != annotations.end() && named->second == tag) entry["annotations"].erase(kRefName);
    kept.push_back(std::move(entry));
  }
  kept.push_back(internal::to_json(descriptor));
  index["manifests"] = std::move(kept);
  write_file_atomically(dir_ / "index.json", as_bytes(index.dump()));
  return descriptor;
}

std::vector<Descriptor> LayoutRepository::referrers(const Digest& subject, std::string_view artifact_type) {
  std::vector<Descriptor> found;
  for (auto entry : ImageIndex::parse(read_index_json(), name() + ": index.json").manifests) {
    if (!is_manifest_media_type(entry.media_type) || !has_blob(entry)) continue;
    if (!entry.artifact_type.empty() && entry.artifact_type != artifact_type) continue;
    const auto document = read_document(entry);
    if (is_index(document)) continue;
    const auto manifest = Manifest::parse(document.bytes, document.descriptor.media_type, name());
    const auto& type = manifest.artifact_type.empty() ? manifest.config.media_type : manifest.artifact_type;
    if (!manifest.subject || manifest.subject->digest != subject || type != artifact_type) continue;
    entry.artifact_type = type;
    entry.annotations.insert(manifest.annotations.begin(), manifest.annotations.end());
    found.push_back(std::move(entry));
  }
  return found;
}

std::shared_ptr<Repository> create_layout(const std::filesystem::path& dir) { return LayoutRepository::create(dir); }

}  // namespace varve::oci
