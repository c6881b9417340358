#include "fuse/session/gpus.h"

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
using ::testing::ThrowsMessage;

class GpusTest : public ::testing::Test {
 protected:
  CdiRegistry with(const std::vector<std::string>& names) {
    std::string devices;
    for (const auto& name : names) devices += fmt::format("{}{{\"name\": \"{}\"}}", devices.empty() ? "" : ", ", name);
    std::ofstream(dir_ / "nvidia.json") << R"({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [)"
                                        << devices << "]}";
    return CdiRegistry::read({dir_.path()});
  }
  test::TempDir dir_;
};

TEST_F(GpusTest, WordsAndNumbers) {
  const auto machine = with({"0", "1", "10", "2", "GPU-4cf8db2d", "all"});
  EXPECT_THAT(select_gpus(machine, "all"), ElementsAre("nvidia.com/gpu=all"));
  EXPECT_THAT(select_gpus(machine, "none"), IsEmpty());
  EXPECT_THAT(select_gpus(machine, "3"), ElementsAre("nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=2"));
  EXPECT_THAT(select_gpus(with({"0", "1"}), "all"), ElementsAre("nvidia.com/gpu=0", "nvidia.com/gpu=1"));
  EXPECT_THAT([&] { select_gpus(machine, "5"); }, ThrowsMessage<NotFound>(HasSubstr("describes 4 GPUs")));
  EXPECT_THAT([&] { select_gpus(machine, "-1"); },
              ThrowsMessage<UsageError>(HasSubstr("write all, none, or how many")));
}

TEST_F(GpusTest, AMachineWithoutGpusIsToldWhatToDo) {
  EXPECT_THAT([] { select_gpus(CdiRegistry::read({}), "all"); },
              ThrowsMessage<NotFound>(HasSubstr("nvidia-ctk cdi generate")));
  EXPECT_THAT(select_gpus(CdiRegistry::read({}), "none"), IsEmpty());
  std::ofstream(dir_ / "broken.json") << "{";
  EXPECT_THAT([&] { select_gpus(CdiRegistry::read({dir_.path()}), "1"); },
              ThrowsMessage<NotFound>(HasSubstr("broken.json")));
}

// As NVIDIA's CUDA 12.4 images have it, shortened.
const std::string kRequire =
    "NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 "
    "brand=tesla,driver>=535,driver<536";

TEST(UnmetRequirements, AnAlternativeIsEnough) {
  EXPECT_THAT(unmet_requirements({kRequire}, "550.54.15"), IsEmpty());
  EXPECT_THAT(unmet_requirements({kRequire}, "535.104.05"), IsEmpty()) << "by minor version compatibility";
  EXPECT_THAT(unmet_requirements({kRequire}, "470.223.02"), IsEmpty());
  EXPECT_THAT(unmet_requirements({kRequire}, "525.60.13"), ElementsAre(HasSubstr("NVIDIA_REQUIRE_CUDA=cuda>=12.4")));
  EXPECT_THAT(unmet_requirements({kRequire}, "610.1"), IsEmpty()) << "newer than the table";
}

TEST(UnmetRequirements, WhatIsNotJudged) {
  EXPECT_THAT(unmet_requirements({kRequire, "NVIDIA_DISABLE_REQUIRE=1"}, "525.60.13"), IsEmpty());
  EXPECT_THAT(unmet_requirements({kRequire}, ""), IsEmpty()) << "no driver";
  EXPECT_THAT(unmet_requirements({"NVIDIA_REQUIRE_JETPACK=csv-mounts=all", "NVIDIA_REQUIRE_CUDA=",
                                  "NVIDIA_REQUIRE_X=arch>=7.0", "NVIDIA_REQUIRE_Y=cuda>=x", "NVIDIA_REQUIRE_Z", ""},
                                 "525.60.13"),
              IsEmpty());
  EXPECT_THAT(unmet_requirements({"NVIDIA_REQUIRE_DRIVER=driver>=525.60.14"}, "525.60.13"),
              ElementsAre(HasSubstr("driver is 525.60.13")));
}

}  // namespace
}  // namespace varve::fuse
