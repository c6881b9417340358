// Images that are looked up without a mount, and trees that are held by a name: what a runtime's plugin asks for, which
// may itself end at any time.
#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/strings.h"
#include "core/base/text/utf8.h"
#include "core/oci/reference.h"
#include "fuse/daemon/daemon.h"
#include "fuse/daemon/kept_images.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

void check_hold_name(const std::string& name) {
  const auto is_odd = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (name.empty() || name.size() > kMaxHoldNameBytes || std::ranges::any_of(name, is_odd) || !is_utf8(name))
    fail<UsageError>("hold: {:?} is no name: 1 to {} bytes of UTF-8 without control characters",
                     name.substr(0, kMaxHoldNameBytes), kMaxHoldNameBytes);
}

std::string words_of(std::uint32_t layers) {
  return layers == 0 ? std::string("all layers") : fmt::format("the first {} layers", layers);
}

// "" where the record was changed by somebody.
std::string repository_of(const OpenedImage& name) {
  try {
    return oci::Reference::parse(name.reference).repository_name();
  } catch (const UsageError&) {
    return "";
  }
}

bool is_tree(const ServedImage& image, const Digest& digest, std::uint32_t layers) {
  if (image.digest() != digest) return false;
  return image.tree_layers() == layers || (image.tree_layers() == 0 && image.layers().size() == layers);
}

}  // namespace

LookedUpImage Daemon::look_up_now(const ImageSpec& spec) {
  const auto image = open(spec).image;
  auto reference = oci::Reference::parse(spec.reference);
  reference.digest = image->digest();
  if (reference.kind == oci::Reference::Kind::kRegistry || reference.kind == oci::Reference::Kind::kLayout)
    reference.tag.reset();
  LookedUpImage looked_up{.image = image->digest(),
                          .reference = reference.is_read_only() ? spec.reference : reference.to_string(),
                          .config_json = std::string(as_text(image->image().config_json)),
                          .layers = {}};
  for (const auto& layer : image->image().manifest.layers) looked_up.layers.push_back(layer.digest);
  return looked_up;
}

LookedUpImage Daemon::look_up(const ImageSpec& spec, std::chrono::milliseconds limit) {
  refuse_if_stopping();
  return look_ups_.look_up(spec, std::clamp(limit, std::chrono::milliseconds(0), kMaxLookUpLimit));
}

// The names by which an image of that digest was opened here from the same repository, then the one that is asked for.
// An index that counts for who asks by tag goes on counting for what that tag was found to mean.
std::vector<ImageSpec> Daemon::specs_of(const ImageSpec& spec, const Digest& digest) const {
  std::vector<ImageSpec> specs;
  const auto repository = oci::Reference::parse(spec.reference).repository_name();
  for (const auto& name : opened_.list()) {
    if (name.image != digest || name.reference == spec.reference || repository_of(name) != repository) continue;
    specs.push_back({.reference = name.reference, .platform = name.platform, .registry = spec.registry});
  }
  specs.push_back(spec);
  return specs;
}

// What a digest names cannot change, so that nobody need be asked about an image that is here with an index.
Daemon::Opened Daemon::open_as_kept_or_now(const ImageSpec& asked) {
  refuse_if_stopping();
  const auto spec = watched(asked);
  const auto digest = oci::Reference::parse(spec.reference).digest;
  if (!digest) return open(spec);
  for (const auto& one : specs_of(spec, *digest)) {
    try {
      auto image = open_kept_image(local_, one, *digest);
      std::vector<std::string> refusals;
      auto here = local_->find_trusted(image, refusals);
      if (!here) continue;
      auto opened =
          serve(one, std::move(image), {.index = std::move(*here), .source = nullptr, .other_notes_only = true});
      opened_.note(one, opened.image->digest());
      proofs_.watch(opened.image);
      return opened;
    } catch (const Error& error) {
      log::debug("{} as it is kept here: {}", one.reference, error.what());
    }
  }
  return open(spec);
}

std::shared_ptr<ServedImage> Daemon::tree_of(const std::shared_ptr<ServedImage>& whole, std::uint32_t layers) {
  const auto all = whole->layers().size();
  if (layers > all) fail<UsageError>("{}: has {} layers, not {}", whole->reference(), all, layers);
  if (layers == 0 || layers == all) return whole;
  const auto shows_it = [&](const ImageMount& mount) {
    const auto& open = mount.mounted->image();
    return open.tree_layers() == layers && open.index_digest() == whole->index_digest() &&
           open.digest() == whole->digest();
  };
  if (auto open = images_.find_image(shows_it)) return open;
  return ServedImage::of_first_layers(*whole, layers, local_, *streams_);
}

HeldTree Daemon::held_tree(const std::string& name, const ImageMount& mount) {
  return {.name = name,
          .image = mount.mounted->image().digest(),
          .layers = mount.mounted->image().tree_layers(),
          .dir = mount.dir,
          .mode = mount.mounted->mode(),
          .why = mount.why};
}

// Under changing_. Absent: nothing is held under that name.
std::optional<HeldTree> Daemon::held_already(const std::string& name, const Digest& image, std::uint32_t layers) {
  const auto dir = leases_.held_at(name);
  const auto* mount = dir ? images_.find(*dir) : nullptr;
  if (mount == nullptr) return std::nullopt;
  const auto& held = mount->mounted->image();
  if (!is_tree(held, image, layers))
    fail<UsageError>("hold: {:?} holds {} of image {}, not {} of image {}; release that first", name,
                     words_of(held.tree_layers()), held.digest().to_string(), words_of(layers), image.to_string());
  return held_tree(name, *mount);
}

HeldTree Daemon::hold(const std::string& name, const ImageSpec& spec, std::uint32_t layers, MountMode mode) {
  check_hold_name(name);
  if (const auto digest = oci::Reference::parse(spec.reference).digest) {
    const Change change(*this);
    refuse_if_stopping();
    drop_vanished_mounts();
    const auto dir = leases_.held_at(name);
    const auto* mount = dir ? images_.find(*dir) : nullptr;
    if (mount != nullptr && is_tree(mount->mounted->image(), *digest, layers)) return held_tree(name, *mount);
  }
  const auto tree = tree_of(open_as_kept_or_now(spec).image, layers);
  get_bearings(*tree, {});
  Change change(*this);
  change.wait_until_unmounted(*tree);
  refuse_if_stopping();
  drop_vanished_mounts();
  if (auto held = held_already(name, tree->digest(), layers)) return std::move(*held);
  if (leases_.holds().size() >= kMaxHolds) fail<Unsupported>("hold: more than {} trees are held", kMaxHolds);
  auto& mount = shared_mount(tree, mode);
  leases_.hold(name, mount.dir);
  write_record();
  log::info("{} is held by {:?}", mount.dir.string(), name);
  if (tree->tree_layers() == 0)
    start_ahead(mount, {});
  else
    start_prefetch(mount);
  return held_tree(name, mount);
}

void Daemon::release(const std::string& name) {
  check_hold_name(name);
  if (leases_.release(name)) log::info("{:?} holds nothing any more", name);
}

std::vector<HeldTree> Daemon::held() {
  std::vector<HeldTree> trees;
  const Change change(*this);
  for (const auto& [name, dir] : leases_.holds())
    if (const auto* mount = images_.find(dir)) trees.push_back(held_tree(name, *mount));
  return trees;
}

// Who knows a held tree by its folder finds it there again.
void Daemon::mount_held_again(const fs::path& dir, const std::shared_ptr<ServedImage>& image, MountMode mode,
                              const std::string& why) {
  const auto names = leases_.held_by(dir);
  if (names.empty()) return;
  try {
    auto mount = std::make_unique<ImageMount>();
    mount->dir = dir;
    mount->shared = true;
    mount->folders = {dir};
    add_mount(std::move(mount), image, mode).why = why;
    log::warn("{}: it was unmounted, and is mounted again, as it is held by {}", dir.string(), joined(names));
  } catch (const std::exception& error) {
    log::error("{}: it was unmounted and cannot be mounted again: {}; {} hold nothing any more", dir.string(),
               error.what(), joined(names));
    for (const auto& name : names) leases_.forget_hold(name);
  }
}

}  // namespace varve::fuse
