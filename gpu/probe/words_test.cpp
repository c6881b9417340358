#include "gpu/probe/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/probe/step.h"
#include "testing/refusal.h"

namespace varve::gpu::probe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

std::string complaint(const Arguments& arguments) {
  return test::refusal_of<WrongUsage>([&] { parse_words(arguments); });
}

TEST(ProbeWordsTest, AStepAloneLeavesEverythingAsTheStepHasIt) {
  const auto words = parse_words({"driver"});
  EXPECT_EQ(words.step, "driver");
  EXPECT_FALSE(words.help);
  EXPECT_FALSE(words.device.has_value());
  EXPECT_EQ(words.size, 0u);
  EXPECT_EQ(words.repetitions, 9);
  EXPECT_THAT(words.folders, IsEmpty());
}

TEST(ProbeWordsTest, OptionsStandAnywhereInBothSpellings) {
  const auto words = parse_words(
      {"--device=3", "gemm", "--size", "64", "--library-dir", "/a", "--repetitions", "1000", "--library-dir=/b=c"});
  EXPECT_EQ(words.step, "gemm");
  EXPECT_EQ(words.device, 3);
  EXPECT_EQ(words.size, 64u);
  EXPECT_EQ(words.repetitions, 1000);
  EXPECT_THAT(words.folders, ElementsAre("/a", "/b=c"));
}

TEST(ProbeWordsTest, NumbersMayBeHexadecimalAndHaveLimits) {
  EXPECT_EQ(parse_words({"driver", "--device", "0x10"}).device, 16);
  EXPECT_EQ(parse_words({"driver", "--device", "1048576"}).device, 1 << 20);
  EXPECT_EQ(parse_words({"driver", "--size", "1073741824"}).size, std::size_t(1) << 30);
  for (const auto* bad : {"x", "-1", "1048577", "1.5", "1 ", "99999999999999999999"})
    EXPECT_EQ(complaint({"driver", "--device", bad}),
              "--device: Value " + std::string(bad) + " not in range 0 to 1048576");
  EXPECT_EQ(complaint({"driver", "--size", "0"}), "--size: Value 0 not in range 1 to 1073741824");
  EXPECT_EQ(complaint({"driver", "--repetitions=0"}), "--repetitions: Value 0 not in range 1 to 1000");
  EXPECT_EQ(complaint({"driver", "--repetitions", "1001"}), "--repetitions: Value 1001 not in range 1 to 1000");
}

TEST(ProbeWordsTest, AnOptionTakesTheNextWordWhateverItLooksLike) {
  EXPECT_EQ(complaint({"driver", "--device", "--help"}), "--device: Value --help not in range 0 to 1048576");
  EXPECT_EQ(complaint({"driver", "--size=", "--foo"}), "--size: Value --foo not in range 1 to 1073741824");
  EXPECT_EQ(complaint({"driver", "--device"}), "--device: 1 required INT:INT in [0 - 1048576] missing");
  EXPECT_EQ(complaint({"driver", "--library-dir="}), "--library-dir: 1 required DIR missing");
}

TEST(ProbeWordsTest, AStepIsNeededAndMustBeThere) {
  EXPECT_EQ(complaint({}), "STEP is required");
  EXPECT_EQ(complaint({"--foo"}), "STEP is required");
  EXPECT_EQ(complaint({"nothing", "more"}), "STEP: there is no step nothing");
  EXPECT_EQ(complaint({"-"}), "STEP: there is no step -");
}

TEST(ProbeWordsTest, WhatIsNotKnownIsRefused) {
  EXPECT_EQ(complaint({"driver", "extra"}), "The following argument was not expected: extra");
  EXPECT_EQ(complaint({"driver", "-x"}), "The following argument was not expected: -x");
  EXPECT_EQ(complaint({"driver", "--dev", "1"}), "The following arguments were not expected: 1 --dev");
  EXPECT_EQ(complaint({"driver", "--library-dir", "/a", "/b"}), "The following argument was not expected: /b");
  EXPECT_EQ(complaint({"--device", "1", "--device", "2", "driver"}), "--device: At Most 1 required but received 2");
}

TEST(ProbeWordsTest, BehindTwoDashesThereAreNoOptions) {
  EXPECT_EQ(parse_words({"--", "driver"}).step, "driver");
  EXPECT_EQ(parse_words({"driver", "--"}).step, "driver");
  EXPECT_EQ(complaint({"--", "driver", "--help"}), "The following arguments were not expected: --help --");
}

TEST(ProbeWordsTest, HelpComesBeforeWhatIsMissingAndTooMuchButNotBeforeWrongValues) {
  for (const auto& arguments : {Arguments{"--help"}, Arguments{"-h", "driver", "extra"}, Arguments{"driver", "--help"}})
    EXPECT_TRUE(parse_words(arguments).help);
  EXPECT_EQ(complaint({"--help", "--device", "x"}), "--device: Value x not in range 0 to 1048576");
}

TEST(ProbeWordsTest, HelpNamesEveryStepAndOption) {
  const auto text = help_text("/bin/probe");
  EXPECT_THAT(text, AllOf(StartsWith("Checks the GPU"), HasSubstr("\nUsage: /bin/probe [OPTIONS] STEP\n"),
                          HasSubstr("--device "), HasSubstr("--size "), HasSubstr("--repetitions "),
                          HasSubstr("--library-dir ")));
  for (const auto& entry : step_entries()) EXPECT_THAT(text, HasSubstr("\n  " + std::string(entry.name) + " "));
}

}  // namespace
}  // namespace varve::gpu::probe
