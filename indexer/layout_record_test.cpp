#include "indexer/layout_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/base/errors.h"
#include "testing/artifact_repository.h"
#include "testing/refusal.h"

namespace varve::indexer {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view json) {
  return test::refusal_of([&] { parse_layout_record(json, "record"); });
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const auto at = text.find(what);
  if (at == std::string::npos) throw std::logic_error("nothing to replace");
  return text.replace(at, what.size(), with);
}

class LayoutRecordTest : public testing::Test {
 protected:
  LayoutRecordTest() {
    image_.repository = repository_;
    image_.document.descriptor.media_type = oci::kOciManifestType;
    image_.document.descriptor.digest = digest_of("image");
    image_.document.descriptor.size = 500;
    for (const char* name : {"base", "hot"}) {
      oci::Descriptor layer;
      layer.digest = digest_of(name);
      layer.size = 1000;
      image_.manifest.layers.push_back(layer);
      image_.config.diff_ids.push_back(digest_of(std::string("stream of ") + name));
    }
    record_ = record();
  }

  LayoutRecord record(std::uint32_t releases = 5) const {
    LayoutRecord record{.image = image_.digest(), .layers = {}};
    record.layers.push_back({.digest = digest_of("base"),
                             .diff_id = digest_of("stream of base"),
                             .compressed_bytes = 10,
                             .stream_bytes = 20,
                             .kept_as_is = true,
                             .tier = index::Tier::kSystem,
                             .writer = "",
                             .components = {}});
    record.layers.push_back({.digest = digest_of("hot"),
                             .diff_id = digest_of("stream of hot"),
                             .compressed_bytes = 1ull << 40,
                             .stream_bytes = 1ull << 41,
                             .kept_as_is = false,
                             .tier = index::Tier::kHot,
                             .writer = "zstd:chunked 3 varve 0.1.0",
                             .components = {}});
    record.layers[1].components["pip:numpy"] = {.version = "2.1.0",
                                                .tier = index::Tier::kHot,
                                                .content = digest_of("numpy"),
                                                .bytes = 1000,
                                                .releases = releases,
                                                .changes = 2};
    record.layers[1].components["folder:root/\xc3\xa9t\xc3\xa9"] = {
        .version = "", .tier = index::Tier::kCold, .content = digest_of("f"), .bytes = 7, .releases = 1, .changes = 0};
    return record;
  }

  std::shared_ptr<test::ArtifactRepository> repository_ = std::make_shared<test::ArtifactRepository>();
  oci::Image image_;
  LayoutRecord record_;
};

TEST_F(LayoutRecordTest, IsReadBackAsItWasWritten) {
  EXPECT_EQ(parse_layout_record(to_json(record_), "record"), record_);
  EXPECT_EQ(to_json(record_), to_json(record()));
}

TEST_F(LayoutRecordTest, SaysWhoseTimesItsFilesHave) {
  const auto plain = to_json(record_);
  for (const auto* word : {"timeless", "times_of_previous", "latest"}) EXPECT_EQ(plain.find(word), plain.npos) << word;
  record_.layers[1].components.at("pip:numpy").timeless = digest_of("numpy without times");
  record_.layers[1].times_of_previous = true;
  record_.latest_time = 1'700'000'000;
  record_.latest_created = 0;
  EXPECT_EQ(parse_layout_record(to_json(record_), "record"), record_);
  record_.layers[0].times_of_previous = true;  // of one that was kept as it was
  EXPECT_THROW(parse_layout_record(to_json(record_), "record"), CorruptData);
  EXPECT_THROW(parse_layout_record(replaced(plain, "\"format\":1", "\"format\":1,\"latest_time\":-1"), "record"),
               CorruptData);
}

TEST_F(LayoutRecordTest, IsFoundWhereItWasPublished) {
  EXPECT_FALSE(find_layout_record(image_));
  publish_layout_record(*repository_, image_.document.descriptor, record_);
  EXPECT_EQ(find_layout_record(image_), record_);
}

TEST_F(LayoutRecordTest, OfSeveralTheOneWithTheLongestMemoryIsChosen) {
  for (const auto releases : {5u, 9u, 7u})
    publish_layout_record(*repository_, image_.document.descriptor, record(releases));
  EXPECT_EQ(find_layout_record(image_), record(9));
}

TEST_F(LayoutRecordTest, OfSeveralEquallyOldOnesTheChoiceDoesNotDependOnTheOrderOfPublishing) {
  auto other = record();
  other.layers[1].components["pip:numpy"].version = "2.1.1";
  auto again = std::make_shared<test::ArtifactRepository>();
  publish_layout_record(*repository_, image_.document.descriptor, record_);
  publish_layout_record(*repository_, image_.document.descriptor, other);
  publish_layout_record(*again, image_.document.descriptor, other);
  publish_layout_record(*again, image_.document.descriptor, record_);
  const auto first = find_layout_record(image_);
  image_.repository = again;
  EXPECT_EQ(find_layout_record(image_), first);
}

TEST_F(LayoutRecordTest, DamagedOnesArePassedOverWhereThereIsAWholeOne) {
  auto lost = record(9);
  publish_layout_record(*repository_, image_.document.descriptor, lost);
  publish_layout_record(*repository_, image_.document.descriptor, record_);
  repository_->forget_blob(digest_of(to_json(lost)));
  EXPECT_EQ(find_layout_record(image_), record_);
  repository_->blob(digest_of(to_json(record_)))[0] = std::byte{'x'};
  EXPECT_THROW(find_layout_record(image_), CorruptData);
}

TEST_F(LayoutRecordTest, OneOfOtherLayersDoesNotCount) {
  auto strange = record_;
  strange.layers[1].digest = digest_of("another");
  publish_layout_record(*repository_, image_.document.descriptor, strange);
  EXPECT_THROW(find_layout_record(image_), CorruptData);
  strange = record_;
  strange.layers.pop_back();
  publish_layout_record(*repository_, image_.document.descriptor, strange);
  EXPECT_THROW(find_layout_record(image_), CorruptData);
  publish_layout_record(*repository_, image_.document.descriptor, record_);
  EXPECT_EQ(find_layout_record(image_), record_);
}

TEST_F(LayoutRecordTest, IsNotPublishedForAnotherImage) {
  auto other = image_.document.descriptor;
  other.digest = digest_of("another image");
  EXPECT_THROW(publish_layout_record(*repository_, other, record_), UsageError);
}

TEST_F(LayoutRecordTest, SaysWhatIsWrongAndWhere) {
  const auto json = to_json(record_);
  EXPECT_THAT(error_of("[]"), HasSubstr("record: must be an object, but is array"));
  EXPECT_THAT(error_of(json.substr(0, json.size() - 1)), HasSubstr("no valid JSON at byte"));
  EXPECT_THAT(error_of(replaced(json, "\"format\":1", "\"format\":2")), HasSubstr("format 2 is of a later Varve"));
  EXPECT_THAT(error_of(replaced(json, "\"heat\":\"hot\"", "\"heat\":\"warm\"")),
              HasSubstr("record: \"layers[1].components.pip:numpy.heat\" cannot be warm"));
  EXPECT_THAT(error_of(replaced(json, "\"releases\":5", "\"releases\":2")),
              HasSubstr("components.pip:numpy\" changed 2 times in 2 releases"));
  EXPECT_THAT(error_of(replaced(json, "\"releases\":5", "\"releases\":4294967296")),
              HasSubstr("pip:numpy.releases\" must be a whole number from 0 to 4294967295"));
  EXPECT_THAT(error_of(replaced(json, "\"bytes\":1000", "\"bytes\":-1")),
              HasSubstr("pip:numpy.bytes\" must be a whole number"));
  EXPECT_THAT(error_of(replaced(json, "\"taken_over\":true", "\"taken_over\":1")),
              HasSubstr("record: \"layers[0].taken_over\" must be true or false"));
  EXPECT_THAT(error_of(replaced(json, "\"taken_over\":false", "\"taken_over\":true")),
              HasSubstr("was taken over and yet has components"));
  EXPECT_THAT(error_of(replaced(json, ",\"writer\":\"\"", "")), HasSubstr("record: \"layers[0].writer\" is missing"));
  EXPECT_THAT(error_of(replaced(json, "\"content\":\"sha256:", "\"content\":\"sha256:zz")), HasSubstr(".content\""));
}

TEST_F(LayoutRecordTest, AComponentIsInOneLayerOnly) {
  record_.layers[0] = record_.layers[1];
  EXPECT_THAT(error_of(to_json(record_)), HasSubstr("is in two layers"));
}

TEST_F(LayoutRecordTest, HostileDocumentsHitLimitsInsteadOfMemory) {
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("nested deeper than"));
  std::string many = "{\"format\":[0";
  for (int i = 0; i < 2'100'000; ++i) many += ",0";
  EXPECT_THAT(error_of(many + "]}"), HasSubstr("JSON values"));
  EXPECT_THAT(error_of(std::string(kMaxLayoutRecordBytes + 1, ' ')), HasSubstr("the limit is"));
  record_.layers[1].components[std::string(kMaxComponentNameBytes + 1, 'n')] = {};
  EXPECT_THAT(error_of(to_json(record_)), HasSubstr("name has"));
}

TEST_F(LayoutRecordTest, NamesThatAreNoTextAreRefusedWhenWriting) {
  record_.layers[1].components["folder:\xff"] = {};
  EXPECT_THROW(to_json(record_), UsageError);
}

}  // namespace
}  // namespace varve::indexer
