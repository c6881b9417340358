#include "analyzer/cuda/gpu_architectures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varve::cuda {
namespace {

using ::testing::Optional;

TEST(GpuArchitectures, AreKnownByTheirNames) {
  EXPECT_THAT(gpu_architecture_named("sm_80"), Optional(80u));
  EXPECT_THAT(gpu_architecture_named("sm_90a"), Optional(90u));
  EXPECT_THAT(gpu_architecture_named("sm_100f"), Optional(100u));
  for (const char* wrong : {"", "80", "sm_", "sm_a", "sm_81", "sm_080", "sm_80x", "sm_80aa", "SM_80", "compute_80",
                            "sm_4294967376", "sm_+80", "sm_ 80"})
    EXPECT_EQ(gpu_architecture_named(wrong), std::nullopt) << wrong;
  for (const auto one : known_gpu_architectures())
    EXPECT_THAT(gpu_architecture_named(gpu_architecture_name(one)), Optional(one));
  EXPECT_EQ(names_of({75, 90}), "sm_75, sm_90");
}

TEST(GpuArchitectures, AreKnownOfModelsAsDriversNameThem) {
  const std::pair<const char*, std::uint32_t> models[] = {
      {"Tesla K80", 37},
      {"Tesla P100-PCIE-16GB", 60},
      {"Tesla P4", 61},
      {"NVIDIA GeForce GTX 1080 Ti", 61},
      {"Tesla V100-SXM2-16GB", 70},
      {"Tesla V100S-PCIE-32GB", 70},
      {"NVIDIA TITAN V", 70},
      {"Tesla T4", 75},
      {"TITAN RTX", 75},
      {"NVIDIA GeForce GTX 1660 SUPER", 75},
      {"Quadro RTX 8000", 75},
      {"NVIDIA GeForce RTX 2080 Ti", 75},
      {"NVIDIA A100-SXM4-80GB", 80},
      {"NVIDIA A100-SXM4-40GB MIG 1g.5gb", 80},
      {"GRID A100X-40C", 80},
      {"NVIDIA A30", 80},
      {"NVIDIA A10G", 86},
      {"NVIDIA A40-48Q", 86},
      {"NVIDIA RTX A6000", 86},
      {"NVIDIA GeForce RTX 3090", 86},
      {"NVIDIA L4", 89},
      {"NVIDIA L40S", 89},
      {"NVIDIA RTX 6000 Ada Generation", 89},
      {"NVIDIA GeForce RTX 4060 Laptop GPU", 89},
      {"NVIDIA H100 80GB HBM3", 90},
      {"NVIDIA H200", 90},
      {"NVIDIA GH200 480GB", 90},
      {"NVIDIA B200", 100},
      {"NVIDIA GB300", 103},
      {"NVIDIA GeForce RTX 5090", 120},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", 120},
      {"NVIDIA GB10", 121},
  };
  for (const auto& [model, architecture] : models)
    EXPECT_THAT(gpu_architecture_of_model(model), Optional(architecture)) << model;
  for (const char* unknown : {"", "NVIDIA", "NVIDIA Graphics Device", "AMD Instinct MI300X", "NVIDIA R100",
                              "NVIDIA GeForce RTX 6090", "T4000000000000", "NVIDIA GeForce RTX"})
    EXPECT_EQ(gpu_architecture_of_model(unknown), std::nullopt) << unknown;
}

TEST(GpuArchitectures, RunCodeOfTheirMajorVersionUpToTheirMinorOne) {
  EXPECT_TRUE(runs_machine_code(80, 80, 0));
  EXPECT_TRUE(runs_machine_code(86, 80, 0));
  EXPECT_TRUE(runs_machine_code(89, 86, 0));
  EXPECT_FALSE(runs_machine_code(80, 86, 0));
  EXPECT_FALSE(runs_machine_code(90, 80, 0));
  EXPECT_FALSE(runs_machine_code(80, 75, 0));
  EXPECT_TRUE(runs_machine_code(75, 70, 0));
  EXPECT_TRUE(runs_machine_code(90, 90, 'a'));
  EXPECT_FALSE(runs_machine_code(103, 100, 'a'));
  EXPECT_TRUE(runs_machine_code(103, 100, 'f'));
  EXPECT_FALSE(runs_machine_code(120, 100, 'f'));
  EXPECT_TRUE(runs_machine_code(110, 101, 'a')) << "Thor under its older name";
  EXPECT_TRUE(runs_machine_code(101, 110, 0));
  EXPECT_FALSE(runs_machine_code(100, 101, 0));
}

}  // namespace
}  // namespace varve::cuda
