#include "indexer/pins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/oci/layout.h"
#include "indexer/known_pins.h"
#include "testing/temp_dir.h"

namespace varve::indexer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

Pin pin_of(const std::string& image, const std::string& name, const std::string& by,
           const std::string& since = "2026-01-01T00:00:00Z") {
  Pin pin;
  pin.image.media_type = oci::kOciManifestType;
  pin.image.digest = digest_of(as_bytes(image));
  pin.image.size = 7;
  pin.name = name;
  pin.by = by;
  pin.since = since;
  return pin;
}

std::vector<std::string> texts(const std::vector<Pin>& pins) {
  std::vector<std::string> texts;
  for (const auto& pin : pins) texts.push_back(fmt::format("{}/{}/{}", pin.name, pin.by, pin.reason));
  return texts;
}

TEST(Pins, TwoPeopleMayPromiseOneImage) {
  std::vector<Pin> pins;
  auto anns = pin_of("i", "v1", "ann"), bobs = pin_of("i", "v1", "bob"), paper = pin_of("i", "paper", "bob");
  EXPECT_TRUE(add_promise(pins, anns));
  EXPECT_TRUE(add_promise(pins, bobs));
  EXPECT_TRUE(add_promise(pins, paper));
  EXPECT_THAT(texts(pins), ElementsAre("v1/ann/", "v1/bob/", "paper/bob/"));
}

TEST(Pins, APromiseThatIsRenewedIsAsOldAsItWas) {
  auto first = pin_of("i", "v1", "ann");
  std::vector<Pin> pins{first};
  auto again = pin_of("i", "v1", "ann", "2026-02-02T00:00:00Z");
  again.reason = "still";
  EXPECT_FALSE(add_promise(pins, again));
  EXPECT_EQ(again.since, first.since);
  EXPECT_THAT(texts(pins), ElementsAre("v1/ann/still"));
}

TEST(Pins, OneOfNobodyInParticularRenewsTheOnlyOneOfItsName) {
  std::vector<Pin> pins{pin_of("i", "v1", "ann")};
  auto nobodys = pin_of("i", "v1", "");
  EXPECT_FALSE(add_promise(pins, nobodys));
  EXPECT_THAT(texts(pins), ElementsAre("v1/ann/"));
  pins.push_back(pin_of("i", "v1", "bob"));
  nobodys = pin_of("i", "v1", "");
  EXPECT_TRUE(add_promise(pins, nobodys));
}

TEST(Pins, TheSamePromisesGiveTheSameListInAnyOrder) {
  const std::vector<Pin> pins{pin_of("i", "v1", "bob"), pin_of("j", "v2", "ann"), pin_of("i", "v1", "ann")};
  const auto list = list_of_pins(pins);
  EXPECT_EQ(list_of_pins({pins[2], pins[0], pins[1]}), list);
  EXPECT_THAT(parse_pins(as_bytes(list), "x"), SizeIs(3));
  EXPECT_EQ(list_of_pins(parse_pins(as_bytes(list), "x")), list);
}

TEST(Pins, WhatIsPromisedBesideTheImageIsInTheList) {
  auto anns = pin_of("i", "v1", "ann"), bobs = pin_of("i", "v1", "bob"), paper = pin_of("i", "paper", "bob");
  anns.index = paper.index = digest_of(as_bytes("index"));
  anns.signatures = {digest_of(as_bytes("payload")), digest_of(as_bytes("payload"))};
  const auto read = parse_pins(as_bytes(list_of_pins({anns, bobs, paper})), "x");
  ASSERT_THAT(texts(read), ElementsAre("paper/bob/", "v1/ann/", "v1/bob/"));
  EXPECT_EQ(read[0].index, anns.index);
  EXPECT_EQ(read[1].index, anns.index);
  EXPECT_EQ(read[2].index, std::nullopt);
  EXPECT_THAT(read[1].signatures, SizeIs(2));
}

// What Varve did before it kept several promises: one entry an image, whose index is a digest or nothing.
bool is_read_by_older_programs(const std::string& list) {
  for (const auto& entry : oci::ImageIndex::parse(as_bytes(list), "x").manifests) {
    const auto index = entry.annotations.find("dev.varve.pin.index");
    if (index != entry.annotations.end() && !Digest::try_parse(index->second)) return false;
  }
  return true;
}

TEST(Pins, ProgramsThatKnowOnePromiseAnImageRefuseAListOfSeveral) {
  auto anns = pin_of("i", "v1", "ann");
  anns.index = digest_of(as_bytes("index"));
  EXPECT_TRUE(is_read_by_older_programs(list_of_pins({anns, pin_of("j", "v1", "bob")})));
  EXPECT_FALSE(is_read_by_older_programs(list_of_pins({anns, pin_of("i", "v1", "bob")})));
}

TEST(Pins, TooManySignaturesAreRefused) {
  auto pin = pin_of("i", "v1", "ann");
  pin.signatures.assign(kMaxPinSignatures + 1, digest_of(as_bytes("payload")));
  EXPECT_THAT([&] { parse_pins(as_bytes(list_of_pins({pin})), "x"); },
              ThrowsMessage<Unsupported>(HasSubstr("65 signatures")));
}

TEST(Pins, AnIndexOfPlatformsIsNoList) {
  const std::string platforms =
      R"({"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]})";
  EXPECT_THAT([&] { parse_pins(as_bytes(platforms), "x:varve-pins"); },
              ThrowsMessage<CorruptData>(HasSubstr("x:varve-pins: it is no list")));
}

TEST(Pins, NamesCannotPlayTricksOnATerminal) {
  EXPECT_THAT(promise_text(pin_of("i", "\x1b[31m\xff", "a\nb")), HasSubstr(R"("\u001b[31m\ufffd" of "a\nb" (sha256:)"));
}

class PinsInAFolder : public ::testing::Test {
 protected:
  PinsInAFolder() {
    const auto put = [&](const std::string& name) {
      const std::string manifest =
          R"({"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":)"
          R"({"mediaType":"application/vnd.oci.image.config.v1+json","digest":")" +
          digest_of(as_bytes(name)).to_string() + R"(","size":1},"layers":[]})";
      Pin pin = pin_of("", name, "ann");
      pin.image = folder_->put_manifest(as_bytes(manifest), oci::kOciManifestType, name);
      return pin;
    };
    one_ = put("one");
    two_ = put("two");
  }

  test::TempDir dir_;
  std::shared_ptr<oci::LayoutRepository> folder_ = oci::LayoutRepository::create(dir_ / "images");
  Pin one_, two_;
};

TEST_F(PinsInAFolder, ATagWhoseListIsMissingIsNoEmptyList) {
  change_pins(*folder_, dir_ / "images", [&](auto& pins) { pins = {one_}; });
  const auto list = folder_->manifest(oci::kPinsTag);
  std::filesystem::remove(dir_ / "images/blobs/sha256" / list.descriptor.digest.hex());
  EXPECT_THAT([&] { read_pins(*folder_); }, ThrowsMessage<CorruptData>(HasSubstr("varve pin repair")));
}

TEST_F(PinsInAFolder, RepairKeepsWhatTookTheListsPlace) {
  const auto image = folder_->manifest("two");
  folder_->put_manifest(image.bytes, image.descriptor.media_type, oci::kPinsTag);
  EXPECT_THROW(read_pins(*folder_), CorruptData);
  const auto repair = repair_pins(*folder_, dir_ / "images", {one_});
  EXPECT_THAT(texts(repair.restored), ElementsAre("one/ann/"));
  EXPECT_EQ(folder_->manifest(repair.set_aside).descriptor.digest, image.descriptor.digest);
  EXPECT_THAT(texts(read_pins(*folder_)), ElementsAre("one/ann/"));
}

TEST_F(PinsInAFolder, ASecondRepairLeavesWhatTheFirstSetAside) {
  const auto take_place = [&](const char* tag) {
    const auto image = folder_->manifest(tag);
    folder_->put_manifest(image.bytes, image.descriptor.media_type, oci::kPinsTag);
    return repair_pins(*folder_, dir_ / "images", {}).set_aside;
  };
  const auto first = take_place("one"), second = take_place("two"), again = take_place("one");
  EXPECT_EQ(folder_->manifest(first).descriptor.digest, one_.image.digest);
  EXPECT_EQ(folder_->manifest(second).descriptor.digest, two_.image.digest);
  EXPECT_EQ(again, first);
  EXPECT_NE(oci::use_of_tag(second), "");
}

TEST_F(PinsInAFolder, OthersMayRelyOnAListThatNamesAllThatIsKnown) {
  change_pins(*folder_, dir_ / "images", [&](auto& pins) { pins = {two_}; });
  EXPECT_THAT(read_whole_list(*folder_, {two_}, "nothing was removed"), SizeIs(1));
  EXPECT_THAT(
      [&] {
        read_whole_list(*folder_, {one_, two_}, "nothing was removed");
      },
      ThrowsMessage<CorruptData>(
          AllOf(HasSubstr("\"one\" of \"ann\""), HasSubstr("nothing was removed"), HasSubstr("varve pin repair"))));
}

TEST_F(PinsInAFolder, RepairLeavesOthersPromisesAndPromisesNothingOfWhatIsGone) {
  change_pins(*folder_, dir_ / "images", [&](auto& pins) { pins = {two_}; });
  const auto gone = pin_of("nothing", "gone", "ann");
  const auto repair = repair_pins(*folder_, dir_ / "images", {one_, two_, gone});
  EXPECT_THAT(texts(repair.restored), ElementsAre("one/ann/"));
  EXPECT_THAT(texts(repair.gone), ElementsAre("gone/ann/"));
  EXPECT_EQ(repair.set_aside, "");
  EXPECT_THAT(read_pins(*folder_), SizeIs(2));
}

TEST(KnownPins, RemembersWhatWasLostUntilItIsTakenBack) {
  const test::TempDir dir;
  const auto one = pin_of("i", "v1", "ann"), two = pin_of("j", "v2", "bob"), three = pin_of("k", "v3", "bob");
  KnownPins(dir.path()).remember("oci:/x", {one, two});
  KnownPins(dir.path()).remember("oci:/x", {three});
  EXPECT_THAT(KnownPins(dir.path()).pins_of("oci:/x"), SizeIs(3));
  KnownPins(dir.path()).remember("oci:/x", {three}, {one});
  EXPECT_THAT(lost_pins(KnownPins(dir.path()).pins_of("oci:/x"), {three}), SizeIs(1));
  EXPECT_THAT(KnownPins(dir.path()).pins_of("oci:/y"), IsEmpty());
}

TEST(KnownPins, ReadsTheDigestsOfOlderVersions) {
  const test::TempDir dir;
  const auto one = pin_of("i", "v1", "ann"), two = pin_of("j", "v2", "bob");
  const auto text = fmt::format(R"({{"places":{{"oci:/x":["{}","{}"]}}}})", one.image.digest.to_string(),
                                two.image.digest.to_string());
  write_file_atomically(dir / "pins.json", as_bytes(text));
  EXPECT_THAT(lost_pins(KnownPins(dir.path()).pins_of("oci:/x"), {one}), SizeIs(1));
  KnownPins(dir.path()).remember("oci:/x", {one});
  const auto known = KnownPins(dir.path()).pins_of("oci:/x");
  EXPECT_THAT(known, SizeIs(2));
  EXPECT_THAT(lost_pins(known, {one, two}), IsEmpty());
}

TEST(KnownPins, TwoNamesOfOneFolderAreOnePlace) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "images");
  std::filesystem::create_directory_symlink(dir / "images", dir / "link");
  KnownPins(dir.path()).remember("oci:" + (dir / "images").string(), {pin_of("i", "v1", "ann")});
  const auto link = "oci:" + (dir / "link").string();
  EXPECT_THAT(KnownPins(dir.path()).pins_of(link), SizeIs(1));
  KnownPins(dir.path()).remember(link, {}, KnownPins(dir.path()).pins_of(link));
  EXPECT_THAT(KnownPins(dir.path()).pins_of("oci:" + (dir / "images").string()), IsEmpty());
}

}  // namespace
}  // namespace varve::indexer
