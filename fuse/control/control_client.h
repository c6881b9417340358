#pragma once
// How commands talk to the daemon: requests over its control socket. The wire format is docs/formats/daemon.md "Control
// socket".
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/threads/cancel.h"
#include "fuse/control/control_messages.h"

namespace varve::fuse {

// One connection to the daemon; used by one thread at a time. Errors of the daemon are thrown here with the type they
// had there (UsageError, NotFound, TemporaryError...); a connection that breaks is a TemporaryError naming the daemon's
// log. Calls wait for the daemon that follows one that died, and are made again; mount and unmount unless they have
// been carried out, and those that end or replace the daemon not at all.
class ControlClient {
 public:
  // Absent when no daemon serves these paths. One that has died and that a keeper is about to start again is waited
  // for.
  static std::optional<ControlClient> connect(const DaemonPaths& paths);
  // Starts the daemon if none runs: `program --root ROOT daemon --run-dir DIR`, in a session of its own, log in
  // ROOT/daemon.log. Returns when it answers; throws what kept it from starting.
  static ControlClient connect_or_start(const DaemonPaths& paths, const std::filesystem::path& program);
  ControlClient(ControlClient&&) noexcept;
  ControlClient& operator=(ControlClient&&) noexcept;
  ~ControlClient();

  // Returns when the tree can be read. `dir` must be an empty folder that exists.
  MountResult mount(const ImageSpec& image, const std::filesystem::path& dir, MountMode mode,
                    const MountOptions& options = {});
  // `detach`: out of sight at once, gone when the last process leaves it; else a busy mount is an error naming it.
  void unmount(const std::filesystem::path& dir, bool detach);
  // Mounted until this client is closed (or its process dies). The same image acquired many times shares one mount.
  AcquiredImage acquire(const ImageSpec& image, MountMode mode, const MountOptions& options = {});
  // What an image is, without mounting it. Throws as mount() does (NotFound: no image, or no index of it that counts),
  // and TemporaryError when `limit` has passed: the daemon goes on, so that a later call finds it.
  LookedUpImage look_up(const ImageSpec& image, std::chrono::milliseconds limit);
  // The tree of the first `layers` layers of an image (0: all) stays mounted until release(), whoever dies meanwhile:
  // this client, or the daemon. A reboot ends it. A name that holds this tree already gets the same answer; one that
  // holds another is a UsageError. An image that is named by digest and was looked up before needs no registry.
  HeldTree hold(const std::string& name, const ImageSpec& image, std::uint32_t layers, MountMode mode);
  // Nothing happens if nothing is held under that name. The mount may stay for a while, as those of sessions do.
  void release(const std::string& name);
  std::vector<HeldTree> held();
  // What was read so far of the image that this client acquired last with `record`, as index::Profile::encode() writes
  // it. Throws NotFound if there is none.
  Bytes recording();
  // Counters of an image that is mounted; absent if it is not.
  std::optional<ImageStats> image_stats(const Digest& image);
  DaemonStatus status();
  // Leaves out what the index marks as cold, unless `cold`. wait: returns when all is here; closing the connection or
  // `cancel` stops the work. Else it goes on in the background.
  PullResult pull(const ImageSpec& image, bool wait, bool cold, const ProgressCallback& progress,
                  const CancelFlag& cancel);
  // Which bytes of an image's layers are here; each layer once.
  std::vector<LayerRanges> present(const ImageSpec& image);
  // Fetches what is missing of these ranges in the order given, behind readers, and returns when all is here. At most
  // kMaxFetchRanges at a time.
  PullResult fetch(const ImageSpec& image, const std::vector<LayerRanges>& wanted, const ProgressCallback& progress,
                   const CancelFlag& cancel);
  // `deep`: also whether complete layers are what the image names, and the tree what they make.
  VerifyResult verify(const ImageSpec& image, bool deep, const ProgressCallback& progress, const CancelFlag& cancel);
  VerifyResult verify_store(const ProgressCallback& progress, const CancelFlag& cancel);
  // Takes an image out of the store: the layers that no other image opened here has, and its names. Its index stays.
  // Throws Error naming the folders if it is mounted.
  RemovedImage remove_image(const Digest& image);
  // Another program takes the place of the daemon, with all its mounts; returns when it answers. Throws Unsupported if
  // it could not serve them.
  void replace(const std::filesystem::path& program, HandoverFormats reads);
  // Ends the daemon, unless somebody would lose files by that: then nothing happens, and the answer says who. Returns
  // when it is gone.
  StopResult shutdown();
  // Asks sessions and whoever else holds images to end, kills those that have not after `grace`, then unmounts
  // everything and ends the daemon; returns when it is gone.
  void end_all(std::chrono::seconds grace);
  // Ends the daemon and leaves its mounts to the next one of its service. Throws Unsupported if no service manager
  // keeps them meanwhile, or if a program that reads these formats of the record could not go on with them.
  void leave(HandoverFormats reads);

 private:
  void wait_for_end();

  struct Connection;
  std::optional<MountStatus> mount_at(const std::filesystem::path& dir);
  explicit ControlClient(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

}  // namespace varve::fuse
