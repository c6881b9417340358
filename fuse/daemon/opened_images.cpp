#include "fuse/daemon/opened_images.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/text/json_document.h"
#include "core/index/this_index.h"
#include "fuse/stream/layer_stream.h"
#include "fuse/stream/stored_streams.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxRecordBytes = 64 << 10;

std::map<Digest, std::set<Digest>> layers_by_image(const std::vector<OpenedImage>& opened, index::LocalIndex& local) {
  std::map<Digest, std::set<Digest>> layers;
  for (const auto& one : opened) {
    if (layers.contains(one.image)) continue;
    try {
      layers[one.image] = layers_of(local, one.image);
    } catch (const Error& error) {
      log::debug("images: {}: {}", one.reference, error.what());
    }
  }
  return layers;
}

// What the store has of one layer, under all its maps.
struct LayerOnDisk {
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> stream_bytes;
};

std::optional<std::uint64_t> stream_bytes_of(const StoredLayer& stored, index::LocalIndex& local,
                                             const fs::path& root) {
  const auto map = map_of(stored, local);
  const auto found = map ? index::find_map(root, *map) : nullptr;
  return found ? std::optional(found->stream_bytes) : std::nullopt;
}

std::map<Digest, LayerOnDisk> layers_on_disk(const DaemonPaths& paths, index::LocalIndex& local) {
  std::map<Digest, LayerOnDisk> layers;
  for (const auto& stored : find_stored_layers(paths.store_dir())) {
    auto& layer = layers[stored.layer];
    layer.bytes += bytes_on_disk(folder_in_store(paths.store_dir(), stored));
    if (!layer.stream_bytes) layer.stream_bytes = stream_bytes_of(stored, local, paths.root);
  }
  return layers;
}

std::optional<std::uint64_t> whole_size(const std::set<Digest>& layers, const std::map<Digest, LayerOnDisk>& on_disk,
                                        index::LocalIndex& local, const fs::path& root) {
  std::uint64_t bytes = 0;
  for (const auto& layer : layers) {
    const auto found = on_disk.find(layer);
    const auto size = found != on_disk.end() ? found->second.stream_bytes
                                             : stream_bytes_of({.layer = layer, .map = std::nullopt}, local, root);
    if (!size) return std::nullopt;
    bytes += *size;
  }
  return bytes;
}

}  // namespace

std::set<Digest> layers_of(index::LocalIndex& local, const Digest& image) {
  const auto document = local.repository().manifest(image.to_string());
  const auto manifest = oci::Manifest::parse(document.bytes, document.descriptor.media_type, image.to_string());
  std::set<Digest> layers;
  for (const auto& layer : manifest.layers) layers.insert(layer.digest);
  return layers;
}

fs::path OpenedImages::file_of(const std::string& reference, const std::string& platform, const Digest& image) const {
  return dir_ / (digest_of(as_bytes(reference + '\n' + platform + '\n' + image.to_string())).hex() + ".json");
}

void OpenedImages::note(const ImageSpec& spec, const Digest& image) const try {
  const auto file = file_of(spec.reference, spec.platform, image);
  const nlohmann::json record{{"reference", spec.reference}, {"platform", spec.platform}, {"image", image.to_string()}};
  const auto text = record.dump();
  const auto there = read_file_if_there(file, kMaxRecordBytes);  // perhaps torn by a power loss
  if (there && as_text(*there) == text && ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0) == 0) return;
  fs::create_directories(dir_);
  AtomicFile written(file, 0600);
  written.write(as_bytes(text));
  written.commit(*later_);
} catch (const std::exception& error) {
  log::warn("that {} is in use is not noted for `varve images`: {}", spec.reference, error.what());
}

std::vector<OpenedImage> OpenedImages::list() const {
  std::vector<OpenedImage> images;
  std::error_code none;
  for (fs::directory_iterator at(dir_, none), end; !none && at != end; at.increment(none)) {
    const auto file = at->path();
    if (file.extension() != ".json") continue;
    try {
      const auto record = JsonValue::parse(read_file(file, kMaxRecordBytes), file.string(), {.bytes = kMaxRecordBytes});
      struct stat status {};
      if (::stat(file.c_str(), &status) != 0) continue;  // gone meanwhile
      images.push_back({.reference = record["reference"].text(),
                        .platform = record["platform"].text(),
                        .image = record["image"].digest(),
                        .last_used = status.st_mtim.tv_sec});
    } catch (const std::exception& error) {
      log::warn("images: {}", error.what());
    }
  }
  std::ranges::sort(images, [](const OpenedImage& one, const OpenedImage& other) {
    return std::tie(other.last_used, one.reference, one.image) < std::tie(one.last_used, other.reference, other.image);
  });
  std::set<std::pair<std::string, std::string>> seen;
  for (auto& one : images) one.current = seen.emplace(one.reference, one.platform).second;
  return images;
}

void OpenedImages::forget(const Digest& image) const {
  for (const auto& one : list()) {
    if (one.image == image) fs::remove(file_of(one.reference, one.platform, image));
  }
}

std::vector<Digest> layers_of_its_own(const OpenedImages& opened, index::LocalIndex& local, const Digest& image) {
  auto own = layers_of(local, image);
  // The store may have something of its start-up packs, too.
  auto packs = index::packs_named(local, image);
  for (const auto& [other, layers] : layers_by_image(opened.list(), local)) {
    if (other == image) continue;
    for (const auto& layer : layers) own.erase(layer);
    if (packs.empty()) continue;
    for (const auto& pack : index::packs_named(local, other)) packs.erase(pack);
  }
  own.merge(packs);
  return {own.begin(), own.end()};
}

StoredImages find_stored_images(const DaemonPaths& paths, index::LocalIndex& local) {
  const auto opened = OpenedImages(paths.root).list();
  const auto layers = layers_by_image(opened, local);
  const auto on_disk = layers_on_disk(paths, local);
  std::map<Digest, unsigned> users;
  for (const auto& [image, its] : layers)
    for (const auto& layer : its) ++users[layer];
  StoredImages stored;
  for (const auto& [layer, what] : on_disk)
    if (!users.contains(layer)) stored.other_bytes += what.bytes;
  std::map<Digest, std::size_t> at;
  for (const auto& one : opened) {
    const auto found = layers.find(one.image);
    if (found == layers.end()) continue;
    const auto [place, is_new] = at.emplace(one.image, stored.images.size());
    if (!is_new) {
      stored.images[place->second].names.push_back(one);
      continue;
    }
    StoredImage image{.image = one.image,
                      .names = {one},
                      .image_stream_bytes = whole_size(found->second, on_disk, local, paths.root)};
    for (const auto& layer : found->second) {
      const auto here = on_disk.find(layer);
      if (here == on_disk.end()) continue;
      image.disk_bytes += here->second.bytes;
      if (users[layer] == 1) image.own_bytes += here->second.bytes;
    }
    stored.images.push_back(std::move(image));
  }
  std::erase_if(stored.images, [](const StoredImage& image) { return image.disk_bytes == 0; });
  return stored;
}

}  // namespace varve::fuse
