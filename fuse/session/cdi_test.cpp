#include "fuse/session/cdi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/base/errors.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

// As `nvidia-ctk cdi generate` writes it, shortened.
constexpr std::string_view kYaml = R"(---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/dri/card1
      hostPath: /dev/dri/card7
      permissions: rw
    additionalGids:
    - 44
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    env:
    - NVIDIA_VISIBLE_DEVICES=void
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=none
  - NVIDIA_CTK=1
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args:
    - nvidia-cdi-hook
    - update-ldcache
    - --folder
    - /usr/lib/x86_64-linux-gnu
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.54.03
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.54.03
    options: [ro, nosuid, nodev, bind]
)";

class CdiTest : public ::testing::Test {
 protected:
  void write(const std::string& name, std::string_view text) {
    std::filesystem::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }
  CdiRegistry read() { return CdiRegistry::read({dir_ / "etc", dir_ / "run"}); }
  test::TempDir dir_;
};

TEST_F(CdiTest, ReadsWhatTheToolkitWrites) {
  write("etc/nvidia.yaml", kYaml);
  const auto registry = read();
  EXPECT_THAT(registry.problems(), IsEmpty());
  EXPECT_THAT(registry.devices("nvidia.com/gpu"), ElementsAre("0", "all"));
  EXPECT_THAT(registry.devices("nvidia.com/gp"), IsEmpty());
  const auto edits = registry.edits({"nvidia.com/gpu=0"});
  EXPECT_THAT(edits.env, ElementsAre("NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_CTK=1"));
  ASSERT_THAT(edits.devices, SizeIs(3));
  EXPECT_EQ(edits.devices[2].path, "/dev/dri/card1");
  EXPECT_EQ(edits.devices[2].host_path, "/dev/dri/card7");
  EXPECT_EQ(edits.devices[2].permissions, "rw");
  ASSERT_THAT(edits.mounts, SizeIs(1));
  EXPECT_THAT(edits.mounts[0].options, ElementsAre("ro", "nosuid", "nodev", "bind"));
  ASSERT_THAT(edits.hooks, SizeIs(1));
  EXPECT_THAT(edits.hooks[0].args,
              ElementsAre("nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib/x86_64-linux-gnu"));
  EXPECT_THAT(edits.additional_gids, ElementsAre(44));
}

TEST_F(CdiTest, WhatSeveralDevicesShareIsThereOnceAndTheDevicesOwnWins) {
  write("etc/nvidia.yaml", kYaml);
  const auto edits = read().edits({"nvidia.com/gpu=0", "nvidia.com/gpu=all"});
  EXPECT_THAT(edits.env, ElementsAre("NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK=1"));
  EXPECT_THAT(edits.devices, SizeIs(3));
  EXPECT_THAT(edits.mounts, SizeIs(1));
}

TEST_F(CdiTest, JsonSaysTheSameAndTheLaterFolderCounts) {
  write("etc/a.json",
        R"({"cdiVersion": "0.6.0", "kind": "v.com/net", "devices": [{"name": "x", "containerEdits": {"env": ["A=1"], )"
        R"("additionalGids": [7]}}]})");
  write("run/b.json",
        R"({"cdiVersion": "0.6.0", "kind": "v.com/net", "devices": [{"name": "x", "containerEdits": {"env": )"
        R"(["A=2"]}}], "containerEdits": {"env": ["B=1"]}})");
  write("run/notes.txt", "none of ours");
  EXPECT_THAT(read().edits({"v.com/net=x"}).env, ElementsAre("B=1", "A=2"));
}

TEST_F(CdiTest, ABrokenFileIsAProblemAndTheOthersCount) {
  write("etc/nvidia.yaml", kYaml);
  write("etc/broken.json", "{");
  write("run/deep.yaml", "a: " + std::string(1000, '['));
  write("run/deep.json", std::string(1000, '['));
  const auto registry = read();
  EXPECT_THAT(registry.problems(), SizeIs(3));
  EXPECT_THAT(registry.devices("nvidia.com/gpu"), SizeIs(2));
}

TEST_F(CdiTest, ADeviceThatIsNotThereIsNamedWithThoseThatAre) {
  write("etc/nvidia.yaml", kYaml);
  EXPECT_THAT([&] { read().edits({"nvidia.com/gpu=1"}); },
              ThrowsMessage<NotFound>(HasSubstr(
                  "no device nvidia.com/gpu=1 on this machine; there are nvidia.com/gpu=0, nvidia.com/gpu=all")));
  EXPECT_THAT([] { CdiRegistry::read({}).edits({"nvidia.com/gpu=all"}); },
              ThrowsMessage<NotFound>(HasSubstr("there are none")));
}

TEST(ParseCdi, NamesTheFieldThatIsWrong) {
  const auto message = [](std::string_view json, const std::string& part) {
    EXPECT_THAT([&] { parse_cdi(json, false, "x.json"); }, ThrowsMessage<CorruptData>(HasSubstr("x.json: " + part)))
        << json;
  };
  message(R"([])", "must be an object");
  message(R"({"kind": "a/b"})", "\"cdiVersion\" is missing");
  message(R"({"cdiVersion": "0.5.0", "kind": "gpu"})", "\"kind\" is 'gpu', not of the form vendor/class");
  message(R"({"cdiVersion": "0.5.0", "kind": "a/b", "devices": [{"name": "../x"}]})",
          "\"devices[0].name\" is '../x', which is no name");
  message(R"({"cdiVersion": "0.5.0", "kind": "a/b", "devices": [{"name": "x"}, {"name": "x"}]})",
          "\"devices[1].name\" is 'x', which stands there twice");
  message(R"({"cdiVersion": "0.5.0", "kind": "a/b", "containerEdits": {"env": ["=1"]}})",
          "\"containerEdits.env[0]\" is '=1'");
  message(
      R"({"cdiVersion": "0.5.0", "kind": "a/b", "containerEdits": {"mounts": [{"hostPath": "lib", "containerPath": )"
      R"("/lib"}]}})",
      "\"containerEdits.mounts[0].hostPath\" is no absolute path");
  message(R"({"cdiVersion": "0.5.0", "kind": "a/b", "containerEdits": {"deviceNodes": [{"path": "/dev/x", )"
          R"("permissions": "rx"}]}})",
          "\"containerEdits.deviceNodes[0].permissions\" has letters");
  message(R"({"cdiVersion": "0.5.0", "kind": "a/b", "containerEdits": {"additionalGids": [-1]}})",
          "\"containerEdits.additionalGids[0]\" is no number");
}

TEST(ParseCdi, WhatIsNoUtf8IsRefusedInYamlToo) {
  for (const std::string_view edits : {"{env: [\"A=\xf9\"]}", "{additionalGids: [{a: \"\xf9\"}]}", "{\xf9: x}"})
    EXPECT_THAT(
        [&] { parse_cdi(fmt::format("cdiVersion: 0.5.0\nkind: a/b\ncontainerEdits: {}\n", edits), true, "x.yaml"); },
        ThrowsMessage<CorruptData>(HasSubstr("x.yaml:3: holds text that is no UTF-8")))
        << edits;
}

TEST(ParseCdi, AliasesOfYamlCannotGrowWithoutEnd) {
  std::string bomb = "cdiVersion: 0.5.0\nkind: a/b\na: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'k'; ++c)
    bomb += fmt::format("{}: &{} [*{}, *{}, *{}, *{}, *{}, *{}, *{}, *{}, *{}, *{}]\n", c, c, char(c - 1), char(c - 1),
                        char(c - 1), char(c - 1), char(c - 1), char(c - 1), char(c - 1), char(c - 1), char(c - 1),
                        char(c - 1));
  EXPECT_THAT([&] { parse_cdi(bomb, true, "bomb.yaml"); }, ThrowsMessage<CorruptData>(HasSubstr("too large")));
}

}  // namespace
}  // namespace varve::fuse
