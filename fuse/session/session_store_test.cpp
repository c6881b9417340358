#include "fuse/session/session_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/remove_tree.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SessionStoreTest : public ::testing::Test {
 protected:
  OpenSession create(const std::string& name, bool remove_at_exit = false) {
    return store_.create({.name = name,
                          .image = "oci:/image",
                          .image_digest = "sha256:0",
                          .command = {"sh", "-c", "x"},
                          .remove_at_exit = remove_at_exit});
  }
  test::TempDir dir_;
  SessionStore store_{dir_.path()};
};

TEST_F(SessionStoreTest, OthersMayNotLookInside) {
  EXPECT_EQ(fs::status(dir_ / "sessions").permissions(), fs::perms::owner_all);
}

TEST_F(SessionStoreTest, AnOpenSessionIsListedAsRunningAndAClosedOneIsNot) {
  {
    const auto session = create("lab");
    const auto listed = store_.list();
    ASSERT_EQ(listed.size(), 1u);
    EXPECT_TRUE(listed[0].running);
    EXPECT_EQ(listed[0].record.name, "lab");
    EXPECT_EQ(listed[0].record.id, session.record.id);
    EXPECT_EQ(listed[0].record.command.size(), 3u);
    EXPECT_FALSE(listed[0].record.exit_status.has_value());
    EXPECT_THROW(store_.remove(listed[0]), UsageError);
  }
  EXPECT_FALSE(store_.find("lab")->running);
  store_.remove(*store_.find("lab"));
  EXPECT_THAT(store_.list(), IsEmpty());
}

TEST_F(SessionStoreTest, SessionsThatHaveIdsOfTheirOwnShareNone) {
  const IdPool pool{.uids = {{.outside = 100'000, .count = 2 * kOwnIds}},
                    .gids = {{.outside = 100'000, .count = 2 * kOwnIds}}};
  const auto create_with_ids = [&](const std::string& name) {
    return store_.create({.name = name, .image = "", .image_digest = "", .command = {"sh"}, .ids = pool});
  };
  EXPECT_FALSE(create("without").record.own_ids);
  const auto running = create_with_ids("running");
  const auto kept = create_with_ids("kept").record;
  EXPECT_EQ(running.record.own_ids, (OwnIds{100'000, 100'000}));
  EXPECT_EQ(kept.own_ids, (OwnIds{100'000 + kOwnIds, 100'000 + kOwnIds}));
  EXPECT_EQ(store_.find("kept")->record.own_ids, kept.own_ids);
  EXPECT_THROW(create_with_ids("third"), Unsupported);
  EXPECT_FALSE(store_.find("third"));
  store_.remove(*store_.find("kept"));
  EXPECT_EQ(create_with_ids("third").record.own_ids, kept.own_ids);
}

TEST_F(SessionStoreTest, WhatIsWrittenDownIsRead) {
  auto session = create("lab");
  session.record.exit_status = 3;
  session.record.runtime = "runc";
  session.record.upper_bytes = 1 << 20;
  store_.write_record(session.folder, session.record);
  const auto record = store_.find(session.record.id)->record;
  EXPECT_EQ(record.exit_status, 3);
  EXPECT_EQ(record.runtime, "runc");
  EXPECT_EQ(record.upper_bytes, 1u << 20);
}

TEST_F(SessionStoreTest, NamesAreUniqueAndPlain) {
  const auto session = create("lab");
  EXPECT_THROW(create("lab"), UsageError);
  EXPECT_THROW(create(session.record.id), UsageError);
  for (const auto* name : {"../x", "a/b", "-rm", ".hidden", "a b", "\xc3\xa4"})
    EXPECT_THROW(create(name), UsageError) << name;
  EXPECT_THROW(create(std::string(65, 'a')), UsageError);
  EXPECT_NE(create("").record.id, create("").record.id);
}

TEST_F(SessionStoreTest, SweepingRemovesWhatShouldBeGoneAndKeepsTheRest) {
  const auto running = create("running", true);
  std::string gone_id;
  {
    auto gone = create("gone", true);
    gone_id = gone.record.id;
    create("kept");
  }
  EXPECT_THAT(store_.sweep(), ElementsAre(gone_id));
  EXPECT_TRUE(store_.find("running").has_value());
  EXPECT_TRUE(store_.find("kept").has_value());
  EXPECT_FALSE(store_.find("gone").has_value());
}

TEST_F(SessionStoreTest, SweepingRemovesHalfMadeSessionsAndTouchesNothingElse) {
  fs::create_directories(dir_ / "sessions/0123456789ab/upper");
  fs::create_directories(dir_ / "sessions/abcdefabcdef");
  std::ofstream(dir_ / "sessions/abcdefabcdef/session.json") << "{\"id\": 5";
  fs::create_directories(dir_ / "sessions/my-notes");
  EXPECT_THAT(store_.list(), IsEmpty());
  EXPECT_EQ(store_.sweep().size(), 2u);
  EXPECT_TRUE(fs::exists(dir_ / "sessions/my-notes"));
}

TEST_F(SessionStoreTest, ARecordOfAnotherSessionIsNotBelieved) {
  const auto session = create("lab");
  fs::create_directories(dir_ / "sessions/0123456789ab");
  fs::copy(session.folder.record(), dir_ / "sessions/0123456789ab/session.json");
  EXPECT_EQ(store_.list().size(), 1u);
}

TEST_F(SessionStoreTest, RemovesTreesOfAnyDepthWithFoldersThatMayNotBeRead) {
  const auto top = dir_ / "tree";
  fs::create_directories(top / "inner/inner");
  std::ofstream(top / "inner/inner/file") << "x";
  ::chmod((top / "inner/inner").c_str(), 0);
  fs::create_symlink("/", top / "link");
  fs::create_directory(dir_ / "outside");
  std::ofstream(dir_ / "outside/file") << "x";
  fs::create_symlink((dir_ / "outside").string(), top / "inner/outside");
  // Deeper than a path can name: 1,000 folders.
  UniqueFd at(::open(top.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int depth = 0; depth < 1000; ++depth) {
    ASSERT_EQ(::mkdirat(at.get(), "deep", 0755), 0);
    at.reset(::openat(at.get(), "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  at.reset();
  remove_tree(top);
  EXPECT_FALSE(fs::exists(top));
  EXPECT_TRUE(fs::exists(dir_ / "outside/file"));
}

TEST_F(SessionStoreTest, SweepingLeavesASessionAloneThatItsOwnerIsRemoving) {
  for (int round = 0; round < 5; ++round) {
    auto session = create("lab");
    for (int i = 0; i < 100; ++i) fs::create_directories(session.folder.upper() / std::to_string(i) / "a/b");
    std::atomic<bool> removed = false;
    std::thread sweeper([&] {
      while (!removed) EXPECT_THAT(store_.sweep(), IsEmpty());
    });
    EXPECT_NO_THROW(remove_session_folder(session.folder));
    removed = true;
    sweeper.join();
    EXPECT_FALSE(fs::exists(session.folder.dir));
  }
}

TEST_F(SessionStoreTest, AKeptSessionIsOpenedAgain) {
  std::string id;
  {
    auto session = create("lab");
    id = session.record.id;
    EXPECT_THROW(store_.reopen(id), UsageError);
    std::ofstream(session.folder.upper() / "mine") << "x";
    std::ofstream(session.folder.runtime_state() / "stale") << "x";
    session.record.exit_status = 3;
    session.record.runtime = "runc";
    session.record.options = "{\"command\":[\"sh\"]}";
    store_.write_record(session.folder, session.record);
  }
  {
    const auto again = store_.reopen(id);
    EXPECT_FALSE(again.is_new);
    EXPECT_FALSE(again.record.exit_status);
    EXPECT_EQ(again.record.runtime, "");
    EXPECT_EQ(again.record.options, "{\"command\":[\"sh\"]}");
    EXPECT_TRUE(fs::exists(again.folder.upper() / "mine"));
    EXPECT_FALSE(fs::exists(again.folder.runtime_state() / "stale"));
    EXPECT_TRUE(store_.find("lab")->running);
  }
  EXPECT_FALSE(store_.find("lab")->running);
  store_.remove(*store_.find("lab"));
  EXPECT_THROW(store_.reopen(id), NotFound);
}

TEST_F(SessionStoreTest, WhoHoldsASessionIsNoOtherProcessOfThatNumber) {
  auto session = create("lab");
  EXPECT_FALSE(store_.find("lab")->supervisor);
  const auto me = find_process(::getpid()).value();
  store_.write_process(session.folder, me);
  EXPECT_EQ(store_.find("lab")->supervisor, me);
  store_.write_process(session.folder, {.pid = me.pid, .start_time = me.start_time + 1});  // as after a new start
  EXPECT_FALSE(store_.find("lab")->supervisor);
  store_.write_process(session.folder, me);
  session.lock.reset();
  EXPECT_FALSE(store_.find("lab")->running);
  EXPECT_FALSE(store_.find("lab")->supervisor);
}

TEST_F(SessionStoreTest, CountsBytesOnDisk) {
  fs::create_directories(dir_ / "tree/a");
  std::ofstream(dir_ / "tree/a/file") << std::string(100'000, 'x');
  std::ofstream(dir_ / "tree/sparse") << "";
  fs::resize_file(dir_ / "tree/sparse", 1 << 30);
  const auto bytes = bytes_on_disk(dir_ / "tree");
  EXPECT_GE(bytes, 100'000u);
  EXPECT_LT(bytes, 1'000'000u);
}

}  // namespace
}  // namespace varve::fuse
