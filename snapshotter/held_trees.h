#pragma once
// Which trees are mounted for snapshots: those beneath views and active ones, by the table. They outlive this process.
#include <condition_variable>
#include <filesystem>
#include <map>
#include <set>

#include "core/base/threads/guarded.h"
#include "snapshotter/snapshot_table.h"
#include "snapshotter/trees.h"

namespace varve::snapshotter {

// Safe to use from any thread. Table and trees must outlive it.
class HeldTrees {
 public:
  HeldTrees(Guarded<SnapshotTable>& table, Trees& trees) : table_(table), trees_(trees) {}

  struct Held {
    TreeId tree;
    std::filesystem::path dir;
  };
  // The folder of a tree that the table says snapshot `id` has beneath. Where it cannot be mounted, that of another
  // image with the same layers, which the table says from then on. Throws TemporaryError, or FailedPrecondition.
  Held hold(std::int64_t id, const TreeId& tree, const std::string& chain);
  // Those that no snapshot has beneath any more.
  void release_unused();

 private:
  struct State {
    std::map<TreeId, int> being_held;
    std::set<TreeId> being_released;
  };
  class BeingHeld;

  Guarded<SnapshotTable>& table_;
  Trees& trees_;
  Guarded<State> state_;
  std::condition_variable changed_;
};

}  // namespace varve::snapshotter
