#include "core/index/merge/bytecode.h"

#include <gtest/gtest.h>

namespace varve::index {
namespace {

constexpr std::string_view kPath = "site/pkg/__pycache__/mod.cpython-311.pyc";

Bytes head_of(std::uint32_t flags, std::uint32_t time, std::uint32_t size) {
  Bytes head;
  for (const auto word : {std::uint32_t(0x0a0d0da7), flags, time, size}) append_le(head, word);
  return head;
}

TEST(Bytecode, IsOfTheSourceThatItsNameSays) {
  EXPECT_EQ(source_of_bytecode(kPath), "site/pkg/mod.py");
  EXPECT_EQ(source_of_bytecode("a/__pycache__/b.cpython-311.opt-1.pyc"), "a/b.py");
  EXPECT_EQ(source_of_bytecode("__pycache__/b.cpython-311.pyc"), "b.py");
  EXPECT_EQ(source_of_bytecode("a/b.pyc"), "a/b.py");
  EXPECT_EQ(source_of_bytecode("a/b.py"), "");
}

TEST(Bytecode, CountsAsPythonCounts) {
  const auto binding = [](const Bytes& head, std::int64_t time = 1'700'000'000, std::uint64_t size = 50) {
    return bytecode_binding(kPath, head, time, size);
  };
  EXPECT_EQ(binding(head_of(0, 1'700'000'000, 50)), BytecodeBinding::kTime);
  EXPECT_EQ(binding(head_of(0, 1'700'000'001, 50)), BytecodeBinding::kNone);
  EXPECT_EQ(binding(head_of(0, 1'700'000'000, 51)), BytecodeBinding::kNone);
  // Modulo 2^32, both of them.
  EXPECT_EQ(binding(head_of(0, 5, 7), (1ll << 32) + 5, (1ull << 32) + 7), BytecodeBinding::kTime);
  EXPECT_EQ(binding(head_of(0, 0xffffffff, 50), -1), BytecodeBinding::kTime);
  for (const auto flags : {1u, 3u}) EXPECT_EQ(binding(head_of(flags, 1, 2)), BytecodeBinding::kHash);
  // Python 3.6 has the time where later ones have flags.
  EXPECT_EQ(binding(head_of(1'700'000'000, 50, 0xe3)), BytecodeBinding::kNone);
  auto head = head_of(0, 1'700'000'000, 50);
  EXPECT_EQ(bytecode_binding("site/pkg/mod.pyc", head, 1'700'000'000, 50), BytecodeBinding::kNone);
  set_bytecode_time(head, 1'600'000'000);
  EXPECT_EQ(head, head_of(0, 1'600'000'000, 50));
  EXPECT_TRUE(set_bytecode_source(head, 1'500'000'000, 60));
  EXPECT_EQ(head, head_of(0, 1'500'000'000, 60));
  auto hashed = head_of(3, 1, 2);
  EXPECT_FALSE(set_bytecode_source(hashed, 5, 6));
  EXPECT_EQ(hashed, head_of(3, 1, 2));
  head.pop_back();
  EXPECT_EQ(binding(head, 1'500'000'000), BytecodeBinding::kNone);
  EXPECT_FALSE(set_bytecode_source(head, 1, 2));
}

}  // namespace
}  // namespace varve::index
