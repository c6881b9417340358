#include "cli/text.h"

#include <gtest/gtest.h>

#include <sstream>

namespace varve::cli {
namespace {

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

TEST(PrintTableTest, AlignsNumbersRightAndWordsLeft) {
  std::ostringstream out;
  print_table(out, {{"NAME", "BYTES"}, {"a", "5 B"}, {"longer", "1234 B"}});
  EXPECT_EQ(out.str(),
            "NAME     BYTES\n"
            "a          5 B\n"
            "longer  1234 B\n");
}

}  // namespace
}  // namespace varve::cli
