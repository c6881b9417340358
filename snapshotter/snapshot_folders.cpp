#include "snapshotter/snapshot_folders.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/file_id.h"
#include "core/base/files/private_folder.h"
#include "core/base/files/remove_tree.h"
#include "core/base/log.h"
#include "core/base/text/strings.h"
#include "fuse/session/mount_copy.h"
#include "fuse/session/user_namespace.h"

namespace varve::snapshotter {
namespace {

constexpr std::size_t kMostRanges = 340;  // the kernel takes no more (user_namespaces(7))
constexpr std::int64_t kBlockBytes = 512;

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "0:100000:65536,..." as containerd writes a mapping: container, host, size.
std::vector<fuse::IdRange> parse_ranges(const char* label, std::string_view text) {
  std::vector<fuse::IdRange> ranges;
  for (const auto part : split(text, ",")) {
    const auto numbers = split(part, ":");
    const auto number = [&](std::size_t at) {
      return numbers.size() == 3 ? number_of<std::uint32_t>(numbers[at]) : std::nullopt;
    };
    const auto inside = number(0), outside = number(1), count = number(2);
    if (!inside || !outside || count.value_or(0) == 0 || ranges.size() == kMostRanges)
      fail<UsageError>("label {}: '{}' is no mapping as 0:100000:65536", label, text.substr(0, 100));
    ranges.push_back({.inside = *inside, .outside = *outside, .count = *count});
  }
  return ranges;
}

struct stat look_at(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) fail_errno("stat {}", path.string());
  return status;
}

void make_folder(const std::filesystem::path& path, mode_t mode) {
  // Whatever the mask of whoever has started this process is.
  if (::mkdir(path.c_str(), mode) != 0 || ::chmod(path.c_str(), mode) != 0)
    fail_errno("make the folder {}", path.string());
}

void give(const std::filesystem::path& path, uid_t uid, gid_t gid, mode_t mode) {
  // The mode last: a new owner takes bits of it away.
  if (::lchown(path.c_str(), uid, gid) != 0 || ::chmod(path.c_str(), mode) != 0)
    fail_errno("give {} to {}:{}", path.string(), uid, gid);
}

fuse::UserIds ids_of(const OwnerMapping& mapping) {
  return {.uids = fuse::IdMap(mapping.uids, mapping.uids.front().outside),
          .gids = fuse::IdMap(mapping.gids, mapping.gids.front().outside),
          .is_root = false,
          .needs_helpers = false,
          .made_by_root = true};
}

void unmount_all_at(const std::filesystem::path& path) {
  while (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
  }
}

// A copy of a mount shows the same file system, whose root is the very folder that was copied.
bool shows(const std::filesystem::path& place, const std::filesystem::path& what) {
  return id_of(look_at(place)) == id_of(look_at(what));
}

// containerd that does not know that owners are mapped here has given a copy of the image to them before it asks.
bool belongs_to_root_of(const fuse::UserIds& ids, const std::filesystem::path& lower) {
  const auto status = look_at(lower);
  return status.st_uid != 0 && status.st_uid == ids.uids.outside(0) && status.st_gid == ids.gids.outside(0);
}

}  // namespace

std::optional<OwnerMapping> owner_mapping(const Labels& labels) {
  const auto uids = labels.find(kUidMappingLabel), gids = labels.find(kGidMappingLabel);
  if (uids == labels.end() && gids == labels.end()) return std::nullopt;
  if (uids == labels.end() || gids == labels.end())
    fail<UsageError>("of the labels {} and {} one is missing", kUidMappingLabel, kGidMappingLabel);
  return OwnerMapping{.uids = parse_ranges(kUidMappingLabel, uids->second),
                      .gids = parse_ranges(kGidMappingLabel, gids->second)};
}

SnapshotFolders::SnapshotFolders(std::filesystem::path dir) : dir_(std::move(dir)) { make_private_folder(dir_); }

void SnapshotFolders::make(std::int64_t id, bool writable) const {
  make_folder(folder(id), 0700);
  make_folder(upper(id), 0755);
  if (writable) make_folder(work(id), 0711);
}

void SnapshotFolders::take_owner(std::int64_t id, const std::filesystem::path& lower) const {
  struct stat status {};
  if (::stat(lower.c_str(), &status) != 0) fail_errno("stat {}", lower.string());
  give(upper(id), status.st_uid, status.st_gid, status.st_mode & 07777);
}

void SnapshotFolders::take_owner(std::int64_t id, const OwnerMapping& mapping) const {
  const auto ids = ids_of(mapping);
  give(upper(id), ids.uids.outside(0), ids.gids.outside(0), 0755);
}

std::vector<std::filesystem::path> SnapshotFolders::mapped(std::int64_t id,
                                                           const std::vector<std::filesystem::path>& lowers,
                                                           const OwnerMapping& mapping) const {
  const auto ids = ids_of(mapping);
  if (belongs_to_root_of(ids, lowers.front())) return lowers;
  const auto top = folder(id) / "lower";
  std::filesystem::create_directory(top);
  UniqueFd user_namespace;
  std::vector<std::filesystem::path> places;
  for (std::size_t i = 0; i < lowers.size(); ++i) {
    const auto place = top / std::to_string(i);
    places.push_back(place);
    std::filesystem::create_directory(place);
    if (shows(place, lowers[i])) continue;
    unmount_all_at(place);
    if (!user_namespace) user_namespace = fuse::make_user_namespace(ids);
    const auto copy = fuse::copy_mount(AT_FDCWD, lowers[i].string(), false);
    if (const auto why = fuse::map_owners(copy, false, lowers[i], user_namespace)) throw Unsupported(*why);
    fuse::attach_mount(copy, open_file(place, O_PATH | O_NOFOLLOW).get(), place.string());
  }
  return places;
}

SnapshotUsage SnapshotFolders::usage(std::int64_t id) const {
  namespace fs = std::filesystem;
  SnapshotUsage usage;
  std::set<FileId> linked;  // files with several names
  const auto count = [&](const fs::path& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return;  // a container removes what it likes
    if (!S_ISDIR(status.st_mode) && status.st_nlink > 1 && !linked.insert(id_of(status)).second) return;
    usage.bytes += std::int64_t(status.st_blocks) * kBlockBytes;
    ++usage.inodes;
  };
  count(upper(id));
  std::error_code error;
  auto it = fs::recursive_directory_iterator(upper(id), fs::directory_options::skip_permission_denied, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) count(it->path());
  return usage;
}

std::vector<std::int64_t> SnapshotFolders::ids() const {
  std::vector<std::int64_t> all;
  for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
    const auto id = number_of<std::int64_t>(entry.path().filename().string());
    if (id && *id > 0)
      all.push_back(*id);
    else
      log::warn("{} is no snapshot's folder: left alone", entry.path().string());
  }
  std::ranges::sort(all);
  return all;
}

void SnapshotFolders::remove(std::int64_t id) const {
  std::error_code none;
  for (std::filesystem::directory_iterator it(folder(id) / "lower", none), end; !none && it != end; it.increment(none))
    unmount_all_at(it->path());
  if (std::filesystem::exists(std::filesystem::symlink_status(folder(id)))) remove_tree(folder(id));
}

}  // namespace varve::snapshotter
