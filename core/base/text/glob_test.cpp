#include "core/base/text/glob.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace varve {
namespace {

// The same by trying everything.
bool matches_slowly(std::string_view pattern, std::string_view text, char before_pattern = '/',
                    char before_text = '/') {
  if (pattern.empty()) return text.empty();
  if (pattern.starts_with("**/") && before_pattern == '/') {
    if (before_text == '/' && matches_slowly(pattern.substr(3), text, '/', before_text)) return true;
    return !text.empty() && matches_slowly(pattern, text.substr(1), before_pattern, text[0]);
  }
  const auto stars = pattern.starts_with("**") ? 2u : pattern[0] == '*' ? 1u : 0u;
  if (stars > 0) {
    if (matches_slowly(pattern.substr(stars), text, '*', before_text)) return true;
    return !text.empty() && (stars == 2 || text[0] != '/') &&
           matches_slowly(pattern, text.substr(1), before_pattern, text[0]);
  }
  if (text.empty() || (pattern[0] == '?' ? text[0] == '/' : pattern[0] != text[0])) return false;
  return matches_slowly(pattern.substr(1), text.substr(1), pattern[0], text[0]);
}

TEST(Glob, AgreesWithTryingEverything) {
  std::mt19937 random(1);
  const auto some = [&](std::string_view letters, std::size_t most) {
    std::string text;
    for (auto length = random() % (most + 1); length > 0; --length) text += letters[random() % letters.size()];
    return text;
  };
  unsigned matched = 0;
  for (int i = 0; i < 200'000; ++i) {
    const auto pattern = some("a*b/**?", 6), text = some("ab/", 6);
    const bool expected = matches_slowly(pattern, text);
    ASSERT_EQ(glob_matches(pattern, text), expected) << pattern << " on " << text;
    matched += expected;
  }
  EXPECT_GT(matched, 1'000u);
}

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
