#include "core/trust/internal/secretbox.h"

#include <gtest/gtest.h>

#include <string_view>

namespace varve::trust::internal {
namespace {

Bytes from_hex(std::string_view digits) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(std::byte(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  return bytes;
}

// Bernstein, "Cryptography in NaCl", sections 8 to 10: the shared key, the nonce, the message and the box.
const Bytes kKey = from_hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
const Bytes kNonce = from_hex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
const Bytes kMessage = from_hex(
    "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb31"
    "0e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f93776384864"
    "5e0705");
const Bytes kBox = from_hex(
    "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c972"
    "71d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b3"
    "7973f622a43d14a6599b1f654cb45a74e355a5");

BoxKey key_of(const Bytes& bytes) { return BoxKey(bytes.data(), kBoxKeyBytes); }
BoxNonce nonce_of(const Bytes& bytes) { return BoxNonce(bytes.data(), kBoxNonceBytes); }

TEST(Secretbox, MakesTheBoxOfThePaper) { EXPECT_EQ(seal_box(key_of(kKey), nonce_of(kNonce), kMessage), kBox); }

TEST(Secretbox, OpensTheBoxOfThePaper) { EXPECT_EQ(open_box(key_of(kKey), nonce_of(kNonce), kBox), kMessage); }

TEST(Secretbox, OpensNoBoxThatWasChangedInOneBit) {
  for (std::size_t at = 0; at < kBox.size(); ++at) {
    auto box = kBox;
    box[at] ^= std::byte{1};
    EXPECT_FALSE(open_box(key_of(kKey), nonce_of(kNonce), box)) << at;
  }
}

TEST(Secretbox, OpensNothingWithAnotherKeyOrNonce) {
  auto key = kKey, nonce = kNonce;
  key[31] ^= std::byte{0x80};
  EXPECT_FALSE(open_box(key_of(key), nonce_of(kNonce), kBox));
  nonce[23] ^= std::byte{0x80};
  EXPECT_FALSE(open_box(key_of(kKey), nonce_of(nonce), kBox));
}

TEST(Secretbox, TakesMessagesOfAnyLength) {
  for (const std::size_t length : {0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 97, 1000}) {
    const Bytes message(length, std::byte{7});
    const auto box = seal_box(key_of(kKey), nonce_of(kNonce), message);
    EXPECT_EQ(box.size(), length + kBoxTagBytes);
    EXPECT_EQ(open_box(key_of(kKey), nonce_of(kNonce), box), message) << length;
  }
  EXPECT_FALSE(open_box(key_of(kKey), nonce_of(kNonce), Bytes(15)));
}

}  // namespace
}  // namespace varve::trust::internal
