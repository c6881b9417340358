#include "fuse/stream/store_limit.h"

#include <sys/stat.h>

#include <algorithm>
#include <random>
#include <thread>

#include "core/base/files/file.h"
#include "testing/layer_stream_fixture.h"

namespace varve::fuse {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class StoreLimitTest : public LayerStreamTestBase {
 protected:
  // Nothing is too young to go.
  void limit_to(std::uint64_t bytes) {
    options_.store_limit = {.max_bytes = bytes, .reader_idle_seconds = 0, .ahead_idle_seconds = 0, .grace_seconds = 1};
  }
  bool soon(const std::function<bool()>& holds) {
    for (int i = 0; i < 500; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(20ms);
    }
    return false;
  }
  void set_age(const test::MadeLayer& layer, std::int64_t seconds) {
    const timespec then{.tv_sec = ::time(nullptr) - seconds, .tv_nsec = 0};
    const timespec times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, data_file(layer).parent_path().c_str(), times, 0), 0);
  }
  static test::MadeLayer tar_layer(std::uint64_t bytes, std::uint32_t seed) {
    auto stream = test::some_stream(bytes);
    stream[0] = std::byte(seed);
    return test::make_tar_layer(std::move(stream), kSpan);
  }
};

TEST_F(StoreLimitTest, AStreamLargerThanTheStoreIsReadRightAndTheStoreStaysSmall) {
  limit_to(1'000'000);
  const auto layer = test::make_gzip_layer(test::gzip_of(test::some_stream(3'000'000)), kSpan);
  auto stream = serve(layer);
  for (int round = 0; round < 2; ++round)
    for (std::uint64_t at = 0; at < layer.stream.size(); at += 100'000) {
      ASSERT_EQ(read(*stream, at, 100'000), part(layer, at, 100'000));
      std::this_thread::sleep_for(2ms);
    }
  EXPECT_TRUE(soon([&] { return streams_->store_bytes() <= 1'000'000; })) << streams_->store_bytes();
  EXPECT_LT(stream->stats().present_bytes, layer.stream.size());
  EXPECT_EQ(stream->stats().errors, 0u);
  EXPECT_TRUE(stream->verify().bad.empty());
  // What went is fetched anew, and a restart knows what went.
  stream.reset();
  open();
  stream = serve(layer);
  EXPECT_LE(stream->stats().present_bytes, 1'000'000u);
  EXPECT_TRUE(stream->verify().bad.empty());
  EXPECT_EQ(read(*stream, 0, layer.stream.size()), layer.stream);
}

TEST_F(StoreLimitTest, ReadersOfManyThreadsAreRightWhileSpansGo) {
  limit_to(600'000);
  options_.sync_interval = 1ms;
  const auto layer = test::make_zstd_layer(test::some_stream(3'000'000), kSpan);
  auto stream = serve(layer);
  // They read here and there in a window that wanders over the layer and begins again, so that there is always
  // something idle, and somebody who comes back to it.
  const auto began = std::chrono::steady_clock::now();
  const auto elapsed_ms = [&] { return std::uint64_t((std::chrono::steady_clock::now() - began) / 1ms); };
  std::vector<std::jthread> readers;
  for (unsigned reader = 0; reader < 6; ++reader)
    readers.emplace_back([&, reader] {
      std::minstd_rand random(reader + 1);
      while (elapsed_ms() < 20'000 && stream->stats().decoded_bytes < layer.stream.size() + 500'000) {
        const auto offset = elapsed_ms() * 700 % (layer.stream.size() - 400'000) + random() % 280'000;
        ASSERT_EQ(try_read(*stream, offset, 120'000), part(layer, offset, 120'000)) << offset;
      }
    });
  readers.clear();
  EXPECT_EQ(stream->stats().errors, 0u);
  EXPECT_GT(stream->stats().decoded_bytes,
            layer.stream.size());  // some were fetched more than once: the test would prove nothing
}

TEST_F(StoreLimitTest, LayersNobodyHasOpenGoOldestFirst) {
  const auto oldest = tar_layer(1'000'000, 1), older = tar_layer(1'000'000, 2), young = tar_layer(1'000'000, 3),
             wanted = tar_layer(1'000'000, 4);
  for (const auto* layer : {&oldest, &older, &young})
    ASSERT_EQ(read(*serve(*layer), 0, layer->stream.size()), layer->stream);
  stream_.reset();
  streams_.reset();
  set_age(oldest, 5'000);
  set_age(older, 4'000);
  set_age(young, 3'000);
  limit_to(2'500'000);
  options_.store_limit.reader_idle_seconds = 60;  // spans of the open layer stay
  auto stream = serve(wanted);
  ASSERT_EQ(read(*stream, 0, wanted.stream.size()), wanted.stream);
  EXPECT_TRUE(soon([&] { return !std::filesystem::exists(data_file(older)); }));
  EXPECT_FALSE(std::filesystem::exists(data_file(oldest)));
  EXPECT_TRUE(std::filesystem::exists(data_file(wanted)));
  EXPECT_TRUE(soon([&] { return streams_->store_bytes() <= 2'500'000; }));
  EXPECT_TRUE(std::filesystem::exists(data_file(young)));
  EXPECT_TRUE(soon([&] {
    return std::ranges::none_of(std::filesystem::directory_iterator(dir_ / "store"), [](const auto& entry) {
      return entry.path().filename().string().starts_with(".evicted-");
    });
  }));
}

TEST_F(StoreLimitTest, WhatIsMountedAsAFileStaysWhole) {
  limit_to(500'000);
  options_.store_limit.reader_idle_seconds = options_.store_limit.ahead_idle_seconds = 3'600;
  const auto layer = tar_layer(1'000'000, 1);
  auto stream = serve(layer);
  ASSERT_FALSE(stream->keep_whole());
  ASSERT_EQ(read(*stream, 0, layer.stream.size()), layer.stream);
  ASSERT_TRUE(stream->keep_whole());
  stream.reset();
  limit_to(500'000);
  open();
  stream = serve(layer);
  ASSERT_TRUE(stream->keep_whole());
  const auto other = tar_layer(400'000, 2);
  other.serve_from(*repository_);
  const auto second = streams_->stream(other.map, other.blob_descriptor, repository_, other.index_blobs, repository_);
  EXPECT_EQ(read(*second, 0, other.stream.size()), other.stream);
  EXPECT_TRUE(soon([&] { return second->stats().present_bytes == 0; }));
  auto content = read_file(stream->store_file());
  content.resize(layer.stream.size());
  EXPECT_EQ(content, layer.stream);
  EXPECT_TRUE(stream->complete());
}

// A daemon that was killed had mounted the file; the record of its last spans was not written.
TEST_F(StoreLimitTest, WhatAnEarlierProcessMountedAsAFileStaysWholeToo) {
  limit_to(500'000);
  const auto layer = tar_layer(1'000'000, 1);
  auto stream = serve(layer);
  stream->keep_mounted();
  ASSERT_EQ(read(*stream, 0, 800'000), part(layer, 0, 800'000));
  const auto other = tar_layer(400'000, 2);
  other.serve_from(*repository_);
  const auto second = streams_->stream(other.map, other.blob_descriptor, repository_, other.index_blobs, repository_);
  EXPECT_EQ(read(*second, 0, other.stream.size()), other.stream);
  EXPECT_TRUE(soon([&] { return second->stats().present_bytes == 0; }));
  EXPECT_GE(stream->stats().present_bytes, 800'000u);
}

TEST_F(StoreLimitTest, BackgroundWorkIsRefusedWhereEverythingIsInUseAndReadersAreNot) {
  limit_to(300'000);
  options_.store_limit.reader_idle_seconds = options_.store_limit.ahead_idle_seconds = 3'600;
  options_.sync_interval = 1ms;
  const auto layer = tar_layer(10'000'000, 1);
  auto stream = serve(layer);
  ASSERT_EQ(read(*stream, 0, 1'000'000), part(layer, 0, 1'000'000));
  // The limit looks twice, each time behind the disk, which others keep busy, too: there are spans enough to wait for
  // it.
  std::string said;
  for (std::uint64_t at = 1'000'000; said.empty() && at < 9'900'000; at += kSpan) {
    Outcome fill;
    stream->ensure({.offset = at, .length = 1'000}, Priority::kBackground, fill.done());
    said = fill.wait();
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_THAT(said, HasSubstr("the store is full"));
  Outcome ahead;
  stream->ensure({.offset = 9'950'000, .length = 1'000}, Priority::kReadAhead, ahead.done());
  EXPECT_THAT(ahead.wait(), HasSubstr("the store is full")) << "prefetch is told as well";
  EXPECT_EQ(read(*stream, 9'900'000, 50'000), part(layer, 9'900'000, 50'000));
}

class TwoStepsTest : public LayerStreamTestBase {
 protected:
  void SetUp() override {
    for (std::size_t span = 0; span < layer_.map->spans.size(); ++span) {
      const auto range = layer_.map->spans[span].stream_range;
      store_.put(span, ByteView(layer_.stream).subspan(range.offset, range.length));
    }
  }
  test::MadeLayer layer_ = test::make_tar_layer(test::some_stream(500'000), kSpan);
  SpanStore store_{dir_ / "layer", layer_.map};
};

TEST_F(TwoStepsTest, WhatIsWantedMeanwhileStays) {
  ASSERT_TRUE(store_.begin_evict(2));
  const auto began = store_.last_use(2) - 1;
  EXPECT_FALSE(store_.is_readable(2));
  EXPECT_FALSE(store_.complete());
  Bytes bytes(1'000);
  store_.read(2 * kSpan, bytes);  // who was told that it is there
  EXPECT_EQ(bytes, part(layer_, 2 * kSpan, 1'000));
  ASSERT_TRUE(store_.begin_evict(3));
  EXPECT_TRUE(store_.touch_if_readable(3));  // who wants it now
  EXPECT_EQ(store_.finish_evict({2, 3}, began), 0u);
  EXPECT_TRUE(store_.complete());
  EXPECT_EQ(store_.present_bytes(), layer_.stream.size());
}

TEST_F(TwoStepsTest, WhatNobodyWantedGoesWithItsSpace) {
  store_.sync();
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(store_.data_path().c_str(), &before), 0);
  ASSERT_TRUE(store_.begin_evict(2));
  ASSERT_TRUE(store_.begin_evict(4));
  EXPECT_FALSE(store_.begin_evict(4));
  EXPECT_EQ(store_.finish_evict({4, 2}, UINT32_MAX), 2 * kSpan);
  EXPECT_EQ(store_.state(2), SpanStore::State::kAbsent);
  EXPECT_FALSE(store_.touch_if_readable(2));
  Bytes bytes(10);
  EXPECT_EQ(store_.read(2 * kSpan, bytes), std::vector<std::uint32_t>{2});  // it is missing
  ASSERT_EQ(::stat(store_.data_path().c_str(), &after), 0);
  EXPECT_LT(after.st_blocks, before.st_blocks);
  EXPECT_EQ(store_.present_bytes(), layer_.stream.size() - 2 * kSpan);
  SpanStore again(dir_ / "layer", layer_.map);
  EXPECT_FALSE(again.is_readable(2));
  EXPECT_TRUE(again.is_readable(3));
}

TEST_F(TwoStepsTest, AKeptFileLosesNothing) {
  ASSERT_TRUE(store_.begin_evict(1));
  EXPECT_FALSE(store_.keep_whole());
  ASSERT_TRUE(store_.touch_if_readable(1));
  ASSERT_TRUE(store_.keep_whole());
  EXPECT_FALSE(store_.begin_evict(1));
}

}  // namespace
}  // namespace varve::fuse
