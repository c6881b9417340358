#pragma once
// An image at a folder: by the kernel over layer streams, or file by file over FUSE.
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/threads/guarded.h"
#include "fuse/control/control_messages.h"
#include "fuse/daemon/kept_connections.h"
#include "fuse/daemon/served_image.h"
#include "fuse/mount/blob_fs.h"
#include "fuse/mount/read_recorder.h"
#include "fuse/mount/tree_fs.h"

namespace varve::fuse {

class FuseChannel;
class StartPages;

struct MountSettings {
  std::string source;          // first column of /proc/mounts: by it the mounts of a daemon that died are found
  unsigned threads = 4;        // of each FUSE connection
  unsigned read_ahead_kb = 0;  // of EROFS; 0: the kernel's default (128), which fetches least
};

// The FUSE connections of a daemon that still have a kernel on the other side: at the end they are stopped, whoever
// held them.
class ChannelList {
 public:
  void add(const std::shared_ptr<FuseChannel>& channel);
  void stop_all();

 private:
  Guarded<std::vector<std::weak_ptr<FuseChannel>>> channels_;
};

// The names of the devices of an image's tree as files of kernel mode, in the tree's order.
std::vector<Digest> blob_names_of(const ServedImage& image);

// The folder of layer streams, mounted as long as an image of kernel mode needs it.
class BlobMount {
 public:
  BlobMount(const std::filesystem::path& dir, const MountSettings& settings, ChannelList& channels,
            KeptConnections& kept);
  // The connection of an earlier daemon. `mounted`: it is still at its folder, and this unmounts it.
  BlobMount(const std::string& name, KeptConnections::Connection connection, UniqueFd fd, bool mounted,
            const MountSettings& settings, ChannelList& channels, KeptConnections& kept);
  ~BlobMount();
  BlobMount(const BlobMount&) = delete;
  BlobMount& operator=(const BlobMount&) = delete;

  const std::shared_ptr<BlobFs>& fs() const { return fs_; }
  const std::filesystem::path& dir() const { return dir_; }
  const FuseChannel& channel() const { return *channel_; }
  // Of the connection.
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::filesystem::path dir_;
  bool mounted_ = true;
  std::shared_ptr<BlobFs> fs_;
  std::shared_ptr<FuseChannel> channel_;
};

// Not safe to change from several threads; the accessors are.
class MountedImage {
 public:
  // Mounts at a folder that exists. Throws if it cannot be mounted that way; see is_lack_of_kernel(). With a recorder
  // its reads are noted; in kernel mode `blobs` must then be for this mount alone.
  static std::unique_ptr<MountedImage> by_kernel(std::shared_ptr<ServedImage> image, const std::filesystem::path& dir,
                                                 std::shared_ptr<BlobMount> blobs, const MountSettings& settings,
                                                 KeptConnections& kept,
                                                 const std::shared_ptr<ReadRecorder>& recorder = nullptr);
  static std::unique_ptr<MountedImage> by_fuse(std::shared_ptr<ServedImage> image, const std::filesystem::path& dir,
                                               const MountSettings& settings, ChannelList& channels,
                                               KeptConnections& kept,
                                               const std::shared_ptr<ReadRecorder>& recorder = nullptr);
  // What an earlier daemon has mounted. With `mounted` false its folder is left alone: it is detached, and served to
  // its end.
  static std::unique_ptr<MountedImage> taken_over(std::shared_ptr<ServedImage> image, const std::filesystem::path& dir,
                                                  std::shared_ptr<BlobMount> blobs);
  static std::unique_ptr<MountedImage> taken_over(const std::string& name, KeptConnections::Connection connection,
                                                  UniqueFd fd, bool mounted, const MountSettings& settings,
                                                  ChannelList& channels, KeptConnections& kept);
  // Unmounts, if unmount() was not called; what is busy is detached.
  ~MountedImage();
  MountedImage(const MountedImage&) = delete;
  MountedImage& operator=(const MountedImage&) = delete;

  // From now on what starts are about to read is brought into the page cache (start_pages.h). Nothing if the image has
  // no packs.
  void bring_start_pages();
  void end_start_pages();

  // Throws std::system_error(EBUSY) if somebody is in it and not `detach`.
  void unmount(bool detach);
  // The same, but what is busy is detached.
  void end() noexcept;
  // Somebody else has unmounted it: its folder, and what may be there now, is left alone.
  void note_unmounted();

  const ServedImage& image() const { return *image_; }
  const std::shared_ptr<ServedImage>& served() const { return image_; }
  const std::filesystem::path& dir() const { return dir_; }
  const std::shared_ptr<ReadRecorder>& recorder() const { return recorder_; }  // may be null
  MountMode mode() const { return channel_ ? MountMode::kFuse : MountMode::kKernel; }
  // Of the FUSE connection beneath; in kernel mode it is shared by all images.
  const std::string& connection() const { return channel_ ? connection_ : blobs_->name(); }
  std::map<std::string, std::uint64_t> fuse_requests() const;

 private:
  MountedImage(std::shared_ptr<ServedImage> image, std::filesystem::path dir, std::shared_ptr<ReadRecorder> recorder);
  void serve_tree(const std::string& name, const MountSettings& settings, ChannelList& channels,
                  const FuseKeeping& keeping);

  std::shared_ptr<ServedImage> image_;
  std::filesystem::path dir_;
  std::shared_ptr<ReadRecorder> recorder_;
  bool mounted_ = false;
  std::shared_ptr<BlobMount> blobs_;                 // kernel mode
  std::vector<BlobFs::Registration> registrations_;  // kernel mode
  std::shared_ptr<FuseChannel> channel_;             // fuse mode
  std::string connection_;                           // fuse mode
  std::unique_ptr<StartPages> start_pages_;          // ends first
};

// Why this process cannot try kernel mode at all; "" if it can.
std::string why_no_kernel_mode();

}  // namespace varve::fuse
