#include "core/oci/platform.h"

#include <gmock/gmock.h>

#include "core/base/errors.h"

namespace varve::oci {
namespace {

TEST(PlatformTest, NormalisesAliases) {
  for (const auto& [text, expected] :
       std::initializer_list<std::pair<const char*, const char*>>{{"linux/x86_64", "linux/amd64"},
                                                                  {"aarch64", "linux/arm64"},
                                                                  {"linux/arm64/v8", "linux/arm64"},
                                                                  {"armhf", "linux/arm/v7"},
                                                                  {"linux/arm", "linux/arm/v7"},
                                                                  {"linux/arm/6", "linux/arm/v6"},
                                                                  {"Linux/AMD64/v1", "linux/amd64"},
                                                                  {"i686", "linux/386"},
                                                                  {"linux/ppc64el", "linux/ppc64le"},
                                                                  {"riscv64", "linux/riscv64"}})
    EXPECT_EQ(Platform::parse(text).to_string(), expected) << text;
}

TEST(PlatformTest, RefusesWhatIsNoPlatform) {
  for (const auto* text : {"", "/", "linux/", "linux/amd64/v1/x", "linux amd64", "linux//v7", "foo", "linux"})
    EXPECT_THROW(Platform::parse(text), UsageError) << text;
}

TEST(PlatformTest, LowerVariantsFitAndHigherOnesDoNot) {
  const auto distance = [](const char* wanted, const char* offered) {
    return platform_distance(Platform::parse(wanted), Platform::parse(offered));
  };
  EXPECT_EQ(distance("linux/arm/v7", "linux/arm/v7"), 0);
  EXPECT_EQ(distance("linux/arm/v7", "linux/arm/v6"), 1);
  EXPECT_EQ(distance("linux/arm/v7", "linux/arm/v5"), 2);
  EXPECT_EQ(distance("linux/arm/v6", "linux/arm/v7"), -1);
  EXPECT_EQ(distance("linux/amd64/v3", "linux/amd64"), 2);
  EXPECT_EQ(distance("linux/amd64", "linux/amd64/v2"), -1);
  EXPECT_EQ(distance("linux/arm64/v9", "linux/arm64"), 1);
  EXPECT_EQ(distance("linux/arm64", "linux/arm/v7"), -1);
  EXPECT_EQ(distance("linux/amd64", "windows/amd64"), -1);
  EXPECT_EQ(distance("linux/amd64", "linux/amd64/odd"), -1);
  EXPECT_EQ(distance("linux/amd64/odd", "linux/amd64/odd"), 0);
}

TEST(PlatformTest, KnowsThisMachine) {
  const auto platform = Platform::of_this_machine();
  EXPECT_EQ(platform.os, "linux");
  EXPECT_EQ(platform, platform.normalised());
}

}  // namespace
}  // namespace varve::oci
