#include "fuse/podman/image_store.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/private_folder.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/text/base64.h"
#include "core/base/text/calendar.h"
#include "core/base/text/json_document.h"
#include "core/base/text/strings.h"
#include "core/oci/manifest.h"
#include "fuse/control/control_protocol.h"

namespace varve::fuse::podman {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::uint64_t kMaxRecordBytes = 1 << 20;
constexpr std::uint64_t kMaxOwnListBytes = 64 << 20;
constexpr std::size_t kMaxNames = 1'000;
constexpr std::size_t kLinkLetters = 26;
constexpr std::size_t kStampBytes = 64;  // what containers/storage writes into a lock file to say that it wrote
constexpr std::uint64_t kEmptyLayerBytes = 1'024;             // of the tar of an empty folder
constexpr std::string_view kNoTime = "0001-01-01T00:00:00Z";  // as Go writes a time that is not known

// Stands for the digest of a layer's content, which is nobody's: else podman would take ours for the layer of another
// image, or another's for ours.
std::string layer_content(const StoredImage& image, std::size_t number) {
  return digest_of(fmt::format("varve podman\n{}\n{}", image.manifests.front().to_string(), number)).hex();
}

// A folder that nobody else may put anything into.
void make_own_folder(const fs::path& dir) {
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) fail_errno("make {}", dir.string());
  struct stat status {};
  if (::lstat(dir.c_str(), &status) != 0) fail_errno("look at {}", dir.string());
  if (!S_ISDIR(status.st_mode))
    fail<UsageError>("{}: no folder, though podman's store needs one there; remove it", dir.string());
  if (status.st_uid != ::geteuid() || (status.st_mode & 022) != 0)
    fail<UsageError>("{}: others may write to it; a store of images must be this user's alone", dir.string());
}

// containers/storage keeps documents in files of their name, if that is plain.
std::string file_of_document(std::string_view name) {
  const bool plain =
      std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.'; });
  return plain ? std::string(name) : "=" + base64_encode(name);
}

std::string manifest_name(const Digest& manifest) { return "manifest-" + manifest.to_string(); }

// The documents of an image, by their names in the store, and what each must be.
std::vector<std::pair<std::string, Digest>> documents_of(const StoredImage& image) {
  std::vector<std::pair<std::string, Digest>> documents{{"manifest", image.manifests.front()}};
  for (const auto& manifest : image.manifests) documents.emplace_back(manifest_name(manifest), manifest);
  documents.emplace_back(image.config.to_string(), image.config);
  return documents;
}

std::string created_or_none(const std::string& text) { return parse_rfc3339(text) ? text : std::string(kNoTime); }

json layers_json(const StoredImage& image) {
  auto list = json::array();
  const auto ids = image.layer_ids();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    json layer{{"id", ids[i]},
               {"created", created_or_none(image.created)},
               {"diff-digest", "sha256:" + layer_content(image, i)},
               {"diff-size", i + 1 == ids.size() ? image.bytes : kEmptyLayerBytes},
               {"uidset", {0}},
               {"gidset", {0}}};
    if (!list.empty()) layer["parent"] = list.back()["id"];
    list.push_back(std::move(layer));
  }
  return list;
}

// Those of a list as it stands; none of one that others have damaged, as it is written anew from the records.
json layers_listed(const fs::path& list) {
  const auto content = read_file_if_there(list, kMaxOwnListBytes);
  if (!content) return json::array();
  try {
    auto layers = json::array();
    for (const auto& layer : JsonValue::parse(*content, list.string(), {.bytes = kMaxOwnListBytes}).items())
      if (layer.has("id")) layers.push_back(layer.raw());
    return layers;
  } catch (const Error& error) {
    log::warn("{}; it is written anew", error.what());
    return json::array();
  }
}

void write_unless_there(const fs::path& file, std::string_view content) {
  const auto before = read_file_if_there(file, kMaxRecordBytes);
  if (!before || as_text(*before) != content) write_file_atomically(file, as_bytes(content), 0600);
}

UniqueFd lock_folder(const fs::path& dir) {
  auto folder = open_file(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  while (::flock(folder.get(), LOCK_EX) != 0)
    if (errno != EINTR) fail_errno("lock {}", dir.string());
  return folder;
}

}  // namespace

std::vector<std::string> StoredImage::layer_ids() const {
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < layers; ++i) {
    const auto content = layer_content(*this, i);
    ids.push_back(ids.empty() ? content : digest_of(ids.back() + "+" + content).hex());
  }
  return ids;
}

std::string link_of(std::string_view layer_id) {
  std::string link;
  for (const char c : layer_id.substr(0, kLinkLetters)) link += char('A' + hex_digit(c));
  return link;
}

std::string podman_name(const oci::Reference& reference) {
  if (reference.kind != oci::Reference::Kind::kRegistry)
    fail<UsageError>("{}: only images of a registry have a name that podman knows; give it one with --name",
                     reference.to_string());
  const auto repository = reference.repository_name();
  return reference.digest ? repository + "@" + reference.digest->to_string()
                          : repository + ":" + reference.tag.value_or("latest");
}

std::string parse_podman_name(const std::string& typed) {
  const auto first = typed.substr(0, typed.find('/'));
  const bool has_host =
      first.size() < typed.size() && (first == "localhost" || first.find_first_of(".:") != first.npos);
  return podman_name(oci::Reference::parse("docker://" + (has_host ? typed : "localhost/" + typed)));
}

StoredImage parse_stored_image(std::string_view text, std::string_view what) {
  const auto record = JsonValue::parse(text, what, {.bytes = kMaxRecordBytes});
  if (record["format"].number<int>(0, 1'000'000) != kFormat)
    record.refuse("is of another version of Varve: it has another format");
  StoredImage image;
  image.config = record["config"].digest();
  for (const auto& manifest : record["manifests"].items(kMaxNames)) image.manifests.push_back(manifest.digest());
  if (image.manifests.empty()) record["manifests"].refuse("is empty");
  for (const auto& name : record["names"].items(kMaxNames)) {
    try {
      image.names.push_back(podman_name(oci::Reference::parse("docker://" + name.text())));
    } catch (const UsageError& error) {
      name.refuse(error.what());
    }
  }
  image.layers = record["layers"].number<std::uint32_t>(1, oci::kMaxLayers);
  image.bytes = record["bytes"].number<std::uint64_t>(0, std::uint64_t(1) << 62);
  image.created = created_or_none(record["created"].text(100));
  try {
    image.mode = parse_mount_mode(record["mode"].text());
    oci::Reference::parse(record["spec"]["reference"].text());
  } catch (const UsageError& error) {
    record.refuse(error.what());
  }
  image.spec = read_image_spec(record["spec"]);
  return image;
}

std::string stored_image_json(const StoredImage& image) {
  auto manifests = json::array();
  for (const auto& manifest : image.manifests) manifests.push_back(manifest.to_string());
  return json{{"format", kFormat},
              {"config", image.config.to_string()},
              {"manifests", std::move(manifests)},
              {"names", image.names},
              {"layers", image.layers},
              {"bytes", image.bytes},
              {"created", image.created},
              {"mode", image.mode},
              {"spec", image.spec}}
             .dump(1) +
         "\n";
}

ImageStore::ImageStore(fs::path dir) : dir_(std::move(dir)) {
  make_private_folder(dir_);
  make_own_folder(fs::is_symlink(dir_) ? fs::canonical(dir_) : dir_);
  dir_ = fs::canonical(dir_);  // as mounts will name it
  lock_ = lock_folder(dir_);
  for (const auto* folder : {"overlay", "overlay/l", "overlay-images", "overlay-layers", "varve"})
    make_own_folder(dir_ / folder);
  for (const auto* lock : {"overlay-images/images.lock", "overlay-layers/layers.lock", "storage.lock"}) {
    const auto file = open_file(dir_ / lock, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
    struct stat status {};
    if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
      fail<UsageError>("{}: no file, though podman's store needs one there; remove it", (dir_ / lock).string());
  }
}

fs::path ImageStore::record_file(const StoredImage& image) const { return dir_ / "varve" / (image.id() + ".json"); }

fs::path ImageStore::document_file(const StoredImage& image, std::string_view name) const {
  return dir_ / "overlay-images" / image.id() / file_of_document(name);
}

fs::path ImageStore::tree_dir(const StoredImage& image) const { return dir_ / "overlay" / image.top_layer() / "diff"; }

bool ImageStore::is_whole(const StoredImage& image) const {
  for (const auto& [name, digest] : documents_of(image)) {
    const auto file = document_file(image, name);
    const auto content = read_file_if_there(file, oci::kMaxConfigBytes);
    if (content && digest_of(*content) == digest) continue;
    log::warn("{}: {}; podman is not shown image {} until `varve podman add` names it again", file.string(),
              content ? "it is not what its name says" : "there is no such file", image.id());
    return false;
  }
  return true;
}

std::vector<StoredImage> ImageStore::images() const {
  std::vector<StoredImage> images;
  for (const auto& entry : fs::directory_iterator(dir_ / "varve")) {
    const auto file = entry.path();
    if (file.extension() != ".json") continue;
    try {
      auto image = parse_stored_image(as_text(read_file(file, kMaxRecordBytes)), file.string());
      if (record_file(image) != file) fail<CorruptData>("{}: it is the record of another image", file.string());
      if (is_whole(image)) images.push_back(std::move(image));
    } catch (const Error& error) {
      log::warn("{}; remove the file, and add the image again", error.what());
    }
  }
  std::ranges::sort(images, [](const StoredImage& one, const StoredImage& other) {
    return std::tie(one.names, one.config) < std::tie(other.names, other.config);
  });
  return images;
}

fs::path ImageStore::make_folders(const StoredImage& image) const {
  std::string lower;
  for (const auto& id : image.layer_ids()) {
    const auto layer = dir_ / "overlay" / id;
    make_own_folder(layer);
    if (::mkdir((layer / "diff").c_str(), 0755) != 0 && errno != EEXIST) fail_errno("make {}/diff", layer.string());
    if (!fs::is_directory(fs::symlink_status(layer / "diff")))
      fail<UsageError>("{}/diff: no folder, though podman's store needs one there; remove it", layer.string());
    const auto link = link_of(id);
    write_unless_there(layer / "link", link);
    if (!lower.empty()) write_unless_there(layer / "lower", lower);
    lower = "l/" + link + (lower.empty() ? "" : ":") + lower;
    const auto short_name = dir_ / "overlay/l" / link;
    const auto target = fs::path("..") / id / "diff";
    std::error_code none;
    if (fs::read_symlink(short_name, none) == target) continue;
    fs::remove(short_name);
    fs::create_symlink(target, short_name);
  }
  return tree_dir(image);
}

void ImageStore::put(const StoredImage& image, ByteView manifest, ByteView config) const {
  make_own_folder(dir_ / "overlay-images" / image.id());
  const auto write = [&](std::string_view name, ByteView content) {
    write_file_atomically(document_file(image, name), content, 0600);
  };
  if (image.manifests.size() == 1) write("manifest", manifest);
  write(manifest_name(image.manifests.back()), manifest);
  write(image.config.to_string(), config);
  update(image);
}

void ImageStore::update(const StoredImage& image) const {
  write_file_atomically(record_file(image), as_bytes(stored_image_json(image)), 0600);
}

void ImageStore::remove(const StoredImage& image) const {
  // Not what is in them: should something be mounted there after all, this fails, and the image stays.
  for (const auto& id : image.layer_ids()) fs::remove(dir_ / "overlay" / id / "diff");
  fs::remove(record_file(image));
  fs::remove_all(dir_ / "overlay-images" / image.id());
  for (const auto& id : image.layer_ids()) {
    fs::remove(dir_ / "overlay/l" / link_of(id));
    fs::remove_all(dir_ / "overlay" / id);
  }
}

// What reads the store compares the lock file with what it saw there before.
bool ImageStore::replace(const fs::path& list, const std::string& content) const {
  const auto before = read_file_if_there(list, kMaxOwnListBytes);
  if (before && as_text(*before) == content) return false;
  write_file_atomically(list, as_bytes(content), 0600);
  const auto lock = fs::path(list).replace_extension(".lock");
  const auto file = open_file(lock, O_WRONLY | O_NOFOLLOW);
  pwrite_all(file.get(), 0, random_bytes(kStampBytes), lock.string());
  return true;
}

void ImageStore::publish(const std::function<bool(const fs::path& tree)>& is_mounted) const {
  auto list = json::array();
  auto layers = json::array();
  for (const auto& image : images()) {
    if (!is_mounted(tree_dir(image))) continue;
    make_folders(image);
    for (auto& layer : layers_json(image)) layers.push_back(std::move(layer));
    auto names = json::array();
    auto sizes = json::object();
    auto digests = json::object();
    for (const auto& [name, digest] : documents_of(image)) {
      names.push_back(name);
      sizes[name] = fs::file_size(document_file(image, name));
      digests[name] = digest.to_string();
    }
    list.push_back({{"id", image.id()},
                    {"digest", image.manifests.front().to_string()},
                    {"names", image.names},
                    {"layer", image.top_layer()},
                    {"metadata", "{}"},
                    {"created", created_or_none(image.created)},
                    {"big-data-names", std::move(names)},
                    {"big-data-sizes", std::move(sizes)},
                    {"big-data-digests", std::move(digests)}});
  }
  // An image that is listed finds its layers: they come before it, and go after it.
  const auto layers_file = dir_ / "overlay-layers/layers.json";
  auto both = layers;
  for (auto& layer : layers_listed(layers_file))
    if (std::ranges::find(layers, layer["id"], [](const json& one) { return one["id"]; }) == layers.end())
      both.push_back(std::move(layer));
  replace(layers_file, both.dump());
  replace(dir_ / "overlay-images/images.json", list.dump());
  replace(layers_file, layers.dump());
}

}  // namespace varve::fuse::podman
