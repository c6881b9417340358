#include "core/codec/crc64.h"

#include <gtest/gtest.h>

#include "testing/codec_support.h"

namespace varve::codec {
namespace {

TEST(Crc64Test, GivesTheCheckValueOfTheCatalogue) {
  EXPECT_EQ(crc64_iso(0, as_bytes("123456789")), 0xB90956C775A41001);  // CRC-64/GO-ISO
  EXPECT_EQ(crc64_iso(0, {}), 0u);
}

TEST(Crc64Test, GoesOnWhereItStopped) {
  const auto bytes = test::random_bytes(1000);
  const auto whole = crc64_iso(0, bytes);
  for (const std::size_t at : {0, 1, 7, 8, 9, 500, 999, 1000})
    EXPECT_EQ(crc64_iso(crc64_iso(0, ByteView(bytes).first(at)), ByteView(bytes).subspan(at)), whole);
}

}  // namespace
}  // namespace varve::codec
