#include "core/base/glob.h"

#include <gtest/gtest.h>

#include <string>

namespace varve {
namespace {

TEST(Glob, OneStarStaysInsideAPartOfThePath) {
  EXPECT_TRUE(glob_matches("jupyter*", "jupyter-server"));
  EXPECT_TRUE(glob_matches("libcud*.so.?", "libcudart.so.9"));
  EXPECT_FALSE(glob_matches("libcud*.so.?", "libcudart.so.12"));
  EXPECT_TRUE(glob_matches("usr/*/bin", "usr/local/bin"));
  EXPECT_FALSE(glob_matches("usr/*/bin", "usr/local/x/bin"));
  EXPECT_FALSE(glob_matches("usr?bin", "usr/bin"));
  EXPECT_TRUE(glob_matches("", ""));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_FALSE(glob_matches("numpy", "numpy-stl"));
  EXPECT_TRUE(glob_matches("*", ""));
}

TEST(Glob, TwoStarsGoThroughAllParts) {
  EXPECT_TRUE(glob_matches("usr/**", "usr/local/bin/x"));
  EXPECT_TRUE(glob_matches("**/bin/x", "usr/local/bin/x"));
  EXPECT_TRUE(glob_matches("**/x", "x"));
  EXPECT_FALSE(glob_matches("**/x", "ax"));
  EXPECT_FALSE(glob_matches("**/x", "a/bx"));
  EXPECT_TRUE(glob_matches("a/**/b", "a/b"));
  EXPECT_TRUE(glob_matches("a/**/b", "a/c/d/b"));
  EXPECT_FALSE(glob_matches("a/**/b", "a/cb"));
  EXPECT_TRUE(glob_matches("a**/b", "axx/yy/b"));
  EXPECT_FALSE(glob_matches("a**/b", "ab"));
  EXPECT_TRUE(glob_matches("**/lib/lib*.so*", "nvidia/cublas/lib/libcublas.so.12"));
  EXPECT_TRUE(glob_matches("**", "any/thing"));
}

TEST(Glob, ManyStarsTakeNoMoreTimeThanLengthTimesLength) {
  std::string pattern;
  for (int i = 0; i < 500; ++i) pattern += "*a";
  EXPECT_FALSE(glob_matches(pattern + "b", std::string(5000, 'a')));
}

}  // namespace
}  // namespace varve
