#include "fuse/podman/lazy_images.h"

#include <algorithm>
#include <map>

#include "core/base/error_text.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/json_document.h"
#include "core/base/text/nearest.h"
#include "core/base/text/strings.h"
#include "core/oci/manifest.h"
#include "core/oci/repository.h"
#include "fuse/podman/store_users.h"

namespace varve::fuse::podman {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLeastOfId = 4;

struct Mounted {
  Digest image;
  MountMode mode = MountMode::kFuse;
};

// By folder; what `varve mount` would list.
std::map<fs::path, Mounted> mounts_of(ControlClient* daemon) {
  std::map<fs::path, Mounted> mounts;
  if (daemon == nullptr) return mounts;
  for (const auto& mount : daemon->status().mounts)
    if (!mount.session) mounts[mount.dir] = {.image = mount.stats.image, .mode = mount.mode};
  return mounts;
}

bool shows(const std::map<fs::path, Mounted>& mounts, const fs::path& tree, const StoredImage& image) {
  const auto found = mounts.find(tree);
  return found != mounts.end() && found->second.image == image.manifests.front();
}

void publish(const ImageStore& store, ControlClient* daemon) {
  const auto mounts = mounts_of(daemon);
  store.publish([&](const fs::path& tree) { return mounts.contains(tree); });
}

ImageSpec by_digest(ImageSpec spec, const Digest& image) {
  auto reference = oci::Reference::parse(spec.reference);
  reference.tag.reset();
  reference.digest = image;
  spec.reference = reference.to_string();
  return spec;
}

// By its digest, which needs no registry once it was opened here. An index that counts only for who asks by tag
// (docs/guide/trust.md) counts for the name that the image was added by, as long as that means this image.
MountResult mount_tree(ControlClient& daemon, const StoredImage& image, const fs::path& tree, bool prefetch) {
  const auto& digest = image.manifests.front();
  try {
    return daemon.mount(by_digest(image.spec, digest), tree, image.mode, {.prefetch = prefetch});
  } catch (const std::exception& error) {
    if (oci::Reference::parse(image.spec.reference).digest) throw;
    log::debug("{}: {}", digest.to_string(), error.what());
  }
  auto mounted = daemon.mount(image.spec, tree, image.mode, {.prefetch = prefetch});
  if (mounted.image == digest) return mounted;
  daemon.unmount(tree, false);
  return daemon.mount(by_digest(image.spec, digest), tree, image.mode,
                      {.prefetch = prefetch});  // says why it cannot be
}

struct Documents {
  Bytes manifest;
  std::string config;
};

StoredImage describe(const AddRequest& request, const AcquiredImage& acquired, const Documents& documents) {
  const auto what = acquired.image.to_string();
  const auto manifest = oci::Manifest::parse(documents.manifest, "", what);
  const auto config = JsonValue::parse(documents.config, what + " config", {.bytes = oci::kMaxConfigBytes});
  if (manifest.layers.empty()) fail<Unsupported>("{}: an image without layers is nothing to mount", what);
  StoredImage image;
  image.config = manifest.config.digest;
  image.manifests = {acquired.image};
  image.names = {request.name};
  image.layers = manifest.layers.size();
  image.bytes = acquired.stats.image_stream_bytes;
  image.created = config.maybe("created").text();
  image.mode = request.mode;
  image.spec = request.image;
  return image;
}

// The name moves: no two images have it. Returns the ID of the image that had it.
std::string take_name(const ImageStore& store, std::vector<StoredImage>& images, const StoredImage& to,
                      const std::string& name) {
  std::string had;
  for (auto& other : images) {
    if (other.config == to.config || std::erase(other.names, name) == 0) continue;
    store.update(other);
    had = other.id();
  }
  return had;
}

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return hex_digit(c) >= 0; });
}

struct Choice {
  StoredImage image;
  std::string name;  // by which it was found; "" = by ID or digest
};

Choice choose(const std::vector<StoredImage>& images, const std::string& typed) {
  std::string full;
  try {
    full = podman_name(oci::Reference::parse(typed));
  } catch (const Error&) {  // perhaps an ID
  }
  std::string local;
  try {
    local = parse_podman_name(typed);
  } catch (const Error&) {
  }
  std::vector<const StoredImage*> by_id;
  std::vector<std::string> names;
  for (const auto& image : images) {
    for (const auto& name : image.names) {
      if (name == typed || name == full || name == local) return {.image = image, .name = name};
      names.push_back(name);
    }
    const auto digest = Digest::try_parse(typed);
    const bool is_digest = digest && (*digest == image.config || std::ranges::count(image.manifests, *digest) != 0);
    const bool is_id = typed.size() >= kLeastOfId && is_hex(typed) && image.id().starts_with(typed);
    if (is_digest || is_id) by_id.push_back(&image);
  }
  if (by_id.size() > 1) fail<UsageError>("{}: several images begin so; say more of the ID", typed);
  if (by_id.empty())
    fail<NotFound>("{}: podman has no such image from Varve{}; `varve podman ls` lists them", typed,
                   did_you_mean(typed, std::move(names), 1));
  return {.image = *by_id.front(), .name = {}};
}

void refuse_if_used(const StoredImage& image, const fs::path& tree, const StorageConf& conf,
                    const RemoveRequest& request) {
  std::vector<std::string> users;
  try {
    users = find_users(image, read_storage_lists(conf));
  } catch (const Error& error) {
    if (!request.force)
      fail<Error>("{}: who uses the image cannot be told: {}; --force removes it all the same", request.image,
                  error.what());
  }
  const auto mounted = find_mounted_users(tree);
  if (!mounted.empty()) {
    if (users.empty()) users = mounted;
    fail<Error>("{}: it is in use by {}; end that first: without the image it would lose its files", request.image,
                joined(users));
  }
  if (!users.empty() && !request.force)
    fail<Error>("{}: {} would not start without it; remove that first (`podman rm`, `podman rmi`), or say --force",
                request.image, joined(users));
}

}  // namespace

AddedImage add_image(const fs::path& dir, ControlClient& daemon, index::LocalIndex& local, const AddRequest& request) {
  // Held until it is mounted, so that it is not opened twice.
  const auto acquired = daemon.acquire(request.image, request.mode, {.prefetch = false});
  const Documents documents{.manifest = local.repository().manifest(acquired.image.to_string()).bytes,
                            .config = acquired.config_json};
  const ImageStore store(dir);
  auto images = store.images();
  AddedImage added;
  auto image = describe(request, acquired, documents);
  const auto same = std::ranges::find(images, image.config, &StoredImage::config);
  bool is_new_document = true;
  if (same != images.end()) {
    // The same content, perhaps packed in another way: what is mounted stays.
    const auto manifest = image.manifests.front();
    image = *same;
    is_new_document = std::ranges::find(image.manifests, manifest) == image.manifests.end();
    if (is_new_document) image.manifests.push_back(manifest);
    added.was_there = !is_new_document && std::ranges::find(image.names, request.name) != image.names.end();
    if (std::ranges::find(image.names, request.name) == image.names.end()) image.names.push_back(request.name);
  }
  added.tree = store.make_folders(image);
  const auto mounts = mounts_of(&daemon);
  if (shows(mounts, added.tree, image)) {
    added.mode = mounts.at(added.tree).mode;
  } else {
    const auto mounted = mount_tree(daemon, image, added.tree, request.prefetch);
    added.mode = mounted.mode;
    added.why = mounted.why;
    added.was_there = false;
  }
  if (is_new_document)
    store.put(image, documents.manifest, as_bytes(documents.config));
  else
    store.update(image);
  added.moved_from = take_name(store, images, image, request.name);
  publish(store, &daemon);
  added.image = std::move(image);
  return added;
}

RemovedName remove_image(const fs::path& dir, ControlClient* daemon, const StorageConf& conf,
                         const RemoveRequest& request) {
  const ImageStore store(dir);
  auto [image, name] = choose(store.images(), request.image);
  RemovedName removed{.id = image.id(), .name = name};
  if (!name.empty() && image.names.size() > 1) {
    std::erase(image.names, name);
    store.update(image);
    publish(store, daemon);
    return removed;
  }
  const auto tree = store.tree_dir(image);
  refuse_if_used(image, tree, conf, request);
  const auto mounts = mounts_of(daemon);
  // Out of the lists first: who looks meanwhile does not find what goes.
  store.publish([&](const fs::path& one) { return one != tree && mounts.contains(one); });
  if (mounts.contains(tree)) daemon->unmount(tree, false);
  store.remove(image);
  removed.is_gone = true;
  return removed;
}

std::vector<ListedImage> list_images(const fs::path& dir, ControlClient* daemon, const StorageConf& conf) {
  std::error_code none;
  if (!fs::exists(dir, none)) return {};
  const ImageStore store(dir);
  const auto mounts = mounts_of(daemon);
  StorageLists lists;
  try {
    lists = read_storage_lists(conf);
  } catch (const std::exception& error) {
    log::warn("which containers use an image cannot be told: {}", error.what());
  }
  std::vector<ListedImage> listed;
  for (auto& image : store.images()) {
    ListedImage one;
    one.tree = store.tree_dir(image);
    one.mounted = shows(mounts, one.tree, image);
    if (one.mounted) one.mode = mounts.at(one.tree).mode;
    one.used_by = find_users(image, lists);
    if (one.used_by.empty()) one.used_by = find_mounted_users(one.tree);
    one.image = std::move(image);
    listed.push_back(std::move(one));
  }
  return listed;
}

RestoredImages restore_images(const fs::path& dir, ControlClient& daemon) {
  const ImageStore store(dir);
  RestoredImages restored{.images = {}, .failed = {}, .may_pass = true};
  const auto mounts = mounts_of(&daemon);
  for (auto& image : store.images()) {
    ListedImage one;
    one.tree = store.make_folders(image);
    one.mounted = shows(mounts, one.tree, image);
    const auto name = image.names.empty() ? image.id() : image.names.front();
    try {
      one.mode = one.mounted ? mounts.at(one.tree).mode : mount_tree(daemon, image, one.tree, true).mode;
      one.mounted = true;
    } catch (const std::exception& error) {
      restored.failed.push_back(fmt::format("{}: {}", name, error_text(error)));
      restored.may_pass = restored.may_pass && dynamic_cast<const TemporaryError*>(&error) != nullptr;
    }
    one.image = std::move(image);
    restored.images.push_back(std::move(one));
  }
  publish(store, &daemon);
  return restored;
}

}  // namespace varve::fuse::podman
