#pragma once
// Which images are mounted where, and under which names of users.
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/threads/guarded.h"
#include "fuse/daemon/handover.h"
#include "fuse/daemon/idle_mounts.h"
#include "fuse/daemon/mounted_image.h"
#include "fuse/mount/mount_table.h"
#include "fuse/stream/prefetch.h"

namespace varve::fuse {

// One image at one folder, for all who use it. Unmounts in the end; folders that are free are removed.
struct ImageMount {
  std::filesystem::path dir;
  std::unique_ptr<MountedImage> mounted;
  MountEntry entry;                            // as the kernel lists it; without a folder: it was not found
  std::string why;                             // not kernel mode, if it was left to us
  bool shared = false;                         // at RUN/images; else a plain user's own mount, or one that is recorded
  std::vector<std::filesystem::path> folders;  // made for it
  std::unique_ptr<Prefetch> prefetch;          // ends before the mount
  bool fill = false;                           // the rest is fetched for as long as somebody uses it
  // Stream side, without what is cold, when its use began. Absent: nobody allows more than what is read.
  std::optional<std::uint64_t> missing_at_first;
  std::optional<IdleTime> idle_since;  // nobody uses it; it is kept for the next who asks

  // True if the kernel lists it at that folder, perhaps beneath another; also if nothing is known of it.
  bool is_at(const std::vector<MountEntry>& table, const std::filesystem::path& folder) const {
    return entry.dir.empty() || is_mounted_at(table, folder, entry);
  }

  // The kernel may wait there for reads under way. What is busy is detached. The rest goes with the object.
  void unmount() noexcept;

  ImageMount() = default;
  ~ImageMount();
  ImageMount(const ImageMount&) = delete;
  ImageMount& operator=(const ImageMount&) = delete;
};

// Safe to use from any thread: looks are for a moment, so that status never waits for a mount. Who changes it sees to
// it that nobody else does: what find() and add() return then stays until remove().
class ImageTable {
 public:
  ImageMount& add(std::unique_ptr<ImageMount> mount);
  // Null if there is none.
  ImageMount* find(const std::filesystem::path& dir);
  ImageMount* find_if(const std::function<bool(const ImageMount&)>& fits);
  std::shared_ptr<ServedImage> find_image(const std::function<bool(const ImageMount&)>& fits);
  // Under the lock: `look` must not come back here.
  void for_each(const std::function<void(const ImageMount&)>& look);
  // Ends the one that was there.
  void set_prefetch(ImageMount& mount, std::unique_ptr<Prefetch> prefetch);
  void set_fill(ImageMount& mount, bool fill);
  void set_missing_at_first(ImageMount& mount, std::optional<std::uint64_t> bytes);
  void set_idle(ImageMount& mount, std::optional<IdleTime> since);
  std::vector<IdleMount> idle();
  // Of all mounts of the image.
  std::uint64_t prefetched_bytes(const Digest& image);
  // To be taken down by the caller, without the lock; null if it is not there.
  std::unique_ptr<ImageMount> remove(const std::filesystem::path& dir);
  std::vector<std::unique_ptr<ImageMount>> remove_all();
  // From now on only a daemon that comes after us finds it, which may have to go on with it; it stays until
  // remove_ending(), and its folder is taken. Null if it is not there.
  ImageMount* begin_to_end(const std::filesystem::path& dir);
  std::unique_ptr<ImageMount> remove_ending(const ImageMount& mount);
  bool is_any_ending(const std::function<bool(const ServedImage&)>& fits);
  // By one that is ending, too.
  bool is_taken(const std::filesystem::path& dir);

  // Adds the folder of a user, or changes what is known of it.
  void set_name(const HandoverName& name);
  std::optional<HandoverName> find_name(const std::filesystem::path& dir);
  void remove_name(const std::filesystem::path& dir);
  // In the order of their folders.
  std::vector<HandoverName> names();
  bool has_name(const std::filesystem::path& mount);

  // Fills in mounts and names.
  void write_to(Handover& record);

 private:
  struct State {
    std::vector<std::unique_ptr<ImageMount>> mounts;  // each at a folder of its own
    std::vector<std::unique_ptr<ImageMount>> ending;
    std::map<std::filesystem::path, HandoverName> names;
  };
  Guarded<State> state_;
};

}  // namespace varve::fuse
