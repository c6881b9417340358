#include "analyzer/report/architectures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varve::report {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

TEST(Architectures, ModelsAreKnownByTheNamesThatDriversGive) {
  struct Case {
    const char* model;
    std::optional<unsigned> capability;
  };
  for (const auto& [model, capability] : {Case{"Tesla T4", 75},
                                          Case{"Tesla P100-PCIE-16GB", 60},
                                          Case{"Tesla V100-SXM2-16GB", 70},
                                          Case{"NVIDIA A100-SXM4-40GB", 80},
                                          Case{"NVIDIA A100 80GB PCIe", 80},
                                          Case{"NVIDIA A10G", 86},
                                          Case{"NVIDIA L4", 89},
                                          Case{"NVIDIA L40S", 89},
                                          Case{"NVIDIA H100 80GB HBM3", 90},
                                          Case{"NVIDIA H200", 90},
                                          Case{"NVIDIA H100 NVL", 90},
                                          Case{"NVIDIA GH200 480GB", 90},
                                          Case{"NVIDIA B200", 100},
                                          Case{"NVIDIA GB200", 100},
                                          Case{"NVIDIA B300 SXM6 AC", 103},
                                          Case{"Tesla K80", 37},
                                          Case{"Quadro RTX 6000", 75},
                                          Case{"NVIDIA RTX 6000 Ada Generation", 89},
                                          Case{"NVIDIA RTX PRO 6000 Blackwell Server Edition", 120},
                                          Case{"Radeon Pro V320", std::nullopt},
                                          Case{"T400", std::nullopt},
                                          Case{"", std::nullopt}}) {
    EXPECT_EQ(compute_capability(model), capability) << model;
  }
}

std::map<std::string, ArchitectureVerdict> verdicts(const std::vector<std::string>& carried,
                                                    const std::vector<std::string>& models) {
  std::map<std::string, std::uint64_t> bytes, sessions;
  for (const auto& name : carried) bytes[name] = 10;
  for (const auto& model : models) sessions[model] = 1;
  std::map<std::string, ArchitectureVerdict> result;
  for (const auto& use : judge_architectures(bytes, sessions).architectures) result[use.name] = use.verdict;
  return result;
}

TEST(Architectures, ABinaryRunsOnItsMajorVersionFromItsMinorVersionOn) {
  const auto found = verdicts({"sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"}, {"Tesla T4", "NVIDIA L4"});
  EXPECT_EQ(found.at("sm_60"), ArchitectureVerdict::kNever);
  EXPECT_EQ(found.at("sm_70"), ArchitectureVerdict::kRunnable);  // T4 takes sm_75
  EXPECT_EQ(found.at("sm_75"), ArchitectureVerdict::kUsed);
  EXPECT_EQ(found.at("sm_80"), ArchitectureVerdict::kRunnable);
  EXPECT_EQ(found.at("sm_86"), ArchitectureVerdict::kUsed);  // the best for an L4, which is 8.9
  EXPECT_EQ(found.at("sm_90"), ArchitectureVerdict::kNever);
}

TEST(Architectures, AnEarlierBinaryIsUsedWhereNoBetterIsCarried) {
  EXPECT_EQ(verdicts({"sm_70"}, {"Tesla T4"}).at("sm_70"), ArchitectureVerdict::kUsed);
}

TEST(Architectures, FeaturesOfOneArchitectureRunThereOnly) {
  const auto found = verdicts({"sm_90a", "sm_100a", "sm_100f", "compute_90a"}, {"NVIDIA H100 PCIe", "NVIDIA B300"});
  EXPECT_EQ(found.at("sm_90a"), ArchitectureVerdict::kUsed);
  EXPECT_EQ(found.at("sm_100a"), ArchitectureVerdict::kNever);  // a B300 is 10.3
  EXPECT_EQ(found.at("sm_100f"), ArchitectureVerdict::kUsed);   // its family
  EXPECT_EQ(found.at("compute_90a"), ArchitectureVerdict::kFallback);
}

TEST(Architectures, PtxIsUsedWhereNoBinaryRuns) {
  const auto found = verdicts({"sm_80", "compute_80", "compute_90"}, {"NVIDIA A100-SXM4-40GB", "NVIDIA H100 PCIe"});
  EXPECT_EQ(found.at("compute_80"), ArchitectureVerdict::kUsed);  // by the H100
  EXPECT_EQ(verdicts({"sm_80", "compute_80"}, {"NVIDIA A100-SXM4-40GB"}).at("compute_80"),
            ArchitectureVerdict::kFallback);
  EXPECT_EQ(verdicts({"compute_90"}, {"NVIDIA A100-SXM4-40GB"}).at("compute_90"), ArchitectureVerdict::kNever);
}

TEST(Architectures, NothingIsSaidWithoutAFleet) {
  EXPECT_EQ(verdicts({"sm_80"}, {}).at("sm_80"), ArchitectureVerdict::kUnknown);
  EXPECT_EQ(verdicts({"sm_80"}, {"Unheard Of 9000"}).at("sm_80"), ArchitectureVerdict::kUnknown);
}

TEST(Architectures, NamesThatCannotBeReadAreUnknown) {
  for (const auto* name : {"", "sm_", "sm_a", "sm_99999999999", "gfx90a", "sm_8x", "compute_"})
    EXPECT_EQ(verdicts({name}, {"Tesla T4"}).at(name), ArchitectureVerdict::kUnknown) << name;
}

TEST(Architectures, SumsWhatNobodyCanRunAndNamesModelsItLacks) {
  const auto found = judge_architectures({{"sm_50", 100}, {"sm_75", 30}, {"sm_90", 200}},
                                         {{"Tesla T4", 3}, {"Mystery", 1}, {"NVIDIA H100", 0}});
  EXPECT_EQ(found.bytes, 330u);
  EXPECT_EQ(found.never_bytes, 300u);
  EXPECT_EQ(found.architectures[0].name, "sm_90");  // no session had an H100
  EXPECT_THAT(found.unknown_models, ElementsAre("Mystery"));
}

}  // namespace
}  // namespace varve::report
