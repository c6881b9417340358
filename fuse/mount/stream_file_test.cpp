#include "fuse/mount/stream_file.h"

#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/fake_layer_stream.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

class StreamFileTest : public ::testing::Test {
 protected:
  StreamFileTest() {
    std::string bytes(2000, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>('a' + i % 26);
    write_file_atomically(dir_ / "one", as_bytes(bytes));
    write_file_atomically(dir_ / "two", as_bytes(std::string(1000, 'z')));
    one_ = std::make_shared<test::FakeLayerStream>(dir_ / "one", 2000);
    two_ = std::make_shared<test::FakeLayerStream>(dir_ / "two", 1000);
  }

  std::vector<StreamPiece> pieces_of(const StreamFile& file, ByteRange range) {
    std::vector<StreamPiece> pieces;
    file.find_pieces(range, 0, pieces);
    return pieces;
  }

  // Starts to read; the answer lands in answer_ or error_.
  void start(const StreamFile& file, ByteRange range) {
    read_pieces(pieces_of(file, range), range.length, [this](std::exception_ptr error, ByteView bytes) {
      ++answers_;
      error_ = error;
      answer_ = std::string(as_text(bytes));
    });
  }

  test::TempDir dir_;
  std::shared_ptr<test::FakeLayerStream> one_, two_;
  int answers_ = 0;
  std::exception_ptr error_;
  std::string answer_;
};

TEST_F(StreamFileTest, ALayerFileIsPaddedToWholeBlocks) {
  const LayerFile file(one_);
  EXPECT_EQ(file.size(), 2048u);
  start(file, {1998, 50});
  EXPECT_EQ(answer_, std::string("wx") + std::string(48, '\0'));
}

TEST_F(StreamFileTest, WhatIsHereIsAnsweredBeforeTheCallReturns) {
  start(LayerFile(one_), {0, 5});
  EXPECT_EQ(answer_, "abcde");
  EXPECT_EQ(one_->wishes(), 0u);
}

TEST_F(StreamFileTest, WhatIsMissingIsAnsweredWhenTheLastPieceArrives) {
  const RangesFile file({.bytes = 20, .ranges = {{0, 0, 26, 5}, {10, 1, 0, 5}}}, {one_, two_});
  one_->hold();
  two_->hold();
  start(file, {0, 20});
  one_->arrive();
  EXPECT_EQ(answers_, 0);
  two_->arrive();
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(answer_, std::string("abcde") + std::string(5, '\0') + "zzzzz" + std::string(5, '\0'));
}

TEST_F(StreamFileTest, AFailedPieceFailsTheReadOnce) {
  const RangesFile file({.bytes = 20, .ranges = {{0, 0, 26, 5}, {10, 1, 0, 5}}}, {one_, two_});
  one_->hold();
  two_->hold();
  start(file, {0, 20});
  one_->fail_all("the registry is away");
  two_->arrive();
  EXPECT_EQ(answers_, 1);
  ASSERT_TRUE(error_);
  EXPECT_THROW(std::rethrow_exception(error_), TemporaryError);
}

TEST_F(StreamFileTest, AReadOfNothingIsAnsweredWithNothing) {
  start(LayerFile(one_), {0, 0});
  EXPECT_EQ(answers_, 1);
  EXPECT_FALSE(error_);
}

TEST_F(StreamFileTest, RangesAreCutAtBothEndsOfWhatIsWanted) {
  const RangesFile file({.bytes = 4096, .ranges = {{0, 0, 100, 512}, {512, 1, 0, 100}, {2048, 0, 1000, 512}}},
                        {one_, two_});
  EXPECT_EQ(file.size(), 4096u);
  EXPECT_EQ(pieces_of(file, {500, 40}), (std::vector<StreamPiece>{{one_.get(), 600, 0, 12}, {two_.get(), 0, 12, 28}}));
  EXPECT_EQ(pieces_of(file, {700, 1000}), (std::vector<StreamPiece>{}));
  EXPECT_EQ(pieces_of(file, {2100, 10}), (std::vector<StreamPiece>{{one_.get(), 1052, 0, 10}}));
}

TEST_F(StreamFileTest, RangesOutsideOfTheirLayerAreRefused) {
  const std::vector<std::shared_ptr<LayerStream>> layers{one_, two_};
  EXPECT_THROW(RangesFile({.bytes = 512, .ranges = {{0, 2, 0, 10}}}, layers), CorruptData);
  EXPECT_THROW(RangesFile({.bytes = 512, .ranges = {{0, 1, 995, 10}}}, layers), CorruptData);
  EXPECT_THROW(RangesFile({.bytes = 512, .ranges = {{0, 1, ~0ull - 3, 10}}}, layers), CorruptData);
}

}  // namespace
}  // namespace varve::fuse
