#include "fuse/session/session_devices.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "core/base/child_process.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "fuse/session/session_mounts.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kMaxLdSoConf = 1 << 20;
constexpr std::string_view kLdSoConf = "/etc/ld.so.conf";
constexpr std::string_view kOurLdSoConf =
    "/etc/ld.so.conf.d/00-varve-devices.conf";  // before the image's own: the driver's libraries win
constexpr std::string_view kLdSoConfDir = "/etc/ld.so.conf.d";
constexpr std::uint64_t kLdconfigMemory = std::uint64_t(1) << 30;  // a list of the image may be one line of any length
constexpr std::chrono::seconds kLdconfigLimit{600};  // it reads the head of each library, over a lazy mount
constexpr std::string_view kIncludeAll = "include /etc/ld.so.conf.d/*.conf\n";

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

// The folder of a path in the session's tree, made where it is missing.
UniqueFd folder_of(const Rootfs& rootfs, const std::filesystem::path& path) {
  auto folder = rootfs.open_plain(rootfs.ensure(path.parent_path().string(), {.folder = true, .mode = 0755}),
                                  O_RDONLY | O_DIRECTORY);
  if (!folder) fail<Error>("the folder of {} in the session cannot be opened", path.string());
  return std::move(*folder);
}

void remove_in(const UniqueFd& folder, const std::filesystem::path& path) {
  if (::unlinkat(folder.get(), path.filename().c_str(), 0) != 0 && errno != ENOENT)
    fail_errno("replace {} of the image", path.string());
}

// Never opens what the image has there, which may be a link, a FIFO or a device.
void write_in(const Rootfs& rootfs, const std::filesystem::path& path, std::string_view text) {
  const auto folder = folder_of(rootfs, path);
  remove_in(folder, path);
  const UniqueFd file(
      ::openat(folder.get(), path.filename().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) fail_errno("make {} in the session", path.string());
  write_all(file.get(), as_bytes(text), path.string());
}

// ldconfig opens its own files as they are: what is no plain file goes, and so does what it is about to write.
void clear_loader_files(const Rootfs& rootfs) {
  for (const std::filesystem::path path : {"/etc/ld.so.cache", "/var/cache/ldconfig/aux-cache"}) {
    if (!rootfs.open_path(path.parent_path().string(), O_PATH)) continue;
    const auto folder = folder_of(rootfs, path);
    struct stat status {};
    if (::fstatat(folder.get(), path.filename().c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(status.st_mode))
      remove_in(folder, path);
    remove_in(folder, path.string() + "~");
  }
}

// It would read them, and wait for ever at a FIFO. What else a list of the image includes is left to the limit.
void check_loader_lists(const Rootfs& rootfs) {
  const auto lists = rootfs.open_path(kLdSoConfDir, O_RDONLY | O_DIRECTORY);
  if (!lists) return;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd/" + std::to_string(lists->get()))) {
    const auto name = fmt::format("{}/{}", kLdSoConfDir, entry.path().filename().string());
    const auto file = rootfs.open_path(name, O_PATH);
    struct stat status {};
    if (file && ::fstat(file->get(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
      fail<CorruptData>("{} of the image is no plain file", name);
  }
}

// The machine's ldconfig works on any tree, and is a program that nobody in the image has touched.
void update_loader_cache(const std::vector<std::string>& folders, const Rootfs& rootfs,
                         const std::filesystem::path& merged) {
  std::string list;
  for (const auto& folder : folders)
    if (folder.find('\n') == std::string::npos) list += folder + "\n";
  write_in(rootfs, kOurLdSoConf, list);
  const auto conf = rootfs.read_file(kLdSoConf, kMaxLdSoConf);
  const std::string text(conf ? as_text(*conf) : std::string_view());
  if (text.find("ld.so.conf.d/*.conf") == std::string::npos)
    write_in(rootfs, kLdSoConf, std::string(kIncludeAll) + text);
  clear_loader_files(rootfs);
  check_loader_lists(rootfs);
  const auto* program = "/sbin/ldconfig";
  if (::access(program, X_OK) != 0) fail<Error>("this machine has no {}", program);
  const auto done = run_child({.words = {program, "-r", merged.string()},
                               .input = {},
                               .limit = kLdconfigLimit,
                               .environment = std::vector<std::string>{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
                               .max_memory_bytes = kLdconfigMemory},
                              CancelFlag());
  if (done.timed_out) fail<Error>("{} did not end within {} s", program, kLdconfigLimit.count());
  if (done.exit_status != 0) fail<Error>("{} ended with status {}: {:.300}", program, done.exit_status, done.err);
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
    update_loader_cache(folders, rootfs, merged);
  } catch (const std::exception& error) {
    fail<Error>("the loader's cache in the session cannot be told of the driver's libraries: {}", error.what());
  }
}

}  // namespace varve::fuse
