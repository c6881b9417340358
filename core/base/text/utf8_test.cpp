#include "core/base/text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace varve {
namespace {

TEST(Utf8Test, AppendsEachLengthAndFindsItWellFormed) {
  std::string text;
  for (const std::uint32_t code : {0x00u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFDu, 0x10000u, 0x10FFFFu})
    append_utf8(code, text);
  EXPECT_EQ(text, std::string("\0\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBD\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", 20));
  EXPECT_TRUE(is_utf8(text));
}

TEST(Utf8Test, RefusesWhatIsNone) {
  for (const char* text : {"\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82"})
    EXPECT_FALSE(is_utf8(text)) << text;
}

}  // namespace
}  // namespace varve
