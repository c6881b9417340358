#pragma once
// The snapshots of this machine, by one rule: what lies beneath a snapshot is, from its parent down, the folder of each
// layer that was unpacked, and at the first placeholder the tree of all layers from there on.
// docs/formats/snapshotter.md.
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/threads/guarded.h"
#include "snapshotter/held_trees.h"
#include "snapshotter/lazy_images.h"
#include "snapshotter/snapshot_folders.h"
#include "snapshotter/snapshot_table.h"

namespace varve::snapshotter {

// What every call may be limited by.
inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxLabelBytes = 4096;  // key and value together, as containerd has it
inline constexpr std::size_t kMaxLabels = 1024;

struct SnapshotsOptions {
  LazyOptions lazy;
  std::function<std::int64_t()> now_ns;  // since 1970
};

// Safe to use from any thread. What a call says has happened is on disk. All calls throw NotFound for a snapshot that
// is not there, UsageError for arguments that cannot be right, TemporaryError for what may pass. `trees` must outlive
// it.
class Snapshots {
 public:
  // ROOT/snapshotter. What an earlier process left half-made there is removed; folders whose table is lost are put
  // aside, as containers may run in them.
  Snapshots(const std::filesystem::path& dir, Trees& trees, SnapshotsOptions options);

  // Throws AlreadyExists for an image layer that need not be fetched: a committed snapshot stands for it from then on.
  // FailedPrecondition: the key is taken.
  std::vector<Mount> prepare(const std::string& key, const std::string& parent, const Labels& labels);
  std::vector<Mount> view(const std::string& key, const std::string& parent, const Labels& labels);
  std::vector<Mount> mounts(const std::string& key);
  // `parent`: "", or what the snapshot has. Throws AlreadyExists, FailedPrecondition.
  void commit(const std::string& name, const std::string& key, const Labels& labels, const std::string& parent);
  // Its folder goes with the next cleanup(). Throws FailedPrecondition if it has children.
  void remove(const std::string& key);
  Snapshot stat(const std::string& key);
  // `paths`: "labels", "labels.NAME"; none: all labels.
  Snapshot update(const std::string& name, const Labels& labels, const std::vector<std::string>& paths);
  // Those with an id after `after`, by id.
  std::vector<Snapshot> list(std::int64_t after, std::size_t limit);
  SnapshotUsage usage(const std::string& key);
  // Frees what is needed no more: folders and trees.
  void cleanup();
  // The same, if something was removed since. containerd asks for it once, and not if it ends before, or fails to
  // remove a snapshot of the same round.
  void cleanup_if_removed();

  SnapshotCounts counts() { return table_.lock()->counts(); }
  LazyImages& images() { return images_; }

 private:
  struct Beneath {
    std::vector<std::int64_t> unpacked;  // the topmost first
    std::optional<TreeId> tree;
    std::string chain;  // of the tree
  };
  class NewFolder;

  std::vector<Mount> make(SnapshotKind kind, const std::string& key, const std::string& parent, const Labels& labels);
  static std::string name_of_placeholder(const std::string& chain) { return "varve/" + chain; }
  std::optional<Snapshot> find(const std::string& name);
  std::optional<Snapshot> recover(SnapshotTable& table, const std::string& name);
  void stand_for_layer(const Seed& seed, const std::string& parent, const Labels& labels);
  bool fits(const Seed& seed, const std::string& parent);
  Beneath beneath(const std::string& parent);
  std::vector<std::filesystem::path> lowers(const Snapshot& snapshot, const Beneath& beneath);
  std::vector<Mount> mounts_of(const Snapshot& snapshot, const std::vector<std::filesystem::path>& lowers) const;

  const SnapshotsOptions options_;
  const SnapshotFolders folders_;
  Guarded<SnapshotTable> table_;
  HeldTrees held_;
  LazyImages images_;
  std::atomic<std::int64_t> last_id_;
  Guarded<std::set<std::int64_t>> being_made_;  // folders whose snapshot is not in the table yet
  std::mutex cleaning_;
  std::atomic<bool> removed_ = false;  // since the last cleanup
};

}  // namespace varve::snapshotter
