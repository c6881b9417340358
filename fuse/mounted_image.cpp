#include "fuse/mounted_image.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/blob_operations.h"
#include "fuse/erofs_mount.h"
#include "fuse/fuse_channel.h"
#include "fuse/fuse_mount.h"
#include "fuse/tree_operations.h"

namespace varve::fuse {
namespace {

// The ranges device belongs to one image and has no digest of its own.
Digest ranges_name(const Digest& image) { return digest_of("varve ranges device of " + image.to_string()); }

// A layer that is complete needs no FUSE beneath: the kernel reads its store file, unless somebody wants to know what it reads.
std::filesystem::path device_path(const ServedImage& image, std::size_t layer, const BlobMount& blobs, bool recorded) {
  auto& stream = *image.layers()[layer];
  if (!recorded && stream.keep_whole()) return stream.store_file();
  return blobs.dir() / stream.map().layer_digest.hex();
}

std::vector<std::shared_ptr<StreamFile>> devices_of(const ServedImage& image, const std::shared_ptr<ReadRecorder>& recorder) {
  auto devices = image.devices();
  if (!recorder) return devices;
  for (auto& device : devices) device = std::make_shared<RecordedFile>(std::move(device), recorder);
  return devices;
}

// The tree file system and, for as long as it lives, what it reads from.
struct ServedTree {
  ServedTree(std::shared_ptr<ServedImage> served, const std::shared_ptr<ReadRecorder>& recorder, OwnerMap owners)
      : image(std::move(served)), fs(*image->index().tree, image->index().tree_mapping.bytes(), devices_of(*image, recorder), std::move(owners)) {}
  std::shared_ptr<ServedImage> image;
  TreeFs fs;
};

void unmount_or_detach(const std::filesystem::path& dir, const std::function<void(bool detach)>& unmount) noexcept {
  for (const bool detach : {false, true}) {
    try {
      return unmount(detach);
    } catch (const std::exception& error) {
      log::warn("unmount {}: {}{}", dir.string(), error.what(), detach ? "" : "; it is detached and ends with its last user");
    }
  }
}

}  // namespace

void ChannelList::add(const std::shared_ptr<FuseChannel>& channel) {
  channels_.with([&](auto& channels) {
    std::erase_if(channels, [](const auto& weak) { return weak.expired(); });
    channels.push_back(channel);
  });
}

void ChannelList::stop_all() {
  const auto channels = channels_.with([](auto& all) { return std::exchange(all, {}); });
  for (const auto& weak : channels) {
    if (const auto channel = weak.lock()) channel->stop();
  }
}

BlobMount::BlobMount(const std::filesystem::path& dir, const MountSettings& settings, ChannelList& channels)
    : dir_(dir), fs_(std::make_shared<BlobFs>()), channel_(mount_blobs(fs_, dir, settings.source, settings.threads)) {
  channels.add(channel_);
}

BlobMount::~BlobMount() {
  unmount_or_detach(dir_, [this](bool detach) { channel_->unmount(detach); });
}

std::unique_ptr<MountedImage> MountedImage::by_kernel(std::shared_ptr<ServedImage> image, const std::filesystem::path& dir, std::shared_ptr<BlobMount> blobs,
                                                      const MountSettings& settings, const std::shared_ptr<ReadRecorder>& recorder) {
  std::unique_ptr<MountedImage> mounted(new MountedImage(std::move(image), dir, recorder));
  const auto& served = *mounted->image_;
  const auto devices = devices_of(served, recorder);
  ErofsMountRequest request{.tree_file = served.index().tree_file, .devices = {}, .dir = dir, .direct_io = settings.direct_io, .read_ahead_kb = settings.read_ahead_kb};
  for (std::size_t i = 0; i < served.layers().size(); ++i) {
    mounted->registrations_.push_back(BlobFs::add(blobs->fs(), served.layers()[i]->map().layer_digest, devices[i]));
    request.devices.push_back(device_path(served, i, *blobs, recorder != nullptr));
  }
  if (served.has_ranges_device()) {
    const auto name = ranges_name(served.digest());
    mounted->registrations_.push_back(BlobFs::add(blobs->fs(), name, devices.back()));
    request.devices.push_back(blobs->dir() / name.hex());
  }
  mounted->blobs_ = std::move(blobs);
  mount_erofs(request);
  mounted->mounted_ = true;
  return mounted;
}

std::unique_ptr<MountedImage> MountedImage::by_fuse(std::shared_ptr<ServedImage> image, const std::filesystem::path& dir, const MountSettings& settings,
                                                    ChannelList& channels, const std::shared_ptr<ReadRecorder>& recorder) {
  std::unique_ptr<MountedImage> mounted(new MountedImage(std::move(image), dir, recorder));
  const auto tree = std::make_shared<ServedTree>(mounted->image_, recorder, OwnerMap::of_this_process());
  // A plain user's mount is for him alone, and what he may pull he may read: root's own files in the image would else be closed to his sessions.
  const bool check_permissions = may_mount() && in_initial_user_namespace();
  mounted->channel_ = mount_tree({tree, &tree->fs}, {.dir = dir,
                                                     .source = settings.source,
                                                     .name = mounted->image_->digest().to_string(),
                                                     .check_permissions = check_permissions,
                                                     .threads = settings.threads});
  mounted->mounted_ = true;
  channels.add(mounted->channel_);
  return mounted;
}

MountedImage::~MountedImage() {
  if (mounted_) unmount_or_detach(dir_, [this](bool detach) { unmount(detach); });
}

void MountedImage::unmount(bool detach) {
  if (!mounted_) return;
  if (channel_) channel_->unmount(detach);
  else unmount_dir(dir_, detach, false);
  mounted_ = false;
}

std::map<std::string, std::uint64_t> MountedImage::fuse_requests() const {
  return channel_ ? channel_->requests() : blobs_->channel().requests();
}

std::string why_no_kernel_mode() {
  if (!may_mount()) return "kernel mode needs root";
  if (!in_initial_user_namespace()) return "kernel mode needs root outside of user namespaces";
  return "";
}

}  // namespace varve::fuse
