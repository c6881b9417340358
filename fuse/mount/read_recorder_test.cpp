#include "fuse/mount/read_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/files/file.h"
#include "testing/fake_layer_stream.h"
#include "testing/manual_clock.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ReadRecorderTest : public ::testing::Test {
 protected:
  ReadRecorderTest() {
    write_file_atomically(dir_ / "layer", {});
    layer_ = std::make_shared<test::FakeLayerStream>(dir_ / "layer", 10'100);
    recorder_ = std::make_shared<ReadRecorder>(clock_);
  }
  void read(const StreamFile& file, ByteRange range) {
    std::vector<StreamPiece> pieces;
    file.find_pieces(range, 0, pieces);
    pieces_ += pieces.size();
  }
  std::vector<index::ProfileRange> recorded() { return recorder_->profile().ranges; }

  test::TempDir dir_;
  test::ManualClock clock_;
  std::shared_ptr<test::FakeLayerStream> layer_;
  std::shared_ptr<ReadRecorder> recorder_;
  std::size_t pieces_ = 0;
};

TEST_F(ReadRecorderTest, NotesFirstReadsOfALayerWithTheTimeSinceTheFirst) {
  const RecordedFile file(std::make_shared<LayerFile>(layer_), recorder_);
  EXPECT_THAT(recorded(), IsEmpty());
  clock_.advance(std::chrono::milliseconds(500));
  read(file, {4096, 4096});
  clock_.advance(std::chrono::milliseconds(20));
  read(file, {0, 100});
  clock_.advance(std::chrono::milliseconds(20));
  read(file, {0, 4200});  // of which all but a part is known
  EXPECT_EQ(file.size(), 10'240u);
  EXPECT_EQ(pieces_, 3u) << "the pieces themselves go through";
  EXPECT_THAT(recorded(),
              ElementsAre(index::ProfileRange{0, {4096, 4096}, 0, 1}, index::ProfileRange{0, {0, 4096}, 20, 1}));
  EXPECT_THAT(recorder_->profile().layers, ElementsAre(layer_->map().layer_digest));
}

TEST_F(ReadRecorderTest, ThePaddingOfALastBlockIsNotOfTheLayer) {
  const RecordedFile file(std::make_shared<LayerFile>(layer_), recorder_);
  read(file, {10'000, 240});
  EXPECT_THAT(recorded(), ElementsAre(index::ProfileRange{0, {10'000, 100}, 0, 1}));
  read(file, {10'112, 128});
  EXPECT_EQ(recorded().size(), 1u);
}

TEST_F(ReadRecorderTest, WhatIsReadThroughTheRangesDeviceIsNotedWhereItLies) {
  const auto ranges =
      std::make_shared<RangesFile>(index::RangesDevice{.bytes = 20, .ranges = {{0, 0, 2600, 5}, {10, 0, 100, 5}}},
                                   std::vector<std::shared_ptr<LayerStream>>{layer_});
  read(RecordedFile(ranges, recorder_), {0, 20});
  EXPECT_THAT(recorded(), ElementsAre(index::ProfileRange{0, {2600, 5}, 0, 1}, index::ProfileRange{0, {100, 5}, 0, 1}));
}

}  // namespace
}  // namespace varve::fuse
