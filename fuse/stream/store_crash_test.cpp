// What a crash or a failing disk may do to the store: every disk that testing/disk_recorder.h says may be left is
// opened, and must serve right bytes only, and all that was promised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "fuse/stream/span_store.h"
#include "testing/content_layer.h"
#include "testing/each_fault.h"
#include "testing/layer_maker.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using State = SpanStore::State;
using test::DiskFault;
using test::DiskWatch;

constexpr std::size_t kForGood = SIZE_MAX;

// A life of a layer's folder: filled, emptied in part, mounted, repaired, indexed anew.
class StoreLife {
 public:
  struct Promise {
    std::size_t from = 0;  // step of the recording
    std::size_t until = kForGood;
    std::size_t span = 0;
    bool of_second_map = false;
  };

  explicit StoreLife(std::filesystem::path dir) : dir_(std::move(dir)) {}

  // Without a watch nothing is promised. Throws what the store throws.
  void run(const DiskWatch* watch = nullptr) {
    watch_ = watch;
    {
      SpanStore store(dir_, first_.map);
      fill(store, {0, 1, 2, 9, 10, 11, 12});
      fill(store, {3, 4, 13, 14, 15});
      give_up(1);
      store.drop(1);
      fill(store, {1, 5, 16, 17});
      give_up(2);
      if (store.begin_evict(2)) store.finish_evict({2}, coarse_seconds());
    }
    {
      SpanStore store(dir_, first_.map);
      fill(store, {2, 6, 7, 8, 18, 19, 20});
      kept_whole = store.keep_whole();
      mounted_from = steps();
      give_up(3);
      store.drop(3);  // as verify does with a damaged span of a mounted file
      fill(store, {3});
    }
    for (std::size_t span = 0; span < first_.map->spans.size(); ++span) give_up(span);
    second_from = steps();
    SpanStore store(dir_, second_.map);
    for (std::size_t span = 0; span < second_.map->spans.size(); ++span) {
      Bytes bytes(second_.map->spans[span].stream_range.length);
      if (store.state(span) == State::kUnchecked && store.check(span, second_.map->digests[span].stream, bytes))
        promise_soon_.push_back(span);
    }
    store.sync();
    keep_promises(true);
  }

  // Opens what is there, as the next daemon does; fails the test if it gives a wrong byte. Absent spans are put.
  static void check(const std::filesystem::path& dir, const test::MadeLayer& layer, const std::set<std::size_t>& here,
                    const std::string& story) {
    {
      SpanStore store(dir, layer.map);
      for (std::size_t span = 0; span < layer.map->spans.size(); ++span) {
        Bytes bytes(layer.map->spans[span].stream_range.length);
        if (store.state(span) == State::kUnchecked) store.check(span, layer.map->digests[span].stream, bytes);
        ASSERT_TRUE(store.is_readable(span) || !here.contains(span)) << "span " << span << " is lost; " << story;
        if (store.is_readable(span))
          ASSERT_EQ(read(store, layer, span), part(layer, span)) << "span " << span << " is wrong; " << story;
        else
          ASSERT_TRUE(store.put(span, ByteView(part(layer, span)))) << story;
      }
      store.sync();
    }
    const SpanStore again(dir, layer.map);
    ASSERT_TRUE(again.complete()) << "not usable any more; " << story;
  }

  std::set<std::size_t> promised(std::size_t steps, bool of_second_map) const {
    std::set<std::size_t> spans;
    for (const auto& promise : promises_)
      if (promise.of_second_map == of_second_map && promise.from <= steps && steps < promise.until)
        spans.insert(promise.span);
    return spans;
  }
  const test::MadeLayer& first() const { return first_; }
  const test::MadeLayer& second() const { return second_; }

  bool kept_whole = false;
  std::size_t mounted_from = kForGood;
  std::size_t second_from = kForGood;

 private:
  static Bytes part(const test::MadeLayer& layer, std::size_t span) {
    const auto range = layer.map->spans[span].stream_range;
    return to_bytes(ByteView(layer.stream).subspan(range.offset, range.length));
  }
  static Bytes read(SpanStore& store, const test::MadeLayer& layer, std::size_t span) {
    const auto range = layer.map->spans[span].stream_range;
    Bytes bytes(range.length);
    return store.read(range.offset, bytes).empty() ? bytes : Bytes();
  }
  std::size_t steps() const { return watch_ == nullptr ? 0 : watch_->steps(); }

  void fill(SpanStore& store, const std::vector<std::size_t>& spans) {
    for (const auto span : spans) {
      store.put(span, ByteView(part(first_, span)));
      EXPECT_EQ(read(store, first_, span), part(first_, span)) << "while it is there, if in memory only";
    }
    store.sync();
    promise_soon_ = spans;
    keep_promises(false);
  }
  // From here on a crash must not lose them.
  void keep_promises(bool of_second_map) {
    for (const auto span : std::exchange(promise_soon_, {}))
      promises_.push_back({.from = steps(), .until = kForGood, .span = span, .of_second_map = of_second_map});
  }
  void give_up(std::size_t span) {
    for (auto& promise : promises_)
      if (promise.span == span && promise.until == kForGood) promise.until = steps() + 1;
  }

  const std::filesystem::path dir_;
  const test::MadeLayer first_ = test::make_tar_layer(test::some_stream(20 * 1'500 + 77), 1'500);
  const test::MadeLayer second_ = test::make_tar_layer(test::some_stream(20 * 1'500 + 77), 4'000);
  const DiskWatch* watch_ = nullptr;
  std::vector<Promise> promises_;
  std::vector<std::size_t> promise_soon_;
};

// A life of units: copied, evicted, overtaken by spans; then the folder falls to an index whose entries lie, and back.
class UnitsLife {
 public:
  explicit UnitsLife(std::filesystem::path dir) : dir_(std::move(dir)) {
    lying_ = layer_.entries;
    for (auto& entry : lying_.entries) entry.content_digest = digest_of(lie_of(entry.size));
  }

  void run(const DiskWatch* watch = nullptr) {
    watch_ = watch;
    {
      const auto store = open(false);
      copy(*store, {0, 1, 2, 3});
      put(*store, 1);
      copy(*store, {5, 6});
      give_up(0);
      if (store->begin_evict(0)) store->finish_evict({0}, UINT32_MAX);
      give_up(1);
      store->drop(1);
      copy(*store, {0, 1, 2});
    }
    for (std::size_t unit = 0; unit < layer_.entries.entries.size(); ++unit) give_up_unit(unit);
    {
      const auto store = open(true);
      const auto* units = store->units();
      for (std::size_t unit = 0; units != nullptr && unit < units->size(); ++unit)
        store->put_unit(unit, lie_of(units->range(unit).length));
      store->sync();
    }
    const auto store = open(false);
    copy(*store, {4, 5});
    put(*store, 2);
  }

  // Opens what is there by the right entries; fails the test if it gives a wrong byte.
  void check(const std::filesystem::path& dir, std::size_t steps, const std::string& story) const {
    {
      const auto store = open(dir, layer_.entries);
      for (std::size_t unit = 0; unit < store->units()->size(); ++unit) {
        const auto range = store->units()->range(unit);
        ASSERT_TRUE(store->is_readable(range) || !promised(steps, unit)) << "unit " << unit << " is lost; " << story;
        if (store->is_readable(range)) {
          ASSERT_EQ(read(*store, range), part(range)) << "unit " << unit << " is wrong; " << story;
        }
      }
      for (std::size_t span = 0; span < layer_.map->spans.size(); ++span) {
        const auto range = layer_.map->spans[span].stream_range;
        if (store->is_readable(span)) {
          ASSERT_EQ(read(*store, range), part(range)) << "span " << span << " is wrong; " << story;
        } else {
          ASSERT_TRUE(store->put(span, ByteView(part(range)))) << story;
        }
      }
      ASSERT_EQ(store->contradiction(), "") << story;
      store->sync();
    }
    ASSERT_TRUE(open(dir, layer_.entries)->complete()) << "not usable any more; " << story;
  }

 private:
  struct Promise {
    std::size_t from = 0;
    std::size_t until = kForGood;
    std::size_t unit = 0;
  };
  static Bytes lie_of(std::uint64_t size) { return Bytes(size, std::byte('!')); }
  std::unique_ptr<SpanStore> open(const std::filesystem::path& dir, const index::LayerEntries& entries) const {
    const auto digest = digest_of(entries.encode());
    auto store = std::make_unique<SpanStore>(dir, layer_.map, SpanStoreOptions{.entries = digest});
    store->set_units(index::UnitTable::make(entries, digest, layer_.map->stream_bytes));
    return store;
  }
  std::unique_ptr<SpanStore> open(bool lying) const { return open(dir_, lying ? lying_ : layer_.entries); }
  Bytes part(ByteRange range) const { return to_bytes(ByteView(layer_.stream).subspan(range.offset, range.length)); }
  static Bytes read(SpanStore& store, ByteRange range) {
    Bytes bytes(range.length);
    return store.read(range.offset, bytes).empty() ? bytes : Bytes();
  }
  std::size_t steps() const { return watch_ == nullptr ? 0 : watch_->steps(); }

  void copy(SpanStore& store, const std::vector<std::size_t>& units) {
    std::vector<std::size_t> kept;
    for (const auto unit : units)
      if (store.put_unit(unit, part(store.units()->range(unit)))) kept.push_back(unit);
    store.sync();
    for (const auto unit : kept) promises_.push_back({.from = steps(), .until = kForGood, .unit = unit});
  }
  void put(SpanStore& store, std::size_t span) const {
    store.put(span, ByteView(part(layer_.map->spans[span].stream_range)));
    store.sync();
  }
  void give_up(std::size_t span) {
    const auto range = layer_.map->spans[span].stream_range;
    const auto table = index::UnitTable::make(layer_.entries, layer_.entries_digest(), layer_.map->stream_bytes);
    const auto [first, last] = index::UnitTable::decode(table, "units").contents_of(range);
    for (auto unit = first; unit < last; ++unit) give_up_unit(unit);
  }
  void give_up_unit(std::size_t unit) {
    for (auto& promise : promises_)
      if (promise.unit == unit && promise.until == kForGood) promise.until = steps() + 1;
  }
  bool promised(std::size_t steps, std::size_t unit) const {
    return std::ranges::any_of(promises_, [&](const Promise& promise) {
      return promise.unit == unit && promise.from <= steps && steps < promise.until;
    });
  }

  const std::filesystem::path dir_;
  const test::ContentLayer layer_ = test::make_content_layer({{"a", test::some_stream(700, 1)},
                                                              {"b", test::some_stream(1'500, 2)},
                                                              {"c", test::some_stream(4'000, 3)},
                                                              {"d", test::some_stream(90, 4)},
                                                              {"e", test::some_stream(3'000, 5)},
                                                              {"f", test::some_stream(512, 6)},
                                                              {"g", test::some_stream(6'000, 7)}},
                                                             4'000);
  index::LayerEntries lying_;
  const DiskWatch* watch_ = nullptr;
  std::vector<Promise> promises_;
};

class StoreCrashTest : public ::testing::Test {
 protected:
  StoreCrashTest() { log::write_to_file(dir_ / "log"); }

  test::TempDir dir_;
  const test::NoSync no_sync_;
};

TEST_F(StoreCrashTest, NoCrashMakesTheStoreServeWrongBytesOrLoseWhatItRecorded) {
  std::filesystem::create_directories(dir_ / "life");
  StoreLife life(dir_ / "life/layer");
  DiskWatch watch(dir_ / "life");
  life.run(&watch);
  ASSERT_TRUE(life.kept_whole);
  const auto recording = watch.take();
  std::size_t disks = 0;
  recording.for_each_crash([&](const test::DiskRecording::Crash& crash) {
    if (HasFatalFailure()) return;
    const auto story = fmt::format("crash after {} of {} steps; {}", crash.steps, recording.steps(), crash.story);
    for (const bool second : {false, true}) {
      const test::TempDir fresh;
      crash.disk.write_to(fresh.path());
      if (!crash.power_failed && !second && crash.steps >= life.mounted_from && crash.steps < life.second_from) {
        // The kernel reads on from the file.
        const SpanStore store(fresh / "layer", life.first().map);
        ASSERT_TRUE(store.is_kept_whole()) << story;
        auto data = read_file(fresh / "layer/data");
        data.resize(life.first().stream.size());
        ASSERT_EQ(data, life.first().stream) << story;
      }
      StoreLife::check(fresh / "layer", second ? life.second() : life.first(), life.promised(crash.steps, second),
                       story);
    }
    ++disks;
  });
  EXPECT_GT(disks, 500u);
  RecordProperty("disks", int(disks));
}

TEST_F(StoreCrashTest, NoFailingCallMakesTheStoreServeWrongBytesOrUnusable) {
  std::filesystem::create_directories(dir_ / "life");
  std::size_t calls = 0;
  {
    const DiskWatch watch(dir_ / "life");
    StoreLife(dir_ / "life/layer").run(&watch);
    calls = watch.calls();
  }
  ASSERT_GT(calls, 30u);
  const auto live = [](const DiskFault& fault, const std::string& story) {
    const test::TempDir fresh;
    StoreLife life(fresh / "layer");
    {
      const DiskWatch watch(fresh.path(), fault);
      try {
        life.run(&watch);
        EXPECT_EQ(HasFailure(), false) << story;
      } catch (const std::system_error& failed) {
        EXPECT_EQ(failed.code().value(), fault.error) << story;
        EXPECT_THAT(failed.what(), ::testing::HasSubstr(fresh.path().string())) << story;
      }
      EXPECT_TRUE(life.kept_whole || fault.error != 0) << story;
    }
    if (life.kept_whole && life.second_from == kForGood) {
      const SpanStore store(fresh / "layer", life.first().map);
      EXPECT_TRUE(store.is_kept_whole()) << story;
    }
    for (const bool second : {true, false})
      StoreLife::check(fresh / "layer", second ? life.second() : life.first(), {}, story);
  };
  test::for_each_fault(test::FaultOf::kWrites, calls, {{ENOSPC}, {ENOSPC, true}, {EIO}, {EROFS}, {0}}, live);
}

TEST_F(StoreCrashTest, NoCrashMakesAUnitWrongOrLosesOneThatWasRecorded) {
  std::filesystem::create_directories(dir_ / "life");
  UnitsLife life(dir_ / "life/layer");
  DiskWatch watch(dir_ / "life");
  life.run(&watch);
  const auto recording = watch.take();
  std::size_t disks = 0;
  recording.for_each_crash([&](const test::DiskRecording::Crash& crash) {
    if (HasFatalFailure()) return;
    const test::TempDir fresh;
    crash.disk.write_to(fresh.path());
    life.check(fresh / "layer", crash.steps,
               fmt::format("crash after {} of {} steps; {}", crash.steps, recording.steps(), crash.story));
    ++disks;
  });
  EXPECT_GT(disks, 200u);
  RecordProperty("disks", int(disks));
}

TEST_F(StoreCrashTest, NoFailingCallMakesAUnitWrong) {
  std::filesystem::create_directories(dir_ / "life");
  std::size_t calls = 0;
  {
    const DiskWatch watch(dir_ / "life");
    UnitsLife(dir_ / "life/layer").run(&watch);
    calls = watch.calls();
  }
  ASSERT_GT(calls, 30u);
  const auto live = [](const DiskFault& fault, const std::string& story) {
    const test::TempDir fresh;
    UnitsLife life(fresh / "layer");
    {
      const DiskWatch watch(fresh.path(), fault);
      try {
        life.run(&watch);
      } catch (const std::system_error& failed) {
        EXPECT_EQ(failed.code().value(), fault.error) << story;
      }
    }
    life.check(fresh / "layer", 0, story);
  };
  test::for_each_fault(test::FaultOf::kWrites, calls, {{ENOSPC}, {ENOSPC, true}, {EIO}, {0}}, live);
}

// Here as nothing waits for a disk: spans go much faster than many of them are read.
TEST_F(StoreCrashTest, AReaderOfManySpansGetsThroughHoweverFastOthersAreDropped) {
  const auto layer = test::make_tar_layer(test::some_stream(48 * 1'000'000 + 777), 1'000'000);
  const auto span = [&](std::size_t number) {
    const auto range = layer.map->spans[number].stream_range;
    return ByteView(layer.stream).subspan(range.offset, range.length);
  };
  SpanStore store(dir_ / "layer", layer.map);
  for (std::size_t number = 0; number < 49; ++number) store.put(number, span(number));
  const std::jthread dropper([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      store.drop(48);
      store.put(48, span(48));
    }
  });
  Bytes bytes(48'000'000);
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(store.read(0, bytes), ::testing::IsEmpty());
    EXPECT_TRUE(std::ranges::equal(bytes, ByteView(layer.stream).first(bytes.size())));
    std::ranges::fill(bytes, std::byte{0});
  }
}

// That the disk of these tests is as bad as it says.
class BadDiskTest : public StoreCrashTest {
 protected:
  bool may_leave(const std::function<void()>& work, const std::function<bool(const std::filesystem::path&)>& bad) {
    std::filesystem::create_directories(dir_ / "disk");
    DiskWatch watch(dir_ / "disk");
    work();
    bool found = false;
    watch.take().for_each_crash([&](const auto& crash) {
      const test::TempDir fresh;
      crash.disk.write_to(fresh.path());
      found = found || bad(fresh.path());
    });
    return found;
  }
  static void write(const std::filesystem::path& file, std::string_view text, bool sync) {
    const auto fd = open_file(file, O_WRONLY | O_CREAT);
    pwrite_all(fd.get(), 0, as_bytes(text), "file");
    if (sync) ::fdatasync(fd.get());
  }
  static std::string content(const std::filesystem::path& file) {
    const auto bytes = read_file_if_there(file);
    return bytes ? std::string(as_text(*bytes)) : "";
  }
  const std::string data_ = std::string(600, 'd') + std::string(600, 'e');
};

TEST_F(BadDiskTest, WhatIsRecordedBeforeItIsOnDiskMayBeLostOrTorn) {
  const auto record_first = [&] {
    write(dir_ / "disk/data", data_, false);
    write(dir_ / "disk/record", "it is there", true);
  };
  const auto recorded = [](const auto& disk) { return content(disk / "record") == "it is there"; };
  EXPECT_TRUE(
      may_leave(record_first, [&](const auto& disk) { return recorded(disk) && content(disk / "data").empty(); }));
}

TEST_F(BadDiskTest, AWriteMayBeTorn) {
  const auto torn = data_.substr(0, 512);
  EXPECT_TRUE(may_leave([&] { write(dir_ / "disk/data", data_, false); },
                        [&](const auto& disk) { return content(disk / "data") == torn; }));
}

TEST_F(BadDiskTest, WhatWasSyncedFirstIsThereWhenItIsRecorded) {
  const auto in_order = [&] {
    write(dir_ / "disk/data", data_, true);
    write(dir_ / "disk/record", "it is there", true);
  };
  EXPECT_FALSE(may_leave(in_order, [&](const auto& disk) {
    return content(disk / "record") == "it is there" && content(disk / "data") != data_;
  }));
}

TEST_F(BadDiskTest, ANameMayComeBeforeItsBytes) {
  const auto rename_first = [&] {
    write(dir_ / "disk/new", data_, false);
    std::filesystem::rename(dir_ / "disk/new", dir_ / "disk/final");
  };
  const auto empty = [](const auto& disk) {
    return std::filesystem::exists(disk / "final") && content(disk / "final").empty();
  };
  EXPECT_TRUE(may_leave(rename_first, empty));
}

}  // namespace
}  // namespace varve::fuse
