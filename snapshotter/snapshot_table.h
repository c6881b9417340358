#pragma once
// What must outlive this process, on disk before anybody is answered: docs/formats/snapshotter.md "Table".
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/sql/connection.h"
#include "snapshotter/snapshot.h"
#include "snapshotter/trees.h"

namespace varve::snapshotter {

// An image that was not mounted lazily, and why.
struct Refusal {
  Digest image;
  std::string reference;
  std::string why;
  std::int64_t at = 0;  // seconds since 1970
};

// A chain ID as a layer of an image that is known.
struct Seed {
  TreeId tree;
  std::string reference;
  std::string chain;
};

struct SnapshotCounts {
  std::uint64_t active = 0;
  std::uint64_t views = 0;
  std::uint64_t unpacked = 0;      // committed, with a folder
  std::uint64_t placeholders = 0;  // committed, layers of images that are mounted lazily
};

// Used by one thread at a time. Every call that changes something is one transaction, synced. All throw as
// SqlConnection does.
class SnapshotTable {
 public:
  // ROOT/snapshotter/table.db, made if it is not there.
  static std::filesystem::path file_of(const std::filesystem::path& folder) { return folder / "table.db"; }
  explicit SnapshotTable(const std::filesystem::path& file);

  std::optional<Snapshot> find(const std::string& name);
  // A placeholder with this chain ID and parent.
  std::optional<Snapshot> find_placeholder(const std::string& chain, const std::string& parent);
  bool has_children(std::int64_t id);
  // By id, those after `after`; at most `limit`.
  std::vector<Snapshot> list(std::int64_t after, std::size_t limit);
  std::vector<std::int64_t> ids();
  SnapshotCounts counts();
  std::int64_t highest_id();

  // The parent must be there. Throws AlreadyExists where the name is taken.
  void add(const Snapshot& snapshot);
  // An active snapshot becomes a committed one with these labels. Throws AlreadyExists where the name is taken.
  void commit(std::int64_t id, const std::string& name, const Labels& labels, std::int64_t now_ns);
  void update_labels(std::int64_t id, const Labels& labels, std::int64_t now_ns);
  void remove(std::int64_t id);
  // Of a committed snapshot, once it was measured.
  std::optional<SnapshotUsage> usage(std::int64_t id);
  void set_usage(std::int64_t id, const SnapshotUsage& usage);
  // The tree beneath a view or an active snapshot is another one now.
  void set_tree(std::int64_t id, const TreeId& tree);

  // Trees that lie beneath a view or an active snapshot.
  std::vector<TreeId> trees_in_use();
  bool is_in_use(const TreeId& tree);

  // Its chain IDs are recorded, and that it was refused is forgotten.
  void add_image(const KnownImage& image);
  std::optional<KnownImage> find_image(const Digest& image);
  std::size_t images();
  // Images that have this chain ID; those of which it is all layers first.
  std::vector<Seed> seeds(const std::string& chain);

  void add_refusal(const Refusal& refusal);
  std::optional<Refusal> find_refusal(const Digest& image);
  // The latest first.
  std::vector<Refusal> refusals();

 private:
  std::unique_ptr<SqlConnection> sql_;
};

}  // namespace varve::snapshotter
