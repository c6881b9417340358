#include "analyzer/prune/probe/learned_starts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/text/safe_text.h"
#include "testing/packages_image.h"

namespace varve::prune {
namespace {

using test::FakeImage;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using usage::ProbedKind;
using What = LearnedStart::What;

std::vector<std::string> imports_of(const std::vector<LearnedStart>& starts) {
  std::vector<std::string> names;
  for (const auto& start : starts)
    if (start.what == What::kImport) names.push_back(start.name);
  return names;
}

std::vector<LearnedStart> learned(const FakeImage& image, const LearnOptions& options = {},
                                  const oci::ImageConfig& config = {}) {
  const auto inventory = packages::read_inventory(image.files);
  return starts_to_learn(probe_targets(image.files, inventory, config), inventory, options);
}

TEST(LearnedStarts, WithoutUseTheLargestLibrariesComeFirst) {
  FakeImage image;
  image.add({"small", "", {{"small.py", "#"}}}).add({"large", "", {{"large.py", std::string(1000, '#')}}});
  image.add({"middle", "", {{"middle.py", std::string(100, '#')}}});
  EXPECT_THAT(imports_of(learned(image)), ElementsAre("large", "middle", "small"));
  EXPECT_THAT(imports_of(learned(image, {.used = nullptr, .top = 2})), ElementsAre("large", "middle"));
}

TEST(LearnedStarts, OnlyWhatIsImportedIsLearntMostSessionsFirst) {
  FakeImage image;
  image.add({"alpha"}).add({"beta"}).add({"gamma"}).add({"delta"});
  auto snapshot = test::snapshot_of(packages::read_inventory(image.files), 100);
  test::used(snapshot, "alpha", 5, 1);
  test::used(snapshot, "gamma", 50, 1);
  test::use_of(snapshot, "alpha").modules["alpha"] = 5;
  test::use_of(snapshot, "gamma").modules["gamma"] = 50;
  test::use_of(snapshot, "delta").notebooks = 3;
  EXPECT_THAT(imports_of(learned(image, {.used = &snapshot})), ElementsAre("gamma", "alpha", "delta"));
}

TEST(LearnedStarts, WithAGpuItsFirstUseComesBehindTheImport) {
  FakeImage image;
  image.add({"torch"}).add({"other", "", {{"other.py", std::string(1000, '#')}}});
  const auto first_words = [&](bool gpu) {
    std::vector<std::string> names;
    for (const auto& start : learned(image, {.used = nullptr, .gpu = gpu}))
      if (start.what != What::kPython) names.push_back(start.name.substr(0, start.name.find(';')));
    return names;
  };
  EXPECT_THAT(first_words(false), ElementsAre("other", "torch"));
  EXPECT_THAT(first_words(true), ElementsAre("other", "torch", HasSubstr("import torch"), HasSubstr("import torch")))
      << "a product, and a step of training";
}

TEST(LearnedStarts, TheNameIsAWordOfItsOwnAndNeverCode) {
  FakeImage image;
  image.add({"alpha"});
  const auto starts = learned(image);
  const auto start = std::ranges::find(starts, What::kImport, &LearnedStart::what);
  ASSERT_NE(start, starts.end());
  ASSERT_EQ(start->words.size(), 4U);
  EXPECT_EQ(start->words[2].find("alpha"), std::string::npos);
  EXPECT_EQ(start->words[3], "alpha");
}

TEST(LearnedStarts, WhatDpkgInstalledIsImportedThoughNoGateTriesIt) {
  FakeImage image;
  image.add({"alpha"});
  auto inventory = packages::read_inventory(image.files);
  auto targets = probe_targets(image.files, inventory, {});
  std::erase_if(targets, [](const ProbeTarget& target) { return target.kind == ProbedKind::kImport; });
  EXPECT_THAT(imports_of(starts_to_learn(targets, inventory, {})), ElementsAre());
  inventory.distributions.front().source = packages::Source::kDpkg;
  EXPECT_THAT(imports_of(starts_to_learn(targets, inventory, {})), ElementsAre("alpha"));
  inventory.distributions.front().site = "opt/elsewhere";
  EXPECT_THAT(imports_of(starts_to_learn(targets, inventory, {})), ElementsAre());
}

TEST(LearnedStarts, WhatIsNoNameIsNotImported) {
  FakeImage image;
  image.add({"alpha"});
  const auto inventory = packages::read_inventory(image.files);
  auto targets = probe_targets(image.files, inventory, {});
  const auto python = inventory.interpreters.front().executable;
  for (const auto* name : {"import a; rm", "a/b", "..", "", "-c", "a b", "a\nb", "a.",
                           "a\xe2\x80\xae"
                           "b"})
    targets.push_back({.kind = ProbedKind::kImport,
                       .name = name,
                       .distribution = "alpha",
                       .python = python,
                       .object = name,
                       .words = {},
                       .kernel_spec = {}});
  EXPECT_THAT(imports_of(starts_to_learn(targets, inventory, {})), ElementsAre("alpha"));
}

TEST(LearnedStarts, ProgramsAreThoseThatEverybodyStarts) {
  FakeImage image;
  image.files.add("usr/share/jupyter/kernels/python3/kernel.json", "{}")
      .add("usr/local/share/jupyter/kernels/python3/kernel.json", "{}");
  oci::ImageConfig config;
  config.entrypoint = {"tini", "--"};
  config.cmd = {"start it.sh"};
  std::vector<std::string> names;
  for (const auto& start : learned(image, {}, config)) names.push_back(start.name);
  EXPECT_THAT(names, ElementsAre("/usr/local/bin/python3.11 -c 'print()'", "jupyter kernel --kernel=python3",
                                 "tini -- 'start it.sh'"));
}

TEST(LearnedStarts, WhereThereAreKernelsTheirClientIsImportedWhateverElseIs) {
  FakeImage image;
  image.add({"alpha"});
  image.add({"jupyter-client", "", {{"jupyter_client/__init__.py", "#"}}});
  auto inventory = packages::read_inventory(image.files);
  auto targets = probe_targets(image.files, inventory, {});
  EXPECT_THAT(imports_of(starts_to_learn(targets, inventory, {.top = 0})), ElementsAre());
  targets.push_back({.kind = ProbedKind::kKernel,
                     .name = "python3",
                     .distribution = "",
                     .python = {},
                     .object = {},
                     .words = {},
                     .kernel_spec = "/usr/share/jupyter/kernels/python3"});
  const auto client = starts_to_learn(targets, inventory, {.top = 0});
  EXPECT_THAT(imports_of(client), ElementsAre("jupyter_client"));
  EXPECT_EQ(std::ranges::count_if(client, &LearnedStart::before_kernels), 1);
  EXPECT_THAT(imports_of(starts_to_learn(targets, inventory, {})), UnorderedElementsAre("jupyter_client", "alpha"));
}

TEST(LearnedStarts, ANameForPeopleIsPlainWhateverTheCommand) {
  for (const auto& words : std::vector<std::vector<std::string>>{{"python3", "-c", "print('a\\n')"},
                                                                 {"\x1b[31m", "\xff\xfe", ""},
                                                                 {std::string(5000, 'x')},
                                                                 {"a\nb", "\xe2\x80\xae"}}) {
    const auto text = shell_text(words);
    EXPECT_EQ(printable(text), text);
    EXPECT_FALSE(text.empty());
    EXPECT_LE(text.size(), 256U);
  }
}

TEST(LearnedStarts, AKernelIsFineIfItReplied) {
  const LearnedStart kernel{.what = What::kKernel, .name = "k", .words = {}, .ends = true};
  EXPECT_TRUE(kernel.is_fine(0, "noise\n{\"outcome\": \"ok\", \"detail\": \"\"}\n"));
  EXPECT_FALSE(kernel.is_fine(0, "{\"outcome\": \"no reply\", \"detail\": \"\"}"));
  EXPECT_FALSE(kernel.is_fine(0, "garbage"));
  EXPECT_FALSE(kernel.is_fine(1, "{\"outcome\": \"ok\", \"detail\": \"\"}"));
}

TEST(LearnedStarts, ACommandThatNeedNotEndIsFineIfItBegan) {
  const LearnedStart command{.what = What::kCommand, .name = "c", .words = {}, .ends = false};
  for (const int status : {0, 1, 124, 137}) EXPECT_TRUE(command.is_fine(status, ""));
  for (const int status : {125, 126, 127}) EXPECT_FALSE(command.is_fine(status, ""));
}

}  // namespace
}  // namespace varve::prune
