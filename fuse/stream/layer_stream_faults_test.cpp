#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <thread>

#include "core/base/files/file.h"
#include "testing/layer_stream_fixture.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Failure = test::ScriptedRepository::Failure;

// Time stands still until a test turns it.
class HandClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(std::chrono::milliseconds(now_ms_.load())); }
  void turn(std::chrono::milliseconds by) { now_ms_ += by.count(); }

 private:
  std::atomic<std::int64_t> now_ms_ = 1'000'000;
};

class LayerStreamFaultsTest : public LayerStreamTestBase {
 protected:
  void damage(const test::MadeLayer& layer, std::uint64_t offset) {
    const auto fd = open_file(data_file(layer), O_RDWR);
    Bytes byte(1);
    pread_exactly(fd.get(), offset, byte, "data");
    byte[0] ^= std::byte{1};
    pwrite_all(fd.get(), offset, byte, "data");
  }
  // For what is opened from now on.
  HandClock& turn_by_hand() {
    clock_ = &hand_clock_;
    return hand_clock_;
  }
  test::MadeLayer tar_layer(std::uint64_t bytes = 1'000'000) {
    return test::make_tar_layer(test::some_stream(bytes), kSpan);
  }
  test::MadeLayer gzip_layer(std::uint64_t bytes = 1'000'000) {
    return test::make_gzip_layer(test::gzip_of(test::some_stream(bytes)), kSpan);
  }

  HandClock hand_clock_;
};

TEST_F(LayerStreamFaultsTest, AWrongSpanIsNeverServedAndTheErrorNamesIt) {
  const auto layer = tar_layer();
  auto stream = serve(layer);
  repository_->flip(layer.map->layer_digest, 3 * kSpan + 7);
  Outcome outcome;
  stream->ensure({.offset = 3 * kSpan, .length = 10}, Priority::kReader, outcome.done());
  EXPECT_TRUE(outcome.failed_with<CorruptData>());
  EXPECT_THAT(outcome.wait(), HasSubstr(layer.map->layer_digest.to_string()));
  EXPECT_THAT(outcome.wait(), HasSubstr("stream offset 150000"));
  EXPECT_EQ(repository_->reads().size(), 2u);  // tried once more
  EXPECT_FALSE(stream->is_readable({.offset = 3 * kSpan, .length = 10}));
  EXPECT_EQ(stream->stats().errors, 1u);
  EXPECT_EQ(stream->stats().last_error, outcome.wait());
  EXPECT_EQ(read(*stream, 0, kSpan), part(layer, 0, kSpan));  // its neighbours are well
  repository_->mend();
  EXPECT_EQ(read(*stream, 3 * kSpan, kSpan), part(layer, 3 * kSpan, kSpan));
}

TEST_F(LayerStreamFaultsTest, AnotherRepositoryHelpsOut) {
  const auto layer = gzip_layer();
  auto stream = serve(layer);
  auto mirror = std::make_shared<test::ScriptedRepository>("mirror");
  layer.serve_from(*mirror);
  EXPECT_EQ(streams_->stream(layer.map, layer.blob_descriptor, mirror, layer.index_blobs, mirror), stream);
  const auto& span = layer.map->spans[4];
  repository_->flip(layer.map->layer_digest, span.compressed_range.offset + 100);
  repository_->flip(layer.map->windows_digest, 1);
  EXPECT_EQ(read(*stream, 0, layer.stream.size()), layer.stream);
  EXPECT_GE(mirror->reads_of(layer.map->layer_digest), 1u);
  EXPECT_GE(mirror->reads_of(layer.map->windows_digest), 1u);
  EXPECT_EQ(stream->stats().errors, 0u);
}

TEST_F(LayerStreamFaultsTest, ARefusalGoesToTheNextRepositoryAndIsFinalAtTheLast) {
  const auto layer = tar_layer();
  auto stream = serve(layer);
  auto mirror = std::make_shared<test::ScriptedRepository>("mirror");
  layer.serve_from(*mirror);
  streams_->stream(layer.map, layer.blob_descriptor, mirror, layer.index_blobs, mirror);
  repository_->remove(layer.map->layer_digest);
  EXPECT_EQ(read(*stream, 0, 10), part(layer, 0, 10));
  const auto asked = repository_->reads().size();
  EXPECT_EQ(read(*stream, 500'000, 10), part(layer, 500'000, 10));
  EXPECT_EQ(repository_->reads().size(), asked);  // the one that gave good bytes is asked first
  mirror->remove(layer.map->layer_digest);
  Outcome outcome;
  stream->ensure({.offset = 200'000, .length = 10}, Priority::kReader, outcome.done());
  EXPECT_TRUE(outcome.failed_with<NotFound>());
}

TEST_F(LayerStreamFaultsTest, WhatFollowsASpanThatCannotBeHadFailsWithIt) {
  const auto layer = test::make_followed_gzip_layer(test::gzip_of(test::some_stream(3'000'000)), 400'000, 60'000);
  const auto& spans = layer.map->spans;
  ASSERT_TRUE(spans[1].follows && spans[2].follows && spans[3].follows);
  auto stream = serve(layer);
  repository_->flip(layer.map->layer_digest, spans[1].compressed_range.offset + 100);
  Outcome outcome;
  stream->ensure({.offset = spans[3].stream_range.offset, .length = 10}, Priority::kReader, outcome.done());
  EXPECT_TRUE(outcome.failed_with<CorruptData>());
  EXPECT_EQ(outcome.calls(), 1);
  EXPECT_THAT(outcome.wait(), HasSubstr(layer.map->layer_digest.to_string()));
  EXPECT_TRUE(stream->is_readable(spans[0].stream_range)) << "it is well, and stays";
  while (stream->stats().fetching > 0) std::this_thread::yield();
  repository_->mend();
  EXPECT_EQ(read(*stream, 0, layer.stream.size()), layer.stream);
}

TEST_F(LayerStreamFaultsTest, WhatFollowsASpanThatTheDiskChangedIsReadAllTheSame) {
  const auto layer = test::make_followed_gzip_layer(test::gzip_of(test::some_stream(3'000'000)), 400'000, 60'000);
  const auto& spans = layer.map->spans;
  auto stream = serve(layer);
  read(*stream, 0, spans[0].stream_range.length);
  for (auto at = spans[0].stream_range.length - 30'000; at < spans[0].stream_range.length; at += 100)
    damage(layer, at);  // where the next one takes its window from
  EXPECT_EQ(read(*stream, spans[1].stream_range.offset, spans[1].stream_range.length),
            part(layer, spans[1].stream_range.offset, spans[1].stream_range.length));
  EXPECT_EQ(read(*stream, 0, spans[0].stream_range.length), part(layer, 0, spans[0].stream_range.length));
  EXPECT_EQ(stream->stats().errors, 0u);
}

TEST_F(LayerStreamFaultsTest, MemoryForOneSpanIsEnoughForThoseThatFollowEachOther) {
  options_.max_in_flight_bytes = 1;
  const auto layer = test::make_followed_gzip_layer(test::gzip_of(test::some_stream(3'000'000)), 400'000, 60'000);
  auto stream = serve(layer);
  EXPECT_EQ(read(*stream, 0, layer.stream.size()), layer.stream);
}

// Whoever serves the windows blob says what the bytes of spans must be: only as the map has it.
TEST_F(LayerStreamFaultsTest, ARecordThatIsNotWhatTheMapSaysIsNotBelieved) {
  const auto layer = test::make_followed_gzip_layer(test::gzip_of(test::some_stream(30'000'000)), 20'000, 0);
  ASSERT_GT(layer.windows.size(), 1u << 20);  // in blocks
  auto stream = serve(layer);
  const auto span = layer.map->spans.size() / 2;
  const auto record = layer.map->record_range(span);
  const auto& range = layer.map->spans[span].stream_range;
  for (const auto wrong : {record.offset, record.end() - 1, record.end() - 33}) {  // window, and both digests
    repository_->flip(layer.map->windows_digest, wrong);
    Outcome outcome;
    stream->ensure(range, Priority::kReader, outcome.done());
    EXPECT_TRUE(outcome.failed_with<CorruptData>());
    EXPECT_THAT(outcome.wait(), HasSubstr("does not match the index"));
    repository_->mend();
  }
  EXPECT_EQ(read(*stream, range.offset, range.length), part(layer, range.offset, range.length));

  // What the disk makes of it later is fetched again.
  const auto other = span + 1;
  const auto changed = layer.map->record_range(other).end() - 40;
  const auto file = open_file(data_file(layer).parent_path() / "windows", O_RDWR);
  Bytes byte(1);
  pread_exactly(file.get(), changed, byte, "windows");
  byte[0] ^= std::byte{1};
  pwrite_all(file.get(), changed, byte, "windows");
  const auto& next = layer.map->spans[other].stream_range;
  EXPECT_EQ(read(*stream, next.offset, next.length), part(layer, next.offset, next.length));
  EXPECT_TRUE(stream->verify().bad.empty());
}

TEST_F(LayerStreamFaultsTest, VerifyFetchesWhatSaysWhatTheBytesMustBe) {
  const auto layer = test::make_followed_gzip_layer(test::gzip_of(test::some_stream(1'000'000)), 100'000, 40'000);
  auto stream = serve(layer);
  EXPECT_EQ(read(*stream, 0, layer.stream.size()), layer.stream);
  stream_.reset();
  stream.reset();
  streams_.reset();
  std::filesystem::remove(data_file(layer).parent_path() / "windows");
  damage(layer, 500'000);
  open();
  stream = serve(layer);
  const auto verified = stream->verify();
  EXPECT_THAT(verified.bad, SizeIs(1));
  EXPECT_EQ(verified.checked_bytes, layer.stream.size());
  EXPECT_EQ(read(*stream, 0, layer.stream.size()), layer.stream);
}

TEST_F(LayerStreamFaultsTest, AWrongWindowIsFetchedAgainAndTheSpanIsNot) {
  const auto layer = test::make_gzip_layer(test::gzip_of(test::some_stream(9'000'000)), 20'000, true);
  ASSERT_GT(layer.windows.size(), 1u << 20);  // not checked as a whole
  auto stream = serve(layer);
  const auto& span = layer.map->spans.at(layer.map->spans.size() / 2);
  const auto window = span.window;
  // Wrong at the source: never served.
  repository_->flip(layer.map->windows_digest, window.offset + 1);
  Outcome outcome;
  stream->ensure(span.stream_range, Priority::kReader, outcome.done());
  EXPECT_TRUE(outcome.failed_with<CorruptData>());
  EXPECT_EQ(repository_->reads_of(layer.map->layer_digest), 1u);
  EXPECT_GE(repository_->reads_of(layer.map->windows_digest), 2u);
  // Mended at the source: what is kept of it is not believed.
  repository_->mend();
  EXPECT_EQ(read(*stream, span.stream_range.offset, span.stream_range.length),
            part(layer, span.stream_range.offset, span.stream_range.length));
}

TEST_F(LayerStreamFaultsTest, AWindowDamagedOnDiskIsFetchedAgain) {
  const auto layer = gzip_layer();
  auto stream = serve(layer);
  read(*stream, layer.map->spans[2].stream_range.offset, 10);
  stream.reset();
  open();
  const auto file = data_file(layer).parent_path() / "windows";
  const auto window = layer.map->spans[9].window;
  ASSERT_GT(window.length, 0u);
  const auto fd = open_file(file, O_RDWR);
  pwrite_all(fd.get(), window.offset, Bytes(window.length), "windows");
  stream = serve(layer);
  const auto range = layer.map->spans[9].stream_range;
  EXPECT_EQ(read(*stream, range.offset, range.length), part(layer, range.offset, range.length));
  EXPECT_EQ(stream->stats().errors, 0u);
}

TEST_F(LayerStreamFaultsTest, WhatMayPassIsTriedAgain) {
  const auto layer = gzip_layer();
  auto stream = serve(layer);
  repository_->fail_next(3, Failure::kTemporary, 1'000);
  EXPECT_EQ(read(*stream, 300'000, 50'000), part(layer, 300'000, 50'000));
  repository_->fail_next(2, Failure::kShort, 1'000);
  EXPECT_EQ(read(*stream, 600'000, 50'000), part(layer, 600'000, 50'000));
  EXPECT_EQ(stream->stats().errors, 0u);
}

TEST_F(LayerStreamFaultsTest, NobodyWaitsLongerThanTheDeadline) {
  auto& clock = turn_by_hand();
  const auto layer = tar_layer();
  auto stream = serve(layer);
  repository_->close_gate();
  Outcome outcome;
  stream->ensure({.offset = 100'000, .length = 10}, Priority::kReader, outcome.done());
  repository_->wait_until_gated(1);
  clock.turn(options_.deadline - std::chrono::milliseconds(1));
  EXPECT_EQ(outcome.calls(), 0);
  clock.turn(std::chrono::milliseconds(1));
  EXPECT_TRUE(outcome.failed_with<TemporaryError>());
  EXPECT_THAT(outcome.wait(),
              HasSubstr(layer.map->layer_digest.to_string() + " at stream offset 100000: not here after 120 s"));
  EXPECT_EQ(stream->stats().errors, 1u);
  repository_->open_gate();
  EXPECT_EQ(read(*stream, 100'000, 10), part(layer, 100'000, 10));  // what came too late for one serves the next
  EXPECT_EQ(outcome.calls(), 1);
}

TEST_F(LayerStreamFaultsTest, TheDeadlineSaysWhatWentWrongUntilThen) {
  auto& clock = turn_by_hand();
  const auto layer = tar_layer();
  auto stream = serve(layer);
  repository_->fail_next(1'000'000, Failure::kTemporary);
  Outcome outcome;
  stream->ensure({.offset = 0, .length = 10}, Priority::kReader, outcome.done());
  while (stream->stats().last_error.empty()) std::this_thread::yield();
  while (outcome.calls() == 0) {
    clock.turn(std::chrono::seconds(1));
    std::this_thread::yield();
  }
  EXPECT_TRUE(outcome.failed_with<TemporaryError>());
  EXPECT_THAT(outcome.wait(), HasSubstr("connection reset"));
}

TEST_F(LayerStreamFaultsTest, AReaderForWhomNothingWasAnsweredHearsWhatTheSourceSaidLast) {
  auto& clock = turn_by_hand();
  const auto layer = tar_layer();
  auto stream = serve(layer);
  repository_->fail_next(1, Failure::kTemporary);
  Outcome before, outcome;
  stream->ensure({.offset = 0, .length = 10}, Priority::kReader, before.done());
  while (stream->stats().last_error.empty()) std::this_thread::yield();
  repository_->close_gate();
  stream->ensure({.offset = 10 * kSpan, .length = 10}, Priority::kReader, outcome.done());
  repository_->wait_until_gated(1);
  while (outcome.calls() == 0) {
    clock.turn(std::chrono::seconds(1));
    std::this_thread::yield();
  }
  EXPECT_THAT(outcome.wait(), HasSubstr("connection reset"));
  repository_->open_gate();
  before.wait();
}

TEST_F(LayerStreamFaultsTest, TellsForWhichSourceAReaderWaitsSinceWhenAndWhy) {
  auto& clock = turn_by_hand();
  const auto layer = tar_layer();
  auto stream = serve(layer);
  EXPECT_EQ(stream->stats().waiting_for, "");
  repository_->fail_next(1, Failure::kTemporary);
  Outcome ahead, outcome;
  stream->ensure({.offset = 0, .length = 10}, Priority::kReader, outcome.done());
  while (stream->stats().last_error.empty()) std::this_thread::yield();
  clock.turn(std::chrono::milliseconds(40));  // less than any delay before the next attempt
  const auto stats = stream->stats();
  EXPECT_EQ(stats.waiting_for, repository_->name());
  EXPECT_NEAR(stats.waiting_seconds, 0.04, 0.001);
  EXPECT_THAT(stats.last_error, HasSubstr(layer.map->layer_digest.to_string() + " at stream offset 0: "));
  EXPECT_EQ(stats.errors, 0u) << "it is tried again";
  clock.turn(std::chrono::seconds(5));
  EXPECT_EQ(outcome.wait(), "");
  EXPECT_EQ(stream->stats().waiting_for, "");
  EXPECT_EQ(stream->stats().errors, 0u);
  repository_->close_gate();
  stream->ensure({.offset = 10 * kSpan, .length = 10}, Priority::kBackground, ahead.done());
  repository_->wait_until_gated(1);
  EXPECT_EQ(stream->stats().waiting_for, "") << "who fetches ahead lets others pass";
  repository_->open_gate();
  EXPECT_EQ(ahead.wait(), "");
}

TEST_F(LayerStreamFaultsTest, BytesOfAFolderAreCountedAsLocal) {
  const auto layer = tar_layer();
  auto stream = serve(layer);
  read(*stream, 0, 10);
  const auto from_registry = stream->stats();
  EXPECT_GT(from_registry.fetched_bytes, 0u);
  EXPECT_EQ(from_registry.local_bytes, 0u);
  auto folder = std::make_shared<test::ScriptedRepository>("oci:/srv/image");
  layer.serve_from(*folder);
  streams_->stream(layer.map, layer.blob_descriptor, folder, layer.index_blobs, folder);
  repository_->remove(layer.map->layer_digest);
  read(*stream, 500'000, 10);
  const auto stats = stream->stats();
  EXPECT_GT(stats.local_bytes, 0u);
  EXPECT_EQ(stats.local_bytes, stats.fetched_bytes - from_registry.fetched_bytes);
}

TEST_F(LayerStreamFaultsTest, SpansThatOnlyAnExpiredReaderWantedAreNotFetched) {
  auto& clock = turn_by_hand();
  options_.connections = 2;
  options_.max_request_bytes = kSpan;
  const auto layer = tar_layer();
  auto stream = serve(layer);
  repository_->close_gate();
  Outcome outcome;
  stream->ensure({.offset = 0, .length = 20 * kSpan}, Priority::kReader, outcome.done());
  repository_->wait_until_gated(2);
  clock.turn(options_.deadline);
  EXPECT_TRUE(outcome.failed_with<TemporaryError>());
  EXPECT_LE(stream->stats().fetching, 2u);
  repository_->open_gate();
  while (stream->stats().fetching > 0) std::this_thread::yield();
  EXPECT_EQ(repository_->reads().size(), 2u);
}

TEST_F(LayerStreamFaultsTest, AReaderPromotesWhatIsQueuedAheadOfNeed) {
  options_.connections = 2;
  options_.merge_gap_bytes = 0;
  const auto layer = tar_layer(3'000'000);
  auto stream = serve(layer);
  repository_->close_gate();
  Outcome ahead[3], reader;
  stream->ensure({.offset = 0, .length = 10}, Priority::kReadAhead, ahead[0].done());
  repository_->wait_until_gated(1);  // all that read-ahead may have of two connections
  stream->ensure({.offset = 10 * kSpan, .length = 10}, Priority::kReadAhead, ahead[1].done());
  stream->ensure({.offset = 20 * kSpan, .length = 10}, Priority::kReadAhead, ahead[2].done());
  stream->ensure({.offset = 20 * kSpan, .length = 10}, Priority::kReader, reader.done());
  repository_->wait_until_gated(2);
  EXPECT_EQ(repository_->reads()[1].range.offset, 20 * kSpan);
  repository_->open_gate();
  EXPECT_EQ(reader.wait(), "");
  for (auto& outcome : ahead) EXPECT_EQ(outcome.wait(), "");
}

TEST_F(LayerStreamFaultsTest, VerifyFindsAFlippedBitAndItIsFetchedAnew) {
  const auto layer = gzip_layer();
  auto stream = serve(layer);
  read(*stream, 0, layer.stream.size());
  const auto range = layer.map->spans[6].stream_range;
  damage(layer, range.offset + 1'000);
  const auto verified = stream->verify();
  EXPECT_EQ(verified.checked_bytes, layer.stream.size());
  EXPECT_THAT(verified.bad, ElementsAre(range));
  EXPECT_FALSE(stream->complete());
  EXPECT_EQ(read(*stream, range.offset, range.length), part(layer, range.offset, range.length));
  EXPECT_TRUE(stream->verify().bad.empty());
  EXPECT_TRUE(stream->complete());
}

TEST_F(LayerStreamFaultsTest, WithoutASourceWhatIsAbsentFailsAtOnce) {
  const auto layer = tar_layer();
  open();
  auto stream = streams_->stream(layer.map, layer.blob_descriptor, nullptr, layer.index_blobs, nullptr);
  Outcome outcome;
  stream->ensure({.offset = 0, .length = 10}, Priority::kReader, outcome.done());
  EXPECT_TRUE(outcome.failed_with<NotFound>());
}

TEST_F(LayerStreamFaultsTest, StopFailsAllWhoWaitAndLaterOnesAtOnce) {
  const auto layer = tar_layer();
  auto stream = serve(layer);
  read(*stream, 900'000, 10);
  repository_->close_gate();
  Outcome waiting, late;
  stream->ensure({.offset = 0, .length = 10}, Priority::kReader, waiting.done());
  repository_->wait_until_gated(1);
  std::jthread stopper([&] { streams_->stop(); });
  EXPECT_TRUE(waiting.failed_with<Cancelled>());  // though the transfer hangs
  repository_->open_gate();
  stopper.join();
  stream->ensure({.offset = 0, .length = 10}, Priority::kReader, late.done());
  EXPECT_TRUE(late.failed_with<Cancelled>());
  streams_.reset();
  EXPECT_EQ(try_read(*stream, 900'000, 10), part(layer, 900'000, 10));
}

TEST_F(LayerStreamFaultsTest, AWholeBlobThatBreaksIsBegunAgainAndAWrongOneRefused) {
  const auto layer = test::make_zstd_single_layer(test::some_stream(2'000'000), kSpan);
  auto stream = serve(layer);
  repository_->fail_next(2, Failure::kTemporary, layer.blob.size() / 2);
  EXPECT_EQ(read(*stream, 1'900'000, 1'000), part(layer, 1'900'000, 1'000));
  EXPECT_EQ(stream->stats().requests, 3u);
  const auto wrong = test::make_zstd_single_layer(test::some_stream(2'000'000, 9), kSpan);
  stream = serve(wrong);
  repository_->flip(wrong.map->layer_digest, wrong.blob.size() / 2);
  Outcome outcome;
  stream->ensure({.offset = 1'900'000, .length = 10}, Priority::kReader, outcome.done());
  EXPECT_TRUE(outcome.failed_with<CorruptData>());
  EXPECT_FALSE(stream->is_readable({.offset = 1'900'000, .length = 10}));
  repository_->mend();
  EXPECT_EQ(read(*stream, 0, wrong.stream.size()), wrong.stream);
}

TEST_F(LayerStreamFaultsTest, AnErrorAheadOfNeedIsNobodysError) {
  const auto layer = tar_layer();
  options_.read_next_when_idle = true;
  options_.read_ahead_bytes = 4 * 50'000;
  auto stream = serve(layer);
  repository_->flip(layer.map->layer_digest, kSpan + 1);
  EXPECT_EQ(read(*stream, 0, 10), part(layer, 0, 10));
  while (stream->stats().fetching > 0) std::this_thread::yield();
  EXPECT_EQ(stream->stats().errors, 0u);
}

TEST_F(LayerStreamFaultsTest, AReaderWhoseOneSpanFailsIsToldOnceAndHisBufferIsLeftAlone) {
  const auto layer = tar_layer();
  options_.max_request_bytes = kSpan;
  auto stream = serve(layer);
  repository_->flip(layer.map->layer_digest, 7 * kSpan + 7);
  for (int round = 0; round < 20; ++round) {
    const auto bytes = std::make_unique<Bytes>(10 * kSpan);
    Outcome outcome;
    stream->read(0, *bytes, outcome.done());
    EXPECT_TRUE(outcome.failed_with<CorruptData>());
    EXPECT_EQ(outcome.calls(), 1);
  }
  while (stream->stats().fetching > 0) std::this_thread::yield();
  EXPECT_EQ(try_read(*stream, 0, 7 * kSpan), part(layer, 0, 7 * kSpan));
}

TEST_F(LayerStreamFaultsTest, AFullDiskSlowsDownAndBreaksNothing) {
  const auto disk = dir_ / "store";
  std::filesystem::create_directory(disk);
  if (::geteuid() != 0 || ::mount("varve-test", disk.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") != 0)
    GTEST_SKIP() << "needs root to mount a small file system";
  const auto layer = gzip_layer(4'000'000);
  options_.overflow_bytes = 200'000;
  auto stream = serve(layer);
  std::vector<std::jthread> readers;
  for (std::uint64_t reader = 0; reader < 4; ++reader)
    readers.emplace_back([&, reader] {
      for (std::uint64_t at = reader * 10'000; at + 40'000 < layer.stream.size(); at += 40'000)
        ASSERT_EQ(try_read(*stream, at, 40'000), part(layer, at, 40'000));
    });
  readers.clear();
  EXPECT_EQ(stream->stats().errors, 0u);
  EXPECT_FALSE(stream->complete());
  Outcome fill;
  stream->ensure({.offset = 0, .length = layer.stream.size()}, Priority::kBackground, fill.done());
  EXPECT_TRUE(fill.failed_with<TemporaryError>());
  EXPECT_THAT(fill.wait(), HasSubstr("full"));
  stream.reset();
  stream_.reset();
  streams_.reset();
  ::umount2(disk.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace varve::fuse
