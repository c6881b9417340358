#include "core/base/text/toml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "testing/refusal.h"

namespace varve {
namespace {

using test::refusal_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Toml, ValuesKnowTheirTypeAndLine) {
  const auto root = parse_toml(
      "name = 'x'\nmany = [1, 2]\n[inner]\nflag = true\nnumber = 1.5\nday = 2026-01-31\n[[rule]]\nkeep = 'a'\n"
      "[[rule]]\nkeep = ['b', 'c']\n",
      "f.toml");
  EXPECT_EQ(root.find("name")->text, "x");
  EXPECT_EQ(root.find("many")->array[1].integer, 2);
  const auto* inner = root.find("inner");
  EXPECT_TRUE(inner->find("flag")->flag);
  EXPECT_EQ(inner->find("number")->number, 1.5);
  EXPECT_EQ(inner->find("day")->text, "2026-01-31");
  EXPECT_EQ(toml_place("f.toml", *inner->find("flag")), "f.toml:4");
  const auto rules = toml_tables(root, "rule", "f.toml");
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_THAT(toml_strings(*rules[0], "keep", "f.toml"), ElementsAre("a"));
  EXPECT_THAT(toml_strings(*rules[1], "keep", "f.toml"), ElementsAre("b", "c"));
  EXPECT_EQ(root.find("none"), nullptr);
  EXPECT_EQ(toml_string(root, "none", "f.toml"), "");
}

TEST(Toml, RefusalsNameFileAndLine) {
  EXPECT_THAT(refusal_of<CorruptData>([] { parse_toml("a = 1\nb = = 2\n", "f.toml"); }), HasSubstr("f.toml:2: "));
  EXPECT_EQ(refusal_of<CorruptData>([] { parse_toml(std::string_view("a = 1\n[\0[a]\n", 12), "f.toml"); }),
            "f.toml:2: a control character (0)");
  const auto root = parse_toml("a = 1\nlist = ['x',\n 3]\n[t]\nb = 'x'\n", "f.toml");
  EXPECT_EQ(refusal_of<CorruptData>([&] { toml_string(root, "a", "f.toml"); }), "f.toml:1: 'a' must be a string");
  EXPECT_EQ(refusal_of<CorruptData>([&] { toml_strings(root, "list", "f.toml"); }),
            "f.toml:3: 'list' must hold strings only");
  EXPECT_EQ(refusal_of<CorruptData>([&] { toml_string(*root.find("t"), "c", "f.toml", true); }),
            "f.toml:4: 'c' is missing");
  EXPECT_EQ(refusal_of<CorruptData>([&] { toml_tables(root, "a", "f.toml"); }), "f.toml:1: 'a' must be tables: [[a]]");
  EXPECT_EQ(refusal_of<CorruptData>([&] { toml_only_keys(*root.find("t"), {"c"}, "f.toml"); }),
            "f.toml:5: 'b' is not known here");
}

// A table per dot: the library takes them apart recursively.
TEST(Toml, DeepNestingIsRefusedOrReadWithoutBreakingTheStack) {
  std::string dots = "[a";
  for (int i = 0; i < 500'000; ++i) dots += ".a";
  EXPECT_THAT(refusal_of<CorruptData>([&] { parse_toml(dots + "]\n", "deep.toml"); }),
              HasSubstr("deep.toml:1: more than 64 dots"));
  std::string nested = "x = ";
  for (int i = 0; i < 120; ++i) {
    nested += "[\n{a";
    for (int j = 0; j < 60; ++j) nested += ".a";
    nested += " = ";
  }
  nested += "1";
  for (int i = 0; i < 120; ++i) nested += "}]";
  EXPECT_EQ(parse_toml(nested, "nested.toml").find("x")->kind, TomlValue::Kind::kArray);
  EXPECT_THAT(refusal_of<CorruptData>([] { parse_toml("x = " + std::string(100'000, '['), "arrays.toml"); }),
              HasSubstr("arrays.toml:1: "));
}

}  // namespace
}  // namespace varve
