#include "fuse/stream/window_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "testing/layer_maker.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WindowStoreTest : public ::testing::Test {
 protected:
  void make_windows(std::size_t bytes) {
    windows_ = test::some_stream(bytes);
    map_->windows_bytes = bytes;
    map_->windows_digest = digest_of(windows_);
  }
  ByteView block(const WindowStore& store, std::size_t number) const {
    const auto range = store.block_range(number);
    return ByteView(windows_).subspan(range.offset, range.length);
  }

  test::TempDir dir_;
  std::shared_ptr<index::LayerMap> map_ = std::make_shared<index::LayerMap>();
  Bytes windows_;
};

TEST_F(WindowStoreTest, MakesNoFileForALayerWithoutWindows) {
  const WindowStore store(dir_ / "layer", map_);
  EXPECT_EQ(store.blocks(), 0u);
  EXPECT_THAT(store.missing_blocks({}), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(dir_ / "layer"));
}

TEST_F(WindowStoreTest, KeepsASmallBlobAsOneCheckedBlock) {
  make_windows(10'000);
  WindowStore store(dir_ / "layer", map_);
  EXPECT_EQ(store.blocks(), 1u);
  EXPECT_THAT(store.missing_blocks({.offset = 9'000, .length = 100}), ElementsAre(0));
  auto wrong = windows_;
  wrong[5] ^= std::byte{1};
  EXPECT_THROW(store.put(0, wrong), CorruptData);
  EXPECT_THAT(store.missing_blocks({.offset = 9'000, .length = 100}), ElementsAre(0));
  store.put(0, windows_);
  EXPECT_EQ(store.load({.offset = 9'000, .length = 100}), to_bytes(ByteView(windows_).subspan(9'000, 100)));
}

TEST_F(WindowStoreTest, FetchesALargeBlobBlockByBlock) {
  make_windows((1 << 20) + 70'000);
  WindowStore store(dir_ / "layer", map_);
  EXPECT_EQ(store.blocks(), 18u);
  const ByteRange straddling{.offset = 65'000, .length = 2'000};
  EXPECT_THAT(store.missing_blocks(straddling), ElementsAre(0, 1));
  store.put(1, block(store, 1));
  EXPECT_THAT(store.missing_blocks(straddling), ElementsAre(0));
  EXPECT_THROW(store.load(straddling), TemporaryError);
  store.put(0, block(store, 0));
  EXPECT_EQ(store.load(straddling), to_bytes(ByteView(windows_).subspan(65'000, 2'000)));
  EXPECT_THROW(store.put(17, block(store, 0)), CorruptData);  // not its length
  EXPECT_THROW(store.missing_blocks({.offset = map_->windows_bytes - 1, .length = 2}), CorruptData);
}

TEST_F(WindowStoreTest, RemembersBlocksOverARestartUntilTheyAreDropped) {
  make_windows(3 << 20);
  {
    WindowStore store(dir_ / "layer", map_);
    store.put(3, block(store, 3));
    store.put(4, block(store, 4));
  }
  {
    WindowStore store(dir_ / "layer", map_);
    const ByteRange window{.offset = 3 * 65'536 + 10, .length = 500};
    EXPECT_EQ(store.load(window), to_bytes(ByteView(windows_).subspan(window.offset, window.length)));
    store.drop(window);
    EXPECT_THAT(store.missing_blocks(window), ElementsAre(3));
  }
  const WindowStore store(dir_ / "layer", map_);
  EXPECT_THAT(store.missing_blocks({.offset = 3 * 65'536, .length = 2 * 65'536}), ElementsAre(3));
}

TEST_F(WindowStoreTest, ThrowsAwayTheBlocksOfAnotherBlob) {
  make_windows(2 << 20);
  {
    WindowStore store(dir_ / "layer", map_);
    store.put(0, block(store, 0));
  }
  map_->windows_digest = digest_of("another");
  const WindowStore store(dir_ / "layer", map_);
  EXPECT_THAT(store.missing_blocks({.offset = 0, .length = 10}), ElementsAre(0));
}

}  // namespace
}  // namespace varve::fuse
