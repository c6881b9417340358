#pragma once
// What the daemon does, without its process and its socket: images open, mounts, leases, pulls.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/clock.h"
#include "core/base/guarded.h"
#include "core/trust/judge.h"
#include "fuse/daemon/control_client.h"
#include "fuse/daemon/descriptor_store.h"
#include "fuse/daemon/handover.h"
#include "fuse/daemon/holder_watch.h"
#include "fuse/daemon/kept_connections.h"
#include "fuse/daemon/known_layers.h"
#include "fuse/daemon/layer_proofs.h"
#include "fuse/daemon/mounted_image.h"
#include "fuse/daemon/seen_images.h"
#include "fuse/mount/mount_table.h"
#include "fuse/stream/layer_stream.h"
#include "fuse/stream/prefetch.h"

namespace varve::fuse {

struct DaemonOptions {
  DaemonPaths paths;
  StreamOptions streams;
  unsigned fuse_threads = 4;
  unsigned read_ahead_kb = 0;
  bool erofs_direct_io = false;
  std::string version;
  trust::TrustSettings trust;                    // which indexes are believed
  std::shared_ptr<DescriptorStore> descriptors;  // where connections outlive the daemon
};

// Safe to use from any thread. Calls that go to the network hold no lock that others wait for.
class Daemon {
 public:
  // Opens store and index, goes on with the mounts of an earlier daemon of the same root, and unmounts what of it
  // cannot be gone on with.
  explicit Daemon(DaemonOptions options);
  ~Daemon();

  MountResult mount(const ImageSpec& spec, const std::filesystem::path& dir, MountMode mode, bool prefetch);
  void unmount(const std::filesystem::path& dir, bool detach);

  // One use of a mounted image; ends with it.
  class Lease {
   public:
    Lease(Daemon& daemon, MountedImage& image, std::uint64_t number)
        : daemon_(&daemon), image_(&image), number_(number) {}
    Lease(Lease&& other) noexcept
        : daemon_(std::exchange(other.daemon_, nullptr)), image_(other.image_), number_(other.number_) {}
    Lease& operator=(Lease&&) = delete;
    const MountedImage& image() const { return *image_; }
    ~Lease() {
      if (daemon_ != nullptr) daemon_->release(number_);
    }

   private:
    Daemon* daemon_;
    MountedImage* image_;
    std::uint64_t number_;
  };
  // The lease is appended to `leases`. `holder` is the process that has it (0: not known): if this daemon dies, the
  // next one gives the lease to that process for as long as it runs.
  AcquiredImage acquire(const ImageSpec& spec, MountMode mode, const MountOptions& options, pid_t holder,
                        std::vector<Lease>& leases);

  std::optional<ImageStats> image_stats(const Digest& image);
  DaemonStatus status();
  // Without what is cold, unless `cold`; asks the repository for newer marks first. wait: in this thread, until
  // `stop_wanted`. Else in one of its own; asked again for the same image it goes on.
  PullResult pull(const ImageSpec& spec, bool wait, bool cold, const ProgressCallback& progress,
                  const std::function<bool()>& stop_wanted);
  // An image for present() and fetch(). Goes to the network.
  std::shared_ptr<ServedImage> open_image(const ImageSpec& spec) { return open(spec); }
  static std::vector<LayerRanges> present(const ServedImage& image);
  // Waits, behind readers. Throws UsageError for ranges that the image does not have.
  PullResult fetch(const ServedImage& image, const std::vector<LayerRanges>& wanted, const ProgressCallback& progress,
                   const std::function<bool()>& stop_wanted);
  // `deep`: also whether complete layers are what the image names, and the tree what they make.
  VerifyResult verify(const ImageSpec& spec, bool deep, const ProgressCallback& progress,
                      const std::function<bool()>& stop_wanted);
  VerifyResult verify_store(const ProgressCallback& progress, const std::function<bool()>& stop_wanted);

  // Nothing is mounted and nothing pulled.
  bool idle();
  // Throws Unsupported if another program could not go on with what is mounted here: `format` is that of the record
  // that it reads.
  void check_successor(int format) const;
  // For exec(2), which must follow at once: mounts stay as they are while the lock is held.
  std::unique_lock<std::mutex> hand_over();
  DescriptorStore& descriptors() { return *options_.descriptors; }
  // Unmounts everything, fails what waits, ends the threads. Later calls are refused.
  void stop();

 private:
  struct Backing {
    std::unique_ptr<MountedImage> mounted;
    std::string why;        // not kernel mode, if it was left to us
    std::size_t users = 0;  // names and leases
    std::size_t leases = 0;
    bool shared = false;  // at RUN/images; else a plain user's own mount, or one that is recorded
    std::vector<std::filesystem::path> folders;  // made for it, removed after it
    std::unique_ptr<Prefetch> prefetch;          // ends before the mount
  };
  struct UserMount {
    MountedImage* image = nullptr;
    bool bound = false;   // root: one more name of a shared backing
    bool settled = true;  // false while it is being mounted
  };
  struct LeaseEntry {
    MountedImage* image = nullptr;
    std::optional<LeaseHolder> holder;
  };
  struct PullJob;
  struct State {
    std::vector<std::unique_ptr<Backing>> backings;
    std::map<std::filesystem::path, UserMount> user_mounts;
    std::map<std::uint64_t, LeaseEntry> leases;
    std::uint64_t last_lease = 0;
    std::map<std::pair<Digest, bool>, std::shared_ptr<PullJob>>
        pulls;  // by the image's index, and whether with what is cold
  };

  std::shared_ptr<ServedImage> open_now_or_as_seen(const ImageSpec& spec, index::IndexPlace place);
  std::shared_ptr<ServedImage> open(const ImageSpec& spec, index::IndexPlace place = index::IndexPlace::kHere);
  Backing& shared_backing(const std::shared_ptr<ServedImage>& image, MountMode mode);
  Backing& recorded_backing(const std::shared_ptr<ServedImage>& image, MountMode mode);
  Backing& add_backing(std::unique_ptr<Backing> backing, const std::shared_ptr<ServedImage>& image,
                       const std::filesystem::path& dir, MountMode mode, bool recorded);
  std::shared_ptr<BlobMount> shared_blobs();
  void start_prefetch(Backing& backing);
  std::filesystem::path free_folder(const ServedImage& image, std::string_view suffix);
  static void take_down(Backing& backing);
  ImageStats stats_of(State& state, const MountedImage& image) const;
  Lease add_lease(Backing& backing, std::optional<LeaseHolder> holder);
  void release(std::uint64_t lease);
  void drop_user(MountedImage& image, bool lease);
  Backing* find_backing(const std::filesystem::path& dir);
  void refuse_if_stopping() const;
  void unmount_everything();
  void start_pull(const std::shared_ptr<ServedImage>& image, bool cold);
  std::vector<std::shared_ptr<LayerStream>> stored_streams();
  VerifyResult verify_streams(const std::vector<std::shared_ptr<LayerStream>>& streams,
                              const ProgressCallback& progress, const std::function<bool()>& stop_wanted);
  void repair_if_mounted(const std::shared_ptr<LayerStream>& stream, const std::vector<ByteRange>& bad);

  // daemon_takeover.cpp
  struct TakeOver;
  void take_over();
  void take_over_tree(TakeOver& work, const HandoverConnection& connection);
  void take_over_blobs(TakeOver& work, const HandoverConnection& connection);
  void take_over_names(TakeOver& work);
  void take_over_leases(TakeOver& work);
  Backing& adopt(std::unique_ptr<MountedImage> mounted, const HandoverMount& mount);
  void drop_unused_backings();
  Handover current_record();
  void write_record() noexcept;

  const DaemonOptions options_;
  const MountSettings settings_;
  const Stopwatch uptime_;
  const std::shared_ptr<index::LocalIndex> local_;
  KnownLayers known_layers_;
  const SeenImages seen_images_;
  const std::unique_ptr<LayerStreams> streams_;
  ChannelList channels_;
  const std::shared_ptr<KeptConnections> kept_;
  std::mutex changing_;  // one mount or unmount at a time; held over mount(2), never over the network
  std::weak_ptr<BlobMount> blobs_;
  std::uint64_t recordings_ = 0;  // made so far; under changing_
  std::atomic<bool> stopping_ = false;
  Guarded<State>
      state_;  // changed under changing_ only, but locked for moments, so that status never waits for a mount
  LayerProofs proofs_;
  std::unique_ptr<HolderWatch> holders_;  // the last: it gives leases back
};

}  // namespace varve::fuse
