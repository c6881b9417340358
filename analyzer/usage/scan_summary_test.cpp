#include "analyzer/usage/scan_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "analyzer/usage/scan_batches.h"

namespace varve::usage {
namespace {

using notebooks::Import;
using notebooks::ImportKind;
using notebooks::ScannedFile;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

Import import_of(const std::string& name, ImportKind kind = ImportKind::kImport) {
  Import import;
  import.name = import.module = name;
  import.kind = kind;
  return import;
}

notebooks::Install install_of(const std::string& tool, const std::string& package, const std::string& argument = "") {
  notebooks::Install install;
  install.tool = tool;
  install.package = package;
  install.argument = argument;
  return install;
}

ScannedFile notebook(std::vector<Import> imports, std::vector<notebooks::Install> installs = {}) {
  ScannedFile file;
  file.language = "python";
  file.imports = std::move(imports);
  file.installs = std::move(installs);
  return file;
}

std::vector<std::string> uses_of(const ScanSummary& summary) {
  std::vector<std::string> lines;
  for (const auto& use : summary.uses())
    lines.push_back(fmt::format("{} [{}] {} {}", use.module, use.distributions, use.notebooks, use.optional));
  return lines;
}
std::vector<std::string> installs_of(const ScanSummary& summary) {
  std::vector<std::string> lines;
  for (const auto& install : summary.installs()) lines.push_back(fmt::format("{} {}", install.what, install.notebooks));
  return lines;
}

// An image with numpy, and two distributions that share one module.
class ScanSummaryTest : public ::testing::Test {
 protected:
  ScanSummaryTest() {
    packages::Inventory inventory;
    for (const auto* name : {"numpy", "protobuf", "google-api"}) {
      auto& one = inventory.distributions.emplace_back();
      one.name = one.normalized = name;
    }
    inventory.modules["numpy"] = {0};
    inventory.modules["google"] = {1, 2};
    of_image_ = packages::DistributionNames::of_inventory(inventory);
  }
  packages::DistributionNames of_image_;
};

TEST_F(ScanSummaryTest, ANotebookCountsOnceForAModuleHoweverOftenItImportsIt) {
  ScanSummary summary(of_image_);
  summary.add(notebook({import_of("numpy"), import_of("numpy.linalg"), import_of("numpy", ImportKind::kOptional)}));
  summary.add(notebook({import_of("numpy.fft", ImportKind::kOptional), import_of("google.api")}));
  EXPECT_THAT(uses_of(summary), ElementsAre("numpy [numpy] 2 1", "google [google-api, protobuf] 1 0"))
      << "optional is who has it only inside try or if";
}

TEST_F(ScanSummaryTest, SameCodeCountsOnce) {
  ScanSummary summary(of_image_);
  auto copy = notebook({import_of("numpy")}, {install_of("pip", "numpy")});
  summary.add(copy);
  copy.duplicate_of = "first.ipynb";
  summary.add(copy);
  EXPECT_EQ(summary.files(), 2u);
  EXPECT_EQ(summary.duplicates(), 1u);
  EXPECT_EQ(summary.distinct(), 1u);
  EXPECT_THAT(uses_of(summary), ElementsAre("numpy [numpy] 1 0"));
  EXPECT_THAT(installs_of(summary), ElementsAre("pip numpy 1"));
  EXPECT_THAT(summary.languages(), ElementsAre(Pair("python", 1)));
}

TEST_F(ScanSummaryTest, WhatIsNotOfAnyDistributionIsLeftOutAndWhatTheImageLacksIsNot) {
  auto local = import_of("numpy");
  local.local = true;
  auto unknown = import_of("");
  unknown.unknown_name = true;
  ScanSummary summary(of_image_);
  summary.add(notebook({local, unknown, import_of("os.path"), import_of("xgboost")}));
  EXPECT_THAT(uses_of(summary), ElementsAre("xgboost [] 1 0"));
}

TEST_F(ScanSummaryTest, WithoutAnImageNamesAreThoseGenerallyKnown) {
  const packages::DistributionNames names;
  ScanSummary summary(names);
  summary.add(notebook({import_of("cv2"), import_of("nobody_knows.it")}));
  const auto uses = summary.uses();
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].module, "cv2");
  EXPECT_NE(uses[0].distributions.find("opencv-python"), std::string::npos) << uses[0].distributions;
  EXPECT_EQ(uses[1].distributions, "nobody-knows");
}

TEST_F(ScanSummaryTest, TheMostUsedComeFirstAndEqualsByName) {
  ScanSummary summary(of_image_);
  for (const auto* name : {"b", "c", "a", "c"}) summary.add(notebook({import_of(name)}, {install_of("pip", name)}));
  EXPECT_THAT(uses_of(summary), ElementsAre("c [] 2 0", "a [] 1 0", "b [] 1 0"));
  EXPECT_THAT(installs_of(summary), ElementsAre("pip c 2", "pip a 1", "pip b 1"));
}

TEST_F(ScanSummaryTest, InstallsAreOncePerNotebookAndWithoutRemovals) {
  auto removed = install_of("pip", "torch");
  removed.remove = true;
  ScanSummary summary(of_image_);
  summary.add(notebook({}, {install_of("pip", "numpy"), install_of("pip", "numpy", "numpy==1"), removed,
                            install_of("pip", "", "-r list.txt"), install_of("conda", "numpy")}));
  EXPECT_THAT(installs_of(summary), ElementsAre("conda numpy 1", "pip -r list.txt 1", "pip numpy 1"));
}

TEST_F(ScanSummaryTest, ALanguageThatIsNotToBeSeenIsUnknown) {
  ScanSummary summary(of_image_);
  auto file = notebook({});
  file.language = "";
  summary.add(file);
  file.language = "r";
  summary.add(file);
  EXPECT_THAT(summary.languages(), ElementsAre(Pair("r", 1), Pair("unknown", 1)));
}

class ScanBatchesTest : public ::testing::Test {
 protected:
  void add(ScanBatches& batches, std::size_t files) const {
    for (std::size_t i = 0; i < files; ++i) {
      ScannedFile file;
      file.path = std::to_string(i);
      batches.add(std::move(file));
    }
  }
  std::function<void(const notebooks::ScanResult&)> note() {
    return [this](const notebooks::ScanResult& batch) {
      std::string paths;
      for (const auto& file : batch.files) paths += file.path + " ";
      put_.push_back(paths);
    };
  }
  std::vector<std::string> put_;
};

TEST_F(ScanBatchesTest, EachFileIsHandedOverOnceInOrder) {
  ScanBatches batches(note(), 3);
  add(batches, 7);
  EXPECT_THAT(put_, ElementsAre("0 1 2 ", "3 4 5 "));
  batches.finish();
  batches.finish();
  EXPECT_THAT(put_, ElementsAre("0 1 2 ", "3 4 5 ", "6 "));
}

TEST_F(ScanBatchesTest, NothingIsHandedOverOfNothing) {
  ScanBatches batches(note(), 2);
  batches.finish();
  EXPECT_THAT(put_, IsEmpty());
  add(batches, 2);
  batches.finish();
  EXPECT_THAT(put_, ElementsAre("0 1 ")) << "a full batch went by itself";
}

TEST_F(ScanBatchesTest, AFailureReachesWhoAdds) {
  ScanBatches batches([](const notebooks::ScanResult&) { throw std::runtime_error("disk full"); }, 1);
  EXPECT_THROW(add(batches, 1), std::runtime_error);
}

}  // namespace
}  // namespace varve::usage
