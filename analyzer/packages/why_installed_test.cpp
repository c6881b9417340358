#include "analyzer/packages/why_installed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::packages {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WhyInstalledTest : public ::testing::Test {
 protected:
  // The inventory's distributions do not move: room for all is made beforehand.
  WhyInstalledTest() { inventory_.distributions.reserve(8); }
  Distribution& add(const std::string& name, const std::string& normalized, const std::string& package = "") {
    auto& one = inventory_.distributions.emplace_back();
    one.name = name;
    one.normalized = normalized;
    one.package = package;
    return one;
  }
  static Need pip(const std::string& name, bool applies, std::vector<std::string> extras = {}) {
    Need need;
    need.requirement.name = name;
    need.requirement.normalized = name;
    need.applies = applies;
    need.extras = std::move(extras);
    return need;
  }
  static Need dpkg(const std::string& package) {
    Need need;
    need.from = Source::kDpkg;
    need.requirement.name = package;
    need.applies = true;
    return need;
  }
  std::vector<std::string> found(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto* one : find_named(inventory_, name)) names.push_back(one->name);
    return names;
  }
  Inventory inventory_;
};

TEST_F(WhyInstalledTest, ANameIsThatOfADistributionHoweverItIsWrittenOrOfAPackage) {
  add("Foo.Bar", "foo-bar");
  add("torch", "torch", "pytorch");
  EXPECT_THAT(found("foo_bar"), ElementsAre("Foo.Bar"));
  EXPECT_THAT(found("FOO-BAR"), ElementsAre("Foo.Bar"));
  EXPECT_THAT(found("pytorch"), ElementsAre("torch"));
}

TEST_F(WhyInstalledTest, WhatIsNoDistributionIsLookedForAmongImports) {
  add("PyYAML", "pyyaml");
  add("yaml", "yaml");
  add("extra-yaml", "extra-yaml");
  inventory_.modules["yaml"] = {0, 2};
  inventory_.modules["cv2"] = {2};
  EXPECT_THAT(found("yaml"), ElementsAre("yaml")) << "a distribution's own name counts first";
  EXPECT_THAT(found("cv2.data"), ElementsAre("extra-yaml"));
}

TEST_F(WhyInstalledTest, ANameOfNothingIsAnErrorThatASafeTerminalShows) {
  add("numpy", "numpy");
  EXPECT_THROW(find_named(inventory_, "scipy"), NotFound);
  try {
    find_named(inventory_, "bad\x1b[2J");
    FAIL() << "it was found";
  } catch (const NotFound& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\x1b'), std::string_view::npos) << error.what();
  }
}

TEST_F(WhyInstalledTest, NeedsCountWhereTheyApplyOrForAnExtra) {
  const auto& numpy = add("numpy", "numpy");
  add("scipy", "scipy").needs = {pip("numpy", true), pip("numpy", false, {"test"})};
  add("pandas", "pandas").needs = {pip("numpy", false, {"all", "perf"})};
  add("on-windows", "on-windows").needs = {pip("numpy", false)};
  add("other", "other").needs = {pip("six", true)};
  EXPECT_THAT(needed_by(inventory_, numpy), ElementsAre("pandas[all,perf]", "scipy", "scipy[test]"));
}

TEST_F(WhyInstalledTest, NobodyNeedsItself) {
  auto& dask = add("dask", "dask");
  dask.needs = {pip("dask", false, {"complete"})};
  EXPECT_THAT(needed_by(inventory_, dask), IsEmpty());
}

TEST_F(WhyInstalledTest, PackageManagersSpeakOfTheirPackages) {
  const auto& numpy = add("numpy", "numpy", "python3-numpy");
  const auto& libc = add("libc6", "libc6");
  add("python3-scipy", "python3-scipy").needs = {dpkg("python3-numpy"), dpkg("libc6")};
  add("a-tool-called-numpy", "a-tool").needs = {dpkg("numpy")};
  EXPECT_THAT(needed_by(inventory_, numpy), ElementsAre("python3-scipy"));
  EXPECT_THAT(needed_by(inventory_, libc), ElementsAre("python3-scipy"));
}

}  // namespace
}  // namespace varve::packages
