#include "fuse/stream/span_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/layer_maker.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using State = SpanStore::State;

class SpanStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<SpanStore> open() { return std::make_unique<SpanStore>(dir_ / "layer", layer_.map); }
  ByteView stream_of(std::size_t span) const { return stream_of(layer_, span); }
  static ByteView stream_of(const test::MadeLayer& layer, std::size_t span) {
    const auto range = layer.map->spans[span].stream_range;
    return ByteView(layer.stream).subspan(range.offset, range.length);
  }
  static Bytes read(SpanStore& store, std::uint64_t offset, std::size_t length) {
    Bytes bytes(length, std::byte{0xee});
    if (!store.read(offset, bytes).empty()) throw TemporaryError("not in the store");
    return bytes;
  }
  Bytes expected(std::uint64_t offset, std::size_t length) const {
    Bytes bytes(length);
    for (std::size_t i = 0; i < length && offset + i < layer_.stream.size(); ++i) bytes[i] = layer_.stream[offset + i];
    return bytes;
  }
  void damage(std::uint64_t offset) {
    const auto fd = open_file(dir_ / "layer" / "data", O_RDWR);
    Bytes byte(1);
    pread_exactly(fd.get(), offset, byte, "data");
    byte[0] ^= std::byte{1};
    pwrite_all(fd.get(), offset, byte, "data");
  }
  std::uint64_t blocks() const {
    struct stat status {};
    EXPECT_EQ(::stat((dir_ / "layer" / "data").c_str(), &status), 0);
    return std::uint64_t(status.st_blocks);
  }

  test::TempDir dir_;
  // Ends off a page, and spans do not begin on pages.
  test::MadeLayer layer_ = test::make_tar_layer(test::some_stream(10 * 50'000 + 777), 50'000);
};

TEST_F(SpanStoreTest, GivesBackWhatWasPutAndZerosBehindTheEnd) {
  const auto store = open();
  EXPECT_EQ(store->state(0), State::kAbsent);
  EXPECT_FALSE(store->complete());
  for (std::size_t span = 0; span < layer_.map->spans.size(); ++span) EXPECT_TRUE(store->put(span, stream_of(span)));
  EXPECT_TRUE(store->complete());
  EXPECT_EQ(store->present_bytes(), layer_.stream.size());
  EXPECT_EQ(read(*store, 0, layer_.stream.size()), layer_.stream);
  EXPECT_EQ(read(*store, 499'990, 2'000), expected(499'990, 2'000));
  EXPECT_EQ(read(*store, layer_.stream.size() + 5, 10), Bytes(10));
  EXPECT_EQ(file_size(open_file(store->data_path(), O_RDONLY).get(), ""), 503'808u);  // whole pages
}

// A daemon may be killed between the two.
TEST_F(SpanStoreTest, WhatSaysWhatSpansMustBeIsBroughtToDiskBeforeTheyAreRecorded) {
  const auto store = open();
  EXPECT_TRUE(store->put(2, stream_of(2)));
  store->sync();
  const auto recorded = [&] { return std::filesystem::file_size(store->data_path().parent_path() / "presence"); };
  const auto before = recorded();
  EXPECT_TRUE(store->put(0, stream_of(0)));
  std::optional<std::uint64_t> meanwhile;
  store->sync([&] {
    EXPECT_TRUE(store->put(1, stream_of(1)));  // is of the next time: nobody has brought to disk what it needs
    meanwhile = recorded();
    return true;
  });
  EXPECT_EQ(meanwhile, before);
  const auto one_span = recorded() - before;
  EXPECT_GT(one_span, 0u);
  store->sync([] { return false; });
  EXPECT_EQ(recorded(), before + one_span);
  store->sync();
  EXPECT_EQ(recorded(), before + 2 * one_span);
}

TEST_F(SpanStoreTest, ALayerOfWhichNothingIsKeptHasNoFolder) {
  {
    const auto store = open();
    EXPECT_EQ(store->missing_spans({0, 1}, false), std::vector<std::uint32_t>{0});
    EXPECT_THROW(read(*store, 0, 1), TemporaryError);
    store->drop(0);
    store->drop_idle_pages(0);
    EXPECT_TRUE(store->verify(0, Digest()));
    EXPECT_FALSE(store->keep_whole());
    store->sync();
    EXPECT_FALSE(std::filesystem::exists(dir_ / "layer"));
    std::vector<std::jthread> writers;  // one of them makes the files
    for (std::size_t span = 0; span < 3; ++span)
      writers.emplace_back([&, span] { EXPECT_TRUE(store->put(span, stream_of(span))); });
  }
  const auto store = open();
  for (std::size_t span = 0; span < 3; ++span) EXPECT_TRUE(store->is_readable(span));
}

TEST_F(SpanStoreTest, WhereNoFolderCanBeMadeSpansAreKeptInMemory) {
  const auto store = open();
  write_file_atomically(dir_ / "layer", as_bytes("in the way"));
  EXPECT_FALSE(store->put(0, stream_of(0)));
  EXPECT_TRUE(store->disk_full());
  EXPECT_EQ(read(*store, 0, 10), expected(0, 10));
  std::filesystem::remove(dir_ / "layer");
  EXPECT_TRUE(store->put(1, stream_of(1)));
  EXPECT_FALSE(store->disk_full());
}

// The kernel reads a mounted file without asking: a hole would be zeros, and no error.
class MountedStoreTest : public SpanStoreTest {
 protected:
  std::unique_ptr<SpanStore> open_mounted() {
    auto store = open();
    for (std::size_t span = 0; span < layer_.map->spans.size(); ++span) store->put(span, stream_of(span));
    store->sync();
    EXPECT_TRUE(store->keep_whole());
    return store;
  }
  // As who has the file mounted sees it.
  Bytes content(const UniqueFd& fd) const {
    Bytes bytes(layer_.stream.size());
    pread_exactly(fd.get(), 0, bytes, "data");
    return bytes;
  }
};

TEST_F(MountedStoreTest, ADamagedSpanIsNotPunchedAndStaysBadUntilItIsWrittenOver) {
  auto store = open_mounted();
  const auto mount = open_file(store->data_path(), O_RDONLY);
  damage(150'010);
  for (int run = 0; run < 2; ++run) {
    EXPECT_FALSE(store->verify(3, layer_.map->digests[3].stream));
    EXPECT_FALSE(store->is_readable(3));
    auto seen = content(mount);
    seen[150'010] ^= std::byte{1};
    EXPECT_EQ(seen, layer_.stream);
    EXPECT_FALSE(store->keep_whole());  // for another mount
    store.reset();
    store = open();  // another process knows it, too
    EXPECT_TRUE(store->is_kept_whole());
  }
  store->put(3, stream_of(3));
  EXPECT_TRUE(store->verify(3, layer_.map->digests[3].stream));
  EXPECT_EQ(content(mount), layer_.stream);
}

TEST_F(MountedStoreTest, NothingIsEvictedUntilTheMachineStartsAnew) {
  open_mounted();
  EXPECT_FALSE(open()->begin_evict(2));
  write_file_atomically(dir_ / "layer" / "mounted", as_bytes("8e0e6a1b-0000-4000-8000-000000000000"));
  EXPECT_TRUE(open()->begin_evict(2));
}

TEST_F(MountedStoreTest, WhatIsThrownAwayIsLeftToWhoHasItMounted) {
  const auto path = open_mounted()->data_path();
  const auto mount = open_file(path, O_RDONLY);
  write_file_atomically(dir_ / "layer" / "presence", as_bytes("no log at all"));
  const auto store = open();
  EXPECT_EQ(store->present_bytes(), 0u);
  EXPECT_FALSE(store->is_kept_whole());
  EXPECT_EQ(content(mount), layer_.stream);
}

TEST_F(MountedStoreTest, SpansThatWereStoredButNotRecordedAreRightWhenVerified) {
  {
    const auto store = open();
    for (std::size_t span = 1; span < layer_.map->spans.size(); ++span) store->put(span, stream_of(span));
  }
  const auto fd = open_file(dir_ / "layer" / "data", O_RDWR);
  pwrite_all(fd.get(), 0, stream_of(0), "data");
  const auto store = open();
  store->keep_mounted();
  EXPECT_FALSE(store->is_readable(0));
  EXPECT_TRUE(store->verify(0, layer_.map->digests[0].stream));
  EXPECT_TRUE(store->complete());
}

TEST_F(SpanStoreTest, NeverReadsAHole) {
  const auto store = open();
  store->put(1, stream_of(1));
  EXPECT_EQ(read(*store, 50'000, 50'000), expected(50'000, 50'000));
  EXPECT_THROW(read(*store, 49'999, 2), TemporaryError);
  EXPECT_THROW(read(*store, 99'999, 2), TemporaryError);
}

TEST_F(SpanStoreTest, SaysWhichSpansAreMissingAndReadsTheOthers) {
  const auto store = open();
  for (const std::size_t span : {0, 2, 3}) store->put(span, stream_of(span));
  Bytes bytes(220'000, std::byte{0xee});
  EXPECT_THAT(store->read(20'000, bytes), ::testing::ElementsAre(1, 4));
  const auto is_right = [&](std::size_t from, std::size_t to) {
    return std::equal(bytes.begin() + std::ptrdiff_t(from), bytes.begin() + std::ptrdiff_t(to),
                      layer_.stream.begin() + std::ptrdiff_t(20'000 + from));
  };
  EXPECT_TRUE(is_right(0, 30'000));
  EXPECT_TRUE(is_right(80'000, 180'000));
}

TEST_F(SpanStoreTest, RemembersOnlyWhatWasSynced) {
  {
    const auto store = open();
    store->put(2, stream_of(2));
    EXPECT_EQ(store->unsynced_bytes(), 50'000u);
    store->sync();
    EXPECT_EQ(store->unsynced_bytes(), 0u);
    const auto recorded = read_file(dir_ / "layer" / "presence");
    store->put(3, stream_of(3));
    EXPECT_EQ(read_file(dir_ / "layer" / "presence"), recorded);  // as a crash would leave it
  }
  const auto store = open();
  EXPECT_EQ(store->state(2), State::kPresent);
  EXPECT_EQ(store->state(3), State::kPresent);  // the destructor syncs
  EXPECT_EQ(store->state(4), State::kAbsent);
  EXPECT_EQ(store->present_bytes(), 100'000u);
  EXPECT_EQ(read(*store, 100'000, 100'000), expected(100'000, 100'000));
}

TEST_F(SpanStoreTest, ThrowsAwayADataFileOfTheWrongSize) {
  open()->put(0, stream_of(0));
  std::filesystem::resize_file(dir_ / "layer" / "data", 4096);
  EXPECT_EQ(open()->state(0), State::kAbsent);
  EXPECT_EQ(open()->state(0), State::kAbsent);
}

TEST_F(SpanStoreTest, ThrowsAwayDataWithoutALog) {
  open()->put(0, stream_of(0));
  std::filesystem::remove(dir_ / "layer" / "presence");
  EXPECT_EQ(open()->state(0), State::kAbsent);
  EXPECT_EQ(blocks(), 0u);
}

TEST_F(SpanStoreTest, ChecksItsBytesWhenTheMapHasOtherSpans) {
  {
    const auto store = open();
    for (std::size_t span = 2; span < 6; ++span) store->put(span, stream_of(span));
  }
  damage(160'000);
  const auto refined = test::make_tar_layer(layer_.stream, 25'000);
  SpanStore store(dir_ / "layer", refined.map);
  EXPECT_EQ(store.state(0), State::kAbsent);
  ASSERT_EQ(store.state(4), State::kUnchecked);
  EXPECT_FALSE(store.is_readable(4));
  EXPECT_THROW(read(store, 100'000, 10), TemporaryError);
  Bytes checked(25'000);
  EXPECT_TRUE(store.check(4, refined.map->digests[4].stream, checked));
  EXPECT_EQ(checked, expected(100'000, 25'000));
  EXPECT_EQ(read(store, 100'000, 25'000), expected(100'000, 25'000));
  EXPECT_FALSE(store.check(6, refined.map->digests[6].stream, checked));
  EXPECT_EQ(store.state(6), State::kAbsent);
}

TEST_F(SpanStoreTest, FindsAFlippedBitForgetsTheSpanAndKeepsItsNeighbours) {
  {
    const auto store = open();
    for (std::size_t span = 0; span < 4; ++span) store->put(span, stream_of(span));
    store->sync();
    damage(75'000);
    EXPECT_TRUE(store->verify(0, layer_.map->digests[0].stream));
    EXPECT_FALSE(store->verify(1, layer_.map->digests[1].stream));
    EXPECT_EQ(store->state(1), State::kAbsent);
    EXPECT_EQ(store->present_bytes(), 150'000u);
    EXPECT_TRUE(store->verify(2, layer_.map->digests[2].stream));
  }
  const auto store = open();
  EXPECT_EQ(store->state(1), State::kAbsent);
  EXPECT_EQ(read(*store, 0, 50'000), expected(0, 50'000));
  EXPECT_EQ(read(*store, 100'000, 50'000), expected(100'000, 50'000));
  store->put(1, stream_of(1));
  EXPECT_TRUE(store->verify(1, layer_.map->digests[1].stream));
}

TEST_F(SpanStoreTest, GivesTheSpaceOfADroppedSpanBack) {
  const auto store = open();
  for (std::size_t span = 0; span < 4; ++span) store->put(span, stream_of(span));
  store->sync();
  const auto before = blocks();
  store->drop(1);
  EXPECT_LT(blocks(), before);
  EXPECT_EQ(read(*store, 100'000, 100'000), expected(100'000, 100'000));
  EXPECT_GT(store->last_use(2), 0u);
  EXPECT_EQ(store->last_use(7), 0u);
}

TEST_F(SpanStoreTest, ReadersNeverSeeTheHoleOfASpanThatIsDroppedUnderThem) {
  const auto store = open();
  store->put(1, stream_of(1));
  const auto good = expected(50'000, 50'000);
  std::atomic<bool> done = false;
  std::jthread dropper([&] {
    for (int i = 0; i < 200; ++i) {
      store->drop(1);
      store->put(1, stream_of(1));
    }
    done = true;
  });
  std::size_t read_well = 0;
  while (!done) {
    try {
      ASSERT_EQ(read(*store, 50'000, 50'000), good);
      ++read_well;
    } catch (const TemporaryError&) {  // it was away just then
    }
  }
  EXPECT_EQ(read(*store, 50'000, 50'000), good);
}

TEST_F(SpanStoreTest, AnEmptyLayerIsCompleteAtOnce) {
  layer_ = test::make_tar_layer({}, 50'000);
  const auto store = open();
  EXPECT_TRUE(store->complete());
  EXPECT_EQ(read(*store, 0, 512), Bytes(512));
}

// A file system of 512 KiB of its own; skips where that cannot be.
class FullDiskTest : public SpanStoreTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(disk_);
    if (::geteuid() != 0 || ::mount("varve-test", disk_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=512k") != 0)
      GTEST_SKIP() << "needs root to mount a small file system";
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) ::umount2(disk_.c_str(), MNT_DETACH);
  }

  const std::filesystem::path disk_ = dir_ / "disk";
  bool mounted_ = false;
  test::MadeLayer large_ = test::make_tar_layer(test::some_stream(40 * 50'000), 50'000);
};

TEST_F(FullDiskTest, GoesOnFromABoundedMemory) {
  SpanStore store(disk_ / "layer", large_.map, {.drop_pages = false, .overflow_bytes = 150'000});
  for (std::size_t span = 0; span < 20; ++span) {
    store.put(span, stream_of(large_, span));
    EXPECT_TRUE(store.is_readable(span));
    EXPECT_EQ(read(store, span * 50'000, 50'000), to_bytes(stream_of(large_, span)));
  }
  EXPECT_TRUE(store.disk_full());
  EXPECT_EQ(store.state(0), State::kPresent);
  EXPECT_EQ(store.state(19), State::kInMemory);
  EXPECT_EQ(store.state(14), State::kAbsent);  // only the last three fit into the memory
  EXPECT_THROW(read(store, 14 * 50'000, 10), TemporaryError);
  EXPECT_EQ(read(store, 17 * 50'000, 150'000), to_bytes(ByteView(large_.stream).subspan(17 * 50'000, 150'000)));
  EXPECT_LT(store.present_bytes(), 512u * 1024);
}

TEST_F(FullDiskTest, TakesTheDiskAgainWhenThereIsRoom) {
  SpanStore store(disk_ / "layer", large_.map);
  std::size_t span = 0;
  while (store.put(span, stream_of(large_, span))) ++span;
  EXPECT_TRUE(store.disk_full());
  store.sync();
  store.drop(0);
  store.drop(1);
  EXPECT_TRUE(store.put(span + 1, stream_of(large_, span + 1)));
  EXPECT_FALSE(store.disk_full());
}

}  // namespace
}  // namespace varve::fuse
