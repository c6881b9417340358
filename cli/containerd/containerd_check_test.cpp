#include "cli/containerd/containerd_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/unix_socket.h"
#include "testing/temp_dir.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A machine on which nothing is in the way.
class ContainerdCheckTest : public ::testing::Test {
 protected:
  ContainerdCheckTest() {
    node_.settings = {
        .version = parse_containerd_version("1.7.24"), .socket = dir_ / "snapshotter.sock", .root = dir_ / "varve"};
    node_.config_file = dir_ / "config.toml";
    node_.proc = dir_ / "proc";
    node_.systemd_units = dir_ / "units";
    fs::create_directories(dir_ / "varve/store");
    fs::create_directories(dir_ / "units/sockets.target.wants");
    fs::create_directories(dir_ / "units/multi-user.target.wants");
    write("units/sockets.target.wants/varve-snapshotter.socket", "");
    write("units/multi-user.target.wants/varve-snapshotter.service", "");
    node_.has_systemd = true;
    fuse::DaemonStatus daemon;
    daemon.daemon.pid = 7;
    daemon.daemon.keeper = "systemd";
    daemon.store.max_bytes = 1 << 30;
    node_.daemon = daemon;
    process("7", "varve", "mnt:[1]");
    process("8", "containerd", "mnt:[1]");
    write("config.toml",
          merge_settings("version = 2\nroot = \"" + (dir_ / "containerd").string() + "\"\n", "config", node_.settings));
    listener_ = listen_at(node_.settings.socket, SOCK_STREAM, 4);
  }

  void write(const std::string& name, const std::string& text) {
    AtomicFile file(dir_ / name);
    file.write(as_bytes(text));
    file.commit();
  }
  void process(const std::string& pid, const std::string& name, const std::string& mounts) {
    const auto place = dir_ / "proc" / pid;
    fs::create_directories(place / "ns");
    fs::remove(place / "ns/mnt");
    fs::create_symlink(mounts, place / "ns/mnt");
    write("proc/" + pid + "/comm", name + '\n');
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& finding : check_containerd(node_)) {
      EXPECT_FALSE(finding.problem.empty() || finding.advice.empty()) << finding.name;
      names.push_back(finding.name);
    }
    return names;
  }

  test::TempDir dir_;
  ContainerdNode node_;
  UniqueFd listener_;
};

TEST_F(ContainerdCheckTest, NothingIsInTheWay) { EXPECT_THAT(names(), IsEmpty()); }

TEST_F(ContainerdCheckTest, ASnapshotterThatDoesNotListenIsFound) {
  listener_.reset();
  EXPECT_THAT(names(), ElementsAre("socket"));
}

TEST_F(ContainerdCheckTest, WhatTheConfigurationLacksIsToldApart) {
  write("config.toml",
        "version = 2\ndisabled_plugins = [\"cri\"]\n[proxy_plugins.varve]\ntype = 'snapshot'\naddress = '" +
            node_.settings.socket.string() + "'\n");
  EXPECT_THAT(names(), ElementsAre("user-namespaces", "exports-root", "configuration", "labels", "cri-disabled"));
  fs::remove(node_.config_file);
  EXPECT_THAT(names(), ElementsAre("configuration"));
  write("config.toml", "version =");
  EXPECT_THROW(names(), CorruptData);
}

TEST_F(ContainerdCheckTest, UnitsThatAreNotEnabledAreFound) {
  fs::remove(dir_ / "units/sockets.target.wants/varve-snapshotter.socket");
  EXPECT_THAT(names(), ElementsAre("unit"));
  node_.has_systemd = false;
  EXPECT_THAT(names(), IsEmpty()) << "somebody else starts things there";
}

TEST_F(ContainerdCheckTest, ADaemonThatWouldLoseMountsOrFillTheDiskIsFound) {
  node_.daemon->daemon.keeper = "none";
  node_.daemon->store.max_bytes = 0;
  node_.no_kernel_mode = "kernel mode needs root";
  EXPECT_THAT(names(), ElementsAre("kernel-mode", "keeper", "store-size"));
  node_.daemon.reset();
  EXPECT_THAT(names(), ElementsAre("kernel-mode", "daemon"));
}

TEST_F(ContainerdCheckTest, AContainerdThatSeesOtherMountsIsFound) {
  process("8", "containerd", "mnt:[2]");
  EXPECT_THAT(names(), ElementsAre("mount-namespace"));
}

TEST_F(ContainerdCheckTest, LayersThatWereUnpackedBeforeAreFound) {
  fs::create_directories(dir_ / "containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/12");
  EXPECT_THAT(names(), ElementsAre("other-snapshots"));
}

TEST_F(ContainerdCheckTest, ARootThatIsNotThereIsFound) {
  fs::remove_all(node_.settings.root);
  EXPECT_THAT(names(), ElementsAre("exports-root"));
}

}  // namespace
}  // namespace varve::cli
