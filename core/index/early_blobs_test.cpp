#include "core/index/early_blobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>

#include "testing/forwarding_repository.h"
#include "testing/indexed_image_fixture.h"

namespace varve::index {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// A registry whose manifests come when something else has been asked for, or not at all.
class SlowRepository final : public test::ForwardingRepository {
 public:
  using ForwardingRepository::ForwardingRepository;
  oci::Document manifest(std::string_view selector) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 60s, [&] { return std::ranges::includes(asked_, wait_for_); }))
      throw TemporaryError("nobody asked for what it waits for");
    return real_->manifest(selector);
  }
  void read_blob(const oci::Descriptor& blob, ByteRange range, const oci::ByteSink& sink) override {
    {
      const std::lock_guard guard(mutex_);
      asked_.insert(blob.digest);
      ++reads_;
      changed_.notify_all();
    }
    real_->read_blob(blob, range, sink);
  }

  std::set<Digest> wait_for_;
  std::size_t reads_ = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<Digest> asked_;
};

class EarlyBlobsTest : public test::IndexedImageFixture {
 protected:
  void SetUp() override {
    IndexedImageFixture::SetUp();
    blobs_ = blobs_of({map_of(0), map_of(1), map_of(2)});
    image_.repository = slow_;
  }
  void publish_with(const std::string& hint) {
    blobs_.hint = hint;
    publish(blobs_);
  }

  ImageIndexBlobs blobs_;
  std::shared_ptr<SlowRepository> slow_ = std::make_shared<SlowRepository>(repository_);
};

TEST_F(EarlyBlobsTest, TheFirstLoadIsFetchedWhileTheManifestIs) {
  publish(blobs_);
  for (const auto& blob : blobs_.first_load()) slow_->wait_for_.insert(blob.digest);
  ASSERT_EQ(slow_->wait_for_.size(), 4u);
  LocalIndex local(dir_ / "root");
  const auto index = load_index(local, image_);
  EXPECT_EQ(index.maps.size(), 3u);
  EXPECT_EQ(slow_->reads_, 4u) << "each is fetched once";
}

TEST_F(EarlyBlobsTest, WhatTheManifestDoesNotNameIsNotKept) {
  const auto stranger = repository_->add_blob(as_bytes("a gift"));
  publish_with(fmt::format("{}:{}", stranger.digest.hex(), stranger.size));
  LocalIndex local(dir_ / "root");
  EXPECT_EQ(load_index(local, image_).maps.size(), 3u);
  EXPECT_FALSE(local.repository().has_blob(stranger));
}

TEST_F(EarlyBlobsTest, AHintThatLiesCostsNothing) {
  const auto good = blobs_.tree.digest.hex();
  const auto size = std::to_string(blobs_.tree.size);
  std::string many;
  for (int i = 0; i < 100; ++i) many += fmt::format("{}:1 ", digest_of(std::to_string(i)).hex());
  int number = 0;
  for (const auto& hint :
       {std::string(" "), std::string("x"), good, good + ":", good + ":-1", good + ":99999999999999999999", good + ":1",
        good + ":18446744073709551615 " + good + ":18446744073709551615", good + ":" + size + "x", many,
        digest_of("nothing").hex() + ":10", good + ":" + size + "\n" + good + ":" + size, good + ":" + size + " :"}) {
    blobs_.generation = std::uint64_t(++number);  // so that it is taken
    publish_with(hint);
    LocalIndex local(dir_ / std::to_string(number));
    const auto index = load_index(local, image_);
    EXPECT_EQ(index.blobs.generation, std::uint64_t(number)) << hint;
    EXPECT_TRUE(index.tree->resolve("etc/hosts", true)) << hint;
  }
}

TEST_F(EarlyBlobsTest, WhatWasReadIsWrittenTheSameAgain) {
  for (const auto* hint : {"", "of a later version"}) {
    ++blobs_.generation;  // the later one is found
    publish_with(hint);
    const auto found = find_index(*repository_, image_);
    ASSERT_TRUE(found);
    const auto again = make_index_manifest(image_, *found);
    EXPECT_EQ(digest_of(again.to_json()), found->manifest.digest);
    EXPECT_EQ(again.annotations.contains(std::string(kFirstLoadAnnotation)), *hint != '\0');
  }
}

TEST_F(EarlyBlobsTest, ABrokenBlobIsAskedForAgainAndSaysWhy) {
  publish(blobs_);
  repository_->blob(blobs_.tree.digest).back() ^= std::byte(1);
  LocalIndex local(dir_ / "root");
  try {
    load_index(local, image_);
    FAIL();
  } catch (const CorruptData& error) {
    EXPECT_THAT(error.what(), HasSubstr(blobs_.tree.digest.to_string()));
  }
}

TEST_F(EarlyBlobsTest, AreTakenOnceAndNoMoreOfThemThanFits) {
  const auto one = repository_->add_blob(as_bytes("one"));
  auto large = repository_->add_blob(as_bytes("large"));
  auto claimed = large;
  claimed.size = EarlyBlobs::kMaxBytes;
  EarlyBlobs early(slow_, {one, claimed});
  EXPECT_EQ(early.take(claimed), std::nullopt);
  EXPECT_EQ(early.take(large), std::nullopt) << "of another size";
  const auto bytes = early.take(one);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(as_text(*bytes), "one");
  EXPECT_EQ(early.take(one), std::nullopt);
  EXPECT_EQ(slow_->reads_, 1u);
}

}  // namespace
}  // namespace varve::index
