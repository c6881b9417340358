#pragma once
// What the daemon does, without its process and its socket: opens images, mounts them while somebody uses them, fetches
// and verifies what they are made of. What it has: image_table.h, lease_table.h, background_pulls.h.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/threads/ticker.h"
#include "core/base/work.h"
#include "core/trust/judge.h"
#include "fuse/control/control_messages.h"
#include "fuse/daemon/background_pulls.h"
#include "fuse/daemon/content_sources.h"
#include "fuse/daemon/daemon_metrics.h"
#include "fuse/daemon/descriptor_store.h"
#include "fuse/daemon/handover.h"
#include "fuse/daemon/image_table.h"
#include "fuse/daemon/kept_connections.h"
#include "fuse/daemon/layer_proofs.h"
#include "fuse/daemon/lease_table.h"
#include "fuse/daemon/look_ups.h"
#include "fuse/daemon/opened_images.h"
#include "fuse/daemon/pages/stale_pages.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

struct DaemonOptions {
  DaemonPaths paths;
  StreamOptions streams;
  unsigned fuse_threads = 4;
  unsigned read_ahead_kb = 0;
  std::chrono::seconds keep_mounted{900};  // after the last session of an image; 0: not at all
  bool fill = false;                       // MountOptions::fill of all that prefetch
  std::string version;
  trust::TrustSettings trust;  // which indexes are believed
  // Of this machine, for registries that no file of credentials knows; null = none.
  std::shared_ptr<oci::internal::CredentialProviders> credential_providers;
  std::shared_ptr<DescriptorStore> descriptors;  // where connections outlive the daemon
  std::shared_ptr<DaemonMetrics> metrics;        // null: nobody asks for them
};

// Safe to use from any thread. Calls that go to the network hold no lock that others wait for.
class Daemon {
 public:
  // Opens store and index, goes on with the mounts of an earlier daemon of the same root, and unmounts what of it
  // cannot be gone on with.
  explicit Daemon(DaemonOptions options);
  ~Daemon();

  MountResult mount(const ImageSpec& spec, const std::filesystem::path& dir, MountMode mode,
                    const MountOptions& options);
  void unmount(const std::filesystem::path& dir, bool detach);

  // The lease is appended to `leases`. `holder` is the process that has it (0: not known): if this daemon dies, the
  // next one gives the lease to that process for as long as it runs.
  AcquiredImage acquire(const ImageSpec& spec, MountMode mode, const MountOptions& options, pid_t holder,
                        std::vector<LeaseTable::Lease>& leases);
  // daemon_holds.cpp. As ControlClient's calls of these names; a limit of more than kMaxLookUpLimit is that.
  LookedUpImage look_up(const ImageSpec& spec, std::chrono::milliseconds limit);
  HeldTree hold(const std::string& name, const ImageSpec& spec, std::uint32_t layers, MountMode mode);
  void release(const std::string& name);
  std::vector<HeldTree> held();
  // False if a registry keeps some waiting for longer.
  bool wait_for_look_ups(std::chrono::milliseconds patience) { return look_ups_.wait_for_all(patience); }

  // Null if it was not acquired with `record`.
  std::shared_ptr<ReadRecorder> recorder_of(const LeaseTable::Lease& lease);

  std::optional<ImageStats> image_stats(const Digest& image);
  DaemonStatus status();
  DaemonCounts counts();
  // Without what is cold, unless `cold`; asks the repository for newer marks first. wait: in this thread. Else
  // in one of its own; asked again for the same image it goes on.
  PullResult pull(const ImageSpec& spec, bool wait, bool cold, const Work& work);
  // An image for present() and fetch(). Goes to the network.
  std::shared_ptr<ServedImage> open_image(const ImageSpec& spec) { return open(spec).image; }
  static std::vector<LayerRanges> present(const ServedImage& image);
  // Waits, behind readers. Throws UsageError for ranges that the image does not have.
  PullResult fetch(const std::shared_ptr<ServedImage>& image, const std::vector<LayerRanges>& wanted, const Work& work);
  // `deep`: also whether complete layers are what the image names, and the tree what they make.
  VerifyResult verify(const ImageSpec& spec, bool deep, const Work& work);
  VerifyResult verify_store(const Work& work);
  // What this machine has of an image and of no other goes, but for layers that something reads or fetches, and an
  // index that was made here. Throws Error if it is mounted and used, NotFound if it was never opened here.
  RemovedImage remove_image(const Digest& image);

  // Set by stop(). What is given to the calls above must be cancelled with it.
  const CancelFlag& stopping() const { return stopping_; }

  // Nothing that is mounted is used, and nothing pulled.
  bool idle();
  // Takes note of mounts that somebody else has unmounted, by umount(8) for one.
  void notice_unmounts();
  // Throws Unsupported if another program could not go on with what is mounted here: `formats` are those of the record
  // that it reads.
  void check_successor(HandoverFormats formats) const;
  // The same if this one is to end first, so that only a service manager can keep the mounts meanwhile.
  void check_leave(HandoverFormats formats) const;
  // For exec(2), which must follow at once: mounts stay as they are while the lock is held.
  std::unique_lock<std::mutex> hand_over();
  DescriptorStore& descriptors() { return *options_.descriptors; }
  // Says who would lose files by an end, and changes nothing but that mounts which nobody uses may be gone already. If
  // that is nobody, everything new is refused from here on, and stop() must follow.
  StopResult begin_stop();
  // Refuses everything new and asks the holders of leases to end; those that have not after `grace` are killed. stop()
  // must follow.
  void end_sessions(std::chrono::milliseconds grace);
  // Refuses new mounts and sessions, as begin_stop() is to come to its end.
  void drain();
  // Unmounts everything, whoever uses it; fails what waits, ends the threads. Later calls are refused.
  void stop();

 private:
  struct Opened {
    std::shared_ptr<ServedImage> image;
    std::uint64_t loaded_bytes = 0;  // fetched for it now
  };
  // One change at a time of what is mounted. What came to its end meanwhile is unmounted by the thread that ended it,
  // after the change: the kernel may wait there, as long as a source is silent, for reads ahead of that image.
  class Change {
   public:
    explicit Change(Daemon& daemon) : daemon_(daemon), lock_(daemon.changing_) {}
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    // Until nothing that fits is being unmounted any more. Lets others change something meanwhile.
    void wait_until_unmounted(const std::function<bool(const ServedImage&)>& fits);
    // The record for the next daemon knows one mount of a tree.
    void wait_until_unmounted(const ServedImage& image);

   private:
    Daemon& daemon_;
    std::unique_lock<std::mutex> lock_;
  };
  std::optional<Opened> open_named_by_digest(const ImageSpec& spec);
  Opened open_now_or_as_kept(const ImageSpec& spec, index::IndexPlace place);
  Opened serve(const ImageSpec& spec, oci::Image image, index::ChosenIndex chosen);
  Opened open(const ImageSpec& spec, index::IndexPlace place = index::IndexPlace::kHere);
  ImageMount& shared_mount(const std::shared_ptr<ServedImage>& image, MountMode mode);
  ImageMount& recorded_mount(const std::shared_ptr<ServedImage>& image, MountMode mode);
  ImageMount& add_mount(std::unique_ptr<ImageMount> mount, const std::shared_ptr<ServedImage>& image, MountMode mode,
                        const std::shared_ptr<ReadRecorder>& recorder = nullptr);
  std::shared_ptr<BlobMount> shared_blobs();
  void start_prefetch(ImageMount& mount);
  static void get_bearings(const ServedImage& image, const MountOptions& options);
  void start_ahead(ImageMount& mount, const MountOptions& options);
  std::filesystem::path free_folder(const ServedImage& image, std::string_view suffix);
  enum class Afterwards : std::uint8_t { kUnmount, kKeep, kUnmountSoon };  // of the last two it is kept if it may be
  void end_use(std::filesystem::path mount, Afterwards afterwards);
  void end_use_of_lease(const std::filesystem::path& mount);
  bool end_unused_mounts(const Digest& image);
  RemovedImage remove_unmounted(const Digest& image, std::chrono::seconds last_reads);
  void forget_index(const Digest& image);
  ImageStats stats_of(const ServedImage& image);
  ImageSpec watched(ImageSpec spec) const;
  void note_ready(const ServedImage& image, double seconds) const;
  void refuse_if_stopping() const;
  void refuse_if_mounted(const std::filesystem::path& dir);

  // daemon_holds.cpp
  LookedUpImage look_up_now(const ImageSpec& spec);
  std::vector<ImageSpec> specs_of(const ImageSpec& spec, const Digest& digest) const;
  Opened open_as_kept_or_now(const ImageSpec& spec);
  std::shared_ptr<ServedImage> tree_of(const std::shared_ptr<ServedImage>& whole, std::uint32_t layers);
  static HeldTree held_tree(const std::string& name, const ImageMount& mount);
  std::optional<HeldTree> held_already(const std::string& name, const Digest& image, std::uint32_t layers);
  void mount_held_again(const std::filesystem::path& dir, const std::shared_ptr<ServedImage>& image, MountMode mode,
                        const std::string& why);

  // daemon_fill.cpp
  void start_fill(ImageMount& mount);
  void end_fill(const ImageMount& mount);
  std::uint64_t room_for_fills() const;
  void look_at_reads() noexcept;

  // daemon_idle.cpp
  bool may_keep(const ImageMount& mount) const;
  void begin_idle(ImageMount& mount, std::chrono::seconds keep);
  void end_if_idle(const std::filesystem::path& mount, std::string_view why);
  void end_all_idle(std::string_view why);
  void look_at_idle() noexcept;
  bool store_is_crowded(IdleTime now);

  // daemon_end.cpp
  void end_mount(const std::filesystem::path& dir);
  std::unique_lock<std::mutex> when_nothing_ends();
  void drop_vanished_mounts();
  bool restore_shared(const ImageMount& mount, const std::vector<MountEntry>& table);
  std::vector<MountUse> uses();
  MountUse use_of(const HandoverName& name);
  void unmount_name(const HandoverName& name, bool detach);
  std::vector<MountUse> unmount_what_is_free();
  void unmount_everything();
  std::vector<MountedServed> mounted_images();
  VerifyResult verify_streams(const std::vector<std::shared_ptr<LayerStream>>& streams, const Work& work);

  // daemon_takeover.cpp
  struct TakeOver;
  void list_again(const ImageSpec& spec, const ServedImage& image);
  void take_over();
  void take_over_tree(TakeOver& work, const HandoverConnection& connection);
  void take_over_blobs(TakeOver& work, const HandoverConnection& connection);
  void take_over_names(TakeOver& work);
  void take_over_leases(TakeOver& work);
  void take_over_holds(TakeOver& work);
  void adopt(std::unique_ptr<MountedImage> mounted, const HandoverMount& mount);
  void remove_free_folders();
  void drop_unused_mounts();
  void write_record() noexcept;

  const DaemonOptions options_;
  const MountSettings settings_;
  const Stopwatch uptime_;
  CancelFlag no_more_reads_;  // of sources; what waits for one that does not answer must not hold up the end
  const std::shared_ptr<oci::KnownHosts> known_hosts_ = std::make_shared<oci::KnownHosts>();  // for all images
  const std::shared_ptr<index::LocalIndex> local_;
  const OpenedImages opened_;
  const std::unique_ptr<LayerStreams> streams_;
  ChannelList channels_;
  const std::shared_ptr<KeptConnections> kept_;
  std::mutex changing_;                // see Change; held over mount(2), never over the network
  std::vector<ImageMount*> ended_;     // by the change under way
  std::size_t unmounting_ = 0;         // changes whose mounts are being unmounted; under changing_
  std::condition_variable unmounted_;  // one less
  std::weak_ptr<BlobMount> blobs_;
  std::uint64_t recordings_ = 0;  // made so far; under changing_
  CancelFlag stopping_;
  std::atomic<bool> draining_ = false;
  std::atomic<bool> stopped_ = false;
  ImageTable images_;  // changed under changing_ only
  StalePages stale_pages_;
  LayerProofs proofs_;
  ContentSources contents_;
  BackgroundPulls pulls_;
  LeaseTable leases_;  // what ends a lease may end a mount
  LookUps look_ups_{[this](const ImageSpec& spec) { return look_up_now(spec); }};
  MemoryPressure memory_;                  // used by look_ alone
  std::optional<IdleTime> crowded_since_;  // likewise
  std::unique_ptr<Ticker> look_;
};

}  // namespace varve::fuse
