#include "fuse/control/control_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "core/base/process/unix_socket.h"
#include "fuse/control/control_protocol.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

class ControlClientTest : public ::testing::Test {
 protected:
  // A keeper that does `then` once somebody has looked whether it is there.
  void keep(const std::function<void()>& then) {
    keeper_ = listen_at(paths_.keeper_socket(), SOCK_SEQPACKET, 8);
    looked_ = std::jthread([this, then] {
      const UniqueFd visitor(::accept4(keeper_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      then();
    });
  }
  void TearDown() override {
    if (keeper_) ::shutdown(keeper_.get(), SHUT_RDWR);  // nobody has looked: wakes accept
  }

  // Daemons one after the other: each gives its answers in turn, takes one more call and dies with it.
  void serve(const std::vector<std::vector<nlohmann::json>>& daemons) {
    daemon_ = listen_at(paths_.socket(), SOCK_STREAM, 8);
    serving_ = std::jthread([this, daemons] {
      for (const auto& answers : daemons) {
        LineSocket client(UniqueFd(::accept4(daemon_.get(), nullptr, nullptr, SOCK_CLOEXEC)), 1 << 20);
        for (std::size_t i = 0; i <= answers.size(); ++i) {
          const auto line = client.read_line();
          if (!line) break;
          calls_.push_back(nlohmann::json::parse(*line)["call"]);
          if (i < answers.size()) client.write_line(nlohmann::json{{"result", answers[i]}}.dump());
        }
      }
    });
  }
  DaemonStatus with_mount() {
    DaemonStatus status;
    status.mounts.push_back({.dir = dir_.path().string(),
                             .mode = MountMode::kKernel,
                             .session = false,
                             .holders = {},
                             .stats = {},
                             .fuse_requests = {}});
    status.mounts[0].stats.reference = image_.reference;
    return status;
  }
  // What was asked, once the client is gone.
  std::vector<std::string> calls(std::optional<ControlClient>& client) {
    client.reset();
    serving_.join();
    return calls_;
  }
  using Calls = std::vector<std::string>;

  test::TempDir dir_;
  const ImageSpec image_{.reference = "oci:image:tag", .platform = {}, .registry = {}};
  const DaemonPaths paths_{.root = dir_.path(), .run_dir = dir_.path()};
  UniqueFd keeper_, daemon_;
  std::vector<std::string> calls_;
  std::jthread looked_, serving_;
};

TEST_F(ControlClientTest, NobodyIsThereWithoutDaemonAndKeeper) {
  EXPECT_FALSE(ControlClient::connect(paths_).has_value());
}

// Mounts and sessions are there all the time: that none is would be wrong.
TEST_F(ControlClientTest, ADaemonThatItsKeeperStartsAgainIsWaitedFor) {
  keep([this] { daemon_ = listen_at(paths_.socket(), SOCK_STREAM, 8); });
  EXPECT_TRUE(ControlClient::connect(paths_).has_value());
}

TEST_F(ControlClientTest, AKeeperThatGivesUpIsNotWaitedFor) {
  keep([this] { ::shutdown(keeper_.get(), SHUT_RDWR); });  // refuses from now on
  EXPECT_FALSE(ControlClient::connect(paths_).has_value());
}

TEST_F(ControlClientTest, AMountWhoseAnswerDiedWithTheDaemonIsThere) {
  serve({{}, {with_mount()}});
  auto client = ControlClient::connect(paths_);
  const auto mounted = client->mount(image_, dir_.path(), MountMode::kAuto);
  EXPECT_EQ(mounted.dir, dir_.path());
  EXPECT_EQ(mounted.mode, MountMode::kKernel);
  EXPECT_EQ(calls(client), (Calls{"mount", "status"}));
}

TEST_F(ControlClientTest, AMountThatDiedWithTheDaemonIsMadeAgain) {
  serve({{}, {DaemonStatus(), MountResult{.dir = "/there", .mode = MountMode::kFuse, .why = {}, .image = {}}}});
  auto client = ControlClient::connect(paths_);
  EXPECT_EQ(client->mount(image_, dir_.path(), MountMode::kAuto).dir, "/there");
  EXPECT_EQ(calls(client), (Calls{"mount", "status", "mount"}));
}

TEST_F(ControlClientTest, WhatIsHeldIsAskedForAgainOfTheDaemonThatFollows) {
  const HeldTree tree{.name = "pod", .image = {}, .layers = 2, .dir = "/there", .mode = MountMode::kKernel, .why = {}};
  serve({{}, {tree, nlohmann::json::object()}, {nlohmann::json::array({tree})}});
  auto client = ControlClient::connect(paths_);
  EXPECT_EQ(client->hold("pod", image_, 2, MountMode::kAuto).dir, "/there");
  client->release("pod");
  const auto held = client->held();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].name, "pod");
  EXPECT_EQ(held[0].layers, 2u);
  EXPECT_EQ(calls(client), (Calls{"hold", "hold", "release", "held", "held"}));
}

TEST_F(ControlClientTest, AnUnmountIsMadeAgainUnlessItWasDone) {
  serve({{}, {with_mount()}, {DaemonStatus()}});
  auto client = ControlClient::connect(paths_);
  client->unmount(dir_.path(), false);
  EXPECT_EQ(calls(client), (Calls{"unmount", "status", "unmount", "status"}));
}

}  // namespace
}  // namespace varve::fuse
