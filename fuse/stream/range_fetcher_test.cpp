#include "fuse/stream/range_fetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/threads/guarded.h"
#include "fuse/stream/attempts.h"
#include "testing/layer_maker.h"
#include "testing/manual_clock.h"
#include "testing/scripted_repository.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Read = test::ScriptedRepository::Read;

constexpr std::uint64_t kPiece = 1'000;

// A blob of pieces of equal size; keeps what arrives.
class TestSource final : public PieceSource {
 public:
  TestSource(std::shared_ptr<test::ScriptedRepository> repository, std::uint64_t pieces, std::uint32_t seed = 1,
             std::uint64_t piece_bytes = kPiece)
      : content_(test::some_stream(pieces * piece_bytes, seed)),
        piece_bytes_(piece_bytes),
        repository_(std::move(repository)),
        blob_(repository_->serve(content_)) {}

  const oci::Descriptor& blob() const override { return blob_; }
  ByteRange piece_range(std::size_t piece) const override {
    return {.offset = piece * piece_bytes_, .length = piece_bytes_};
  }
  std::size_t pieces() const override { return content_.size() / piece_bytes_; }
  std::shared_ptr<oci::Repository> repository(unsigned) const override { return repository_; }
  bool needs_no_budget() const override { return small; }
  void count_request() override {}
  void count_bytes(std::uint64_t, bool) override {}
  void on_piece(std::size_t piece, unsigned, FetchedPiece fetched) noexcept override {
    EXPECT_EQ(fetched.bytes, to_bytes(ByteView(content_).subspan(piece * piece_bytes_, piece_bytes_)));
    const std::lock_guard lock(mutex_);
    order_.push_back(piece);
    if (sets_aside) fetched.hold.set_aside();
    if (keep) kept_.push_back(std::move(fetched));
    changed_.notify_all();
  }
  void on_failure(std::size_t piece, unsigned, std::exception_ptr error) noexcept override {
    const std::lock_guard lock(mutex_);
    failures_.emplace_back(piece, message_of(error));
    changed_.notify_all();
  }

  void wait_for(std::size_t pieces) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return order_.size() + failures_.size() >= pieces; });
  }
  std::vector<std::size_t> order() const {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  std::vector<std::pair<std::size_t, std::string>> failures() const {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  void drop_kept() {
    std::vector<FetchedPiece> kept;
    const std::lock_guard lock(mutex_);
    kept.swap(kept_);
  }

  bool small = false;
  bool keep = false;  // what arrives goes on filling the budget
  bool sets_aside = false;

 private:
  const Bytes content_;
  const std::uint64_t piece_bytes_;
  const std::shared_ptr<test::ScriptedRepository> repository_;
  const oci::Descriptor blob_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> order_;
  std::vector<std::pair<std::size_t, std::string>> failures_;
  std::vector<FetchedPiece> kept_;
};

class RangeFetcherTest : public ::testing::Test {
 protected:
  void make(StreamOptions options) { fetcher_ = std::make_unique<RangeFetcher>(options, Clock::system()); }
  void want(std::initializer_list<std::size_t> pieces, Priority priority) {
    for (const auto piece : pieces) fetcher_->want(source_, piece, priority);
  }
  // Occupies one connection until the gate is opened.
  void block_a_connection(std::size_t piece, Priority priority = Priority::kReader) {
    fetcher_->want(blocker_, piece, priority);
    repository_->wait_until_gated(++blocked_);
  }
  // So many requests, and no more than may start.
  void wait_until_begun(std::size_t requests) {
    repository_->wait_until_gated(requests);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::vector<ByteRange> ranges() const { return ranges_of(*source_); }
  std::vector<ByteRange> ranges_of(const TestSource& source) const {
    std::vector<ByteRange> ranges;
    for (const auto& read : repository_->reads())
      if (read.digest == source.blob().digest) ranges.push_back(read.range);
    return ranges;
  }

  std::shared_ptr<test::ScriptedRepository> repository_ = std::make_shared<test::ScriptedRepository>();
  std::shared_ptr<TestSource> source_ = std::make_shared<TestSource>(repository_, 1'000);
  std::shared_ptr<TestSource> blocker_ = std::make_shared<TestSource>(repository_, 100, 7);
  std::size_t blocked_ = 0;
  std::unique_ptr<RangeFetcher> fetcher_;
};

TEST_F(RangeFetcherTest, NeighboursAndNearPiecesAreOneRequestAndFarOnesAreNot) {
  make({.connections = 2, .merge_gap_bytes = 2 * kPiece});
  repository_->close_gate();
  block_a_connection(0);
  block_a_connection(50);
  // Queued while no connection is free, so what is merged does not depend on timing.
  want({10, 11, 12, 15, 30, 32, 40}, Priority::kReader);
  repository_->open_gate();
  source_->wait_for(7);
  EXPECT_THAT(ranges(),
              ::testing::UnorderedElementsAre(ByteRange{10 * kPiece, 6 * kPiece}, ByteRange{30 * kPiece, 3 * kPiece},
                                              ByteRange{40 * kPiece, kPiece}));
}

TEST_F(RangeFetcherTest, ARequestStaysUnderItsLimit) {
  make({.connections = 2, .max_request_bytes = 4 * kPiece});
  repository_->close_gate();
  block_a_connection(0);
  block_a_connection(50);
  for (std::size_t piece = 0; piece < 12; ++piece) want({piece}, Priority::kReader);
  repository_->open_gate();
  source_->wait_for(12);
  EXPECT_THAT(ranges(), ::testing::UnorderedElementsAre(ByteRange{0, 4 * kPiece}, ByteRange{4 * kPiece, 4 * kPiece},
                                                        ByteRange{8 * kPiece, 4 * kPiece}));
}

TEST_F(RangeFetcherTest, ReadersComeBeforeReadAheadBeforeBackgroundAndAPromotedPieceComesEarly) {
  make({.connections = 2, .merge_gap_bytes = 0});
  repository_->close_gate();
  block_a_connection(0);
  block_a_connection(50);
  want({900}, Priority::kBackground);
  want({800, 810}, Priority::kReadAhead);
  want({700}, Priority::kReader);
  fetcher_->promote(*source_, 810, Priority::kReader);
  fetcher_->promote(*source_, 5, Priority::kReader);  // was never wanted
  for (std::size_t done = 1; done <= 3; ++done) {
    repository_->let_through(1);
    repository_->wait_for_reads(2 + done);
  }
  repository_->open_gate();
  source_->wait_for(4);
  EXPECT_EQ(ranges()[0].offset, 700 * kPiece);
  EXPECT_EQ(ranges()[1].offset, 810 * kPiece);
  EXPECT_EQ(ranges()[2].offset, 800 * kPiece);
  EXPECT_EQ(ranges()[3].offset, 900 * kPiece);
}

TEST_F(RangeFetcherTest, ReadAheadLeavesConnectionsToReaders) {
  make({.connections = 4, .merge_gap_bytes = 0});
  repository_->close_gate();
  for (std::size_t piece = 0; piece < 100; piece += 10) want({piece}, Priority::kReadAhead);
  repository_->wait_until_gated(3);
  want({500}, Priority::kReader);
  repository_->wait_until_gated(4);  // would wait for ever if read-ahead had taken all
  EXPECT_EQ(ranges().back().offset, 500 * kPiece);
  EXPECT_FALSE(fetcher_->idle());
  repository_->open_gate();
  source_->wait_for(11);
}

TEST_F(RangeFetcherTest, AReadersRequestTakesNoReadAheadAlongWhenOnlyKeptConnectionsAreLeft) {
  make({.connections = 4, .merge_gap_bytes = 0});
  repository_->close_gate();
  for (std::size_t piece = 0; piece < 30; piece += 10) want({piece}, Priority::kReadAhead);
  repository_->wait_until_gated(3);
  want({501}, Priority::kReadAhead);
  want({500}, Priority::kReader);
  repository_->wait_until_gated(4);
  EXPECT_EQ(ranges().back(), (ByteRange{500 * kPiece, kPiece}));
  repository_->open_gate();
  source_->wait_for(5);
}

TEST_F(RangeFetcherTest, BackgroundWaitsWhileAReaderWaits) {
  make({.connections = 4});
  repository_->close_gate();
  block_a_connection(0);
  want({100}, Priority::kBackground);
  want({200}, Priority::kReadAhead);
  repository_->wait_until_gated(2);
  EXPECT_THAT(ranges(), ElementsAre(ByteRange{200 * kPiece, kPiece}));
  EXPECT_FALSE(fetcher_->idle());
  repository_->open_gate();
  source_->wait_for(2);
}

// Of 1,000 bytes 60 ms apart and answers after 20 ms, 333 bytes are under way: four requests of 100.
TEST_F(RangeFetcherTest, BackgroundTakesAsManyRequestsAsTheLinkHolds) {
  test::ManualClock clock;
  const auto expect_background_at_once = [&](std::size_t expected, RangeFetcher& fetcher, std::size_t first) {
    const auto before = ranges().size();
    for (std::size_t i = 0; i < 6; ++i) fetcher.want(source_, first + i * 10, Priority::kBackground);
    wait_until_begun(expected);
    EXPECT_EQ(ranges().size() - before, expected);
    repository_->open_gate();
  };
  const StreamOptions options{.connections = 8, .max_request_bytes = 100, .merge_gap_bytes = 0};
  {
    RangeFetcher knows_nothing(options, clock);
    repository_->close_gate();
    expect_background_at_once(2, knows_nothing, 500);
    source_->wait_for(6);
    EXPECT_THAT(knows_nothing.links(), IsEmpty()) << "no time has passed";
  }
  RangeFetcher fetcher(options, clock);
  repository_->close_gate();
  for (const std::size_t piece : {0, 10}) fetcher.want(source_, piece, Priority::kReader);
  repository_->wait_until_gated(2);
  clock.advance(std::chrono::milliseconds(20));
  repository_->let_through(1);
  source_->wait_for(7);
  clock.advance(std::chrono::milliseconds(60));
  repository_->let_through(1);
  source_->wait_for(8);
  const auto link = fetcher.links().at("memory");
  EXPECT_NEAR(link.answer_seconds, 0.020, 1e-9);
  EXPECT_NEAR(link.bytes_per_second, 1'000 / 0.060, 1);
  expect_background_at_once(4, fetcher, 100);
  source_->wait_for(14);
}

// A reader that comes waits behind what is on the wire. Of a link of 5 MB/s whose answers take 20 ms, that is half a
// MiB.
TEST_F(RangeFetcherTest, OfASlowLinkReadAheadTakesWhatKeepsItBusyAndInParts) {
  constexpr std::uint64_t kLarge = 100'000;
  test::ManualClock clock;
  const auto source = std::make_shared<TestSource>(repository_, 140, 3, kLarge);
  RangeFetcher fetcher({.connections = 16, .merge_gap_bytes = 0}, clock);
  const auto begun = [&](std::size_t expected) {
    wait_until_begun(expected);
    return ranges_of(*source);
  };
  const auto want_all_of = [&](std::size_t first, std::size_t last) {
    const RangeFetcher::Together together(fetcher);
    for (auto piece = first; piece < last; ++piece) fetcher.want(source, piece, Priority::kReadAhead);
  };
  repository_->close_gate();
  want_all_of(0, 90);  // while nothing is known: 6 MiB, in requests of a third of that
  EXPECT_THAT(begun(3), ::testing::UnorderedElementsAre(ByteRange{0, 20 * kLarge}, ByteRange{20 * kLarge, 20 * kLarge},
                                                        ByteRange{40 * kLarge, 20 * kLarge}));
  clock.advance(std::chrono::milliseconds(20));
  repository_->let_through(1);
  source->wait_for(20);
  clock.advance(std::chrono::milliseconds(400));
  repository_->let_through(1);
  source->wait_for(40);
  EXPECT_NEAR(fetcher.links().at("memory").bytes_per_second, 5e6, 1);
  repository_->open_gate();
  source->wait_for(90);
  const auto before = ranges_of(*source).size();
  repository_->close_gate();
  want_all_of(100, 120);
  auto asked = begun(5);
  asked.erase(asked.begin(), asked.begin() + std::ptrdiff_t(before));
  std::vector<ByteRange> expected;
  for (std::size_t piece = 100; piece < 105; ++piece) expected.push_back({piece * kLarge, kLarge});
  EXPECT_THAT(asked, ::testing::UnorderedElementsAreArray(expected));
  // A reader is not kept from the link, and takes nothing along that would come behind it.
  fetcher.want(source, 131, Priority::kReadAhead);
  fetcher.want(source, 130, Priority::kReader);
  EXPECT_EQ(begun(6).back(), (ByteRange{130 * kLarge, kLarge}));
  repository_->open_gate();
  source->wait_for(112);
}

TEST_F(RangeFetcherTest, FilesOfThisMachineAreNoLink) {
  test::ManualClock clock;
  const auto here = std::make_shared<test::ScriptedRepository>("oci:/layout");
  const auto source = std::make_shared<TestSource>(here, 10);
  RangeFetcher fetcher({}, clock);
  here->close_gate();
  fetcher.want(source, 1, Priority::kReader);
  here->wait_until_gated(1);
  clock.advance(std::chrono::milliseconds(20));
  here->open_gate();
  source->wait_for(1);
  EXPECT_THAT(fetcher.links(), IsEmpty());
}

TEST_F(RangeFetcherTest, MemoryInFlightIsBoundedAndOneLargePieceStillPasses) {
  make({.connections = 4, .merge_gap_bytes = 0, .max_in_flight_bytes = 2 * kPiece});
  source_->keep = true;
  want({10}, Priority::kReader);
  want({20}, Priority::kReader);
  want({30}, Priority::kReader);
  source_->wait_for(2);
  EXPECT_EQ(fetcher_->budget().used(), 2 * kPiece);
  // A source whose pieces free memory passes by.
  blocker_->small = true;
  fetcher_->want(blocker_, 3, Priority::kReadAhead);
  blocker_->wait_for(1);
  EXPECT_THAT(source_->order(), SizeIs(2));
  source_->drop_kept();
  source_->wait_for(3);
  source_->drop_kept();
  make({.connections = 4, .max_in_flight_bytes = kPiece / 2});
  want({40}, Priority::kReader);
  source_->wait_for(4);
  source_->drop_kept();
}

TEST_F(RangeFetcherTest, WhatIsSetAsideIsInTheWayOfReadAheadAlone) {
  make({.connections = 4, .merge_gap_bytes = 0, .max_in_flight_bytes = 4 * kPiece});
  source_->keep = source_->sets_aside = true;
  std::size_t there = 0;
  for (const std::size_t piece : {10, 20, 30}) {
    want({piece}, Priority::kReadAhead);
    source_->wait_for(++there);
  }
  EXPECT_EQ(fetcher_->budget().used(), 0u);
  EXPECT_EQ(fetcher_->budget().set_aside(), 3 * kPiece);
  blocker_->keep = true;
  fetcher_->want(blocker_, 3, Priority::kReader);
  blocker_->wait_for(1);
  want({40}, Priority::kReadAhead);
  for (const std::size_t piece : {50, 60, 70}) {
    want({piece}, Priority::kReader);
    source_->wait_for(++there);
  }
  EXPECT_THAT(source_->order(), ElementsAre(10, 20, 30, 50, 60, 70));
  // With nothing else in memory it goes on: what is set aside may wait for it.
  blocker_->drop_kept();
  source_->wait_for(7);
  EXPECT_EQ(source_->order().back(), 40u);
  source_->drop_kept();
  EXPECT_EQ(fetcher_->budget().set_aside(), 0u);
}

// An origin that says nothing has all of its connections, its readers wait, and all of the memory is promised to it.
class SilentOriginTest : public RangeFetcherTest {
 protected:
  void fall_silent(const StreamOptions& options) {
    make(options);
    silent_->close_gate();
    for (std::size_t piece = 0; piece < 100; piece += 10) fetcher_->want(silent_source_, piece, Priority::kReader);
    silent_->wait_until_gated(std::min<std::size_t>(options.connections, options.max_in_flight_bytes / kPiece));
  }
  ~SilentOriginTest() override { silent_->open_gate(); }

  std::shared_ptr<test::ScriptedRepository> silent_ = std::make_shared<test::ScriptedRepository>("silent.example");
  std::shared_ptr<TestSource> silent_source_ = std::make_shared<TestSource>(silent_, 1'000, 3);
};

TEST_F(SilentOriginTest, KeepsNoReaderOfAnotherWaiting) {
  fall_silent({.connections = 4, .merge_gap_bytes = 0});
  repository_->close_gate();
  want({100, 200, 300, 400, 500}, Priority::kReader);
  repository_->wait_until_gated(4);  // as many as if the other were not
  repository_->open_gate();
  source_->wait_for(5);
  EXPECT_THAT(silent_source_->order(), IsEmpty());
  EXPECT_THAT(source_->failures(), IsEmpty());
}

TEST_F(SilentOriginTest, DoesNotTakeTheLastMemory) {
  fall_silent({.connections = 4, .merge_gap_bytes = 0, .max_in_flight_bytes = 2 * kPiece});
  want({100, 200, 300}, Priority::kReader);
  source_->wait_for(3);
  EXPECT_LE(fetcher_->budget().used(), 3 * kPiece);
}

TEST_F(SilentOriginTest, LetsBackgroundWorkOfOthersGoOn) {
  fall_silent({.connections = 4, .merge_gap_bytes = 0});
  want({100, 200}, Priority::kBackground);
  source_->wait_for(2);
  EXPECT_THAT(source_->order(), ::testing::UnorderedElementsAre(100, 200));
}

TEST_F(RangeFetcherTest, DeliversPiecesBeforeATransferBreaksAndFailsTheRest) {
  make({.connections = 2, .merge_gap_bytes = 0});
  repository_->close_gate();
  block_a_connection(0);
  block_a_connection(50);
  want({10, 11, 12, 13}, Priority::kReader);
  repository_->let_through(2);
  blocker_->wait_for(2);
  repository_->wait_until_gated(1);
  repository_->fail_next(1, test::ScriptedRepository::Failure::kTemporary, 2 * kPiece + 10);
  repository_->open_gate();
  source_->wait_for(4);
  EXPECT_THAT(source_->order(), ElementsAre(10, 11));
  ASSERT_THAT(source_->failures(), SizeIs(2));
  EXPECT_EQ(source_->failures()[0].second, "memory: connection reset");
}

TEST_F(RangeFetcherTest, ATransferThatEndsEarlyWithoutAnErrorIsAnError) {
  make({});
  repository_->fail_next(1, test::ScriptedRepository::Failure::kShort, 10);
  want({3}, Priority::kReader);
  source_->wait_for(1);
  ASSERT_THAT(source_->failures(), SizeIs(1));
  EXPECT_THAT(source_->failures()[0].second, ::testing::HasSubstr("ended too early"));
}

TEST_F(RangeFetcherTest, ForgetsOnlyWhatIsStillQueued) {
  make({.connections = 2});
  repository_->close_gate();
  block_a_connection(0);
  block_a_connection(50);
  want({10}, Priority::kReader);
  fetcher_->want(source_, 20, Priority::kReader, 0, std::chrono::hours(1));
  EXPECT_TRUE(fetcher_->forget(*source_, 10));
  EXPECT_TRUE(fetcher_->forget(*source_, 20));
  EXPECT_FALSE(fetcher_->forget(*source_, 10));
  EXPECT_FALSE(fetcher_->forget(*blocker_, 0));
  repository_->open_gate();
  blocker_->wait_for(2);
  fetcher_->stop();
  EXPECT_THAT(source_->order(), IsEmpty());
}

}  // namespace
}  // namespace varve::fuse
