#include "analyzer/usage/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/calendar.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

const std::vector<TestPackage> kPackages{
    {.name = "numpy", .modules = {"numpy"}, .paths = {"usr/lib/python3/numpy/"}},
    {.name = "pandas", .modules = {"pandas"}, .paths = {"usr/lib/python3/pandas/"}},
    {.name = "google-cloud-storage", .modules = {"google.cloud.storage"}},
    {.name = "google-cloud-core", .modules = {"google.cloud", "google.cloud.client"}},
    {.name = "opencv-python", .modules = {"cv2"}},
    {.name = "opencv-python-headless", .modules = {"cv2"}},
    {.name = "jupyter", .modules = {}, .paths = {"usr/bin/jupyter"}},
    {.name = "torch", .modules = {"torch"}, .paths = {"usr/lib/python3/torch/"}, .gpu = true},
};

class UsageDatabase : public DatabaseFixture {
 protected:
  std::filesystem::path spool() const { return folder_.path() / "spool"; }
  CollectResult collect(const CollectOptions& options = {}) { return database_->collect({spool()}, options, cancel_); }
  Snapshot snapshot(std::optional<Digest> image = std::nullopt) {
    return database_->snapshot({.window = all_days(), .image = image});
  }
};
VARVE_FOR_BOTH_DATABASES(UsageDatabase);

TEST_P(UsageDatabase, CountsASessionOncePerDistribution) {
  database_->put_inventory(inventory_of(1, kPackages), "v1");
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20"))
      .add(import_record("pandas"))
      .add(import_record("pandas.io", Directness::kTransitive, "pandas"))
      .add(import_record("numpy", Directness::kTransitive, "pandas.core"))
      .add(import_record("numpy.linalg", Directness::kTransitive, "numpy"))
      .add(import_record("google.cloud.storage.blob"));
  SpoolWriterForTests(spool(), start_record(1, 2, "2026-11-20"))
      .add(import_record("numpy", Directness::kTransitive, "pandas"));
  SpoolWriterForTests(spool(), start_record(2, 1, "2026-11-21")).add(import_record("numpy"));

  const auto result = collect();
  EXPECT_EQ(result.sessions, 2U);
  EXPECT_EQ(result.files, 3U);
  EXPECT_EQ(result.events, 10U);
  EXPECT_EQ(result.duplicates, 0U);

  const auto facts = snapshot();
  const auto* numpy = find_use(facts, "numpy");
  ASSERT_NE(numpy, nullptr);
  EXPECT_EQ(numpy->sessions, 2U);
  EXPECT_EQ(numpy->direct, 1U);
  EXPECT_EQ(numpy->transitive_only, 1U);
  EXPECT_EQ(numpy->image_copy, 2U);
  EXPECT_EQ(numpy->first_used, day("2026-11-20"));
  EXPECT_EQ(numpy->last_used, day("2026-11-21"));
  ASSERT_EQ(numpy->days.size(), 2U);
  EXPECT_THAT(numpy->importers, UnorderedElementsAre(Pair("pandas", 1U)));
  EXPECT_THAT(numpy->modules, UnorderedElementsAre(Pair("numpy", 2U), Pair("numpy.linalg", 1U)));
  EXPECT_EQ(find_use(facts, "google-cloud-storage")->sessions, 1U);
  EXPECT_EQ(find_use(facts, "google-cloud-core")->sessions, 0U);
  ASSERT_EQ(facts.images.size(), 1U);
  EXPECT_EQ(facts.images[0].heard, 2U);
  EXPECT_EQ(facts.images[0].launched, 2U);
  EXPECT_EQ(facts.images[0].label, "v1");
  EXPECT_TRUE(facts.unresolved.empty());

  const auto totals = database_->snapshot({.window = all_days(), .image = std::nullopt, .totals_only = true});
  EXPECT_EQ(find_use(totals, "numpy")->sessions, 2U);
  EXPECT_EQ(find_use(totals, "numpy")->first_used, day("2026-11-20"));
  EXPECT_THAT(find_use(totals, "numpy")->importers, UnorderedElementsAre(Pair("pandas", 1U)));
  EXPECT_TRUE(find_use(totals, "numpy")->days.empty());
  EXPECT_TRUE(find_use(totals, "numpy")->modules.empty());
}

TEST_P(UsageDatabase, IsNotChangedByTheSameSpoolAgain) {
  database_->put_inventory(inventory_of(1, kPackages), "");
  const auto path = SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20")).add(import_record("numpy")).path();
  collect();
  const auto again = collect();
  EXPECT_EQ(again.sessions, 0U);
  EXPECT_EQ(again.events, 0U);
  EXPECT_EQ(again.duplicates, 2U);
  // Nor by a copy under another name.
  std::filesystem::create_directories(folder_.path() / "elsewhere");
  std::filesystem::copy_file(path, folder_.path() / "elsewhere" / "copy.jsonl");
  const auto copy = database_->collect({folder_.path() / "elsewhere"}, {}, cancel_);
  EXPECT_EQ(copy.duplicates, 2U);
  EXPECT_EQ(copy.quarantined, 0U);
  EXPECT_EQ(find_use(snapshot(), "numpy")->sessions, 1U);
}

TEST_P(UsageDatabase, LeavesHalfARecordForTheNextTime) {
  database_->put_inventory(inventory_of(1, kPackages), "");
  SpoolWriterForTests writer(spool(), start_record(1, 1, "2026-11-20"));
  const auto line = spool_line(import_record("numpy"));
  writer.raw(line.substr(0, 10));
  EXPECT_EQ(collect().pending_bytes, 10U);
  EXPECT_EQ(find_use(snapshot(), "numpy")->sessions, 0U);
  writer.raw(line.substr(10));
  const auto result = collect();
  EXPECT_EQ(result.pending_bytes, 0U);
  EXPECT_EQ(result.events, 1U);
  EXPECT_EQ(find_use(snapshot(), "numpy")->sessions, 1U);
}

TEST_P(UsageDatabase, WaitsForTheFirstLineToBeWhole) {
  std::filesystem::create_directories(spool());
  std::ofstream(spool() / "a.jsonl") << R"({"t":"sta)";
  const auto result = collect();
  EXPECT_EQ(result.pending_bytes, 9U);
  EXPECT_EQ(result.quarantined, 0U);
}

TEST_P(UsageDatabase, QuarantinesABrokenLineAndGoesOn) {
  database_->put_inventory(inventory_of(1, kPackages), "");
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20"))
      .raw("SECRET\n")
      .raw(std::string(5000, 'x') + "\n")
      .add(import_record("numpy"));
  const auto result = collect();
  EXPECT_EQ(result.quarantined, 2U);
  ASSERT_EQ(result.notes.size(), 2U);
  EXPECT_THAT(result.notes[0].reason, testing::Not(HasSubstr("SECRET")));
  EXPECT_EQ(find_use(snapshot(), "numpy")->sessions, 1U);
  EXPECT_EQ(snapshot().quarantined, 2U);
  EXPECT_EQ(collect().quarantined, 0U);
}

TEST_P(UsageDatabase, QuarantinesFilesThatWereRewrittenOrCut) {
  SpoolWriterForTests first(spool(), start_record(1, 1, "2026-11-20"));
  first.add(import_record("numpy")).add(import_record("pandas"));
  SpoolWriterForTests second(spool(), start_record(2, 1, "2026-11-20"));
  second.add(import_record("numpy"));
  collect();
  std::filesystem::resize_file(first.path(), std::filesystem::file_size(first.path()) - 5);
  const auto content = read_file(second.path());
  std::string changed(as_text(content));
  changed.replace(changed.find("numpy"), 5, "scipy");
  std::ofstream(second.path(), std::ios::binary) << changed << spool_line(import_record("torch"));
  const auto result = collect();
  EXPECT_EQ(result.events, 0U);
  ASSERT_EQ(result.quarantined, 2U);
  EXPECT_THAT(result.notes[0].reason, HasSubstr("shorter"));
  EXPECT_THAT(result.notes[1].reason, HasSubstr("not what was read before"));
  EXPECT_TRUE(snapshot().unresolved.contains("numpy"));
  EXPECT_FALSE(snapshot().unresolved.contains("torch"));
}

TEST_P(UsageDatabase, QuarantinesWhatIsNoSpool) {
  std::filesystem::create_directories(spool());
  std::ofstream(spool() / "text.jsonl") << "hello\n";
  std::ofstream(spool() / "headless.jsonl") << spool_line(import_record("numpy"));
  std::ofstream(spool() / "empty.jsonl");
  std::ofstream(spool() / "notes.txt") << "not looked at\n";
  std::filesystem::create_symlink("/etc/passwd", spool() / "link.jsonl");
  const auto result = collect();
  EXPECT_EQ(result.quarantined, 2U);
  EXPECT_EQ(result.events, 0U);
}

TEST_P(UsageDatabase, ReadsTheFoldersOfSessionsAndOnlyTheirOwn) {
  database_->put_inventory(inventory_of(1, kPackages), "");
  SpoolWriterForTests(spool() / session_id(1), start_record(1, 1, "2026-11-20")).add(import_record("numpy"));
  SpoolWriterForTests(spool() / session_id(1), start_record(2, 1, "2026-11-20")).add(import_record("numpy"));
  const auto result = collect();
  EXPECT_EQ(result.sessions, 1U);
  ASSERT_EQ(result.quarantined, 1U);
  EXPECT_THAT(result.notes[0].reason, HasSubstr("another session"));
}

TEST_P(UsageDatabase, ResolvesNamesWhenTheInventoryArrivesLater) {
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20"))
      .add(import_record("google.cloud.storage.blob"))
      .add(import_record("unknown_thing"))
      .add({.at_seconds = 10, .what = FileRecord{.path = "usr/lib/python3/pandas/data.csv", .executed = false}})
      .add({.at_seconds = 10, .what = FileRecord{.path = "usr/bin/jupyter", .executed = true}});
  collect();
  EXPECT_THAT(snapshot().unresolved, UnorderedElementsAre(Pair("google.cloud", 1U), Pair("unknown_thing", 1U)));
  EXPECT_FALSE(snapshot().images[0].has_inventory);
  database_->put_inventory(inventory_of(1, kPackages), "v1");
  const auto facts = snapshot();
  EXPECT_THAT(facts.unresolved, UnorderedElementsAre(Pair("unknown_thing", 1U)));
  EXPECT_EQ(find_use(facts, "google-cloud-storage")->sessions, 1U);
  EXPECT_EQ(find_use(facts, "pandas")->sessions, 0U);
  EXPECT_EQ(find_use(facts, "pandas")->file_sessions, 1U);
  EXPECT_EQ(find_use(facts, "pandas")->exec_sessions, 0U);
  EXPECT_EQ(find_use(facts, "jupyter")->exec_sessions, 1U);
}

TEST_P(UsageDatabase, AnswersAsTheInventoryDoes) {
  auto packages = kPackages;
  packages.push_back({.name = "lone", .modules = {"only.here.deep"}});
  const auto inventory = inventory_of(1, packages);
  database_->put_inventory(inventory, "");
  const std::vector<std::string> modules{"numpy",
                                         "numpy.linalg",
                                         "google",
                                         "google.cloud",
                                         "google.cloud.storage",
                                         "google.cloud.storage.x",
                                         "google.cloud.x",
                                         "google.x",
                                         "cv2.data",
                                         "only",
                                         "only.here",
                                         "only.x",
                                         "only.here.deep.x",
                                         "nump",
                                         "numpyx"};
  const std::vector<std::string> paths{"usr/lib/python3/numpy/a.py", "usr/lib/python3/numpy", "usr/bin/jupyter",
                                       "usr/bin/jupyter/x", "usr/lib"};
  unsigned session = 0;
  const auto write = [&](const SpoolRecord& record) {
    ++session;  // one session and one day for each question
    SpoolWriterForTests(spool(), start_record(session, 1, day_text(20'000 + std::int32_t(session)))).add(record);
  };
  for (const auto& module : modules) write(import_record(module));
  for (const auto& path : paths) write({.at_seconds = 0, .what = FileRecord{.path = path, .executed = true}});
  collect();
  const auto expect = [&](const std::string& what, std::int32_t day, const std::vector<std::uint32_t>& owners) {
    SCOPED_TRACE(what);
    const auto facts = database_->snapshot({.window = {.first = day, .last = day}, .image = std::nullopt});
    std::set<std::string> expected, counted;
    for (const auto owner : owners) expected.insert(inventory.distributions[owner].normalized);
    for (const auto& use : facts.distributions)
      if (use.sessions + use.exec_sessions > 0) counted.insert(use.name);
    EXPECT_EQ(counted, expected);
  };
  session = 0;
  for (const auto& module : modules) expect(module, 20'000 + std::int32_t(++session), inventory.modules.owners(module));
  for (const auto& path : paths) expect(path, 20'000 + std::int32_t(++session), inventory.owners_of_path(path));
}

TEST_P(UsageDatabase, CountsAModuleForAllThatOwnIt) {
  database_->put_inventory(inventory_of(1, kPackages), "");
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20")).add(import_record("cv2"));
  collect();
  const auto facts = snapshot();
  EXPECT_EQ(find_use(facts, "opencv-python")->sessions, 1U);
  EXPECT_EQ(find_use(facts, "opencv-python-headless")->sessions, 1U);
  EXPECT_THAT(find_use(facts, "opencv-python")->shared_with, ElementsAre("opencv-python-headless"));
}

TEST_P(UsageDatabase, TellsTheSessionsOwnCopyFromTheImages) {
  database_->put_inventory(inventory_of(1, kPackages), "");
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20"))
      .add({.at_seconds = 0,
            .what = ImportRecord{.module = "numpy",
                                 .how = Directness::kStatic,
                                 .by = {},
                                 .copy = Copy::kSession,
                                 .distribution = "NumPy",
                                 .version = "2.0"}})
      .add({.at_seconds = 0,
            .what = InstallRecord{.distribution = "NumPy",
                                  .from = "1.26",
                                  .to = "2.0",
                                  .why = InstallReason::kUpgrade,
                                  .tool = "pip"}})
      .add({.at_seconds = 0,
            .what = ImportRecord{.module = "own_thing",
                                 .how = Directness::kDirect,
                                 .by = {},
                                 .copy = Copy::kSession,
                                 .distribution = "own.thing",
                                 .version = "0.1"}});
  collect();
  const auto facts = snapshot();
  const auto* numpy = find_use(facts, "numpy");
  EXPECT_EQ(numpy->session_copy, 1U);
  EXPECT_EQ(numpy->image_copy, 0U);
  EXPECT_EQ(numpy->static_sessions, 1U);
  EXPECT_EQ(numpy->direct, 0U);
  ASSERT_NE(find_use(facts, "own-thing"), nullptr);
  EXPECT_TRUE(find_use(facts, "own-thing")->packages.empty());
  ASSERT_EQ(facts.reinstalls.size(), 1U);
  EXPECT_EQ(facts.reinstalls[0].distribution, "numpy");
  EXPECT_EQ(facts.reinstalls[0].why, "upgrade");
}

TEST_P(UsageDatabase, KeepsFailedNamesToItselfUntilTheyArePublic) {
  const auto fail_on = [&](unsigned session, const std::string& module) {
    SpoolWriterForTests(spool(), start_record(session, 1, "2026-11-20"))
        .add({.at_seconds = 0, .what = FailedRecord{.module = module, .how = Directness::kDirect}});
  };
  fail_on(1, "secret_project");
  fail_on(2, "secret_project");
  fail_on(3, "numpy");
  collect({.known_name_sessions = 3});
  EXPECT_EQ(snapshot().hidden_failed_names, 2U);
  EXPECT_TRUE(snapshot().failed.empty());
  // An image that has it makes it known, whenever that comes.
  database_->put_inventory(inventory_of(2, kPackages), "");
  ASSERT_EQ(snapshot().failed.size(), 1U);
  EXPECT_EQ(snapshot().failed[0].module, "numpy");
  EXPECT_EQ(snapshot().failed[0].distribution, "numpy");
  fail_on(4, "secret_project");
  collect({.known_name_sessions = 3});
  ASSERT_EQ(snapshot().failed.size(), 2U);
  EXPECT_EQ(snapshot().failed[0].module, "secret_project");
  EXPECT_EQ(snapshot().failed[0].sessions, 3U);
  EXPECT_EQ(snapshot().hidden_failed_names, 0U);
}

TEST_P(UsageDatabase, CountsAccelerators) {
  database_->put_inventory(inventory_of(1, kPackages), "");
  const auto beat = [](std::uint64_t at, std::uint64_t idle, bool used) {
    return SpoolRecord{.at_seconds = at,
                       .what = BeatRecord{.cells = 1, .busy_seconds = 0, .idle_seconds = idle, .gpu_used = used}};
  };
  const SpoolRecord gpu{.at_seconds = 0,
                        .what = GpuRecord{.present = true, .used = false, .models = {"NVIDIA T4"}, .driver = "550"}};
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20"))
      .add(gpu)
      .add(import_record("torch"))
      .add(beat(900, 700, true))
      .add(beat(960, 10, true))
      .add(beat(2000, 600, true))
      .add(beat(2100, 599, true));
  SpoolWriterForTests(spool(), start_record(2, 1, "2026-11-20"))
      .add(gpu)
      .add(import_record("numpy"))
      .add(beat(3000, 0, false));
  SpoolWriterForTests(spool(), start_record(3, 1, "2026-11-20")).add(import_record("numpy"));
  collect();
  const auto facts = snapshot();
  ASSERT_EQ(facts.images.size(), 1U);
  const auto& image = facts.images[0];
  EXPECT_EQ(image.heard, 3U);
  EXPECT_EQ(image.gpu_sessions, 2U);
  EXPECT_EQ(image.gpu_used_sessions, 1U);
  EXPECT_EQ(image.gpu_unused_seconds, 3000U);
  EXPECT_EQ(image.gpu_idle_seconds, 1300U);
  EXPECT_EQ(image.gpu_incapable_sessions, 1U);
  EXPECT_EQ(image.gpu_incapable_seconds, 3000U);
  EXPECT_THAT(facts.gpu_models, UnorderedElementsAre(Pair("NVIDIA T4", 2U)));
}

TEST_P(UsageDatabase, CountsLaunchesThatNobodyHeardOf) {
  auto launch = start_record(1, 1, "2026-11-20");
  launch.writer = "run 0.1.0";
  SpoolWriterForTests(spool(), launch).add({.at_seconds = 0, .what = LaunchRecord{}});
  auto launched_and_heard = start_record(2, 1, "2026-11-20");
  launched_and_heard.writer = "run 0.1.0";
  SpoolWriterForTests(spool(), launched_and_heard).add({.at_seconds = 0, .what = LaunchRecord{}});
  SpoolWriterForTests(spool(), start_record(2, 2, "2026-11-20"));
  collect();
  const auto facts = snapshot();
  ASSERT_EQ(facts.images.size(), 1U);
  EXPECT_EQ(facts.images[0].launched, 2U);
  EXPECT_EQ(facts.images[0].heard, 1U);
  ASSERT_EQ(facts.heard_days.size(), 1U);
  EXPECT_EQ(facts.heard_days[0].sessions, 1U);
}

TEST_P(UsageDatabase, GivesUsersAsARangeOverMonths) {
  database_->put_inventory(inventory_of(1, kPackages), "");
  unsigned session = 0;
  const auto use = [&](const std::string& day, unsigned user) {
    auto start = start_record(++session, 1, day);
    start.user = user_hash(user);
    SpoolWriterForTests(spool(), start).add(import_record("numpy"));
  };
  for (unsigned user = 0; user < 5; ++user) use("2026-10-05", user);
  use("2026-10-06", 0);
  for (unsigned user = 100; user < 103; ++user) use("2026-11-05", user);
  collect();
  const auto numpy = *find_use(snapshot(), "numpy");
  EXPECT_EQ(numpy.users.at_least, 5U);
  EXPECT_EQ(numpy.users.at_most, 8U);
  EXPECT_EQ(snapshot().images[0].users.at_most, 8U);
  // A window that has a part of a month knows less.
  const auto part =
      database_->snapshot({.window = {.first = day("2026-10-06"), .last = day("2026-10-31")}, .image = std::nullopt});
  EXPECT_EQ(find_use(part, "numpy")->users.at_least, 1U);
  EXPECT_EQ(find_use(part, "numpy")->users.at_most, 1U);
}

TEST_P(UsageDatabase, KeepsImagesApart) {
  database_->put_inventory(inventory_of(1, kPackages), "v1");
  database_->put_inventory(inventory_of(2, {kPackages[0]}), "v2");
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20", 1)).add(import_record("numpy"));
  SpoolWriterForTests(spool(), start_record(2, 1, "2026-11-21", 2)).add(import_record("numpy"));
  SpoolWriterForTests(spool(), start_record(3, 1, "2026-11-21", 0)).add(import_record("numpy"));
  collect();
  EXPECT_EQ(find_use(snapshot(), "numpy")->sessions, 2U);
  EXPECT_EQ(find_use(snapshot(image_digest(2)), "numpy")->sessions, 1U);
  EXPECT_EQ(find_use(snapshot(image_digest(2)), "pandas"), nullptr);
  EXPECT_TRUE(snapshot(image_digest(3)).distributions.empty());
  ASSERT_EQ(snapshot().images.size(), 3U);
  EXPECT_EQ(snapshot().images[2].label, "v1");
  EXPECT_EQ(find_use(snapshot(), "numpy")->packages.size(), 2U);
}

TEST_P(UsageDatabase, RemovesWhatIsCollectedOnlyWhenItsProcessEnded) {
  SpoolWriterForTests ended(spool(), start_record(1, 1, "2026-11-20"));
  ended.add({.at_seconds = 0, .what = EndRecord{.ok = true}});
  SpoolWriterForTests half(spool(), start_record(2, 1, "2026-11-20"));
  half.add({.at_seconds = 0, .what = EndRecord{.ok = true}}).raw("{");
  SpoolWriterForTests running(spool(), start_record(3, 1, "2026-11-20"));
  const auto result = collect({.remove_collected = true});
  EXPECT_EQ(result.removed_files, 1U);
  EXPECT_FALSE(std::filesystem::exists(ended.path()));
  EXPECT_TRUE(std::filesystem::exists(half.path()));
  EXPECT_TRUE(std::filesystem::exists(running.path()));
}

// What has started a session tells its end: of its processes none lives, also of those that could say nothing
// (`jupyter` became `jupyter-lab`, and was never over).
TEST_P(UsageDatabase, LeavesNothingOfASessionThatIsOver) {
  const auto run = [](unsigned session) {
    auto start = start_record(session, 1, "2026-11-20");
    start.writer = "run 0.1.0";
    return start;
  };
  for (const unsigned session : {1U, 2U}) {
    const auto folder = spool() / session_id(session);
    SpoolWriterForTests(folder, start_record(session, 2, "2026-11-20")).add(import_record("numpy"));
    SpoolWriterForTests(folder, start_record(session, 3, "2026-11-20")).raw("{\"half");
    std::ofstream(folder / "killed.jsonl") << "{\"t";
  }
  SpoolWriterForTests over(spool() / session_id(1), run(1));
  over.add({.at_seconds = 0, .what = LaunchRecord{}}).add({.at_seconds = 0, .what = EndRecord{.ok = true}});
  SpoolWriterForTests(spool() / session_id(2), run(2)).add({.at_seconds = 0, .what = LaunchRecord{}});
  // A process of the session that says so is none that started it.
  SpoolWriterForTests(spool() / session_id(2), start_record(2, 4, "2026-11-20"))
      .add({.at_seconds = 0, .what = EndRecord{.ok = true}});
  EXPECT_EQ(collect({.remove_collected = true}).removed_files, 4U + 1U);
  EXPECT_FALSE(std::filesystem::exists(spool() / session_id(1)));
  EXPECT_TRUE(std::filesystem::exists(spool() / session_id(2)));
}

TEST_P(UsageDatabase, ASessionIsHeardOfAlsoByAllItsFiles) {
  database_->put_inventory(inventory_of(1, kPackages), "v1");
  for (const unsigned session : {1U, 2U}) {
    auto start = start_record(session, 1, "2026-11-20");
    start.writer = "run 0.1.0";
    SpoolWriterForTests(spool() / session_id(session), start)
        .add({.at_seconds = 0, .what = LaunchRecord{}})
        .add({.at_seconds = 10, .what = FileRecord{.path = "usr/bin/jupyter", .executed = true}})
        .add({.at_seconds = 10, .what = EndRecord{.ok = true, .all_files = session == 1}});
  }
  collect();
  EXPECT_EQ(snapshot().images[0].launched, 2U);
  EXPECT_EQ(snapshot().images[0].heard, 1U) << "of the other one nobody knows what else it opened";
  EXPECT_EQ(find_use(snapshot(), "jupyter")->files_only, 2U);
}

TEST_P(UsageDatabase, WaysOfUseAddUpToItsSessions) {
  database_->put_inventory(inventory_of(1, kPackages), "v1");
  const SpoolRecord opened{.at_seconds = 10,
                           .what = FileRecord{.path = "usr/lib/python3/pandas/data.csv", .executed = false}};
  const auto write = [&](unsigned session, const std::vector<SpoolRecord>& records) {
    SpoolWriterForTests file(spool(), start_record(session, 1, "2026-11-20"));
    for (const auto& record : records) file.add(record);
  };
  write(1, {import_record("pandas"), import_record("pandas", Directness::kStatic), opened});
  write(2, {import_record("pandas", Directness::kTransitive, "numpy"), opened});
  write(3, {import_record("pandas", Directness::kTransitive, "numpy"), import_record("pandas", Directness::kStatic)});
  write(4, {opened});
  collect();
  const auto facts = snapshot();
  const auto* pandas = find_use(facts, "pandas");
  EXPECT_EQ(pandas->direct, 1U);
  EXPECT_EQ(pandas->transitive_only, 1U);
  EXPECT_EQ(named_only(*pandas), 1U);
  EXPECT_EQ(pandas->files_only, 1U);
  EXPECT_EQ(pandas->file_sessions, 3U);
  EXPECT_EQ(used_in(*pandas), 4U);
  ASSERT_EQ(pandas->days.size(), 1U);
  EXPECT_EQ(pandas->days[0].sessions, 4U);
  write(5, {opened});
  collect();
  SpoolWriterForTests(spool(), start_record(5, 1, "2026-11-20")).add(import_record("pandas"));
  collect();
  EXPECT_EQ(find_use(snapshot(), "pandas")->files_only, 1U) << "a session that came to load it is counted once";
  EXPECT_EQ(used_in(*find_use(snapshot(), "pandas")), 5U);
}

TEST_P(UsageDatabase, RefusesWhatNobodyOfTheSessionWrote) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs the right to give files away";
  const auto add = [&](unsigned session, const std::string& writer, unsigned folder_owner, unsigned owner) {
    auto start = start_record(session, 1, "2026-11-20");
    start.writer = writer;
    const SpoolWriterForTests file(spool() / session_id(session), start);
    EXPECT_EQ(::chown(file.path().parent_path().c_str(), folder_owner, folder_owner), 0);
    EXPECT_EQ(::chown(file.path().c_str(), owner, owner), 0);
  };
  add(1, "recorder 1", 1000, 1000);
  add(2, "recorder 1", 0, 1000);  // a user of a session of root
  add(3, "run 0.1.0", 0, 0);
  EXPECT_EQ(collect().sessions, 3U);
  add(4, "recorder 1", 1000, 1001);
  add(5, "run 0.1.0", 0, 1000);
  const auto result = collect();
  EXPECT_EQ(result.sessions, 0U);
  ASSERT_EQ(result.quarantined, 2U);
  EXPECT_THAT(result.notes[0].reason, HasSubstr("belongs to user 1001, the folder of its session to user 1000"));
}

TEST_P(UsageDatabase, RefusesSessionsOfDaysToCome) {
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-22"));  // where the sun is ahead of us
  SpoolWriterForTests(spool(), start_record(2, 1, "2026-11-23"));
  SpoolWriterForTests(spool(), start_record(3, 1, "9999-12-31"));
  const auto result = collect({.today = day("2026-11-21")});
  EXPECT_EQ(result.sessions, 1U);
  ASSERT_EQ(result.quarantined, 2U);
  EXPECT_THAT(result.notes[0].reason, HasSubstr("began on 2026-11-23, and today is 2026-11-21"));
}

TEST_P(UsageDatabase, LeavesNoOldSaltsAndNoEmptyFoldersBehind) {
  SpoolWriterForTests done(spool() / session_id(1), start_record(1, 1, "2026-11-20"));
  done.add({.at_seconds = 0, .what = EndRecord{.ok = true}});
  SpoolWriterForTests running(spool() / session_id(2), start_record(2, 1, "2026-11-20"));
  for (const auto* salt : {"salt-2020-01", "salt-9999-12", "salt-other"}) std::ofstream(spool() / salt) << "x";
  EXPECT_EQ(collect({.remove_collected = true}).removed_files, 1U);
  EXPECT_FALSE(std::filesystem::exists(spool() / "salt-2020-01"));
  EXPECT_TRUE(std::filesystem::exists(spool() / "salt-9999-12"));
  EXPECT_TRUE(std::filesystem::exists(spool() / "salt-other"));
  // An empty folder may be that of a session that only begins.
  EXPECT_TRUE(std::filesystem::exists(spool() / session_id(1)));
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(48);
  for (const unsigned session : {1U, 2U}) std::filesystem::last_write_time(spool() / session_id(session), long_ago);
  collect({.remove_collected = true});
  EXPECT_FALSE(std::filesystem::exists(spool() / session_id(1)));
  EXPECT_TRUE(std::filesystem::exists(running.path()));
}

TEST_P(UsageDatabase, TakesProcessesThatWereSilentForADayAsKilled) {
  SpoolWriterForTests killed(spool(), start_record(1, 1, "2026-11-20"));
  std::filesystem::last_write_time(killed.path(),
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(48));
  EXPECT_EQ(collect({.remove_collected = true}).removed_files, 1U);
}

TEST_P(UsageDatabase, BoundsWhatOneSessionMayHave) {
  SpoolWriterForTests writer(spool(), start_record(1, 1, "2026-11-20"));
  std::string lines;
  for (unsigned i = 0; i < 5'010; ++i)
    lines += spool_line(
        {.at_seconds = 0, .what = FailedRecord{.module = fmt::format("name{}", i), .how = Directness::kDirect}});
  writer.raw(lines);
  const auto result = collect();
  EXPECT_EQ(result.quarantined, 1U);
  EXPECT_THAT(result.notes[0].reason, HasSubstr("10 records left out"));
  EXPECT_EQ(snapshot().hidden_failed_names, 5'000U);
}

TEST_P(UsageDatabase, AgesOutSessionsAndKeepsTheirCounts) {
  database_->put_inventory(inventory_of(1, kPackages), "");
  SpoolWriterForTests old(spool(), start_record(1, 1, "2026-09-01"));
  old.add(import_record("numpy"));
  SpoolWriterForTests(spool(), start_record(2, 1, "2026-11-20")).add(import_record("numpy"));
  collect();
  database_->age_out({.raw_days = 30, .aggregate_days = 800}, day("2026-11-21"));
  EXPECT_EQ(find_use(snapshot(), "numpy")->sessions, 2U);
  // What comes too late is not counted, and neither is anything counted again.
  old.add(import_record("pandas"));
  auto late = collect();
  EXPECT_EQ(late.duplicates, 4U);
  EXPECT_EQ(late.quarantined, 1U);
  EXPECT_EQ(collect().quarantined, 0U);
  EXPECT_EQ(find_use(snapshot(), "numpy")->sessions, 2U);
  EXPECT_EQ(find_use(snapshot(), "pandas")->sessions, 0U);
  // Later even the days go; what they sum up to and when it was first used stays.
  database_->age_out({.raw_days = 1, .aggregate_days = 10}, day("2026-11-29"));
  EXPECT_EQ(find_use(snapshot(), "numpy")->sessions, 2U);
  EXPECT_EQ(snapshot().by_day_from, day("2026-10-01"));
  EXPECT_EQ(find_use(snapshot(), "numpy")->first_used, day("2026-09-01"));
  const auto refused = collect();
  EXPECT_EQ(refused.events, 0U);
  EXPECT_EQ(refused.quarantined, 2U);
}

TEST_P(UsageDatabase, MovesASessionToTheDayOfItsFirstProcess) {
  database_->put_inventory(inventory_of(1, kPackages), "");
  auto child = start_record(1, 2, "2026-11-21");
  child.parent = process_id(1);
  SpoolWriterForTests(spool(), child).add(import_record("numpy"));
  collect();
  EXPECT_EQ(find_use(snapshot(), "numpy")->days[0].day, day("2026-11-21"));
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20"));
  collect();
  const auto facts = snapshot();
  ASSERT_EQ(find_use(facts, "numpy")->days.size(), 1U);
  EXPECT_EQ(find_use(facts, "numpy")->days[0].day, day("2026-11-20"));
  EXPECT_EQ(facts.images[0].heard, 1U);
}

TEST_P(UsageDatabase, ExplainsANameWithAllItsEvidence) {
  database_->put_inventory(inventory_of(1, kPackages), "v1");
  SpoolWriterForTests(spool(), start_record(1, 1, "2026-11-20"))
      .add(import_record("pandas"))
      .add(import_record("numpy", Directness::kTransitive, "pandas.core"))
      .add({.at_seconds = 0,
            .what = InstallRecord{
                .distribution = "numpy", .from = "1.0", .to = "2.0", .why = InstallReason::kUpgrade, .tool = "pip"}});
  collect();
  notebooks::ScanResult scan;
  notebooks::ScannedFile notebook;
  notebook.path = "a.ipynb";
  notebook.language = "python";
  notebook.code_digest = digest_of("a");
  notebook.imports.push_back({.name = "numpy.linalg",
                              .module = "numpy.linalg",
                              .kind = notebooks::ImportKind::kOptional,
                              .cell = 3,
                              .line = 2});
  scan.files.push_back(notebook);
  notebook.path = "b.ipynb";
  notebook.duplicate_of = "a.ipynb";
  scan.files.push_back(notebook);
  database_->put_scan(scan);
  database_->put_scan(scan);
  const SnapshotQuery query{.window = all_days(), .image = std::nullopt};
  const auto explained = database_->explain("numpy.linalg", query);
  EXPECT_THAT(explained.distributions, ElementsAre("numpy"));
  ASSERT_EQ(explained.use.size(), 1U);
  EXPECT_EQ(explained.use[0].notebooks, 1U);
  EXPECT_EQ(explained.use[0].notebooks_optional, 1U);
  std::vector<std::string> kinds;
  for (const auto& evidence : explained.evidence) kinds.push_back(evidence.kind);
  EXPECT_THAT(kinds, testing::IsSupersetOf({"session", "import-edge", "install", "package", "notebook"}));
  EXPECT_THAT(database_->explain("google", query).distributions,
              UnorderedElementsAre("google-cloud-storage", "google-cloud-core"));
  EXPECT_THAT(database_->explain("Google_Cloud.Storage", query).distributions, ElementsAre("google-cloud-storage"));
  EXPECT_TRUE(database_->explain("nothing", query).distributions.empty());
  EXPECT_EQ(snapshot().notebooks_scanned, 2U);
  EXPECT_EQ(snapshot().notebooks_distinct, 1U);
}

TEST_P(UsageDatabase, RefusesAnInventoryOfNoImage) {
  auto inventory = inventory_of(1, kPackages);
  inventory.image.reset();
  EXPECT_THROW(database_->put_inventory(inventory, ""), UsageError);
}

TEST_P(UsageDatabase, TakesHostileNamesOfFilesAndPackages) {
  auto packages = kPackages;
  packages.push_back({.name = std::string("na\0me", 5), .modules = {"a\xff"}, .paths = {"\xfe/"}});
  EXPECT_NO_THROW(database_->put_inventory(inventory_of(1, packages), "v\xff"));
  notebooks::ScanResult scan;
  scan.files.emplace_back();
  scan.files.back().path = "\xff\n.ipynb";
  EXPECT_NO_THROW(database_->put_scan(scan));
  EXPECT_EQ(snapshot().notebooks_scanned, 1U);
}

}  // namespace
}  // namespace varve::usage
