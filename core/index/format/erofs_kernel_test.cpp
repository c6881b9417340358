// The kernel as judge of our trees: each is mounted and compared with what was asked for. Needs root and Linux 6.12
// (EROFS on plain files). The mounts are never attached to a folder, so nothing is left behind whatever happens.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/index/format/erofs.h"
#include "testing/temp_dir.h"
#include "testing/trees.h"

namespace varve::index {
namespace {

struct Mounted {
  UniqueFd root;
  std::string failure;  // "" if mounted
};

Mounted mount_erofs(const std::filesystem::path& image, const std::vector<std::filesystem::path>& devices) {
  const auto failed = [](const char* step, int fs) {
    const auto error = errno;
    std::string text = std::string(step) + ": " + std::strerror(error);
    char message[1000];
    for (ssize_t length; fs >= 0 && (length = ::read(fs, message, sizeof message)) > 0;)
      text += "; " + std::string(message, std::size_t(length));
    return Mounted{.root = {}, .failure = text};
  };
  const UniqueFd fs(int(::syscall(SYS_fsopen, "erofs", FSOPEN_CLOEXEC)));
  if (!fs) return failed("fsopen", -1);
  if (::syscall(SYS_fsconfig, fs.get(), FSCONFIG_SET_STRING, "source", image.c_str(), 0) != 0)
    return failed("source", fs.get());
  for (const auto& device : devices) {
    if (::syscall(SYS_fsconfig, fs.get(), FSCONFIG_SET_STRING, "device", device.c_str(), 0) != 0)
      return failed("device", fs.get());
  }
  if (::syscall(SYS_fsconfig, fs.get(), FSCONFIG_SET_FLAG, "ro", nullptr, 0) != 0) return failed("ro", fs.get());
  if (::syscall(SYS_fsconfig, fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return failed("create", fs.get());
  UniqueFd root(int(::syscall(SYS_fsmount, fs.get(), FSMOUNT_CLOEXEC, 0)));
  if (!root) return failed("fsmount", fs.get());
  // The descriptor of a mount is a path; reading needs an open directory.
  return {.root = UniqueFd(::openat(root.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), .failure = ""};
}

bool can_mount() {
  if (::geteuid() != 0) return false;
  test::TempDir dir;
  Tree tree;
  write_file_atomically(dir / "tree", write_erofs(tree, {}, {}).bytes);
  return mount_erofs(dir / "tree", {}).failure.empty();
}

// Walks with one descriptor at a time, by ".." upwards, so that any depth and any length of path can be reached.
class KernelWalk {
 public:
  KernelWalk(int root, const ErofsReader& reader) : at_(::openat(root, ".", O_RDONLY | O_DIRECTORY)), reader_(reader) {}

  test::Listing walk() {
    struct stat status {};
    ::fstat(at_.get(), &status);
    add("", ".", status);
    enter("", reader_.root());
    for (const auto& [inode, paths] : names_) {
      const auto& first = *std::ranges::min_element(paths);
      for (const auto& path : paths) listing_[path].first_name = first;
    }
    return std::move(listing_);
  }

 private:
  void add(const std::string& path, const std::string& name, const struct stat& status) {
    listing_[path] = test::seen_at("/proc/self/fd/" + std::to_string(at_.get()) + "/" + name);
    names_[status.st_ino].push_back(path);
  }

  void enter(const std::string& path, Nid nid) {
    std::vector<std::string> names;
    DIR* const listing = ::fdopendir(::dup(at_.get()));
    while (const auto* entry = ::readdir(listing)) names.emplace_back(entry->d_name);
    ::closedir(listing);
    std::vector<std::string> expected_order;
    reader_.read_directory(nid, 0, [&](std::string_view name, Nid, FileType, std::uint64_t) {
      expected_order.emplace_back(name);
      return true;
    });
    EXPECT_EQ(names, expected_order) << path.substr(0, 100);
    for (const auto& name : names) {
      if (name == "." || name == "..") continue;
      struct stat status {};
      if (::fstatat(at_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) fail_errno("stat {}", name);
      const auto found = reader_.lookup(nid, name);
      EXPECT_EQ(found, status.st_ino) << name;  // our inode numbers are the kernel's
      const auto child = path.empty() ? name : path + "/" + name;
      add(child, name, status);
      if (!S_ISDIR(status.st_mode)) continue;
      at_.reset(::openat(at_.get(), name.c_str(), O_RDONLY | O_DIRECTORY));
      enter(child, *found);
      at_.reset(::openat(at_.get(), "..", O_RDONLY | O_DIRECTORY));
    }
  }

  UniqueFd at_;
  const ErofsReader& reader_;
  test::Listing listing_;
  std::map<ino_t, std::vector<std::string>> names_;
};

class ErofsKernelTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_mount()) GTEST_SKIP() << "needs root and a kernel that mounts EROFS from plain files";
  }

  test::TempDir dir_;
};

TEST_F(ErofsKernelTest, ShowsEverythingAsItWasAskedFor) {
  const auto tree = test::malformed_tree(100'000);
  const test::FakeLayers layers(dir_.path(), test::sizes_of_horrors());
  layers.fill(tree);
  const auto image = write_erofs(tree, layers.tags(), layers.stream_bytes());
  write_file_atomically(dir_ / "tree", image.bytes);
  auto devices = layers.files();
  devices.push_back(layers.make_ranges_file(image.ranges));
  const auto mounted = mount_erofs(dir_ / "tree", devices);
  ASSERT_EQ(mounted.failure, "");
  const ErofsReader reader(image.bytes, "tree");
  test::expect_same(test::listing_of(tree), KernelWalk(mounted.root.get(), reader).walk());

  for (const char* directory : {"content", "sparse"}) {
    for (const auto& [name, inode] : test::find(tree, directory)->children) {
      const auto path = std::string(directory) + "/" + name;
      const UniqueFd file(::openat(mounted.root.get(), path.c_str(), O_RDONLY));
      ASSERT_TRUE(file) << path;
      for (const auto& place : test::places_to_compare(*inode)) {
        std::string content(place.length, 'x');
        pread_exactly(file.get(), place.offset, std::as_writable_bytes(std::span(content)), path);
        ASSERT_EQ(content, layers.expected(*inode, place.offset, place.length)) << path << " at " << place.offset;
      }
    }
  }
}

TEST_F(ErofsKernelTest, MountsAHundredAndTwentySevenLayers) {
  constexpr std::size_t kLayers = 127;
  std::vector<std::uint64_t> sizes;
  Tree tree;
  tree.layers = kLayers;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    sizes.push_back(layer % 10 == 3 ? 0 : 10'000 + layer);  // some layers are empty
    if (sizes.back() != 0)
      test::put(tree, "file" + std::to_string(layer), test::make_file(5000, {{layer, {0, 512 * (layer % 9), 5000}}}));
  }
  const test::FakeLayers layers(dir_.path(), sizes);
  layers.fill(tree);
  write_file_atomically(dir_ / "tree", write_erofs(tree, layers.tags(), sizes).bytes);
  const auto mounted = mount_erofs(dir_ / "tree", layers.files());
  ASSERT_EQ(mounted.failure, "");
  for (const auto& [name, inode] : tree.root->children) {
    const UniqueFd file(::openat(mounted.root.get(), name.c_str(), O_RDONLY));
    std::string content(inode->size, 'x');
    pread_exactly(file.get(), 0, std::as_writable_bytes(std::span(content)), name);
    ASSERT_EQ(content, layers.expected(*inode, 0, inode->size)) << name;
  }
}

TEST_F(ErofsKernelTest, RefusesATreeWhoseSuperblockWasChanged) {
  Tree tree;
  auto bytes = write_erofs(tree, {}, {}).bytes;
  bytes[1024 + 48] ^= std::byte(1);
  write_file_atomically(dir_ / "tree", bytes);
  EXPECT_NE(mount_erofs(dir_ / "tree", {}).failure, "");
}

// fsck.erofs of Debian 12 (1.5) knows neither 512-byte blocks nor trees without their devices; newer ones do.
TEST_F(ErofsKernelTest, PassesFsck) {
  auto tree = test::malformed_tree(1000);
  std::erase_if(tree.root->children, [](const auto& child) {
    return child.first.size() == 200;
  });  // paths of 4096 bytes are too long for fsck
  const test::FakeLayers layers(dir_.path(), test::sizes_of_horrors());
  const auto image = write_erofs(tree, layers.tags(), layers.stream_bytes());
  write_file_atomically(dir_ / "tree", image.bytes);
  if (std::system("command -v fsck.erofs >/dev/null 2>&1") != 0) GTEST_SKIP() << "fsck.erofs is not installed";
  // It recurses for each of 2000 nested directories.
  std::string line = "ulimit -s 1000000 2>/dev/null; fsck.erofs " + (dir_ / "tree").string();
  for (const auto& file : layers.files()) line += " --device=" + file.string();
  line += " --device=" + layers.make_ranges_file(image.ranges).string();
  line += " >" + (dir_ / "out").string() + " 2>&1";
  const auto status = std::system(line.c_str());
  const auto output_bytes = read_file(dir_ / "out");
  const std::string output(as_text(output_bytes));
  if (output.find("blksize") != std::string::npos || output.find("block size") != std::string::npos)
    GTEST_SKIP() << "this fsck.erofs does not know 512-byte blocks";
  EXPECT_EQ(status, 0) << output;
}

}  // namespace
}  // namespace varve::index
