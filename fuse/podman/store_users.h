#pragma once
// What would break if an image left the store. Read from podman's own storage (containers/storage: layers.json,
// images.json, containers.json) and from the tables of mounts.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fuse/podman/image_store.h"
#include "fuse/podman/storage_conf.h"

namespace varve::fuse::podman {

// Containers, images and layers of one storage, as far as they are of interest.
struct StorageLists {
  struct Layer {
    std::string id, parent;
  };
  struct Item {
    std::string id, layer, name;  // name "": it has none
  };
  std::vector<Layer> layers;
  std::vector<Item> images, containers;
};

// Adds what one of the lists says. Throws CorruptData or Unsupported for what is none.
void parse_layer_list(std::string_view json, std::string_view what, StorageLists& into);
void parse_image_list(std::string_view json, std::string_view what, StorageLists& into);
void parse_container_list(std::string_view json, std::string_view what, StorageLists& into);

// Of podman's storage on this machine; empty where there is none. Throws as the parsers do.
StorageLists read_storage_lists(const StorageConf& conf);

// For people: "container lab", "image localhost/child:1 (made of it)", "a mount at /mnt".
std::vector<std::string> find_users(const StoredImage& image, const StorageLists& lists);
// The same of overlays above an image's tree: all that is known of programs other than podman.
std::vector<std::string> find_mounted_users(const std::filesystem::path& tree);

}  // namespace varve::fuse::podman
