#include "fuse/session/session_devices.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "core/base/errors.h"
#include "fuse/session/loader_cache.h"
#include "fuse/session/session_mounts.h"

namespace varve::fuse {
namespace {

void add_device_files(SessionSpec& spec, const std::vector<CdiDeviceNode>& nodes) {
  for (const auto& node : nodes) {
    struct stat status {};
    if (::stat(node.host_path.c_str(), &status) != 0) fail_errno("the device {}", node.host_path);
    if (!S_ISCHR(status.st_mode) && !S_ISBLK(status.st_mode)) fail<Error>("{}: is no device", node.host_path);
    auto mount = bind_mount(node.host_path, node.path, false, true);
    mount.device = true;
    spec.mounts.push_back(std::move(mount));
    spec.device_rules.push_back({.type = S_ISCHR(status.st_mode) ? 'c' : 'b',
                                 .major = ::major(status.st_rdev),
                                 .minor = ::minor(status.st_rdev),
                                 .access = node.permissions.empty() ? "rwm" : node.permissions});
  }
}

// What a link of the image leads to /proc or /dev is hidden by what is mounted there: the session would miss it without
// a word.
void check_seen(const std::string& wanted, const std::string& place, const std::vector<SpecMount>& mounts) {
  for (const auto& mount : mounts)
    if (place == mount.destination || place.starts_with(mount.destination + "/"))
      fail<CorruptData>("{} of the device's driver: the image's links lead to {}, where something else is mounted",
                        wanted, place);
}

// Where the driver brings what the image has not: nothing of the image changes, as the place is made in the writable
// layer.
void mount_driver_files(const std::vector<CdiMount>& mounts, const SessionSpec& spec, const Rootfs& rootfs) {
  for (const auto& one : mounts) {
    struct stat status {};
    if (::stat(one.host_path.c_str(), &status) != 0)
      fail_errno("{} of the device's driver, which its specification names", one.host_path);
    const bool file = !S_ISDIR(status.st_mode);
    const auto place = rootfs.ensure(one.container_path, {.folder = !file, .mode = file ? 0644u : 0755u});
    if (place != one.container_path) check_seen(one.container_path, place, spec.mounts);
    auto mount = bind_mount(one.host_path, place, true, file);
    for (const auto& option : one.options) {
      if (option == "rw") std::erase(mount.options, "ro");
      if (option == "nosuid" || option == "nodev" || option == "noexec") mount.options.push_back(option);
    }
    mount_now(mount, rootfs);
  }
}

// The values of an option that may be given many times: "--folder X", "--folder=X".
std::vector<std::string> values_of(const CdiHook& hook, std::string_view option) {
  std::vector<std::string> values;
  for (std::size_t i = 0; i < hook.args.size(); ++i) {
    const std::string_view word = hook.args[i];
    if (word == option && i + 1 < hook.args.size()) {
      values.push_back(hook.args[++i]);
    } else if (word.starts_with(option) && word.substr(option.size()).starts_with('=')) {
      values.emplace_back(word.substr(option.size() + 1));
    }
  }
  return values;
}

// "TARGET::LINK". A link that is there stays: the image or a driver's mount has it.
void make_symlink(const std::string& text, const Rootfs& rootfs) {
  const auto separator = text.find("::");
  if (separator == std::string::npos || !text.substr(separator + 2).starts_with('/'))
    fail<Error>("'{:.300}', a link of the device's driver, is not of the form TARGET::/LINK", text);
  const std::filesystem::path link = text.substr(separator + 2);
  const auto folder = rootfs.open_path(rootfs.ensure(link.parent_path().string(), {.folder = true, .mode = 0755}),
                                       O_RDONLY | O_DIRECTORY);
  if (!folder) fail<Error>("{}: its folder cannot be made", link.string());
  if (::symlinkat(text.substr(0, separator).c_str(), folder->get(), link.filename().c_str()) != 0 && errno != EEXIST)
    fail_errno("make the link {}", link.string());
}

}  // namespace

void add_devices(SessionSpec& spec, const CdiEdits& edits, const Rootfs& rootfs, const std::filesystem::path& merged,
                 const std::function<void(const std::string&)>& say) {
  add_device_files(spec, edits.devices);
  mount_driver_files(edits.mounts, spec, rootfs);
  std::vector<std::string> folders;
  for (const auto& hook : edits.hooks) {
    const auto does = [&](std::string_view what) { return std::ranges::find(hook.args, what) != hook.args.end(); };
    if (does("update-ldcache")) {
      for (auto& folder : values_of(hook, "--folder")) folders.push_back(std::move(folder));
    } else if (does("create-symlinks")) {
      for (const auto& link : values_of(hook, "--link")) make_symlink(link, rootfs);
    } else if (!does("chmod")) {  // of folders in /dev, which are the session's own
      say(fmt::format("the hook {} {} of the device is not carried out", hook.path,
                      hook.args.size() > 1 ? hook.args[1] : ""));
    }
  }
  spec.user.groups.insert(spec.user.groups.end(), edits.additional_gids.begin(), edits.additional_gids.end());
  if (folders.empty()) return;
  try {
    tell_loader_of_driver(folders, edits.mounts, rootfs, merged, say);
  } catch (const std::exception& error) {
    fail<Error>("the loader's cache in the session cannot be told of the driver's libraries: {}", error.what());
  }
}

}  // namespace varve::fuse
