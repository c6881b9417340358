#include "cli/containerd/containerd_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ContainerdSettings of_version(std::string_view version) {
  return {
      .version = parse_containerd_version(version), .socket = "/run/varve/snapshotter.sock", .root = "/var/lib/varve"};
}

// Nothing is missing of it, and a second time changes nothing.
std::string merged(std::string_view text, const ContainerdSettings& settings) {
  const auto result = merge_settings(text, "config.toml", settings);
  EXPECT_THAT(missing_settings(parse_toml(result, "config.toml"), "config.toml", settings), IsEmpty());
  EXPECT_EQ(merge_settings(result, "config.toml", settings), result);
  return result;
}

TEST(ContainerdVersions, AreReadAsContainerdPrintsThem) {
  EXPECT_EQ(parse_containerd_version("containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1\n")
                .to_string(),
            "1.7.24");
  EXPECT_EQ(parse_containerd_version("containerd github.com/containerd/containerd/v2 v2.1.9 ee787f1").to_string(),
            "2.1.9");
  EXPECT_EQ(parse_containerd_version("2.3").to_string(), "2.3.0");
  EXPECT_THROW(parse_containerd_version("1.5.9"), Unsupported);
  EXPECT_THROW(parse_containerd_version("3.0.0"), Unsupported);
  for (const char* none : {"", "containerd", "2", "two.one", "99999999999999999999.1"})
    EXPECT_THROW(parse_containerd_version(none), UsageError) << none;
}

TEST(ContainerdConfig, EachVersionGetsWhatItKnows) {
  const auto oldest = merged("", of_version("1.6.20"));
  EXPECT_EQ(oldest,
            "version = 2\n\n"
            "[proxy_plugins.varve]\n  type = \"snapshot\"\n  address = \"/run/varve/snapshotter.sock\"\n\n"
            "[proxy_plugins.varve.exports]\n  root = \"/var/lib/varve\"\n\n"
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  snapshotter = \"varve\"\n"
            "  disable_snapshot_annotations = false\n");
  EXPECT_THAT(merged("", of_version("1.7.22")), Not(HasSubstr("remap-ids")));
  EXPECT_THAT(merged("", of_version("1.7.24")), HasSubstr("capabilities = [\"remap-ids\"]"));
  const auto two = merged("", of_version("2.0.5"));
  EXPECT_THAT(two, HasSubstr("version = 3\n"));
  EXPECT_THAT(two, HasSubstr("[plugins.\"io.containerd.cri.v1.images\"]"));
  EXPECT_THAT(two, HasSubstr("[[plugins.\"io.containerd.transfer.v1.local\".unpack_config]]\n"));
  EXPECT_THAT(two, Not(HasSubstr("enable_remote")));
  EXPECT_THAT(merged("# mine\n", of_version("2.1.0")), HasSubstr("enable_remote_snapshot_annotations = \"true\""));
}

TEST(ContainerdConfig, WhatIsThereStays) {
  const std::string text =
      "# of this machine\n"
      "version = 2\n"
      "disabled_plugins = []\n\n"
      "[plugins]\n"
      "  [plugins.'io.containerd.grpc.v1.cri']\n"
      "    sandbox_image = \"registry.k8s.io/pause:3.9\"\n"
      "    [plugins.'io.containerd.grpc.v1.cri'.containerd]\n"
      "      snapshotter = \"overlayfs\" # the default\n"
      "      [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]\n"
      "        SystemdCgroup = true\n\n"
      "[proxy_plugins]\n"
      "  [proxy_plugins.other]\n"
      "    type = \"snapshot\"\n";
  const auto result = merged(text, of_version("1.7.24"));
  EXPECT_THAT(result, HasSubstr("# of this machine\nversion = 2\ndisabled_plugins = []\n"));
  EXPECT_THAT(result, HasSubstr("    [plugins.'io.containerd.grpc.v1.cri'.containerd]\n"
                                "      disable_snapshot_annotations = false\n"
                                "      snapshotter = \"varve\"  # was: snapshotter = \"overlayfs\" # the default\n"));
  EXPECT_THAT(result, HasSubstr("        SystemdCgroup = true\n"));
  EXPECT_THAT(result, HasSubstr("[proxy_plugins.varve]\n"));
  EXPECT_THAT(result, HasSubstr("  [proxy_plugins.other]\n    type = \"snapshot\"\n"));
}

TEST(ContainerdConfig, ATableThatOnlyItsOwnTablesNameIsAdded) {
  const auto result = merged(
      "version = 3\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'p'\n"
      "[plugins.'io.containerd.transfer.v1.local']\n  unpack_config = []\n",
      of_version("2.0.0"));
  EXPECT_THAT(result, HasSubstr("[plugins.\"io.containerd.cri.v1.images\"]\n"));
  EXPECT_THAT(result, Not(HasSubstr("unpack_config = []")));
}

TEST(ContainerdConfig, AnUnpackerOfAnotherSnapshotterStaysBesideOurs) {
  const auto result = merged(
      "version = 4\n[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]\n  platform = 'linux/amd64'\n"
      "  snapshotter = 'overlayfs'\n",
      of_version("2.3.4"));
  EXPECT_THAT(result, HasSubstr("snapshotter = 'overlayfs'"));
  EXPECT_THAT(result, HasSubstr("snapshotter = \"varve\"\n  differ"));
}

TEST(ContainerdConfig, WhatIsNotUnderstoodIsRefusedWithItsLine) {
  const auto why = [](std::string_view text, std::string_view version) -> std::string {
    try {
      merge_settings(text, "config.toml", of_version(version));
      return "taken";
    } catch (const Unsupported& error) {
      return error.what();
    }
  };
  EXPECT_THAT(why("[plugins]\n", "1.7.24"), HasSubstr("its format is version 1"));
  EXPECT_THAT(why("version = 3\n", "1.7.24"), HasSubstr("version 3, and containerd 1.7.24"));
  EXPECT_THAT(why("version = 9\n", "2.1.0"), HasSubstr("version 9"));
  EXPECT_THAT(why("version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\nsnapshotter = 'x'\n", "2.1.0"),
              HasSubstr("config.toml:2: is configured for containerd 1.x"));
  EXPECT_THAT(why("version = 2\nproxy_plugins = { other = { type = 'snapshot' } }\n", "1.7.24"),
              HasSubstr("cannot be added to"));
  EXPECT_THAT(why("version = 2\n[proxy_plugins]\nvarve = { type = 'content' }\n", "1.7.24"),
              HasSubstr("config.toml:3: type is set in a way"));
  EXPECT_THAT(why("version = 2\n[plugins.'io.containerd.grpc.v1.cri']\ncontainerd.snapshotter = 'x'\n", "1.7.24"),
              HasSubstr("config.toml:3: snapshotter is set in a way"));
  EXPECT_THAT(why("version = 2\n[proxy_plugins.varve]\naddress = '''\n/run/x'''\n", "1.7.24"),
              HasSubstr("address is set in a way"));
  EXPECT_THROW(merge_settings("version = \n", "config.toml", of_version("1.7.24")), CorruptData);
}

TEST(ContainerdConfig, WhatIsMissingIsNamedWithItsPlace) {
  const auto file = parse_toml(
      "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\nsnapshotter = 'varve'\n"
      "disable_snapshot_annotations = true\n",
      "config.toml");
  const auto missing = missing_settings(file, "config.toml", of_version("1.6.20"));
  EXPECT_THAT(missing, ::testing::Contains(HasSubstr("config.toml:4: disable_snapshot_annotations")));
  EXPECT_THAT(missing, ::testing::Contains(HasSubstr("config.toml: type of [proxy_plugins.varve]")));
  EXPECT_THAT(missing, Not(::testing::Contains(HasSubstr(": snapshotter of"))));
}

}  // namespace
}  // namespace varve::cli
