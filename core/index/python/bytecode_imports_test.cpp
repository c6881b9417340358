#include "core/index/python/bytecode_imports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "testing/made_bytecode.h"

namespace varve::index {
namespace {

using Made = test::MadeBytecode;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> said(const Bytes& bytes) {
  const auto imports = imports_of(bytes);
  if (!imports) return {"no bytecode"};
  std::vector<std::string> said;
  for (const auto& import : *imports) {
    std::string line = std::string(import.level, '.') + std::string(import.name);
    for (const auto& member : import.members) line.append(" ").append(member);
    said.push_back(line);
  }
  return said;
}

TEST(BytecodeImportsTest, AbsoluteRelativeAndWithMembers) {
  Made made;
  made.import("os.path");
  made.import("a.b", 2, {"c", "d"});
  made.import("", 1, {"e"});
  made.import("", 0);
  EXPECT_THAT(said(made.make()), ElementsAre("os.path", "..a.b c d", ". e"));
}

TEST(BytecodeImportsTest, WhatAConditionDecidesOnIsLeftOut) {
  for (const auto jump : {114, 115, 128, 129}) {
    Made made;
    made.import("before");
    made.add(std::uint8_t(jump), 3);  // instructions
    made.import("maybe");
    made.import("behind");
    made.add(std::uint8_t(jump), 4);
    made.import("maybe2");
    made.add(Made::kJumpForward, 3);
    made.import("otherwise");
    made.import("last");
    EXPECT_THAT(said(made.make()), ElementsAre("before", "behind", "last")) << jump;
  }
}

// if a or b: ... else: if c: ...
TEST(BytecodeImportsTest, ConditionsMayHaveSeveralJumps) {
  Made made;
  made.add(115, 1);  // to what follows
  made.add(Made::kJumpIfFalse, 4);
  made.import("maybe");
  made.add(Made::kJumpForward, 8);
  made.add(Made::kJumpIfFalse, 4);
  made.import("maybe2");
  made.add(Made::kJumpForward, 3);
  made.import("otherwise");
  made.import("last");
  EXPECT_THAT(said(made.make()), ElementsAre("last"));
}

TEST(BytecodeImportsTest, JumpsBehindTheEndOrNowhereAreNone) {
  for (const auto distance : {0, 4, 255}) {
    Made made;
    made.add(Made::kJumpIfFalse, std::uint8_t(distance));
    made.import("a");
    EXPECT_THAT(said(made.make()), ElementsAre("a")) << distance;
  }
  Made made;
  made.add(Made::kJumpIfFalse, 1);
  made.add(Made::kJumpForward, 200);
  made.import("a");
  EXPECT_THAT(said(made.make()), ElementsAre("a"));
}

// As those of 3.8, in bytes, and of 3.10, in instructions.
TEST(BytecodeImportsTest, OlderJumpsAreToPlaces) {
  for (const std::uint16_t magic : {3413, 3439}) {
    Made made(magic, 6);
    made.import("before");
    made.add(Made::kJumpIfFalse, magic == 3413 ? 14 : 7);
    made.import("maybe");
    made.import("behind");
    made.add(Made::kJumpIfFalse, 2);  // a loop
    made.import("last");
    EXPECT_THAT(said(made.make()), ElementsAre("before", "behind", "last")) << magic;
  }
}

TEST(BytecodeImportsTest, LargeArgumentsAreInTwoInstructions) {
  Made made;
  for (int i = 0; i < 200; ++i) made.name("x");
  made.add(Made::kExtended, 0);
  made.import("late");
  made.add(Made::kExtended, 1);
  made.add(Made::kImportName, 0);  // 256: there is no such name
  EXPECT_THAT(said(made.make()), ElementsAre("late"));
}

TEST(BytecodeImportsTest, OtherVersionsAreNotRead) {
  for (const auto magic : {3394, 3424, 3494, 3570, 3627, 0})
    EXPECT_THAT(said(Made(std::uint16_t(magic)).make()), ElementsAre("no bytecode")) << magic;
  for (const auto magic : {3413, 3425, 3439})
    EXPECT_THAT(said(Made(std::uint16_t(magic), 6).make()), IsEmpty()) << magic;
  EXPECT_THAT(said(Made(3531).make()), IsEmpty());
  EXPECT_FALSE(imports_of({}));
  EXPECT_FALSE(imports_of(as_bytes("import os\nimport sys\n")));
}

TEST(BytecodeImportsTest, ObjectsAreSharedByNumber) {
  Made made;
  const auto zero = made.constant(Made::number(0));
  const auto members = made.constant(
      "\xA9"
      "\x01"
      "\xFA"
      "\x01"
      "m");  // a tuple, number 1, of a text, number 2
  const auto same = made.constant("r" + Made::number(1).substr(1));
  made.add(Made::kLoadConst, zero);
  made.add(Made::kLoadConst, members);
  made.add(Made::kImportName, made.name("a"));
  made.add(Made::kLoadConst, zero);
  made.add(Made::kLoadConst, same);
  made.add(Made::kImportName, made.name("b"));
  EXPECT_THAT(said(made.make()), ElementsAre("a m", "b m"));
  Made wrong;
  wrong.constant("r" + Made::number(7).substr(1));
  EXPECT_THAT(said(wrong.make()), ElementsAre("no bytecode"));
}

// Each tuple has the one before twice: 2^60 of the first, if one counts them.
TEST(BytecodeImportsTest, TuplesInTuplesTakeNoMoreThanTheirBytes) {
  Made made;
  made.constant(
      "\xA9"
      "\x01"
      "N");
  for (std::uint32_t i = 1; i < 60; ++i)
    made.constant(
        "\xA9"
        "\x02"
        "r" +
        Made::number(i).substr(1) + "r" + Made::number(i).substr(1));
  made.import("a");
  EXPECT_THAT(said(made.make()), ElementsAre("a"));
  Made deep;
  deep.constant(std::string(200'000, '[') + "N");
  EXPECT_THAT(said(deep.make()), ElementsAre("no bytecode"));
}

TEST(BytecodeImportsTest, DamagedBytesAreNoBytecode) {
  Made made;
  made.import("a.b", 2, {"c", "d"});
  made.constant("[" + Made::number(2).substr(1) + "NN");
  made.constant(
      "{"
      "Ni\1\2\3\4"
      "0");
  made.constant("l" + Made::number(std::uint32_t(-2)).substr(1) + "1234");
  made.constant("g12345678");
  made.constant("y1234567812345678");
  const auto bytes = made.make();
  ASSERT_THAT(said(bytes), ElementsAre("..a.b c d"));
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(imports_of(ByteView(bytes).first(size))) << size;
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    auto changed = bytes;
    for (int j = 0; j < 3; ++j) changed[16 + random() % (changed.size() - 16)] = std::byte(random());
    const auto imports = imports_of(changed);
    EXPECT_LE(imports ? imports->size() : 0, kMaxImports);
  }
}

// A tuple that is met in a function first.
TEST(BytecodeImportsTest, WhatFunctionsHaveMayBeReferredTo) {
  Made made;
  const auto zero = made.constant(Made::number(0));
  made.constant("(" + Made::number(1).substr(1) + "(" + Made::number(1).substr(1) +
                "\xA9"
                "\x01"
                "z\x01m");
  const auto same = made.constant("r" + Made::number(1).substr(1));
  made.add(Made::kLoadConst, zero);
  made.add(Made::kLoadConst, same);
  made.add(Made::kImportName, made.name("a"));
  EXPECT_THAT(said(made.make()), ElementsAre("a m"));
}

TEST(BytecodeImportsTest, HoldsItsBounds) {
  Made made;
  made.import("a", 0, std::vector<std::string>(127, "m"));
  for (std::size_t i = 0; i < 2 * kMaxImports; ++i) made.add(Made::kImportName, 0);
  const auto bytes = made.make();
  const auto imports = imports_of(bytes);
  ASSERT_TRUE(imports);
  EXPECT_THAT(*imports, SizeIs(kMaxImports));
  std::size_t members = 0;
  for (const auto& import : *imports) members += import.members.size();
  EXPECT_EQ(members, kMaxImportMembers);
}

// An object in each byte: most are not kept, so that what comes behind is taken for nothing.
TEST(BytecodeImportsTest, ManyLargeTuplesAreNotKept) {
  Made made;
  for (int i = 0; i < 100; ++i) made.constant("(" + Made::number(65'536).substr(1) + std::string(65'536, 'N'));
  made.import("a");
  EXPECT_THAT(said(made.make()), ElementsAre("a"));
}

}  // namespace
}  // namespace varve::index
