#include "analyzer/packages/folder_source.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/unique_fd.h"
#include "core/base/log.h"

namespace varve::packages {
namespace {

constexpr std::size_t kMaxLinkBytes = 4096;

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

// Opens a path below a folder without following any symlink: what is on disk may change under us, but never lead out of
// the folder.
UniqueFd open_below(int root, const std::string& path, int flags) {
  UniqueFd at(::openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (std::size_t from = 0; at.get() >= 0 && from <= path.size() && !path.empty();) {
    const auto end = std::min(path.find('/', from), path.size());
    const bool last = end == path.size();
    const auto name = path.substr(from, end - from);
    const auto how = last ? flags : O_PATH | O_DIRECTORY;
    at = UniqueFd(::openat(at.get(), name.c_str(), how | O_NOFOLLOW | O_CLOEXEC));
    from = end + 1;
  }
  return at;
}

class FolderSource final : public index::FileSource {
 public:
  FolderSource(const std::filesystem::path& folder, std::string architecture)
      : folder_(folder.string()), root_(open_file(folder, O_RDONLY | O_DIRECTORY)) {
    struct stat root {};
    if (::fstat(root_.get(), &root) != 0) fail_errno("stat {}", folder_);
    device_ = root.st_dev;
    std::vector<std::string> waiting{""};
    while (!waiting.empty()) {
      const auto path = std::move(waiting.back());
      waiting.pop_back();
      list(path, waiting);
    }
    facts_.architecture = std::move(architecture);
    count_names_once();
  }

  const index::FlatTree& tree() const override { return tree_; }
  const index::SourceFacts& facts() const override { return facts_; }

  void read(const std::vector<std::string>& paths, std::uint64_t limit_bytes,
            const index::OnContent& got) const override {
    for (const auto& path : paths) got(path, read_whole(path, limit_bytes));
  }

  void read_ranges(const std::string& path, const std::function<void(const index::RangeReader&)>& use) const override {
    const auto* found = tree_.find_regular(path);
    if (found == nullptr) fail<NotFound>("{}/{:.300}: no such regular file", folder_, path);
    const auto file = open_regular(path);
    if (file.get() < 0) fail_errno("open {}/{:.300}", folder_, path);
    use([&](ByteRange range) {
      if (!range.fits_in(found->size))
        fail<CorruptData>("{}/{:.300}: {}+{} is outside the file", folder_, path, range.offset, range.length);
      Bytes bytes(range.length);
      pread_exactly(file.get(), range.offset, bytes, path);
      return bytes;
    });
  }

 private:
  void list(const std::string& path, std::vector<std::string>& waiting) {
    auto fd = path.empty() ? UniqueFd(::openat(root_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC))
                           : open_below(root_.get(), path, O_RDONLY | O_DIRECTORY);
    const Folder folder(fd.get() < 0 ? nullptr : ::fdopendir(fd.get()));
    if (!folder) {
      if (path.empty()) fail_errno("list {}", folder_);
      const int error = errno;
      log::warn("{}/{:.300}: left out: {}", folder_, path, std::generic_category().message(error));
      return;
    }
    const int at = fd.release();
    if (std::size_t(std::count(path.begin(), path.end(), '/')) >= kMaxFolderDepth)
      fail<Unsupported>("{}/{:.300}: nested too deeply", folder_, path);
    const auto prefix = path.empty() ? std::string() : path + '/';
    while (const auto* entry = ::readdir(folder.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") add(at, prefix + std::string(name), entry->d_name, waiting);
    }
  }

  void add(int folder, std::string path, const char* name, std::vector<std::string>& waiting) {
    struct stat info {};
    if (::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || info.st_dev != device_)
      return;  // gone meanwhile, or a mount point
    if (tree_.entries.size() > kMaxFolderFiles) fail<Unsupported>("{}: more than {} files", folder_, kMaxFolderFiles);
    index::FlatEntry file;
    file.type = type_of_mode(info.st_mode).value_or(FileType::kFifo);  // sockets too: neither has content
    file.mode = info.st_mode & 07777;
    if (file.type == FileType::kRegular) {
      file.size = std::uint64_t(info.st_size);
      if (info.st_nlink > 1) shared_inodes_.emplace_back(info.st_ino, path);
    } else if (file.type == FileType::kSymlink) {
      file.symlink_target.resize(kMaxLinkBytes);
      const auto length = ::readlinkat(folder, name, file.symlink_target.data(), kMaxLinkBytes);
      file.symlink_target.resize(std::size_t(std::max<ssize_t>(length, 0)));
    } else if (file.type == FileType::kDirectory) {
      waiting.push_back(path);
    }
    tree_.entries.emplace(std::move(path), std::move(file));
  }

  void count_names_once() {
    std::ranges::sort(shared_inodes_);
    const std::string* first = nullptr;
    for (std::size_t i = 0; i < shared_inodes_.size(); ++i) {
      if (i == 0 || shared_inodes_[i].first != shared_inodes_[i - 1].first)
        first = &shared_inodes_[i].second;
      else
        tree_.entries.at(shared_inodes_[i].second).link_of = *first;
    }
    shared_inodes_ = {};
  }

  // Not a FIFO that took the file's place: opening would wait for its other end.
  UniqueFd open_regular(const std::string& path) const { return open_below(root_.get(), path, O_RDONLY | O_NONBLOCK); }

  std::optional<Bytes> read_whole(const std::string& path, std::uint64_t limit_bytes) const {
    if (tree_.find_regular(path) == nullptr) return std::nullopt;
    const auto file = open_regular(path);
    struct stat info {};
    if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
      log::warn("{}/{:.300}: cannot be read", folder_, path);
      return std::nullopt;
    }
    if (std::uint64_t(info.st_size) > limit_bytes) return std::nullopt;
    Bytes bytes(static_cast<std::size_t>(info.st_size));
    pread_exactly(file.get(), 0, bytes, path);
    return bytes;
  }

  std::string folder_;
  UniqueFd root_;
  dev_t device_ = 0;
  index::FlatTree tree_{.entries = {{"", index::FlatEntry()}}, .hidden = {}};
  index::SourceFacts facts_;
  std::vector<std::pair<ino_t, std::string>> shared_inodes_;
};

}  // namespace

std::unique_ptr<index::FileSource> open_folder(const std::filesystem::path& folder, std::string architecture) {
  return std::make_unique<FolderSource>(folder, std::move(architecture));
}

}  // namespace varve::packages
