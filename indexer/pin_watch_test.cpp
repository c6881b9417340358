#include "indexer/pin_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/oci/layout.h"
#include "testing/temp_dir.h"

namespace varve::indexer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PinWatchTest : public ::testing::Test {
 protected:
  // An image that is its config alone.
  Pin put(const std::string& name) {
    const auto config = oci::put_bytes(*folder_, as_bytes(name), "application/vnd.oci.image.config.v1+json");
    const auto manifest = fmt::format(
        R"({{"schemaVersion":2,"mediaType":"{}","config":{{"mediaType":"{}","digest":"{}","size":{}}},"layers":[]}})",
        oci::kOciManifestType, config.media_type, config.digest.to_string(), config.size);
    Pin pin;
    pin.image = folder_->put_manifest(as_bytes(manifest), oci::kOciManifestType, name);
    pin.name = name;
    pin.since = "2026-01-01T00:00:00Z";
    pin.by = "ann";
    return pin;
  }

  WatchedPins check(const PinWatch& watch) const {
    Progress progress;
    const CancelFlag cancel;
    return watch.check({progress, cancel});
  }

  test::TempDir dir_;
  std::shared_ptr<oci::LayoutRepository> folder_ = oci::LayoutRepository::create(dir_ / "images");
};

TEST_F(PinWatchTest, FindsPinsThatAreGoneAndImagesThatAreNotWhole) {
  const auto one = put("one"), two = put("two");
  auto again = one;
  again.by = "bob";
  const auto folder = dir_ / "images";
  change_pins(*folder_, folder, [&](auto& pins) { pins = {one, again, two}; });
  const PinWatch watch({folder_, folder_});
  const auto fine = check(watch);
  EXPECT_THAT(fine.problems, IsEmpty());
  EXPECT_THAT(fine.places, ElementsAre(folder_->name()));
  EXPECT_EQ(fine.images, 2U);

  change_pins(*folder_, folder, [&](auto& pins) { pins = {one}; });
  const auto gone = check(watch);
  EXPECT_THAT(gone.problems, ElementsAre(HasSubstr("two (" + two.image.digest.to_string() + "): it was pinned")));
  EXPECT_EQ(gone.images, 1U);

  change_pins(*folder_, folder, [&](auto& pins) { pins = {one, two}; });
  std::filesystem::remove(folder / "blobs/sha256" / digest_of(as_bytes("one")).hex());
  EXPECT_THAT(check(watch).problems, ElementsAre(HasSubstr("one (")));
}

}  // namespace
}  // namespace varve::indexer
