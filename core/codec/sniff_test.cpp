#include "core/codec/sniff.h"

#include <gtest/gtest.h>

#include "core/codec/span_decoder.h"
#include "testing/codec_support.h"

namespace varve::codec {
namespace {

using namespace test;

Bytes from_hex(std::string_view hex) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(std::byte(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

TEST(SniffTest, KnowsContainersByTheirFirstBytes) {
  EXPECT_EQ(sniff(gzip(random_bytes(1000))), Container::kGzip);
  EXPECT_EQ(sniff(compress_zstd(random_bytes(1000), 3)), Container::kZstd);
  EXPECT_EQ(sniff(from_hex("5f2a4d1800000000")), Container::kZstd) << "a skippable frame";
  EXPECT_EQ(sniff(random_bytes(512)), Container::kUnknown);
  EXPECT_EQ(sniff(as_bytes("short")), Container::kUnknown);
}

TEST(SniffTest, NothingAndZerosAreAnEmptyTar) {
  EXPECT_EQ(sniff({}), Container::kTar);
  EXPECT_EQ(sniff(Bytes(512)), Container::kTar);
  EXPECT_EQ(sniff(Bytes(10)), Container::kTar);
}

TEST(SniffTest, KnowsTarsOfAllDialects) {
  for (const auto* format : {"v7", "oldgnu", "gnu", "ustar", "pax"}) {
    const auto tar = run_tool(std::string("tar -cf - --format=") + format + " in", random_bytes(100));
    EXPECT_EQ(sniff(ByteView(tar).first(512)), Container::kTar) << format;
    auto broken = to_bytes(ByteView(tar).first(512));
    broken[0] ^= std::byte(1);
    EXPECT_EQ(sniff(broken), Container::kUnknown) << format;
  }
}

// The footers as the documents of the formats spell them.
TEST(SniffTest, KnowsFootersOfEstargz) {
  // Table at 0x49917.
  const auto footer = from_hex(
      "1f8b08040000000000ff1a005347160030303030303030303030303439393137"
      "53544152475a"
      "010000ffff0000000000000000");
  ASSERT_EQ(footer.size(), 51u);
  EXPECT_TRUE(has_estargz_footer(footer));
  EXPECT_TRUE(has_estargz_footer(concat({random_bytes(20), footer})));
  EXPECT_EQ(gunzip(footer), Bytes()) << "it is an empty gzip member";
  const auto legacy = from_hex(
      "1f8b08040000000000ff160030303030303030303030303439393137"
      "53544152475a"
      "010000ffff0000000000000000");
  ASSERT_EQ(legacy.size(), 47u);
  EXPECT_TRUE(has_estargz_footer(legacy));
  const auto external = from_hex(
      "1f8b08040000000000ff15005347110053544152475a45585445524e414c544f43"
      "010000ffff0000000000000000");
  ASSERT_EQ(external.size(), 46u);
  EXPECT_TRUE(has_estargz_footer(external));
}

TEST(SniffTest, AnyChangeOfAnEstargzFooterIsNoFooter) {
  const auto footer = from_hex(
      "1f8b08040000000000ff1a005347160030303030303030303030303439393137"
      "53544152475a"
      "010000ffff0000000000000000");
  for (std::size_t i = 0; i < footer.size(); ++i) {
    if (i >= 4 && i < 10) continue;  // MTIME, XFL and OS
    auto changed = footer;
    changed[i] ^= std::byte(0x80);
    EXPECT_FALSE(has_estargz_footer(changed)) << i;
  }
  EXPECT_FALSE(has_estargz_footer(ByteView(footer).first(50)));
  EXPECT_FALSE(has_estargz_footer({}));
  EXPECT_FALSE(has_estargz_footer(gzip(Bytes(100))));
}

TEST(SniffTest, KnowsFootersOfZstdChunked) {
  for (const auto& [payload, magic] : {std::pair(64u, "GNUlInUx"), std::pair(40u, "GnUlInUx")}) {
    Bytes footer;
    append_le(footer, 0x184D2A50u);
    append_le(footer, payload);
    append(footer, random_bytes(payload - 8));
    append(footer, as_bytes(magic));
    EXPECT_TRUE(has_zstd_chunked_footer(footer));
    EXPECT_TRUE(has_zstd_chunked_footer(concat({random_bytes(30), footer})));
    EXPECT_FALSE(has_zstd_chunked_footer(ByteView(footer).subspan(1)));
    for (const std::size_t at : {std::size_t(0), std::size_t(4), footer.size() - 1}) {
      auto changed = footer;
      changed[at] ^= std::byte(1);
      EXPECT_FALSE(has_zstd_chunked_footer(changed)) << at;
    }
  }
  EXPECT_FALSE(has_zstd_chunked_footer({}));
}

}  // namespace
}  // namespace varve::codec
