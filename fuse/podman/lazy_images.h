#pragma once
// Images in podman's store with the mounts that they are. One command at a time works on a store.
#include <filesystem>
#include <string>
#include <vector>

#include "core/index/local_index.h"
#include "fuse/control/control_client.h"
#include "fuse/podman/image_store.h"
#include "fuse/podman/storage_conf.h"

namespace varve::fuse::podman {

struct AddRequest {
  ImageSpec image;
  std::string name;  // as podman is to know it: podman_name()
  MountMode mode = MountMode::kAuto;
  bool prefetch = true;
};

struct AddedImage {
  StoredImage image;
  MountMode mode = MountMode::kFuse;  // what was chosen
  std::string why;                    // one line when kAuto did not give kernel mode, else ""
  std::filesystem::path tree;
  bool was_there = false;  // under this name already, and nothing has changed
  std::string moved_from;  // ID of the image that had the name before; "" = none had it
};

// Mounts the image for podman, and shows it under the name. Throws as ControlClient::mount does; then
// the store is as it was. `local` is the index folder of the daemon's root.
AddedImage add_image(const std::filesystem::path& store, ControlClient& daemon, index::LocalIndex& local,
                     const AddRequest& request);

struct RemoveRequest {
  std::string image;   // a name, the beginning of an ID, or a digest
  bool force = false;  // also if containers that do not run, or images made of it, need it
};

struct RemovedName {
  std::string id;
  std::string name;      // that was taken away; "" if the image was named by ID or digest
  bool is_gone = false;  // else it has other names
};

// `daemon` null: nothing is mounted. Throws NotFound; Error naming who uses it.
RemovedName remove_image(const std::filesystem::path& store, ControlClient* daemon, const StorageConf& conf,
                         const RemoveRequest& request);

struct ListedImage {
  StoredImage image;
  std::filesystem::path tree;
  bool mounted = false;
  MountMode mode = MountMode::kFuse;  // of the mount
  std::vector<std::string> used_by;
};

std::vector<ListedImage> list_images(const std::filesystem::path& store, ControlClient* daemon,
                                     const StorageConf& conf);

struct RestoredImages {
  std::vector<ListedImage> images;
  std::vector<std::string> failed;  // one line for each image that could not be mounted; podman does not see it
  bool may_pass = false;            // all of these for a reason that may pass: a registry that is away
};

// Mounts what is not mounted, after a reboot, and writes the lists anew.
RestoredImages restore_images(const std::filesystem::path& store, ControlClient& daemon);

}  // namespace varve::fuse::podman
