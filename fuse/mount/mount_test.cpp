// Real mounts over fake layer streams: as root, with /dev/fuse; kernel mode needs Linux 6.12 as well.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <latch>
#include <random>
#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "fuse/mount/blob_operations.h"
#include "fuse/mount/erofs_mount.h"
#include "fuse/mount/fuse_channel.h"
#include "fuse/mount/fuse_mount.h"
#include "fuse/mount/mount_table.h"
#include "fuse/mount/tree_operations.h"
#include "testing/fake_image.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

// Visits everything below a folder with (the name below the root, a path that works): trees may be deeper than
// PATH_MAX, so each folder is reached by its descriptor.
void walk(const fs::path& dir, const std::string& prefix,
          const std::function<void(const std::string& name, const fs::path& path)>& visit) {
  const auto folder = open_file(dir, O_RDONLY | O_DIRECTORY);
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/self/fd/{}", folder.get()))) {
    const auto name =
        prefix.empty() ? entry.path().filename().string() : prefix + "/" + entry.path().filename().string();
    visit(name, entry.path());
    if (entry.symlink_status().type() == fs::file_type::directory) walk(entry.path(), name, visit);
  }
}

test::Listing listing_of_mount(const fs::path& dir) {
  test::Listing listing;
  std::map<std::string, ino_t> numbers;
  std::map<ino_t, std::string> first_names;
  const auto see = [&](const std::string& name, const fs::path& path) {
    listing[name] = test::seen_at(path);
    struct ::stat status {};
    if (::lstat(path.c_str(), &status) != 0) fail_errno("look at {}", name);
    numbers[name] = status.st_ino;
    auto& first = first_names.try_emplace(status.st_ino, name).first->second;
    first = std::min(first, name);
  };
  see("", dir);
  walk(dir, "", see);
  for (auto& [name, seen] : listing) seen.first_name = first_names[numbers[name]];
  return listing;
}

std::uint64_t total(const std::map<std::string, std::uint64_t>& requests) {
  std::uint64_t sum = 0;
  // The kernel forgets what it evicts whenever it likes.
  for (const auto& [name, count] : requests) sum += name == "FORGET" || name == "BATCH_FORGET" ? 0 : count;
  return sum;
}

bool is_mounted(const fs::path& dir) {
  const auto table = read_mount_table();
  return std::ranges::find(table, dir, &MountEntry::dir) != table.end();
}

class MountTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!may_mount() || !in_initial_user_namespace()) GTEST_SKIP() << "mounts need root here";
    if (::access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "this machine has no usable /dev/fuse";
    fs::create_directory(mount_dir());
    fs::create_directory(blobs_dir());
  }
  void TearDown() override {
    for (const auto& dir : {mount_dir(), blobs_dir()}) {
      if (is_mounted(dir)) unmount_dir(dir, true, false);
    }
  }

  fs::path mount_dir() const { return folders_ / "m"; }
  fs::path blobs_dir() const { return folders_ / "blobs"; }

  void mount_fuse_mode(test::FakeImage& image) {
    tree_ = std::make_shared<TreeFs>(*image.reader, image.mapping.bytes(), image.devices);
    channel_ = mount_tree(tree_, {.dir = mount_dir(), .source = "varve:test", .name = "the image of the test"}, {});
  }
  // False if this kernel has no EROFS on files.
  bool mount_kernel_mode(test::FakeImage& image) {
    blobs_ = std::make_shared<BlobFs>();
    channel_ = mount_blobs(blobs_, blobs_dir(), "varve:test", 4, {});
    ErofsMountRequest request{.tree_file = image.tree_file, .devices = {}, .dir = mount_dir()};
    for (std::size_t i = 0; i < image.devices.size(); ++i) {
      const auto name = digest_of("device " + std::to_string(i));
      registrations_.push_back(BlobFs::add(blobs_, name, image.devices[i]));
      request.devices.push_back(blobs_dir() / name.hex());
    }
    try {
      mount_erofs(request);
    } catch (const std::system_error& error) {
      if (is_lack_of_kernel(error.code().value())) return false;
      throw;
    }
    return true;
  }
  void unmount_all() {
    for (const auto& dir : {mount_dir(), blobs_dir()})
      if (is_mounted(dir)) unmount(dir);
  }
  // A mount namespace that another test has made meanwhile has a copy of EROFS, which has its devices open.
  static void unmount(const fs::path& dir) {
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);;) {
      try {
        return unmount_dir(dir, false, false);
      } catch (const std::system_error& error) {
        if (error.code() != std::errc::device_or_resource_busy || std::chrono::steady_clock::now() > until) throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  void expect_same_contents(test::FakeImage& image) {
    walk(mount_dir(), "", [&](const std::string& name, const fs::path& path) {
      const auto inode = test::find(image.tree, name);
      if (inode->type != FileType::kRegular) return;
      const auto fd = open_file(path, O_RDONLY);
      for (const auto& place : test::places_to_compare(*inode)) {
        std::string got(place.length, '\0');
        pread_exactly(fd.get(), place.offset, std::as_writable_bytes(std::span(got)), name);
        ASSERT_TRUE(got == image.layers.expected(*inode, place.offset, place.length)) << name << " at " << place.offset;
      }
    });
  }

  test::TempDir folders_;
  std::shared_ptr<TreeFs> tree_;
  std::shared_ptr<BlobFs> blobs_;
  std::vector<BlobFs::Registration> registrations_;
  std::shared_ptr<FuseChannel> channel_;
};

test::FakeImage image_of_one_file(std::uint64_t bytes) {
  index::Tree tree;
  tree.layers = 1;
  test::put(tree, "dir/file",
            test::make_file(bytes, {{.layer = 0, .run = {.file_offset = 0, .stream_offset = 512, .length = bytes}}}));
  return test::FakeImage(std::move(tree), {512 + (bytes + 511) / 512 * 512});
}

TEST_F(MountTest, FuseModeShowsTheWholeTree) {
  auto image = test::FakeImage::of_horrors(300);
  mount_fuse_mode(image);
  test::expect_same(test::listing_of(image.tree), listing_of_mount(mount_dir()));
  expect_same_contents(image);
  unmount_all();
}

TEST_F(MountTest, KernelModeShowsTheWholeTree) {
  auto image = test::FakeImage::of_horrors(300);
  if (!mount_kernel_mode(image)) GTEST_SKIP() << "this kernel has no EROFS on files";
  test::expect_same(test::listing_of(image.tree), listing_of_mount(mount_dir()));
  expect_same_contents(image);
  unmount_all();
}

TEST_F(MountTest, KernelModeAsksFuseForNothingButBytes) {
  auto image = test::FakeImage::of_horrors(300);
  if (!mount_kernel_mode(image)) GTEST_SKIP() << "this kernel has no EROFS on files";
  const auto before = total(channel_->requests());
  listing_of_mount(mount_dir());
  EXPECT_EQ(total(channel_->requests()), before);
  unmount_all();
}

TEST_F(MountTest, AWarmWalkOfFuseModeSendsNoRequest) {
  index::Tree tree;
  tree.layers = 1;
  for (int i = 0; i < 500; ++i)
    test::put(tree, "d" + std::to_string(i % 20) + "/f" + std::to_string(i), test::make_file(0, {}));
  test::put(tree, "content",
            test::make_file(1000, {{.layer = 0, .run = {.file_offset = 0, .stream_offset = 0, .length = 1000}}}));
  test::put(tree, "link", test::make_symlink("content"));
  test::FakeImage image(std::move(tree), {1024});
  mount_fuse_mode(image);
  const auto use = [&] {
    listing_of_mount(mount_dir());
    read_file(mount_dir() / "link");
    EXPECT_NE(::access((mount_dir() / "absent").c_str(), F_OK), 0);
    EXPECT_EQ(::access((mount_dir() / "d1").c_str(), R_OK | X_OK), 0);
  };
  use();
  const auto cold = total(channel_->requests());
  use();
  EXPECT_EQ(total(channel_->requests()), cold);
  EXPECT_GT(cold, 20u);
  unmount_all();
}

TEST_F(MountTest, TheMountCannotBeWrittenTo) {
  auto image = image_of_one_file(5000);
  mount_fuse_mode(image);
  EXPECT_EQ(::open((mount_dir() / "dir/file").c_str(), O_WRONLY), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_EQ(::mkdir((mount_dir() / "new").c_str(), 0755), -1);
  EXPECT_EQ(errno, EROFS);
  struct ::statvfs status {};
  ASSERT_EQ(::statvfs(mount_dir().c_str(), &status), 0);
  EXPECT_EQ(status.f_bfree, 0u);
  EXPECT_GT(status.f_blocks, 0u);
  EXPECT_NE(status.f_flag & ST_NOSUID, 0u);
  EXPECT_NE(status.f_flag & ST_NODEV, 0u);
  unmount_all();
}

// More readers than threads: one that waits for the network must not keep others from what is here.
TEST_F(MountTest, ReadersThatWaitHoldNoThread) {
  constexpr int readers = 64;
  index::Tree tree;
  tree.layers = 2;
  for (int i = 0; i < readers; ++i)
    test::put(
        tree, "cold" + std::to_string(i),
        test::make_file(
            4096, {{.layer = 0, .run = {.file_offset = 0, .stream_offset = std::uint64_t(i) * 4096, .length = 4096}}}));
  test::put(tree, "warm",
            test::make_file(4096, {{.layer = 1, .run = {.file_offset = 0, .stream_offset = 0, .length = 4096}}}));
  test::FakeImage image(std::move(tree), {readers * 4096, 4096});
  mount_fuse_mode(image);
  image.streams[0]->hold();
  std::atomic<int> right = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < readers; ++i) {
    threads.emplace_back([&, i] {
      const auto name = "cold" + std::to_string(i);
      const auto bytes = read_file(mount_dir() / name);
      if (std::string(as_text(bytes)) == image.layers.expected(*test::find(image.tree, name), 0, 4096)) ++right;
    });
  }
  image.streams[0]->wait_for_wishes(readers);
  EXPECT_EQ(read_file(mount_dir() / "warm").size(), 4096u);
  EXPECT_EQ(right, 0);
  image.streams[0]->arrive();
  threads.clear();
  EXPECT_EQ(right, readers);
  unmount_all();
}

TEST_F(MountTest, RandomReadsAndMappingsAreRightWhileBytesArrive) {
  constexpr std::uint64_t bytes = 6'000'123;
  auto image = image_of_one_file(bytes);
  std::string expected(bytes, '\0');
  std::mt19937_64 noise(1);
  for (auto& byte : expected) byte = static_cast<char>(noise());
  pwrite_all(open_file(image.layers.files()[0], O_WRONLY).get(), 512, as_bytes(expected), "layer");
  for (const bool kernel : {false, true}) {
    image.streams[0]->set_missing();
    if (kernel && !mount_kernel_mode(image)) break;
    if (!kernel) mount_fuse_mode(image);
    std::atomic<int> wrong = 0;
    {
      const auto fd = open_file(mount_dir() / "dir/file", O_RDONLY);
      std::vector<std::jthread> threads;
      for (unsigned seed = 0; seed < 6; ++seed) {
        threads.emplace_back([&, seed] {
          std::mt19937_64 random(seed);
          const auto mapped = MappedFile::open(mount_dir() / "dir/file");
          for (int i = 0; i < 200; ++i) {
            const auto offset = random() % bytes;
            const auto length = std::min<std::uint64_t>(1 + random() % 200'000, bytes - offset);
            std::string got(length, '\0');
            if (i % 2 == 0)
              pread_exactly(fd.get(), offset, std::as_writable_bytes(std::span(got)), "file");
            else
              std::memcpy(got.data(), mapped.bytes().data() + offset, length);
            if (got != expected.substr(offset, length)) ++wrong;
          }
        });
      }
    }
    EXPECT_EQ(wrong, 0) << (kernel ? "kernel mode" : "fuse mode");
    EXPECT_GT(image.streams[0]->wishes(), 0u);
    unmount_all();
  }
}

TEST_F(MountTest, WhatCannotBeFetchedIsAnInputOutputErrorAndMayComeLater) {
  auto image = image_of_one_file(100'000);
  for (const bool kernel : {false, true}) {
    image.streams[0]->fail_all("layer sha256:00 at 512: the registry is away");
    if (kernel && !mount_kernel_mode(image)) break;
    if (!kernel) mount_fuse_mode(image);
    char byte;
    {
      const auto fd = open_file(mount_dir() / "dir/file", O_RDONLY);
      EXPECT_EQ(::pread(fd.get(), &byte, 1, 0), -1);
      EXPECT_EQ(errno, EIO);
      image.streams[0]->set_missing();
      EXPECT_EQ(::pread(fd.get(), &byte, 1, 0), 1);
    }
    unmount_all();
  }
}

// A process that is killed while it waits for bytes must go at once; one that merely gets a signal must go on waiting.
TEST_F(MountTest, AKilledReaderIsLetGo) {
  auto image = image_of_one_file(100'000);
  mount_fuse_mode(image);
  image.streams[0]->hold();
  const auto path = (mount_dir() / "dir/file").string();
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGUSR1, [](int) {});
    char byte;
    const int fd = ::open(path.c_str(), O_RDONLY);
    ::_exit(::pread(fd, &byte, 1, 0) == 1 ? 0 : 1);
  }
  image.streams[0]->wait_for_wishes(1);
  ::kill(child, SIGUSR1);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  image.streams[0]->arrive();  // the reply comes too late, and harms nobody
  EXPECT_EQ(read_file(path).size(), 100'000u);
  unmount_all();
}

TEST_F(MountTest, ABusyMountIsServedToItsEndWhenItIsDetached) {
  auto image = image_of_one_file(100'000);
  mount_fuse_mode(image);
  const std::weak_ptr<FuseChannel> watch = channel_;
  {
    const auto fd = open_file(mount_dir() / "dir/file", O_RDONLY);
    EXPECT_THROW(channel_->unmount(false), std::system_error);
    channel_->unmount(true);
    EXPECT_FALSE(is_mounted(mount_dir()));
    channel_.reset();
    char byte;
    EXPECT_EQ(::pread(fd.get(), &byte, 1, 50'000), 1);
  }
  // With the last user the kernel closes the connection, and the threads let go of the channel.
  while (!watch.expired()) std::this_thread::yield();
}

TEST_F(MountTest, StoppingAChannelEndsWhoeverWaits) {
  auto image = image_of_one_file(100'000);
  mount_fuse_mode(image);
  image.streams[0]->hold();
  std::jthread reader([path = mount_dir() / "dir/file"] {
    char byte;
    const auto fd = open_file(path, O_RDONLY);
    EXPECT_EQ(::pread(fd.get(), &byte, 1, 0), -1);
  });
  image.streams[0]->wait_for_wishes(1);
  channel_->unmount(true);
  image.streams[0]->fail_all("the daemon ends");
  channel_->stop();
  channel_.reset();  // closes the descriptor, which ends what the reader still asks
  reader.join();
}

// The first channel takes a request and never answers it, as a daemon that is killed.
TEST_F(MountTest, AnotherChannelGoesOnWhereOneDied) {
  auto image = image_of_one_file(100'000);
  auto same = image_of_one_file(100'000);
  tree_ = std::make_shared<TreeFs>(*image.reader, image.mapping.bytes(), image.devices);
  auto kept = std::make_shared<FuseKeeping::Earlier>();
  FuseKeeping keeping;
  keeping.keep = [&](int fd, ByteView init_request, bool by_helper) {
    *kept = {.fd = UniqueFd(::dup(fd)), .init_request = to_bytes(init_request), .by_helper = by_helper};
  };
  channel_ = mount_tree(tree_, {.dir = mount_dir(), .source = "varve:test", .name = "first"}, keeping);
  ASSERT_TRUE(kept->fd);
  image.streams[0]->hold();
  std::string got(100'000, '\0');
  std::jthread reader([&] {
    const auto fd = open_file(mount_dir() / "dir/file", O_RDONLY);
    pread_exactly(fd.get(), 0, std::as_writable_bytes(std::span(got)), "file");
  });
  image.streams[0]->wait_for_wishes(1);
  channel_->stop();

  const auto next_tree = std::make_shared<TreeFs>(*same.reader, same.mapping.bytes(), same.devices);
  std::latch ended(1);
  FuseKeeping next;
  next.earlier = kept;
  next.ended = [&] { ended.count_down(); };
  const auto next_channel = mount_tree(next_tree, {.dir = mount_dir(), .source = "varve:test", .name = "next"}, next);
  reader.join();
  const auto inode = test::find(same.tree, "dir/file");
  EXPECT_EQ(got, same.layers.expected(*inode, 0, got.size()));
  image.streams[0]->arrive();  // an answer of the dead one comes too late, and harms nobody
  EXPECT_EQ(read_file(mount_dir() / "dir/file").size(), 100'000u);
  unmount_all();
  ended.wait();
}

TEST_F(MountTest, WhatIsNoConnectionIsNotTakenOver) {
  auto image = image_of_one_file(100);
  tree_ = std::make_shared<TreeFs>(*image.reader, image.mapping.bytes(), image.devices);
  const auto take_over = [&](UniqueFd fd, Bytes init_request) {
    FuseKeeping keeping;
    keeping.earlier = std::make_shared<FuseKeeping::Earlier>(
        FuseKeeping::Earlier{.fd = std::move(fd), .init_request = std::move(init_request), .by_helper = false});
    mount_tree(tree_, {.dir = mount_dir(), .source = "varve:test", .name = "none"}, keeping);
  };
  EXPECT_THROW(take_over(open_file("/dev/fuse", O_RDWR), {}), CorruptData);
  EXPECT_THROW(take_over(open_file("/dev/fuse", O_RDWR), Bytes(104)), CorruptData);
  FuseKeeping keeping;
  Bytes hello;
  keeping.keep = [&](int, ByteView init_request, bool) { hello = to_bytes(init_request); };
  mount_tree(tree_, {.dir = mount_dir(), .source = "varve:test", .name = "first"}, keeping);
  unmount_all();
  EXPECT_THROW(take_over(open_file("/dev/fuse", O_RDWR), hello), std::system_error) << "nothing is mounted on it";
  EXPECT_FALSE(is_mounted(mount_dir()));
}

// What keeps the descriptor may be full or gone: the mount then fails, and nothing is left of it.
TEST_F(MountTest, AMountThatCannotBeKeptIsUndone) {
  auto image = image_of_one_file(100);
  tree_ = std::make_shared<TreeFs>(*image.reader, image.mapping.bytes(), image.devices);
  FuseKeeping keeping;
  keeping.keep = [](int, ByteView, bool) { fail<Error>("no room"); };
  EXPECT_THROW(mount_tree(tree_, {.dir = mount_dir(), .source = "varve:test", .name = "none"}, keeping), Error);
  EXPECT_FALSE(is_mounted(mount_dir()));
}

}  // namespace
}  // namespace varve::fuse
