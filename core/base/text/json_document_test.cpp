#include "core/base/text/json_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "testing/refusal.h"

namespace varve {
namespace {

using test::refusal_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

JsonValue parse(std::string_view text, const JsonLimits& limits = {}) {
  return JsonValue::parse(text, "list.json", limits);
}

TEST(JsonDocument, ReadsWhatIsThere) {
  const auto document = parse(R"({"name": "a", "size": 18446744073709551615, "low": -3, "share": 0.5, "on": true,
      "list": [{"n": 1}, {"n": 2}], "words": ["x", "y"], "labels": {"b": "2", "a": "1"}, "raw": "YWI="})");
  EXPECT_EQ(document["name"].text(), "a");
  EXPECT_EQ(document["size"].number(), ~std::uint64_t(0));
  EXPECT_EQ(document["low"].number<int>(), -3);
  EXPECT_EQ(document["share"].real(0, 1), 0.5);
  EXPECT_TRUE(document["on"].flag());
  EXPECT_EQ(document["list"].items()[1]["n"].number<int>(), 2);
  EXPECT_THAT(document["words"].texts(), ElementsAre("x", "y"));
  EXPECT_THAT(document["labels"].texts_by_name(), ElementsAre(Pair("a", "1"), Pair("b", "2")));
  EXPECT_EQ(as_text(document["raw"].base64()), "ab");
  EXPECT_EQ(parse("{\"d\": \"" + digest_of("x").to_string() + "\"}")["d"].digest(), digest_of("x"));
}

TEST(JsonDocument, WhatMayBeAbsentReadsAsNothing) {
  const auto document = parse(R"({"null": null})");
  for (const auto* name : {"null", "none"}) {
    const auto member = document.maybe(name);
    EXPECT_FALSE(member);
    EXPECT_EQ(member.text(), "");
    EXPECT_EQ(member.number(), 0u);
    EXPECT_EQ(member.number<int>(), 0);
    EXPECT_FALSE(member.flag());
    EXPECT_THAT(member.items(), IsEmpty());
    EXPECT_THAT(member.texts_by_name(), IsEmpty());
    EXPECT_TRUE(member.raw().is_null());
    EXPECT_EQ(member.maybe("deeper").text(), "");
  }
}

TEST(JsonDocument, ErrorsNameTheDocumentAndThePlace) {
  const auto document = parse(R"({"list": [{}, {"digest": "md5", "size": -1, "x": null}], "size": 256, "share": 2})");
  const auto item = document["list"].items()[1];
  EXPECT_EQ(refusal_of<CorruptData>([&] { document["none"]; }), "list.json: \"none\" is missing");
  EXPECT_EQ(refusal_of<CorruptData>([&] { item["none"]; }), "list.json: \"list[1].none\" is missing");
  EXPECT_EQ(refusal_of<CorruptData>([&] { item["x"].text(); }),
            "list.json: \"list[1].x\" must be a string, but is null");
  EXPECT_EQ(refusal_of<CorruptData>([&] { item["digest"].digest(); }),
            "list.json: \"list[1].digest\": 'md5' is not a sha256 digest");
  EXPECT_EQ(refusal_of<CorruptData>([&] { item["size"].number<std::uint8_t>(); }),
            "list.json: \"list[1].size\" must be a whole number from 0 to 255");
  EXPECT_EQ(refusal_of<CorruptData>([&] { document["size"].number<std::uint8_t>(); }),
            "list.json: \"size\" must be a whole number from 0 to 255");
  EXPECT_EQ(refusal_of<CorruptData>([&] { document["size"].number<int>(0, 100); }),
            "list.json: \"size\" must be a whole number from 0 to 100");
  EXPECT_EQ(refusal_of<CorruptData>([&] { document["share"].real(0, 1); }),
            "list.json: \"share\" must be a number from 0 to 1");
  EXPECT_EQ(refusal_of<CorruptData>([&] { document["share"].flag(); }),
            "list.json: \"share\" must be true or false, but is number");
  EXPECT_EQ(refusal_of<CorruptData>([&] { document["share"]["x"]; }),
            "list.json: \"share\" must be an object, but is number");
  EXPECT_EQ(refusal_of<CorruptData>([&] { document["size"].items(); }),
            "list.json: \"size\" must be an array, but is number");
  EXPECT_EQ(refusal_of<CorruptData>([&] { parse("[]")["x"]; }), "list.json: must be an object, but is array");
  EXPECT_EQ(refusal_of<CorruptData>([&] {
              document.only({"list", "size"});
            }),
            "list.json: \"share\" is not known here");
  EXPECT_EQ(refusal_of<CorruptData>([&] { item["digest"].base64(); }), "list.json: \"list[1].digest\" is no base64");
  EXPECT_EQ(refusal_of<CorruptData>([&] { item["digest"].refuse("is odd"); }), "list.json: \"list[1].digest\" is odd");
  EXPECT_EQ(refusal_of<CorruptData>([] { parse("{\"a\\u001b[2J\": 1}").only({}); }),
            "list.json: \"a\\x1b[2J\" is not known here");
}

TEST(JsonDocument, NumbersOutsideTheirTypeAreRefused) {
  const auto document = parse("[18446744073709551615, -9223372036854775808, 1.0, \"1\"]").items();
  EXPECT_THROW(document[0].number<std::int64_t>(), CorruptData);
  EXPECT_EQ(document[1].number<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
  EXPECT_THROW(document[1].number<int>(), CorruptData);
  EXPECT_THROW(document[2].number(), CorruptData);
  EXPECT_THROW(document[3].number(), CorruptData);
  EXPECT_THROW(document[3].real(0, 10), CorruptData);
}

TEST(JsonDocument, WhatIsNoJsonIsRefusedWithItsPlace) {
  EXPECT_THAT(refusal_of<CorruptData>([] { parse("{\"a\": 1,}"); }), HasSubstr("list.json: no valid JSON at byte"));
  EXPECT_THAT(refusal_of<CorruptData>([] { parse(""); }), HasSubstr("no valid JSON"));
  EXPECT_THAT(refusal_of<CorruptData>([] { parse("{} x"); }), HasSubstr("no valid JSON"));
  EXPECT_THAT(refusal_of<CorruptData>([] { parse("\"\xff\""); }), HasSubstr("no valid JSON"));
  EXPECT_THAT(refusal_of<CorruptData>([] { parse("1e999"); }), HasSubstr("out of range"));
}

TEST(JsonDocument, LimitsBoundWhatASmallDocumentCanAskFor) {
  EXPECT_THROW(parse("[[[]]]", {.depth = 2}), Unsupported);
  EXPECT_NO_THROW(parse("[[\"[[[[\"]]", {.depth = 2}));
  EXPECT_THROW(parse("[1,2,3]", {.values = 3}), Unsupported);
  EXPECT_THROW(parse("[1,2,3]", {.bytes = 6}), Unsupported);
  EXPECT_THROW(parse(std::string(1'000'000, '['), {}), Unsupported);
  EXPECT_THROW(parse("[1,2,3]").items(2), Unsupported);
  EXPECT_THROW(parse("\"abc\"").text(2), Unsupported);
}

TEST(JsonDocument, RepeatedMembersAreRefusedWhereTheyMayMeanTwoThings) {
  constexpr std::string_view kTwice = R"({"a": {"b": 1, "c": 2, "b": 3}})";
  EXPECT_EQ(parse(kTwice)["a"]["b"].number(), 3u);
  EXPECT_EQ(refusal_of<CorruptData>([&] { parse(kTwice, {.repeated_members = false}); }),
            "list.json: the member \"b\" stands there twice");
  EXPECT_NO_THROW(parse(R"([{"a": {"a": 1}}, {"a": 2}])", {.repeated_members = false}));
}

TEST(JsonDocument, LivesAsLongAsOneOfItsValues) {
  const auto inner = parse(R"({"a": {"b": ["deep"]}})")["a"]["b"];
  EXPECT_THAT(inner.texts(), ElementsAre("deep"));
}

}  // namespace
}  // namespace varve
