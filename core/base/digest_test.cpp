#include "core/base/digest.h"

#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve {
namespace {

// FIPS 180-2, appendix B.1.
constexpr auto kDigestOfAbc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(DigestTest, HashesAsTheStandardSays) { EXPECT_EQ(digest_of("abc").to_string(), kDigestOfAbc); }

TEST(DigestTest, HashingInPiecesIsHashingTheWhole) {
  Sha256 hash;
  hash.update(as_bytes("a"));
  hash.update(as_bytes("bc"));
  EXPECT_EQ(hash.finish().to_string(), kDigestOfAbc);
  hash.update(as_bytes("abc"));
  EXPECT_EQ(hash.finish().to_string(), kDigestOfAbc) << "finish() starts anew";
}

TEST(DigestTest, ParsesWhatItPrints) { EXPECT_EQ(Digest::parse(kDigestOfAbc), digest_of("abc")); }

TEST(DigestTest, RefusesUpperCaseWrongLengthAndOtherAlgorithms) {
  std::string upper(kDigestOfAbc);
  upper[7] = 'B';
  EXPECT_THROW(Digest::parse(upper), CorruptData);
  EXPECT_THROW(Digest::parse("sha256:ba78"), CorruptData);
  EXPECT_THROW(Digest::parse("sha512:ba78"), Unsupported);
  EXPECT_FALSE(Digest::try_parse(""));
}

}  // namespace
}  // namespace varve
