#include "analyzer/packages/distribution_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varve::packages {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

notebooks::Import import_of(const std::string& name) { return {.name = name, .module = name}; }

DistributionNames names_of_image() {
  Inventory inventory;
  for (const auto* name : {"numpy", "google-cloud-storage", "google-cloud-core", "typing", "only"})
    inventory.distributions.emplace_back().normalized = name;
  inventory.modules["numpy"] = {0};
  inventory.modules["google.cloud.storage"] = {1};
  inventory.modules["google.cloud"] = {2, 1};
  inventory.modules["typing"] = {3};
  inventory.modules["lone.deep"] = {4};
  return DistributionNames::of_inventory(inventory);
}

TEST(DistributionNames, AreThoseOfTheLongestKnownPrefix) {
  const auto names = names_of_image();
  EXPECT_THAT(names.of(import_of("numpy.linalg.norm")), ElementsAre("numpy"));
  EXPECT_THAT(names.of(import_of("google.cloud.storage.blob")), ElementsAre("google-cloud-storage"));
  EXPECT_THAT(names.of(import_of("google.cloud.x")), ElementsAre("google-cloud-core", "google-cloud-storage"));
  EXPECT_THAT(names.of(import_of("lone")), ElementsAre("only")) << "a namespace in which one alone lives";
  EXPECT_THAT(names.of(import_of("google")), IsEmpty()) << "one in which several do";
  EXPECT_THAT(names.of(import_of("nump")), IsEmpty());
  EXPECT_THAT(DistributionNames().of(import_of("sklearn.svm")), ElementsAre("scikit-learn"));
  EXPECT_THAT(DistributionNames().of(import_of("Never_Heard.of")), ElementsAre("never-heard"));
}

TEST(DistributionNames, LeaveOutWhatIsLocalOrPythonsOwn) {
  const auto names = names_of_image();
  auto local = import_of("numpy");
  local.local = true;
  EXPECT_THAT(names.of(local), IsEmpty());
  EXPECT_FALSE(names.is_stdlib(local));
  EXPECT_TRUE(names.is_stdlib(import_of("os.path")));
  EXPECT_THAT(names.of(import_of("os.path")), IsEmpty());
  EXPECT_FALSE(names.is_stdlib(import_of("typing"))) << "a distribution brings it";
  EXPECT_THAT(names.of(import_of("typing")), ElementsAre("typing"));
}

TEST(DistributionNames, FindACommandByTheProgramsOfTheImage) {
  Inventory inventory;
  inventory.distributions.emplace_back().normalized = "awscli";
  inventory.distributions.emplace_back().normalized = "torch";
  inventory.distributions[1].scripts = {{.name = "torchrun", .target = "torch.distributed.run:main"}};
  inventory.path_owners["usr/local/bin/aws"] = {0};
  inventory.path_owners["usr/local/share/aws2"] = {0};
  const auto names = DistributionNames::of_inventory(inventory);
  const auto command = [](const std::string& name) {
    return notebooks::Import{.name = name, .module = "", .kind = notebooks::ImportKind::kShell};
  };
  EXPECT_THAT(names.of(command("aws")), ElementsAre("awscli"));
  EXPECT_THAT(names.of(command("torchrun")), ElementsAre("torch"));
  EXPECT_THAT(names.of(command("Torch")), ElementsAre("torch")) << "a command of the distribution's own name";
  EXPECT_THAT(names.of(command("aws2")), IsEmpty());
  EXPECT_THAT(names.of(import_of("aws")), IsEmpty()) << "a module is no program";
}

TEST(DistributionNames, TellWhetherAFolderCouldBeOne) {
  for (const auto* name : {"numpy", "google", "lone", "os"})
    EXPECT_TRUE(names_of_image().is_distribution(name)) << name;
  EXPECT_FALSE(names_of_image().is_distribution("pandas"));
  EXPECT_TRUE(DistributionNames().is_distribution("pandas"));
  EXPECT_FALSE(DistributionNames().is_distribution("helper"));
}

}  // namespace
}  // namespace varve::packages
