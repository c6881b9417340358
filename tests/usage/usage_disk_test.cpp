// Collectors on a disk that loses what was not synced, or fails: every disk that testing/disk_recorder.h says may be
// left is opened and collected again. Nothing is lost, nothing is counted twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/base/errors.h"
#include "testing/each_fault.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

constexpr unsigned kSessions = 4;
constexpr unsigned kModules = 3;

class UsageDisk : public testing::Test {
 protected:
  // A database that knows the image, and a spool of sessions that have ended.
  void make(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder / "spool");
    open_database(database_in(folder))
        ->put_inventory(inventory_of(1, {{.name = "even", .modules = {"even"}}, {.name = "odd", .modules = {"odd"}}}),
                        "v1");
    for (unsigned session = 1; session <= kSessions; ++session) {
      auto start = start_record(session, 1, "2026-11-20");
      start.user = user_hash(session);
      SpoolWriterForTests writer(folder / "spool", start);
      for (unsigned i = 0; i < kModules; ++i)
        writer.add(import_record(fmt::format("{}.module{}", session % 2 == 0 ? "even" : "odd", i)));
      writer.add({.at_seconds = 0, .what = EndRecord{.ok = true}});
    }
  }
  void collect(const std::filesystem::path& folder) const {
    open_database(database_in(folder))->collect({folder / "spool"}, {.remove_collected = true}, cancel_);
  }
  // What the next collector makes of it.
  void expect_all_once(const std::filesystem::path& folder, const std::string& story) const {
    collect(folder);
    const auto facts = open_database(database_in(folder))->snapshot({.window = all_days(), .image = std::nullopt});
    std::uint64_t heard = 0;
    for (const auto& image : facts.images) heard += image.heard;
    ASSERT_EQ(heard, kSessions) << story;
    const auto* even = find_use(facts, "even");
    const auto* odd = find_use(facts, "odd");
    ASSERT_TRUE(even != nullptr && odd != nullptr) << story;
    ASSERT_EQ(even->sessions, kSessions / 2) << story;
    ASSERT_EQ(odd->sessions, kSessions / 2) << story;
    ASSERT_TRUE(std::filesystem::is_empty(folder / "spool")) << story;
  }
  static std::string database_in(const std::filesystem::path& folder) {
    return "sqlite:" + (folder / "usage.db").string();
  }

  test::TempDir dir_;
  const CancelFlag cancel_;
  const test::NoSync no_sync_;
};

TEST_F(UsageDisk, NoCrashLosesOrDoublesWhatWasCollected) {
  make(dir_ / "life");
  test::DiskWatch watch(dir_ / "life");
  collect(dir_ / "life");
  const auto recording = watch.take();
  ASSERT_TRUE(std::filesystem::is_empty(dir_ / "life/spool"));
  ASSERT_GT(recording.steps(), 20u);  // SQLite writes through the disk of this test, too
  std::size_t disks = 0;
  recording.for_each_crash(
      [&](const test::DiskRecording::Crash& crash) {
        if (HasFatalFailure()) return;
        const test::TempDir fresh;
        crash.disk.write_to(fresh.path());
        expect_all_once(fresh.path(),
                        fmt::format("crash after {} of {} steps; {}", crash.steps, recording.steps(), crash.story));
        ++disks;
      },
      {.pairs = false, .at_most = 250});
  EXPECT_GT(disks, 100u);
  RecordProperty("disks", int(disks));
}

TEST_F(UsageDisk, NoFailingCallLosesOrDoublesAnything) {
  std::size_t calls = 0;
  {
    make(dir_ / "life");
    const test::DiskWatch watch(dir_ / "life");
    collect(dir_ / "life");
    calls = watch.calls();
  }
  ASSERT_GT(calls, 10u);
  const auto live = [&](const test::DiskFault& fault, const std::string& story) {
    const test::TempDir fresh;
    make(fresh.path());
    {
      const test::DiskWatch watch(fresh.path(), fault);
      try {
        collect(fresh.path());
      } catch (const std::exception& failed) {
        EXPECT_THAT(failed.what(), testing::HasSubstr("usage.db")) << story;
      }
    }
    expect_all_once(fresh.path(), story);
  };
  test::for_each_fault(test::FaultOf::kWrites, calls, {{ENOSPC}, {EIO}, {EROFS}, {0}}, live);
}

TEST_F(UsageDisk, NoUnreadablePlaceLosesOrDoublesAnything) {
  std::size_t reads = 0;
  {
    make(dir_ / "life");
    const test::DiskWatch watch(dir_ / "life");
    collect(dir_ / "life");
    reads = watch.reads();
  }
  ASSERT_GT(reads, 10u);
  std::size_t failed = 0;
  const auto live = [&](const test::DiskFault& fault, const std::string& story) {
    const test::TempDir fresh;
    make(fresh.path());
    {
      const test::DiskWatch watch(fresh.path(), fault);
      try {
        collect(fresh.path());
      } catch (const std::exception& trouble) {
        EXPECT_THAT(trouble.what(), testing::HasSubstr(fresh.path().string())) << story;
        ++failed;
      }
    }
    expect_all_once(fresh.path(), story);
  };
  test::for_each_fault(test::FaultOf::kReads, reads, {{EIO}, {EIO, true}, {0}}, live);
  EXPECT_GT(failed, 5u);
}

}  // namespace
}  // namespace varve::usage
