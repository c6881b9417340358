// `varve gpu-check` as far as it goes without a GPU; tests/gpu runs all of it on made-up libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "testing/temp_dir.h"
#include "tests/cli/program.h"

namespace varve::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class GpuCheckTest : public ::testing::Test {
 protected:
  Outcome check(std::vector<std::string> words) {
    words.insert(words.begin(), {"gpu-check", "--root", (dir_ / "root").string()});
    return varve(std::move(words));
  }
  // No specification describes a device, and no driver is loaded: sessions can have no GPU.
  std::vector<std::string> without_gpu(std::vector<std::string> words) {
    std::filesystem::create_directories(dir_ / "cdi");
    words.insert(words.end(), {"--cdi-spec-dir", (dir_ / "cdi").string()});
    return words;
  }
  void SetUp() override {
    if (std::filesystem::exists("/proc/driver/nvidia/version")) GTEST_SKIP() << "this machine has a driver";
  }

  TempDir dir_;
  ScopedVariable config_{"VARVE_CONFIG", "/dev/null"};
};

TEST_F(GpuCheckTest, WithoutADriverItIsSkippedWithOneLine) {
  for (const auto& words :
       {std::vector<std::string>{}, without_gpu({"--rootfs", "/"}), without_gpu({"oci:/no/such/image:tag"})}) {
    const auto outcome = check(words);
    EXPECT_EQ(outcome.status, 77) << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("varve: skipped: no GPU: "));
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(GpuCheckTest, JsonSaysWhyThereAreNoChecks) {
  const auto document = nlohmann::json::parse(check({"--json"}).out);
  EXPECT_NE(document["no_gpu"].get<std::string>(), "");
  EXPECT_EQ(document["lineage"], "this machine");
}

TEST_F(GpuCheckTest, AGpuThatIsRequiredIsAFinding) {
  const auto outcome = check({"--json", "--require", "driver"});
  EXPECT_EQ(outcome.status, 3) << outcome.err;
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["ok"], false);
  EXPECT_THAT(document["checks"][1]["detail"].get<std::string>(), StartsWith("required, but skipped: "));
}

TEST_F(GpuCheckTest, ItLeavesNothingButTheProbeAndItsLock) {
  check({});
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "root" / "gpu"))
    left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("lock", StartsWith("varve-gpu-probe-")));
}

TEST_F(GpuCheckTest, AProbeThatSomebodySpoiltIsWrittenAnew) {
  check({});
  std::filesystem::path probe;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "root" / "gpu"))
    if (entry.path().filename() != "lock") probe = entry.path();
  const auto size = std::filesystem::file_size(probe);
  std::filesystem::resize_file(probe, size / 2);
  EXPECT_EQ(check({}).status, 77);
  EXPECT_EQ(std::filesystem::file_size(probe), size);
}

TEST_F(GpuCheckTest, TheListNamesEveryStepWithItsLimit) {
  const auto document = nlohmann::json::parse(check({"--list", "--json"}).out);
  EXPECT_EQ(document["steps"][0]["name"], "manifest");
  for (const auto& step : document["steps"]) EXPECT_GT(step["limit_seconds"].get<int>(), 0);
  EXPECT_THAT(check({"--list"}).out, HasSubstr("cuBLAS"));
}

TEST_F(GpuCheckTest, WrongUsageIsStatusTwo) {
  const std::vector<std::vector<std::string>> cases = {{"--only", "gem"},
                                                       {"--require", "x"},
                                                       {"oci:x", "--rootfs", "/"},
                                                       {"--cold"},
                                                       {"--manifest", "x"},
                                                       {"--limit", "0"},
                                                       {"--rootfs", "/", "--manifest", "x"},
                                                       {"--repetitions", "0"},
                                                       {"--size", "gemm"},
                                                       {"--size", "gemm=0"},
                                                       {"--size", "x=1"},
                                                       {"--pairs", "2"},
                                                       {"--ab", "oci:x", "--ab-rootfs", "/"},
                                                       {"oci:x", "--ab", "oci:y", "--cold"}};
  for (const auto& words : cases) EXPECT_EQ(check(words).status, 2) << words.front();
}

}  // namespace
}  // namespace varve::test
