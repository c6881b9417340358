#include "fuse/daemon/mounted_image.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/daemon/pages/start_pages.h"
#include "fuse/mount/blob_operations.h"
#include "fuse/mount/erofs_mount.h"
#include "fuse/mount/fuse_channel.h"
#include "fuse/mount/fuse_mount.h"
#include "fuse/mount/tree_operations.h"

namespace varve::fuse {
namespace {

// The ranges device belongs to one tree of one index of an image and has no digest of its own.
Digest ranges_name(const ServedImage& image) {
  return digest_of("varve ranges device of " + image.tree_name().to_string());
}

// A layer that two indexes describe in two ways is two files; so is one whose bytes come from other packs, for which
// another index speaks.
Digest stream_name(const ServedImage& image, std::size_t layer) {
  const auto& index = image.index().blobs;
  const auto& blobs = index.layers.at(layer);
  auto name = "varve layer " + blobs.layer_digest.to_string() + " by " + blobs.map.digest.to_string() + " and " +
              blobs.entries.digest.to_string();
  if (index.start_packs) name += " with packs " + index.start_packs->digest.to_string();
  return digest_of(name);
}

// What is not set leaves it to the kernel, but for what is read page by page.
unsigned read_ahead_kb(const ServedImage& image, const MountSettings& settings,
                       const std::shared_ptr<ReadRecorder>& recorder) {
  if (settings.read_ahead_kb != 0) return settings.read_ahead_kb;
  return image.packs() || recorder ? kPackReadAheadKb : 0;
}

std::vector<std::shared_ptr<StreamFile>> devices_of(const ServedImage& image,
                                                    const std::shared_ptr<ReadRecorder>& recorder) {
  if (!recorder) return image.mounted_devices();
  auto devices = image.devices();
  for (auto& device : devices) device = std::make_shared<RecordedFile>(std::move(device), recorder);
  return devices;
}

// The tree file system and, for as long as it lives, what it reads from.
struct ServedTree {
  ServedTree(std::shared_ptr<ServedImage> served, const std::shared_ptr<ReadRecorder>& recorder, OwnerMap owners)
      : image(std::move(served)),
        fs(*image->index().tree, image->index().tree_mapping.bytes(), devices_of(*image, recorder), std::move(owners)) {
  }
  std::shared_ptr<ServedImage> image;
  TreeFs fs;
};

// A device as a file of kernel mode, and the image for as long as somebody reads it: packs ask the image for
// themselves.
std::shared_ptr<StreamFile> blob_of(const std::shared_ptr<ServedImage>& image, std::shared_ptr<StreamFile> device) {
  struct Held {
    std::shared_ptr<ServedImage> image;
    std::shared_ptr<StreamFile> device;  // freed first
  };
  auto* const file = device.get();
  return {std::make_shared<Held>(Held{image, std::move(device)}), file};
}

void unmount_or_detach(const std::filesystem::path& dir, const std::function<void(bool detach)>& unmount) noexcept {
  for (const bool detach : {false, true}) {
    try {
      return unmount(detach);
    } catch (const std::exception& error) {
      log::warn("unmount {}: {}{}", dir.string(), error.what(),
                detach ? "" : "; it is detached and ends with its last user");
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

std::vector<Digest> blob_names_of(const ServedImage& image) {
  std::vector<Digest> names;
  for (std::size_t i = 0; i < image.layers().size(); ++i) names.push_back(stream_name(image, i));
  if (image.has_ranges_device()) names.push_back(ranges_name(image));
  return names;
}

BlobMount::BlobMount(const std::filesystem::path& dir, const MountSettings& settings, ChannelList& channels,
                     KeptConnections& kept)
    : name_(kept.new_name()), dir_(dir), fs_(std::make_shared<BlobFs>()) {
  KeptConnections::Connection connection;
  connection.dir = dir;
  connection.blobs = fs_;
  channel_ = mount_blobs(fs_, dir, settings.source, settings.threads, kept.begin(name_, std::move(connection)));
  channels.add(channel_);
}

BlobMount::BlobMount(const std::string& name, KeptConnections::Connection connection, UniqueFd fd, bool mounted,
                     const MountSettings& settings, ChannelList& channels, KeptConnections& kept)
    : name_(name), dir_(connection.dir), mounted_(false), fs_(std::make_shared<BlobFs>()) {
  // All files are there before the first request, and stay while the kernel has them open.
  std::vector<BlobFs::Registration> registrations;
  for (const auto& [image, opened] : connection.files) {
    const auto names = blob_names_of(*image);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const bool as_stream = i < opened.size() && opened[i];
      registrations.push_back(BlobFs::add(fs_, names[i], blob_of(image, image->mounted_devices()[i]), as_stream));
      if (!as_stream && i < image->layers().size()) image->layers()[i]->keep_mounted();
    }
  }
  connection.blobs = fs_;
  channel_ = mount_blobs(fs_, dir_, settings.source, settings.threads,
                         kept.take_over(name, std::move(connection), std::move(fd)));
  channels.add(channel_);
  mounted_ = mounted;
}

BlobMount::~BlobMount() {
  if (mounted_) unmount_or_detach(dir_, [this](bool detach) { channel_->unmount(detach); });
}

MountedImage::MountedImage(std::shared_ptr<ServedImage> image, std::filesystem::path dir,
                           std::shared_ptr<ReadRecorder> recorder)
    : image_(std::move(image)), dir_(std::move(dir)), recorder_(std::move(recorder)) {}

std::unique_ptr<MountedImage> MountedImage::by_kernel(std::shared_ptr<ServedImage> image,
                                                      const std::filesystem::path& dir,
                                                      std::shared_ptr<BlobMount> blobs, const MountSettings& settings,
                                                      KeptConnections& kept,
                                                      const std::shared_ptr<ReadRecorder>& recorder) {
  std::unique_ptr<MountedImage> mounted(new MountedImage(std::move(image), dir, recorder));
  const auto& served = *mounted->image_;
  ErofsMountRequest request{.tree_file = served.index().tree_file,
                            .devices = {},
                            .dir = dir,
                            .read_ahead_kb = read_ahead_kb(served, settings, recorder)};
  std::vector<bool> opened;
  const auto devices = devices_of(served, recorder);
  for (const auto& name : blob_names_of(served)) {
    const auto device = request.devices.size();
    // A layer that is complete needs no FUSE beneath: the kernel reads its store file, unless somebody wants to know
    // what it reads.
    const bool complete = !recorder && device < served.layers().size() && served.layers()[device]->keep_whole();
    mounted->registrations_.push_back(BlobFs::add(blobs->fs(), name, blob_of(mounted->image_, devices[device])));
    request.devices.push_back(complete ? served.layers()[device]->store_file() : blobs->dir() / name.hex());
    opened.push_back(!complete);
  }
  // Nothing is fetched of what is all here: the kernel reads ahead as of any disk.
  if (std::ranges::find(opened, true) == opened.end()) request.read_ahead_kb = settings.read_ahead_kb;
  kept.add_files(blobs->name(), {.image = mounted->image_, .opened = std::move(opened)});
  mounted->blobs_ = std::move(blobs);
  mount_erofs(request);
  mounted->mounted_ = true;
  return mounted;
}

std::unique_ptr<MountedImage> MountedImage::taken_over(std::shared_ptr<ServedImage> image,
                                                       const std::filesystem::path& dir,
                                                       std::shared_ptr<BlobMount> blobs) {
  std::unique_ptr<MountedImage> mounted(new MountedImage(std::move(image), dir, nullptr));
  const auto names = blob_names_of(*mounted->image_);
  for (std::size_t i = 0; i < names.size(); ++i)
    mounted->registrations_.push_back(
        BlobFs::add(blobs->fs(), names[i], blob_of(mounted->image_, mounted->image_->mounted_devices()[i])));
  mounted->blobs_ = std::move(blobs);
  mounted->mounted_ = true;
  return mounted;
}

void MountedImage::serve_tree(const std::string& name, const MountSettings& settings, ChannelList& channels,
                              const FuseKeeping& keeping) {
  const auto tree = std::make_shared<ServedTree>(image_, recorder_, OwnerMap::of_this_process());
  // A plain user's mount is for him alone, and what he may pull he may read: root's own files in the image would else
  // be closed to his sessions.
  const bool check_permissions = may_mount() && in_initial_user_namespace();
  connection_ = name;
  channel_ = mount_tree({tree, &tree->fs},
                        {.dir = dir_,
                         .source = settings.source,
                         .name = image_->digest().to_string(),
                         .check_permissions = check_permissions,
                         .read_ahead_kb = read_ahead_kb(*image_, settings, recorder_),
                         .threads = settings.threads},
                        keeping);
  channels.add(channel_);
}

std::unique_ptr<MountedImage> MountedImage::by_fuse(std::shared_ptr<ServedImage> image,
                                                    const std::filesystem::path& dir, const MountSettings& settings,
                                                    ChannelList& channels, KeptConnections& kept,
                                                    const std::shared_ptr<ReadRecorder>& recorder) {
  std::unique_ptr<MountedImage> mounted(new MountedImage(std::move(image), dir, recorder));
  KeptConnections::Connection connection;
  connection.dir = dir;
  connection.tree = mounted->image_;
  const auto name = kept.new_name();
  mounted->serve_tree(name, settings, channels, kept.begin(name, std::move(connection)));
  mounted->mounted_ = true;
  return mounted;
}

std::unique_ptr<MountedImage> MountedImage::taken_over(const std::string& name, KeptConnections::Connection connection,
                                                       UniqueFd fd, bool mounted, const MountSettings& settings,
                                                       ChannelList& channels, KeptConnections& kept) {
  std::unique_ptr<MountedImage> image(new MountedImage(connection.tree, connection.dir, nullptr));
  image->serve_tree(name, settings, channels, kept.take_over(name, std::move(connection), std::move(fd)));
  image->mounted_ = mounted;
  return image;
}

void MountedImage::bring_start_pages() {
  if (image_->packs() && !start_pages_) start_pages_ = std::make_unique<StartPages>(image_, dir_);
}

void MountedImage::end_start_pages() { start_pages_.reset(); }

void MountedImage::note_unmounted() {
  end_start_pages();
  mounted_ = false;
}

void MountedImage::end() noexcept {
  if (mounted_) unmount_or_detach(dir_, [this](bool detach) { unmount(detach); });
}

MountedImage::~MountedImage() { end(); }

void MountedImage::unmount(bool detach) {
  if (!mounted_) return;
  if (start_pages_) start_pages_->let_go();
  if (channel_)
    channel_->unmount(detach);
  else
    unmount_dir(dir_, detach, false);
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
