#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <deque>
#include <functional>

#include "analyzer/recorder/install.h"
#include "core/base/errors.h"

namespace varve::recorder {
namespace {

constexpr int kMaxLinks = 40;                // as the kernel's own limit
constexpr std::size_t kMaxNames = 1u << 20;  // in one folder

void push_front_parts(std::deque<std::string>& parts, std::string_view path) {
  std::size_t at = 0;
  auto place = parts.begin();
  while (at < path.size()) {
    const auto end = std::min(path.find('/', at), path.size());
    if (end > at) place = parts.insert(place, std::string(path.substr(at, end - at))) + 1;
    at = end + 1;
  }
}

std::string read_link(const std::filesystem::path& path) {
  char target[PATH_MAX];
  const auto length = ::readlink(path.c_str(), target, sizeof target);
  if (length < 0) fail_errno("read the link {}", path.string());
  return {target, std::size_t(length)};
}

}  // namespace

RootFolder::RootFolder(std::filesystem::path root) : root_(std::move(root)) {
  struct stat status {};
  if (::stat(root_.c_str(), &status) != 0) fail_errno("look at {}", root_.string());
  if (!S_ISDIR(status.st_mode))
    throw std::system_error(ENOTDIR, std::generic_category(), "look into " + root_.string());
}

std::optional<std::filesystem::path> RootFolder::locate(const std::string& path) const {
  std::deque<std::string> left;
  push_front_parts(left, path);
  std::vector<std::string> done;
  const auto real = [&] {
    auto result = root_;
    for (const auto& part : done) result /= part;
    return result;
  };
  int links = 0;
  while (!left.empty()) {
    const auto part = std::move(left.front());
    left.pop_front();
    if (part == ".") continue;
    if (part == "..") {
      if (!done.empty()) done.pop_back();  // above the root is the root
      continue;
    }
    done.push_back(part);
    struct stat status {};
    const auto here = real();
    if (::lstat(here.c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG || errno == EACCES) return std::nullopt;
      fail_errno("look at {}", here.string());
    }
    if (!S_ISLNK(status.st_mode)) continue;
    if (++links > kMaxLinks) return std::nullopt;
    const auto target = read_link(here);
    done.pop_back();
    if (target.starts_with('/')) done.clear();
    push_front_parts(left, target);
  }
  return real();
}

std::optional<ListedFolder> RootFolder::list(const std::string& path) const {
  const auto real = locate(path);
  struct stat status {};
  if (!real || ::stat(real->c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return std::nullopt;
  ListedFolder folder;
  folder.identity = std::hash<std::string>{}(real->string());
  std::error_code unreadable;
  for (std::filesystem::directory_iterator at(*real, unreadable), end; !unreadable && at != end;
       at.increment(unreadable)) {
    folder.names.push_back(at->path().filename().string());
    if (folder.names.size() >= kMaxNames) fail<Unsupported>("{} has more than {} entries", real->string(), kMaxNames);
  }
  return folder;
}

}  // namespace varve::recorder
