#include "gpu/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "testing/temp_dir.h"

namespace varve::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr std::chrono::seconds kLimit{60};

// A session is a shell that tells its command, and knows Python's folders.
class PlacesTest : public ::testing::Test {
 protected:
  std::unique_ptr<StepRunner> sessions(const std::string& script = "") {
    return run_in_sessions({.name = "the image",
                            .lazy = true,
                            .root = dir_.path(),
                            .session =
                                [this, script](const auto& root, const auto& stats) {
                                  roots_.push_back(root);
                                  EXPECT_TRUE(std::filesystem::is_directory(root));
                                  return std::vector<std::string>{
                                      "/bin/sh", "-c",
                                      "case $1 in python3) echo 'varve-gpu-probe: {\"folders\": "
                                      "[\"/x/site-packages\", \"relative\"]}';; *) echo \"$@\";; esac; " +
                                          script,
                                      stats.string()};
                                },
                            .end_store = [this](const auto& root) { ended_.push_back(root); },
                            .manifest = {}},
                           cancel_);
  }

  test::TempDir dir_;
  CancelFlag cancel_;
  std::vector<std::filesystem::path> roots_, ended_;
};

TEST_F(PlacesTest, TheProbeIsToldOnceAskedWherePythonHasItsPackages) {
  const auto runner = sessions();
  EXPECT_EQ(runner->probe({"driver"}, Store::kWarm, kLimit).out, "/run/varve/gpu-probe driver\n");
  for (const auto* step : {"gemm", "fft"})
    EXPECT_EQ(runner->probe({step}, Store::kWarm, kLimit).out,
              "/run/varve/gpu-probe " + std::string(step) + " --library-dir /x/site-packages\n");
  EXPECT_THAT(roots_, ElementsAre(dir_.path(), dir_.path(), dir_.path(), dir_.path()));
}

TEST_F(PlacesTest, AColdStepHasAStoreOfItsOwnThatGoes) {
  std::filesystem::create_directories(dir_ / "gpu" / "cold-left");
  const auto runner = sessions();
  EXPECT_THAT(ended_, ElementsAre(dir_ / "gpu" / "cold-left")) << "what a check left that was killed";
  runner->probe({"driver"}, Store::kCold, kLimit);
  ASSERT_THAT(roots_, SizeIs(1));
  EXPECT_NE(roots_[0], dir_.path());
  EXPECT_EQ(ended_.back(), roots_[0]);
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "gpu"));
}

TEST_F(PlacesTest, WhatASessionFetchedIsReadFromItsStatistics) {
  auto output =
      sessions(R"(echo '{"fetched_bytes": 5, "requests": 2}' > "$0")")->probe({"driver"}, Store::kWarm, kLimit);
  EXPECT_TRUE(output.lazy);
  EXPECT_EQ(output.fetched_bytes, 5U);
  EXPECT_EQ(output.requests, 2U);
  output = sessions()->probe({"driver"}, Store::kWarm, kLimit);
  EXPECT_FALSE(output.lazy) << "it left none";
}

TEST_F(PlacesTest, NoSessionIsNoResult) {
  const auto runner = sessions("echo first >&2; echo 'no such image' >&2; exit 125");
  EXPECT_THAT([&] { runner->probe({"driver"}, Store::kWarm, kLimit); },
              ThrowsMessage<Error>(HasSubstr("no session of the image: no such image")));
}

TEST_F(PlacesTest, ThisMachineRunsTheProbeItself) {
  EXPECT_EQ(run_on_this_machine("/bin/echo", cancel_)->probe({"driver", "x"}, Store::kWarm, kLimit).out, "driver x\n");
}

}  // namespace
}  // namespace varve::gpu
