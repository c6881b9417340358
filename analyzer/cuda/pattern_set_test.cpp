#include "analyzer/cuda/internal/pattern_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::cuda::internal {
namespace {

using ::testing::ElementsAre;

std::string matching(const PatternSet& set, std::string_view path) {
  const auto* found = set.match(path);
  return found == nullptr ? "none" : *found;
}

TEST(PatternSet, AlternativesAreWrittenOut) {
  EXPECT_THAT(alternatives("lib{a,b{c,d}}{,[.-]*}.so"),
              ElementsAre("liba.so", "liba.*.so", "liba-*.so", "libbc.so", "libbc.*.so", "libbc-*.so", "libbd.so",
                          "libbd.*.so", "libbd-*.so"));
  EXPECT_THAT(alternatives("gcc-[0-2]"), ElementsAre("gcc-0", "gcc-1", "gcc-2"));
  EXPECT_THROW(alternatives("lib{a,b"), CorruptData);
  EXPECT_THROW(alternatives("[abc"), CorruptData);
  EXPECT_THROW(alternatives("x[]"), CorruptData);
  EXPECT_THROW(alternatives("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"), CorruptData);
}

TEST(PatternSet, NamesAreBaseNamesAndEndsOfPaths) {
  const PatternSet set({"libcudart{,[.-]*}.so*", "*.cubin", "bin/**/ptxas"}, PatternSet::Slashless::kBaseName, true);
  EXPECT_EQ(matching(set, "a/b/libcudart.so.12"), "libcudart.so*");
  EXPECT_EQ(matching(set, "libcudart-1a2b.so.12.4"), "libcudart-*.so*");
  EXPECT_EQ(matching(set, "libcudart_static.a"), "none");
  EXPECT_EQ(matching(set, "libcudartx.so"), "none");
  EXPECT_EQ(matching(set, "x/k.cubin"), "*.cubin");
  EXPECT_EQ(matching(set, "bin/ptxas"), "bin/**/ptxas");
  EXPECT_EQ(matching(set, "opt/bin/sub/ptxas"), "bin/**/ptxas");
  EXPECT_EQ(matching(set, "opt/sbin/ptxas"), "none");
}

TEST(PatternSet, PathsAreWholePathsAndTheEndingTwoStarsAreTheFolderItself) {
  const PatternSet set({"usr/local/cuda*", "**/{site,dist}-packages/nvidia/**", "**/tensorflow/**/*.so*"},
                       PatternSet::Slashless::kPath);
  EXPECT_EQ(matching(set, "usr/local/cuda-12.4"), "usr/local/cuda*");
  EXPECT_EQ(matching(set, "usr/local/cuda-12.4/lib"), "none");
  EXPECT_EQ(matching(set, "x/usr/local/cuda"), "none");
  EXPECT_EQ(matching(set, "opt/lib/dist-packages/nvidia"), "**/dist-packages/nvidia");
  EXPECT_EQ(matching(set, "a/tensorflow/libx.so.2"), "**/tensorflow/**/*.so*");
  EXPECT_EQ(matching(set, "a/tensorflow/b/c/x.so"), "**/tensorflow/**/*.so*");
  EXPECT_EQ(matching(set, "a/tensorflow_io/x.so"), "none");
}

}  // namespace
}  // namespace varve::cuda::internal
