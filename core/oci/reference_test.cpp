#include "core/oci/reference.h"

#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/oci/platform.h"

namespace varve::oci {
namespace {

constexpr auto kDigest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(ReferenceTest, ReadsLayoutFolders) {
  const auto plain = Reference::parse("oci:/srv/image");
  EXPECT_EQ(plain.kind, Reference::Kind::kLayout);
  EXPECT_EQ(plain.layout_dir, "/srv/image");
  EXPECT_EQ(plain.selector(), "");
  EXPECT_EQ(Reference::parse("oci:/srv/image:v1").selector(), "v1");
  EXPECT_EQ(Reference::parse("oci:/srv/we:ird/image").layout_dir, "/srv/we:ird/image");
  const auto by_digest = Reference::parse(std::string("oci:/srv/image@") + kDigest);
  EXPECT_EQ(by_digest.selector(), kDigest);
  EXPECT_EQ(by_digest.layout_dir, "/srv/image");
  EXPECT_TRUE(Reference::parse("oci:image/").layout_dir.is_absolute());
}

TEST(ReferenceTest, FillsInWhatDockerLeavesOut) {
  const auto busybox = Reference::parse("busybox");
  EXPECT_EQ(busybox.host, "docker.io");
  EXPECT_EQ(busybox.repository, "library/busybox");
  EXPECT_EQ(busybox.selector(), "latest");
  EXPECT_EQ(Reference::parse("team/app:1").repository, "team/app");
  const auto local = Reference::parse("docker://localhost:5000/a/b");
  EXPECT_EQ(local.host, "localhost:5000");
  EXPECT_EQ(local.repository, "a/b");
}

TEST(ReferenceTest, ADigestWinsOverATag) {
  const auto both = Reference::parse(std::string("registry.example/app:tag@") + kDigest);
  EXPECT_EQ(both.selector(), kDigest);
  EXPECT_EQ(both.tag, "tag");
}

TEST(ReferenceTest, WhatItPrintsItParses) {
  for (const auto* text : {"oci:/srv/image:v1", "docker://registry.example:5000/a/b:1.0", "docker://docker.io/library/x:latest"})
    EXPECT_EQ(Reference::parse(text).to_string(), text);
}

TEST(ReferenceTest, RefusesWhatIsNoReference) {
  for (const auto* text : {"", "oci:", "oci:dir:", "UPPER/case", "registry.example/", "host.example/a//b", "a:", "a@sha256:12", "a/b:ta g", "a..b",
                           "docker-archive:x.tar", "host:99999999/x"})
    EXPECT_THROW(Reference::parse(text), UsageError) << text;
}

TEST(PlatformTest, NormalisesTheNamesOfMachines) {
  EXPECT_EQ(Platform::parse("x86_64").to_string(), "linux/amd64");
  EXPECT_EQ(Platform::parse("linux/aarch64/v8").to_string(), "linux/arm64");
  EXPECT_EQ(Platform::parse("linux/armhf").to_string(), "linux/arm/v7");
  EXPECT_THROW(Platform::parse("a/b/c/d"), UsageError);
  EXPECT_THROW(Platform::parse("linux/"), UsageError);
}

TEST(PlatformTest, PrefersTheHighestVariantThatRuns) {
  const auto wanted = Platform::parse("linux/arm/v7");
  EXPECT_EQ(platform_distance(wanted, Platform::parse("linux/arm/v7")), 0);
  EXPECT_GT(platform_distance(wanted, Platform::parse("linux/arm/v6")), 0);
  EXPECT_LT(platform_distance(Platform::parse("linux/arm/v6"), Platform::parse("linux/arm/v7")), 0);
  EXPECT_LT(platform_distance(Platform::parse("linux/amd64"), Platform::parse("linux/arm64")), 0);
  EXPECT_LT(platform_distance(Platform::parse("linux/amd64"), Platform::parse("linux/amd64/v3")), 0);
}

}  // namespace
}  // namespace varve::oci
