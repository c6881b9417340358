// Collectors that are killed, run out of disk or run beside each other: nothing is lost, nothing is counted twice.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

constexpr unsigned kSessions = 200;
constexpr unsigned kModules = 30;

class UsageCollectors : public DatabaseFixture {
 protected:
  void SetUp() override {
    DatabaseFixture::SetUp();
    if (IsSkipped()) return;
    database_->put_inventory(
        inventory_of(1, {{.name = "even", .modules = {"even"}}, {.name = "odd", .modules = {"odd"}}}), "v1");
    for (unsigned session = 1; session <= kSessions; ++session) {
      auto start = start_record(session, 1, "2026-11-20");
      start.user = user_hash(session);
      SpoolWriterForTests writer(spool(), start);
      std::string lines;
      for (unsigned i = 0; i < kModules; ++i)
        lines += spool_line(import_record(fmt::format("{}.module{}", session % 2 == 0 ? "even" : "odd", i)));
      writer.raw(lines);
    }
  }

  std::filesystem::path spool() const { return folder_.path() / "spool"; }

  // Runs a collector as a process of its own, after `prepare`, and returns how it ended (as waitpid has it). Exit
  // status 75: a temporary error.
  template <typename Prepare>
  int collect_in_child(Prepare&& prepare) {
    const auto child = ::fork();
    if (child == 0) {
      try {
        prepare();
        open()->collect({spool()}, {}, cancel_);
        ::_exit(0);
      } catch (const TemporaryError&) {
        ::_exit(75);
      } catch (const std::exception& error) {
        static_cast<void>(::write(2, error.what(), std::string_view(error.what()).size()));
        ::_exit(1);
      }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }

  // Runs a collector as a process of its own and kills it before its system call of this number, in or out; false if it
  // had ended before.
  bool collect_and_kill(std::uint64_t calls) {
    const auto status = run_and_kill(calls, [this] { open()->collect({spool()}, {}, cancel_); });
    if (!status) return true;
    EXPECT_TRUE(WIFEXITED(*status));
    EXPECT_EQ(WEXITSTATUS(*status), 0);
    return false;
  }

  // The counts of each session are there wholly or not at all, and those of all sessions in the end.
  std::uint64_t check_consistent() {
    const auto facts = database_->snapshot({.window = all_days(), .image = std::nullopt});
    const auto* even = find_use(facts, "even");
    const auto* odd = find_use(facts, "odd");
    std::uint64_t heard = 0;
    for (const auto& image : facts.images) heard += image.heard;
    EXPECT_EQ(even->sessions + odd->sessions, heard);
    EXPECT_EQ(even->users.at_most + odd->users.at_most, heard);
    return heard;
  }
};
VARVE_FOR_BOTH_DATABASES(UsageCollectors);

TEST_P(UsageCollectors, LoseAndDoubleNothingWhenKilledAnywhere) {
  std::mt19937 random(7);
  unsigned killed = 0;
  std::uint64_t before = 0;
  // Each collector is let go a little further than the one before, until one comes to its end.
  for (std::uint64_t calls = 40; collect_and_kill(calls); calls += calls / 5 + random() % 50) {
    ++killed;
    const auto heard = check_consistent();
    EXPECT_GE(heard, before);
    before = heard;
  }
  EXPECT_GT(killed, 5U);
  EXPECT_EQ(check_consistent(), kSessions);
  EXPECT_EQ(database_->collect({spool()}, {}, cancel_).duplicates, kSessions * (kModules + 1));
}

TEST_P(UsageCollectors, SayThatTheDiskIsFullAndGoOnLater) {
  if (GetParam() != Kind::kSqlite) GTEST_SKIP() << "a PostgreSQL server writes its files itself";
  unsigned full = 0;
  bool finished = false;
  for (rlim_t limit_bytes = 100'000; !finished; limit_bytes += 150'000) {
    const auto status = collect_in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);  // writing beyond the limit fails, as it does on a full disk
      const ::rlimit limit{.rlim_cur = limit_bytes, .rlim_max = limit_bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    });
    ASSERT_TRUE(WIFEXITED(status));
    finished = WEXITSTATUS(status) == 0;
    if (!finished) {
      ASSERT_EQ(WEXITSTATUS(status), 75);
      ++full;
    }
    check_consistent();
  }
  EXPECT_GT(full, 0U);
  EXPECT_EQ(check_consistent(), kSessions);
}

TEST_P(UsageCollectors, MayReadTheSameSpoolAtTheSameTime) {
  constexpr unsigned kCollectors = 4;
  std::vector<CollectResult> results(kCollectors);
  std::vector<std::string> errors(kCollectors);
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < kCollectors; ++i)
      threads.emplace_back([&, i] {
        try {
          const auto own = open();
          for (unsigned round = 0; round < 3; ++round) {
            auto result = own->collect({spool()}, {}, cancel_);
            results[i].sessions += result.sessions;
            results[i].events += result.events;
            results[i].quarantined += result.quarantined;
          }
        } catch (const std::exception& error) {
          errors[i] = error.what();
        }
      });
  }
  std::uint64_t sessions = 0, events = 0;
  for (unsigned i = 0; i < kCollectors; ++i) {
    EXPECT_EQ(errors[i], "");
    EXPECT_EQ(results[i].quarantined, 0U);
    sessions += results[i].sessions;
    events += results[i].events;
  }
  EXPECT_EQ(sessions, kSessions);
  EXPECT_EQ(events, kSessions * (kModules + 1));
  EXPECT_EQ(check_consistent(), kSessions);
}

TEST_P(UsageCollectors, MayRunWhileOthersReadAndInventoriesArrive) {
  {
    const std::jthread collector([&] { open()->collect({spool()}, {}, cancel_); });
    const std::jthread images([&] {
      const auto own = open();
      for (unsigned image = 2; image < 8; ++image)
        own->put_inventory(inventory_of(image, {{.name = "even", .modules = {"even"}}}), "");
    });
    const auto own = open();
    for (unsigned round = 0; round < 10; ++round) {
      const auto facts = own->snapshot({.window = all_days(), .image = image_digest(1)});
      EXPECT_EQ(find_use(facts, "even")->sessions + find_use(facts, "odd")->sessions, facts.images.at(0).heard);
    }
  }
  EXPECT_EQ(check_consistent(), kSessions);
}

class UsageDatabaseOpening : public testing::Test {
 protected:
  test::TempDir folder_;
  std::string path_ = (folder_.path() / "usage.db").string();
};

TEST_F(UsageDatabaseOpening, RefusesANewerSchema) {
  { const auto made = open_database("sqlite:" + path_); }
  const auto command = fmt::format("UPDATE setting SET value = '1000' WHERE name = 'schema'");
  set_by_hand(path_, command);
  EXPECT_THROW(open_database(path_), Unsupported);
}

TEST_F(UsageDatabaseOpening, RefusesWhatIsNoUsageDatabase) {
  std::ofstream(path_) << std::string(8192, 'x');
  EXPECT_THROW(open_database(path_), CorruptData);
  const auto other = (folder_.path() / "other.db").string();
  set_by_hand(other, "CREATE TABLE notes (text TEXT)");
  EXPECT_THROW(open_database(other), CorruptData);
  EXPECT_THROW(open_database((folder_.path() / "no" / "folder.db").string()), Error);
}

TEST_F(UsageDatabaseOpening, SaysThatAServerIsAwayForNow) {
  EXPECT_THROW(open_database(fmt::format("postgresql://nobody@/usage?host={}", folder_.path().string())),
               TemporaryError);
}

}  // namespace
}  // namespace varve::usage
