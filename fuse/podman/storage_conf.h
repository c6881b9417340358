#pragma once
// storage.conf of podman and CRI-O (containers-storage.conf(5)): where their own storage is, and which further stores
// of images they look into.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace varve::fuse::podman {

struct StorageConf {
  std::string driver;  // "" where the file leaves it to podman, which takes overlay where it can
  std::filesystem::path graph_root{"/var/lib/containers/storage"};
  std::filesystem::path run_root{"/run/containers/storage"};
  std::vector<std::filesystem::path> image_stores;

  bool names(const std::filesystem::path& store) const;
};

// Throws CorruptData "WHAT:LINE: why" for what podman could not read either. Keys that are not of interest are passed
// over.
StorageConf parse_storage_conf(std::string_view text, std::string_view what);
// The same text with the store in front of `additionalimagestores`; all else stays as it is, comments too. Throws
// Unsupported with the line that is to be added where that cannot be done without doubt.
std::string add_image_store(std::string_view text, std::string_view what, const std::filesystem::path& store);
// What a file of its own would say.
std::string new_storage_conf(const std::filesystem::path& store);
// For people: what a file lacks.
std::string image_store_line(const std::filesystem::path& store);

// Of this machine.
struct StorageConfFile {
  std::filesystem::path file;     // that podman reads as root, or would: there may be none
  std::filesystem::path text_of;  // where its text is now: `file`, or the distribution's default; "" if there is none
  std::string text;
};
using Variable = std::function<std::optional<std::string>(const std::string& name)>;
// $CONTAINERS_STORAGE_CONF, else /etc/containers/storage.conf, else the distribution's in /usr/share.
StorageConfFile find_storage_conf(const Variable& environment);

}  // namespace varve::fuse::podman
