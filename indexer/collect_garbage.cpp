#include "indexer/collect_garbage.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <map>
#include <set>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/oci/layout.h"
#include "core/oci/manifest.h"

namespace varve::indexer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTrash = "varve-trash";  // beside blobs/, so that a rename moves nothing

bool has_name(const oci::Descriptor& entry) {
  return entry.annotations.contains(std::string(oci::kRefNameAnnotation)) ||
         entry.annotations.contains(std::string(oci::kContainerdNameAnnotation));
}

// The subject of a list that other tools keep under the tag fallback of the distribution spec.
std::optional<Digest> fallback_subject(const oci::Descriptor& entry) {
  const auto tag = entry.annotations.find(std::string(oci::kRefNameAnnotation));
  return tag == entry.annotations.end() ? std::nullopt : oci::tag_subject(tag->second);
}

class Collector {
 public:
  Collector(fs::path dir, const GarbageOptions& options)
      : dir_(std::move(dir)), options_(options), blobs_(dir_ / "blobs" / "sha256") {}

  GarbageReport run() {
    oci::LayoutRepository check(dir_);  // or it is no layout folder
    const auto lock = oci::lock_layout(dir_);
    restore_trash();
    mark();
    check_is_of_images();
    report_ = {};
    const auto garbage = unreached_blobs();
    if (options_.dry_run) return std::move(report_);
    put_into_trash(garbage);
    // What another tool added meanwhile may have found its blobs here and not sent them; a push of ours made those
    // young that it found.
    try {
      mark();
    } catch (const std::exception&) {
      restore_trash();
      throw;
    }
    for (const auto& digest : garbage) {
      if (reached_.contains(digest) || is_young(dir_ / kTrash / digest.hex())) take_from_trash(digest);
    }
    drop_entries();
    fs::remove_all(dir_ / kTrash);
    report_.freed_bytes += remove_abandoned_files(blobs_ / "") + remove_abandoned_files(dir_ / "index.json");
    return std::move(report_);
  }

 private:
  // index.json and its entries as they are now.
  void read_entries() {
    const auto what = (dir_ / "index.json").string();
    entries_ = oci::ImageIndex::parse(read_file(dir_ / "index.json", oci::kMaxIndexJsonBytes), what).manifests;
  }

  // Pins are images that may have no other name: without the whole list nobody knows what they reach. Index and
  // signatures stay also where index.json names them no more.
  void reach_pins() {
    oci::LayoutRepository repository(dir_);
    for (const auto& pin : read_whole_list(repository, options_.known_pins, "nothing was removed")) {
      reached_.insert(pin.signatures.begin(), pin.signatures.end());
      try {
        reach(pin.image, true, 0);
        if (!pin.index) continue;
        oci::Descriptor index;
        index.media_type = oci::kOciManifestType;
        index.digest = *pin.index;
        reach(index, true, 0);
      } catch (const CorruptData& error) {
        fail<CorruptData>("{}; it is promised by {}: bring it back, or `varve pin rm {}@{}` takes the promise back",
                          error.what(), promise_text(pin), repository.name(), pin.image.digest.to_string());
      }
    }
  }

  void mark() {
    reached_.clear();
    visited_.clear();
    reach_pins();
    read_entries();
    std::vector<const oci::Descriptor*> artifacts;
    for (const auto& entry : entries_) {
      if (fallback_subject(entry) || subject_of(entry)) {
        artifacts.push_back(&entry);
      } else if (has_name(entry) || !options_.untagged) {
        reach(entry, true, 0);
      }
    }
    // Artifacts of artifacts (a signature of an index) are reached by rounds.
    for (bool more = true; more;) {
      more = false;
      for (const auto* entry : artifacts) {
        const auto subject = subject_of_artifact(*entry);
        if (visited_.contains(visit_of(*entry)) ||
            (!reached_.contains(*subject) && !(has_name(*entry) && !fallback_subject(*entry))))
          continue;
        reach(*entry, true, 0);
        more = true;
      }
    }
  }

  std::optional<Digest> subject_of_artifact(const oci::Descriptor& entry) {
    const auto subject = fallback_subject(entry);
    return subject ? subject : subject_of(entry);
  }

  // What speaks of images that lie elsewhere, no image here reaches.
  void check_is_of_images() {
    if (entries_.empty() || !reached_.empty()) return;
    std::set<Digest> artifacts, subjects;
    for (const auto& entry : entries_) {
      const auto subject = subject_of_artifact(entry);
      if (!subject) return;
      artifacts.insert(entry.digest);
      subjects.insert(*subject);
    }
    for (const auto& digest : subjects)
      if (!artifacts.contains(digest) && fs::exists(path_of(digest))) return;
    fail<UsageError>(
        "{}: it has no image, only what is said of images elsewhere, as `varve index --to` and the folder `index` of a "
        "machine's state do; nothing was removed",
        dir_.string());
  }

  // Absent for what is no artifact, and for what cannot be read: such entries count as images, which stops us if they
  // are reached.
  std::optional<Digest> subject_of(const oci::Descriptor& entry) {
    if (!oci::is_manifest_media_type(entry.media_type)) return std::nullopt;
    if (const auto known = subjects_.find(entry.digest); known != subjects_.end()) return known->second;
    std::optional<Digest> subject;
    try {
      if (const auto bytes = read_file_if_there(path_of(entry.digest), oci::kMaxManifestBytes)) {
        const auto manifest = oci::Manifest::parse(*bytes, entry.media_type, entry.digest.to_string());
        if (manifest.subject) subject = manifest.subject->digest;
      }
    } catch (const Error&) {
      // Said when it is reached.
    }
    subjects_.emplace(entry.digest, subject);
    return subject;
  }

  // Whoever names a manifest as a layer has not looked into it.
  static std::pair<Digest, bool> visit_of(const oci::Descriptor& descriptor) {
    return {descriptor.digest,
            oci::is_index_media_type(descriptor.media_type) || oci::is_manifest_media_type(descriptor.media_type)};
  }

  void reach(const oci::Descriptor& descriptor, bool required, int depth) {
    reached_.insert(descriptor.digest);
    if (!visited_.insert(visit_of(descriptor)).second) return;
    const bool index = oci::is_index_media_type(descriptor.media_type);
    if (!index && !oci::is_manifest_media_type(descriptor.media_type)) return;
    if (depth > oci::kMaxIndexDepth)
      fail<Unsupported>("{}: indexes nested deeper than {}", descriptor.digest.to_string(), oci::kMaxIndexDepth);
    const auto bytes = read_file_if_there(path_of(descriptor.digest), oci::kMaxManifestBytes);
    if (!bytes) {
      if (!required) return;  // other platforms of an image need not be here
      fail<CorruptData>("{}: {} is missing, so what it reaches is not known; nothing was removed", dir_.string(),
                        descriptor.digest.to_string());
    }
    const auto what = fmt::format("{} {}", dir_.string(), descriptor.digest.to_string());
    if (digest_of(*bytes) != descriptor.digest)
      fail<CorruptData>("{}: the content does not match the digest; nothing was removed", what);
    if (index) {
      for (const auto& child : oci::ImageIndex::parse(*bytes, what).manifests) reach(child, false, depth + 1);
      return;
    }
    const auto manifest = oci::Manifest::parse(*bytes, descriptor.media_type, what);
    reached_.insert(manifest.config.digest);
    for (const auto& layer : manifest.layers) reached_.insert(layer.digest);
  }

  // Also fills the report with what is there.
  std::vector<Digest> unreached_blobs() {
    std::vector<Digest> garbage;
    for (const auto& file : fs::directory_iterator(blobs_)) {
      const auto digest = Digest::try_parse("sha256:" + file.path().filename().string());
      struct stat status {};
      if (!digest || ::lstat(file.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
      const auto bytes = std::uint64_t(status.st_size);
      if (reached_.contains(*digest)) {
        report_.kept_bytes += bytes;
      } else if (is_young(file.path())) {
        report_.young_bytes += bytes;
        young_.insert(*digest);
      } else {
        report_.freed_bytes += bytes;
        garbage.push_back(*digest);
      }
    }
    std::ranges::sort(garbage);
    report_.removed = garbage;
    for (const auto& entry : entries_) {
      if (!reached_.contains(entry.digest) && !young_.contains(entry.digest))
        report_.removed_manifests.push_back(entry.digest);
    }
    return garbage;
  }

  bool is_young(const fs::path& file) const {
    struct stat status {};
    return ::lstat(file.c_str(), &status) == 0 && std::time(nullptr) - status.st_mtime < options_.grace_seconds;
  }

  void put_into_trash(const std::vector<Digest>& garbage) {
    fs::create_directories(dir_ / kTrash);
    for (const auto& digest : garbage) fs::rename(path_of(digest), dir_ / kTrash / digest.hex());
  }

  void take_from_trash(const Digest& digest) {
    const auto thrown = dir_ / kTrash / digest.hex();
    std::error_code none;
    const auto bytes = fs::file_size(thrown, none);
    if (none) return;
    fs::rename(thrown, path_of(digest));
    report_.freed_bytes -= bytes;
    report_.kept_bytes += bytes;
    std::erase(report_.removed, digest);
    std::erase(report_.removed_manifests, digest);
  }

  // A run before this one may have been killed between throwing away and looking again.
  void restore_trash() {
    std::error_code none;
    for (const auto& file : fs::directory_iterator(dir_ / kTrash, none)) {
      const auto digest = Digest::try_parse("sha256:" + file.path().filename().string());
      if (digest && !fs::exists(path_of(*digest))) fs::rename(file.path(), path_of(*digest));
    }
    fs::remove_all(dir_ / kTrash);
  }

  void drop_entries() {
    std::set<Digest> removed(report_.removed_manifests.begin(), report_.removed_manifests.end());
    std::erase_if(removed, [&](const Digest& digest) { return reached_.contains(digest); });
    oci::drop_entries(dir_, removed);
  }

  fs::path path_of(const Digest& digest) const { return blobs_ / digest.hex(); }

  fs::path dir_;
  const GarbageOptions& options_;
  fs::path blobs_;
  std::vector<oci::Descriptor> entries_;
  std::map<Digest, std::optional<Digest>> subjects_;
  std::set<Digest> reached_;
  std::set<std::pair<Digest, bool>> visited_;  // and whether as a document
  std::set<Digest> young_;
  GarbageReport report_;
};

}  // namespace

GarbageReport collect_garbage(const fs::path& layout_dir, const GarbageOptions& options) {
  return Collector(layout_dir, options).run();
}

}  // namespace varve::indexer
