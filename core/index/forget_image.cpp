#include "core/index/forget_image.h"

#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <map>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/index/prefix_tree.h"
#include "core/oci/layout.h"

namespace varve::index {
namespace {

namespace fs = std::filesystem;

bool is_young(const fs::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 && std::time(nullptr) - status.st_mtime < kForgetGraceSeconds;
}

// Returns its bytes.
std::uint64_t unlink_if_there(const fs::path& file) {
  struct stat status {};
  if (::lstat(file.c_str(), &status) != 0) return 0;
  fs::remove(file);
  return std::uint64_t(status.st_size);
}

class Forgetting {
 public:
  Forgetting(LocalIndex& local, const Digest& image, const std::set<Digest>& staying)
      : local_(local), image_(image), staying_(staying), dir_(local.layout_dir()) {}

  std::uint64_t run() {
    const auto lock = oci::lock_layout(dir_);
    read_documents();
    choose();
    return drop_documents() + drop_trees();
  }

 private:
  struct Document {
    oci::Document document;
    oci::Manifest manifest;
    bool stays = false;
    bool is_image() const { return !manifest.subject && manifest.artifact_type.empty(); }
    std::string_view type() const {
      return manifest.artifact_type.empty() ? manifest.config.media_type : manifest.artifact_type;
    }
    std::vector<Digest> blobs() const {
      std::vector<Digest> blobs{document.descriptor.digest, manifest.config.digest};
      for (const auto& layer : manifest.layers) blobs.push_back(layer.digest);
      return blobs;
    }
  };

  fs::path path_of(const Digest& digest) const { return dir_ / "blobs" / "sha256" / digest.hex(); }

  void read_documents() {
    const oci::LayoutRepository repository(dir_);
    for (const auto& entry : repository.entries()) {
      if (documents_.contains(entry.digest) || !oci::is_manifest_media_type(entry.media_type)) continue;
      try {
        auto document = repository.read_document(entry);
        auto manifest = oci::Manifest::parse(document.bytes, entry.media_type, entry.digest.to_string());
        documents_[entry.digest] = {.document = std::move(document), .manifest = std::move(manifest)};
      } catch (const Error& error) {
        fail<CorruptData>("{}; what it names is not known, so nothing was removed", error.what());
      }
    }
  }

  // An artifact stays with what it speaks of: an image that is here, a layer of one, an artifact that stays.
  void choose() {
    std::set<Digest> subjects;
    for (auto& [digest, document] : documents_) {
      if (!document.is_image() || digest == image_) continue;
      document.stays = true;
      subjects.insert(digest);
      for (const auto& layer : document.manifest.layers) subjects.insert(layer.digest);
    }
    for (bool more = true; more;) {
      more = false;
      for (auto& [digest, document] : documents_) {
        if (document.stays || document.is_image()) continue;
        const auto& subject = document.manifest.subject;
        document.stays = !subject || subjects.contains(subject->digest) || staying_.contains(digest) ||
                         local_.origins().of(digest).built_here;
        if (document.stays) subjects.insert(digest), more = true;
      }
    }
    named_ = staying_;
    for (const auto& [digest, document] : documents_)
      if (document.stays) note_named(document);
    // A young blob keeps what names it: nobody would know later that it may go.
    const auto alone = named_;
    for (auto& [digest, document] : documents_) {
      if (document.stays || document.is_image()) continue;
      document.stays = std::ranges::any_of(
          document.blobs(), [&](const Digest& blob) { return !alone.contains(blob) && is_young(path_of(blob)); });
      if (document.stays) note_named(document);
    }
  }
  void note_named(const Document& document) {
    for (const auto& blob : document.blobs()) named_.insert(blob);
  }

  // First from the list: what is cut short leaves blobs that nobody names, and no name without its blob.
  std::uint64_t drop_documents() {
    std::set<Digest> gone, blobs;
    for (const auto& [digest, document] : documents_) {
      if (document.stays) continue;
      gone.insert(digest);
      for (const auto& blob : document.blobs())
        if (!named_.contains(blob)) blobs.insert(blob);
    }
    oci::drop_entries(dir_, gone);
    std::uint64_t bytes = 0;
    for (const auto& blob : blobs) bytes += unlink_if_there(path_of(blob));
    return bytes;
  }

  std::uint64_t drop_trees() {
    std::set<std::string> staying;
    for (const auto& [digest, document] : documents_) {
      if (!document.stays || document.type() != kIndexArtifactType) continue;
      for (const auto& blob : document.manifest.layers)
        if (is_tree(blob.media_type)) staying.insert(blob.digest.hex());
      const auto prefixes = prefixes_of(document);
      if (!prefixes) return 0;
      staying.insert(prefixes->begin(), prefixes->end());
    }
    std::uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(local_.trees_dir())) {
      const auto& file = entry.path();
      if (file.extension() != ".erofs" && file.extension() != ".ranges") continue;
      if (!staying.contains(file.stem().string()) && !is_young(file)) bytes += unlink_if_there(file);
    }
    return bytes;
  }

  // Names of trees of the image's lowest layers. Absent if they cannot be told.
  std::optional<std::set<std::string>> prefixes_of(const Document& index) const {
    if (!index.manifest.subject) return std::set<std::string>();  // somebody else's, by that name
    const auto found = documents_.find(index.manifest.subject->digest);
    if (found == documents_.end() || !found->second.stays) return std::set<std::string>();  // it is not opened here
    oci::Image image;
    image.document = found->second.document;
    image.manifest = found->second.manifest;
    try {
      const auto config = read_file(path_of(image.manifest.config.digest), oci::kMaxConfigBytes);
      image.config = oci::ImageConfig::parse(config, dir_.string());
      return prefix_names(image, parse_index_manifest(index.document, image));
    } catch (const std::exception& error) {
      log::info("trees of lowest layers are left: {}", error.what());
      return std::nullopt;
    }
  }

  LocalIndex& local_;
  const Digest image_;
  const std::set<Digest>& staying_;
  const fs::path dir_;
  std::map<Digest, Document> documents_;
  std::set<Digest> named_;  // blobs that stay
};

}  // namespace

std::uint64_t forget_image(LocalIndex& local, const Digest& image, const std::set<Digest>& staying) {
  return Forgetting(local, image, staying).run();
}

}  // namespace varve::index
