#include "core/base/text/safe_text.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace varve {
namespace {

std::size_t characters_in(std::string_view text) {
  return std::size_t(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(MessageText, ShowsWhatATerminalWouldObeyAndKeepsItsBackslashes) {
  EXPECT_EQ(message_text("no user '\x1b]0;x\x07' in\nC:\\\xff"), "no user '\\x1b]0;x\\x07' in C:\\\\xff");
}

TEST(MessageText, KeepsTheLinesThatGoOn) {
  EXPECT_EQ(message_text("no index:\n  one: \x1b[2J\n  two\nthree\n"), "no index:\n  one: \\x1b[2J\n  two three ");
}

TEST(PrintableTest, KeepsTextAndEscapesWhatATerminalMightObey) {
  EXPECT_EQ(printable("plain-näme-漢字-😀"), "plain-näme-漢字-😀");
  EXPECT_EQ(printable("a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
  EXPECT_EQ(printable("back\\slash"), "back\\\\slash");
  EXPECT_EQ(printable("c1:\xC2\x9B"), "c1:\\xc2\\x9b") << "a control character in UTF-8";
}

TEST(PrintableTest, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("latin\xE9"), "latin\\xe9");
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf") << "an overlong form";
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xF5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80") << "beyond Unicode";
  EXPECT_EQ(printable("\xF4\x8F\xBF\xBF"), "\xF4\x8F\xBF\xBF");
}

TEST(PrintableTest, EscapesWhatAReaderWouldNotSee) {
  EXPECT_EQ(printable("a\xE2\x80\xAEgnp"), "a\\xe2\\x80\\xaegnp");
  EXPECT_EQ(json_name("a\x1b\xE2\x80\xAE"), "a\x1b\xE2\x80\xAE");
  EXPECT_EQ(json_name("a\x1b\xFF"), "a\\x1b\\xff");
}

TEST(VisibleTest, WhatCannotBeSeenIsSpelled) {
  EXPECT_EQ(visible("numpy"), "numpy");
  EXPECT_EQ(visible("größe 数"), "größe 数");
  EXPECT_EQ(visible("a\xE2\x80\xAEgnp"), "a[U+202E]gnp");
  EXPECT_EQ(visible(std::string_view("a\0b\x1b[0m\n", 8)), "a[U+0000]b[U+001B][0m[U+000A]");
  EXPECT_EQ(visible("a\xFF\xC3"), "a\uFFFD\uFFFD");
  EXPECT_EQ(visible("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(visible("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(visible("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(VisibleTest, LongNamesLoseTheirMiddle) {
  EXPECT_EQ(visible(std::string(200, 'a'), 200), std::string(200, 'a'));
  const auto cut_short = visible(std::string(150, 'a') + std::string(150, 'b'), 30);
  EXPECT_EQ(characters_in(cut_short), 30u);
  EXPECT_EQ(cut_short, std::string(20, 'a') + "…" + std::string(9, 'b'));
  EXPECT_EQ(characters_in(visible(std::string(1 << 20, 'x'), 30)), 30u);
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "😀";
  EXPECT_EQ(characters_in(visible(many, 30)), 30u);
}

TEST(SingleLineTest, IsOneLineOfText) {
  EXPECT_EQ(single_line("a\nb\x1b[2Jc\xC2\x85"
                        "d\xE2\x80\xAE"),
            "a b [2Jc d ");
  EXPECT_EQ(single_line("a\xff"
                        "b"),
            "a\uFFFDb");
  EXPECT_EQ(single_line("größe", 4), "grö");
  EXPECT_EQ(single_line("größe", 3), "gr");
}

}  // namespace
}  // namespace varve
