#include "testing/trees.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/file_attributes.h"

namespace varve::test {
namespace {

constexpr std::uint64_t kSmall = 256 * 1024;
constexpr std::uint64_t kEdge = 5000;

std::byte pattern(std::uint32_t layer, std::uint64_t offset) {
  auto mixed = (offset / 8 + 1) * 0x9E3779B97F4A7C15ull + layer * 0xD1B54A32D192ED03ull;
  mixed ^= mixed >> 29;
  return std::byte(mixed >> (offset % 8 * 8));
}

Seen seen_of(const TreeInode& inode) {
  Seen seen;
  seen.info.attributes() = inode.attributes();
  seen.info.size = inode.type == FileType::kSymlink ? inode.symlink_target.size() : inode.size;
  seen.target = inode.symlink_target;
  seen.xattrs = std::exchange(seen.info.xattrs, {});
  return seen;
}

template <typename Id>
void link_names(Listing& listing, const std::map<Id, std::vector<std::string>>& names) {
  for (const auto& [id, paths] : names) {
    const auto& first = *std::ranges::min_element(paths);
    for (const auto& path : paths) listing[path].first_name = first;
  }
}

void walk(const std::string& path, const TreeInode& inode, Listing& listing,
          std::map<const TreeInode*, std::vector<std::string>>& names) {
  auto seen = seen_of(inode);
  if (inode.type == FileType::kDirectory) seen.info.nlink = 2;
  names[&inode].push_back(path);
  for (const auto& [name, child] : inode.children) {
    if (child->type == FileType::kDirectory) ++seen.info.nlink;
    walk(path.empty() ? name : path + "/" + name, *child, listing, names);
  }
  listing[path] = std::move(seen);
}

void walk(const ErofsReader& reader, const std::string& path, Nid nid, Listing& listing,
          std::map<Nid, std::vector<std::string>>& names) {
  Seen seen{.info = reader.inode(nid), .target = {}, .xattrs = reader.xattrs(nid), .first_name = {}};
  names[nid].push_back(path);
  if (seen.info.type == FileType::kSymlink) seen.target = reader.symlink_target(nid);
  if (seen.info.type == FileType::kDirectory) {
    seen.info.size = 0;
    reader.read_directory(nid, 0, [&](std::string_view name, Nid child, FileType, std::uint64_t) {
      if (name != "." && name != "..")
        walk(reader, path.empty() ? std::string(name) : path + "/" + std::string(name), child, listing, names);
      return true;
    });
  }
  listing[path] = std::move(seen);
}

}  // namespace

bool operator==(const Seen& a, const Seen& b) {
  const auto& x = a.info;
  const auto& y = b.info;
  return x.attributes() == y.attributes() && x.nlink == y.nlink && x.size == y.size && a.target == b.target &&
         a.xattrs == b.xattrs && a.first_name == b.first_name;
}

std::string describe(const Seen& seen) {
  const auto& info = seen.info;
  return fmt::format(
      "type {} mode {:o} nlink {} owner {}:{} mtime {}.{:09} device {}:{} size {} target \"{:.60}\" {} xattrs, "
      "linked to {:.60}",
      int(info.type), info.mode, info.nlink, info.uid, info.gid, info.mtime_seconds, info.mtime_nanoseconds,
      info.device_major, info.device_minor, info.size, seen.target, seen.xattrs.size(), seen.first_name);
}

Seen seen_at(const std::filesystem::path& path) {
  struct ::stat status {};
  if (::lstat(path.c_str(), &status) != 0) fail_errno("look at {}", path.string());
  Seen seen;
  seen.info.mode = status.st_mode & 07777;
  seen.info.nlink = std::uint32_t(status.st_nlink);
  seen.info.uid = status.st_uid;
  seen.info.gid = status.st_gid;
  seen.info.mtime_seconds = status.st_mtim.tv_sec;
  seen.info.mtime_nanoseconds = std::uint32_t(status.st_mtim.tv_nsec);
  seen.info.type = type_of_mode(status.st_mode).value();
  if (seen.info.type == FileType::kRegular || seen.info.type == FileType::kSymlink)
    seen.info.size = std::uint64_t(status.st_size);
  if (seen.info.type == FileType::kCharDevice || seen.info.type == FileType::kBlockDevice) {
    seen.info.device_major = major(status.st_rdev);
    seen.info.device_minor = minor(status.st_rdev);
  }
  if (seen.info.type == FileType::kSymlink) seen.target = std::filesystem::read_symlink(path).string();
  std::vector<char> names(70'000);
  const auto length = ::llistxattr(path.c_str(), names.data(), names.size());
  if (length < 0 && errno != ENOTSUP && errno != ENOSYS) fail_errno("list attributes of {}", path.string());
  for (const char* at = names.data(); at < names.data() + std::max<ssize_t>(length, 0); at += std::strlen(at) + 1) {
    std::string value(70'000, '\0');
    const auto size = ::lgetxattr(path.c_str(), at, value.data(), value.size());
    if (size < 0) fail_errno("read attribute {} of {}", at, path.string());
    value.resize(std::size_t(size));
    if (!seen.xattrs.emplace(at, value).second) fail<Error>("{} lists its attribute {} twice", path.string(), at);
  }
  return seen;
}

Listing listing_of(const Tree& tree) {
  Listing listing;
  std::map<const TreeInode*, std::vector<std::string>> names;
  walk("", *tree.root, listing, names);
  for (const auto& [inode, paths] : names) {
    if (inode->type == FileType::kDirectory) continue;
    for (const auto& path : paths) listing[path].info.nlink = std::uint32_t(paths.size());
  }
  link_names(listing, names);
  return listing;
}

Listing listing_of(const ErofsReader& reader) {
  Listing listing;
  std::map<Nid, std::vector<std::string>> names;
  walk(reader, "", reader.root(), listing, names);
  link_names(listing, names);
  return listing;
}

void expect_same(const Listing& expected, const Listing& actual) {
  int shown = 0;
  for (const auto& [path, seen] : expected) {
    const auto found = actual.find(path);
    if (found == actual.end()) {
      ADD_FAILURE() << "missing: " << path.substr(0, 200);
    } else if (!(found->second == seen)) {
      ADD_FAILURE() << path.substr(0, 200) << "\n  expected " << describe(seen) << "\n  found    "
                    << describe(found->second);
    } else {
      continue;
    }
    if (++shown == 10) return;
  }
  for (const auto& [path, seen] : actual) {
    if (expected.contains(path)) continue;
    ADD_FAILURE() << "not asked for: " << path.substr(0, 200);
    if (++shown == 10) return;
  }
}

FakeLayers::FakeLayers(const std::filesystem::path& dir, std::vector<std::uint64_t> stream_bytes)
    : dir_(dir), stream_bytes_(std::move(stream_bytes)) {
  for (std::size_t i = 0; i < stream_bytes_.size(); ++i) {
    files_.push_back(dir_ / ("layer" + std::to_string(i)));
    const auto fd = open_file(files_.back(), O_RDWR | O_CREAT);
    // Streams end on a block: devices are read in whole blocks.
    if (::ftruncate(fd.get(), off_t((stream_bytes_[i] + 511) / 512 * 512)) != 0)
      fail_errno("grow {}", files_.back().string());
  }
}

std::vector<std::string> FakeLayers::tags() const {
  std::vector<std::string> tags;
  for (std::size_t i = 0; i < files_.size(); ++i) tags.push_back(digest_of("layer " + std::to_string(i)).hex());
  return tags;
}

std::vector<ByteRange> places_to_compare(const TreeInode& file) {
  if (file.size <= kSmall) return {{0, file.size}};
  std::vector<ByteRange> places;
  const auto around = [&](std::uint64_t offset) {
    const auto begin = offset < kEdge ? 0 : offset - kEdge;
    const auto end = std::min(file.size, offset + kEdge);
    places.push_back({begin, end - begin});
  };
  around(0);
  around(file.size);
  around(file.size / 2);
  for (const auto& run : file.runs) {
    around(run.run.file_offset);
    around(run.run.file_offset + run.run.length);
  }
  return places;
}

void FakeLayers::fill(const Tree& tree) const {
  std::vector<UniqueFd> fds;
  for (const auto& file : files_) fds.push_back(open_file(file, O_RDWR));
  std::vector<const TreeInode*> to_visit{tree.root.get()};
  while (!to_visit.empty()) {
    const auto* inode = to_visit.back();
    to_visit.pop_back();
    for (const auto& [name, child] : inode->children) to_visit.push_back(child.get());
    for (const auto& place : inode->runs.empty() ? std::vector<ByteRange>{} : places_to_compare(*inode)) {
      for (const auto& [layer, run] : inode->runs) {
        const auto begin = std::max(place.offset, run.file_offset);
        const auto end = std::min(place.end(), run.file_offset + run.length);
        if (begin >= end) continue;
        Bytes content(end - begin);
        const auto at = run.stream_offset + (begin - run.file_offset);
        for (std::size_t i = 0; i < content.size(); ++i) content[i] = pattern(layer, at + i);
        pwrite_all(fds[layer].get(), at, content, "layer");
      }
    }
  }
}

std::filesystem::path FakeLayers::make_ranges_file(const RangesDevice& ranges) const {
  const auto path = dir_ / "ranges";
  const auto fd = open_file(path, O_RDWR | O_CREAT | O_TRUNC);
  if (::ftruncate(fd.get(), off_t(ranges.bytes)) != 0) fail_errno("grow {}", path.string());
  for (const auto& range : ranges.ranges) {
    const auto layer = open_file(files_.at(range.layer), O_RDONLY);
    Bytes content(std::min(range.length, kSmall));  // longer ranges are only compared at their edges
    pread_exactly(layer.get(), range.stream_offset, content, "layer");
    pwrite_all(fd.get(), range.device_offset, content, "ranges");
    const auto tail = range.length - content.size();
    if (tail == 0) continue;
    content.resize(std::min(tail, kSmall));
    pread_exactly(layer.get(), range.stream_offset + range.length - content.size(), content, "layer");
    pwrite_all(fd.get(), range.device_offset + range.length - content.size(), content, "ranges");
  }
  return path;
}

std::string FakeLayers::expected(const TreeInode& file, std::uint64_t offset, std::uint64_t length) const {
  std::string content(length, '\0');
  for (const auto& [layer, run] : file.runs) {
    const auto begin = std::max(offset, run.file_offset);
    const auto end = std::min(offset + length, run.file_offset + run.length);
    for (auto at = begin; at < end; ++at)
      content[at - offset] = char(pattern(layer, run.stream_offset + (at - run.file_offset)));
  }
  return content;
}

std::shared_ptr<TreeInode> make_file(std::uint64_t size, std::vector<TreeRun> runs) {
  auto file = std::make_shared<TreeInode>();
  file->type = FileType::kRegular;
  file->mode = 0644;
  file->size = size;
  file->runs = std::move(runs);
  return file;
}

std::shared_ptr<TreeInode> make_directory() { return std::make_shared<TreeInode>(); }

std::shared_ptr<TreeInode> make_symlink(std::string target) {
  auto link = std::make_shared<TreeInode>();
  link->type = FileType::kSymlink;
  link->mode = 0777;
  link->symlink_target = std::move(target);
  return link;
}

void put(Tree& tree, const std::string& path, std::shared_ptr<TreeInode> inode) {
  auto* at = tree.root.get();
  std::size_t begin = 0;
  for (auto end = path.find('/'); end != std::string::npos; begin = end + 1, end = path.find('/', begin)) {
    auto& child = at->children[path.substr(begin, end - begin)];
    if (child == nullptr) child = make_directory();
    at = child.get();
  }
  at->children[path.substr(begin)] = std::move(inode);
}

std::shared_ptr<TreeInode> find(const Tree& tree, const std::string& path) {
  auto at = tree.root;
  std::size_t begin = 0;
  while (begin < path.size()) {
    const auto end = std::min(path.find('/', begin), path.size());
    at = at->children.at(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return at;
}

}  // namespace varve::test
