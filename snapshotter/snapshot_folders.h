#pragma once
// The folders of snapshots: DIR/<id>/fs is what a snapshot has written, work is overlayfs's own, lower/<n> shows a
// lower folder with the owners of a user namespace. Keys of callers never become names of files.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuse/mount/user_ids.h"
#include "snapshotter/snapshot.h"

namespace varve::snapshotter {

// Of a container with a user namespace of its own.
struct OwnerMapping {
  std::vector<fuse::IdRange> uids;
  std::vector<fuse::IdRange> gids;
};
// Of the labels of a Prepare; absent where there are none. Throws UsageError for what is no mapping.
std::optional<OwnerMapping> owner_mapping(const Labels& labels);

// Safe to use from any thread; one caller per snapshot at a time.
class SnapshotFolders {
 public:
  explicit SnapshotFolders(std::filesystem::path dir);

  std::filesystem::path upper(std::int64_t id) const { return folder(id) / "fs"; }
  std::filesystem::path work(std::int64_t id) const { return folder(id) / "work"; }

  // `writable`: with a work folder.
  void make(std::int64_t id, bool writable) const;
  // What is written belongs to whom the root of `lower` belongs to, with the same mode.
  void take_owner(std::int64_t id, const std::filesystem::path& lower) const;
  // To the root of the mapping.
  void take_owner(std::int64_t id, const OwnerMapping& mapping) const;
  // The lower folders, the topmost first, as they are seen with these owners; made anew where they are not mounted (any
  // more). As they are if the topmost belongs to the mapping's root. Throws Unsupported where the file system cannot do
  // that.
  std::vector<std::filesystem::path> mapped(std::int64_t id, const std::vector<std::filesystem::path>& lowers,
                                            const OwnerMapping& mapping) const;
  // What lies in the upper folder, each file once.
  SnapshotUsage usage(std::int64_t id) const;

  // Those that there are, whether whole or not.
  std::vector<std::int64_t> ids() const;
  // With what is mounted in it. Nothing happens if there is none.
  void remove(std::int64_t id) const;

 private:
  std::filesystem::path folder(std::int64_t id) const { return dir_ / std::to_string(id); }

  std::filesystem::path dir_;
};

}  // namespace varve::snapshotter
