#include "analyzer/recorder/session_recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <set>

#include "testing/temp_dir.h"

namespace varve::recorder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

// A session over a plain folder, started by a user of whom the environment says only the name.
class SessionRecordingTest : public ::testing::Test {
 protected:
  SessionRecordingTest() { fs::create_directories(image_.path() / "usr/lib/python3.11/site-packages"); }

  SessionRecording::Wanted wanted() const {
    return {.spool = state_ / "usage/spool",
            .salts = state_ / "usage/salts",
            .recorder = state_ / "usage/recorder",
            .image = digest_of("image"),
            .version = "1.2.3",
            .image_env = image_env_,
            .session_env = session_env_,
            .own_variable = [this](const std::string& name) -> std::optional<std::string> {
              const auto found = own_env_.find(name);
              return found == own_env_.end() ? std::nullopt : std::optional(found->second);
            }};
  }
  ImageTree tree() const {
    return {.list = [this](const std::string& path) { return folder_.list(path); },
            .has = [this](const std::string& path) { return folder_.locate(path).has_value(); }};
  }
  std::unique_ptr<SessionRecording> begin() const { return std::make_unique<SessionRecording>(wanted(), tree()); }
  // Of a session whose command has started.
  std::unique_ptr<SessionRecording> begin_and_start() const {
    auto recording = begin();
    recording->started();
    return recording;
  }
  fs::path folder_of(const SessionRecording& recording) const { return wanted().spool / recording.session(); }
  // Of the one file of the session.
  std::vector<std::string> lines_of(const SessionRecording& recording) const {
    std::vector<std::string> lines;
    for (const auto& entry : fs::directory_iterator(folder_of(recording))) {
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) lines.push_back(line);
    }
    return lines;
  }
  static std::map<std::string, std::string> values(const std::vector<std::string>& env) {
    std::map<std::string, std::string> found;
    for (const auto& one : env) found[one.substr(0, one.find('='))] = one.substr(one.find('=') + 1);
    return found;
  }

  test::TempDir state_, image_;
  const RootFolder folder_{image_.path()};
  std::vector<std::string> image_env_, session_env_;
  std::map<std::string, std::string> own_env_{{"USER", "ann"}};
};

TEST_F(SessionRecordingTest, CountsTheLaunchWhenTheCommandHasStarted) {
  const auto recording = begin();
  EXPECT_TRUE(recording->switched_on());
  EXPECT_EQ(mode_of(wanted().spool), 0711u) << "nobody else adds sessions";
  EXPECT_EQ(mode_of(wanted().salts), 0700u);
  EXPECT_EQ(mode_of(folder_of(*recording)), 01733u) << "its users may have any id";
  EXPECT_THAT(lines_of(*recording), SizeIs(0));
  recording->started();
  const auto lines = lines_of(*recording);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr(recording->session()), HasSubstr(digest_of("image").to_string()),
                              HasSubstr("run 1.2.3"), Not(HasSubstr("ann"))));
  EXPECT_THAT(lines[1], HasSubstr("launch"));
  EXPECT_NE(begin()->session(), recording->session());
}

TEST_F(SessionRecordingTest, OfASessionThatNeverStartedNothingIsLeft) {
  auto recording = begin();
  const auto folder = folder_of(*recording);
  EXPECT_TRUE(recording->note_file("usr/bin/sh", true));
  EXPECT_TRUE(fs::exists(folder));
  recording.reset();
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(fs::is_empty(wanted().spool));
}

TEST_F(SessionRecordingTest, TheSessionIsGivenItsSpoolAndTheRecorderInEachPython) {
  fs::create_directories(image_.path() / "srv/tool/lib/python3.12/site-packages");
  image_env_ = {"EMPTY", "PATH=/usr/bin:/srv/tool/bin"};
  const auto recording = begin();
  const auto needs = recording->needs(tree());
  ASSERT_EQ(needs.mounts.size(), 1 + 2 * recorder_files().size());
  EXPECT_EQ(needs.mounts[0], (SessionRecording::Mount{folder_of(*recording), "/run/varve/spool", false}));
  std::set<std::string> destinations;
  for (std::size_t i = 1; i < needs.mounts.size(); ++i) {
    const auto& mount = needs.mounts[i];
    EXPECT_TRUE(mount.read_only) << mount.destination;
    EXPECT_EQ(mount.source.filename(), fs::path(mount.destination).filename());
    EXPECT_TRUE(fs::is_regular_file(mount.source)) << mount.source;
    destinations.insert(mount.destination);
  }
  EXPECT_THAT(destinations, AllOf(Contains("/usr/lib/python3.11/site-packages/varve_recorder.py"),
                                  Contains("/srv/tool/lib/python3.12/site-packages/varve_recorder.pth")));
}

TEST_F(SessionRecordingTest, TheRecorderHearsOfWhichSessionItIs) {
  const auto recording = begin();
  const auto env = values(recording->needs(tree()).env);
  EXPECT_EQ(env.at(kSpoolVariable), "/run/varve/spool");
  EXPECT_EQ(env.at(kSessionVariable), recording->session());
  EXPECT_EQ(env.at(kImageVariable), digest_of("image").to_string());
  EXPECT_GT(std::stoll(env.at(kStartedVariable)), 1'600'000'000);
  EXPECT_THAT(env.at(kUserHashVariable), AllOf(SizeIs(32), Not(HasSubstr("ann"))));
}

TEST_F(SessionRecordingTest, TheUserIsTheSessionsThenTheImagesThenOurOwn) {
  const auto user = [&] { return values(begin()->needs(tree()).env).at(kUserHashVariable); };
  const auto ann = user();
  EXPECT_EQ(user(), ann) << "the same one, session after session";
  image_env_ = {"JUPYTERHUB_USER=bob"};
  const auto bob = user();
  EXPECT_NE(bob, ann);
  session_env_ = {"JUPYTERHUB_USER=carl", "JUPYTERHUB_USER=bob"};
  EXPECT_EQ(user(), bob) << "the last of a name counts";
  session_env_ = {"JUPYTERHUB_USER=carl"};
  EXPECT_NE(user(), bob);
}

TEST_F(SessionRecordingTest, TheRecordersFilesAreKeptOnceAndNotWrittenOver) {
  const auto source = begin()->needs(tree()).mounts[1].source;
  EXPECT_EQ(source.parent_path().parent_path(), wanted().recorder);
  const auto before = fs::last_write_time(source);
  fs::last_write_time(source, before - std::chrono::hours(1));
  EXPECT_EQ(begin()->needs(tree()).mounts[1].source, source);
  EXPECT_EQ(fs::last_write_time(source), before - std::chrono::hours(1)) << "sessions that run have it mounted";
  fs::remove(source);
  begin()->needs(tree());
  EXPECT_TRUE(fs::exists(source));
}

TEST_F(SessionRecordingTest, WhoDoesNotWantToBeRecordedIsCountedAndNotNamed) {
  const auto expect_off = [&](const char* why) {
    const auto recording = begin_and_start();
    EXPECT_FALSE(recording->switched_on()) << why;
    recording->end(true, true);
    const auto lines = lines_of(*recording);
    ASSERT_EQ(lines.size(), 3u) << why;
    EXPECT_THAT(lines[1], HasSubstr("launch")) << why;
    EXPECT_THAT(lines[2], Not(HasSubstr("all_files"))) << why;
  };
  own_env_["DO_NOT_TRACK"] = "1";
  expect_off("our own environment");
  own_env_.erase("DO_NOT_TRACK");
  image_env_ = {"VARVE_USAGE=off"};
  expect_off("the image's environment");
  image_env_.clear();
  session_env_ = {"DO_NOT_TRACK=yes"};
  expect_off("the session's environment");
  session_env_.clear();
  EXPECT_TRUE(begin()->switched_on());
  fs::create_directories(image_.path() / "etc/varve");
  std::ofstream(image_.path() / kSwitchFile) << "";
  expect_off("a file of the image");
}

TEST_F(SessionRecordingTest, ASessionMayNotSwitchOnWhatThisProcessSwitchedOff) {
  own_env_["VARVE_USAGE"] = "off";
  session_env_ = {"VARVE_USAGE=on"};
  EXPECT_FALSE(begin()->switched_on());
}

TEST_F(SessionRecordingTest, FilesAndTheEndAreNoted) {
  const auto recording = begin();
  EXPECT_TRUE(recording->note_file("usr/bin/ffmpeg", true)) << "told before the news of the start";
  recording->started();
  EXPECT_TRUE(recording->note_file("usr/share/data.bin", false));
  recording->end(false, true);
  EXPECT_EQ(recording->files(), 2u);
  EXPECT_EQ(recording->failure(), "");
  const auto lines = lines_of(*recording);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[2], HasSubstr("usr/bin/ffmpeg"));
  EXPECT_THAT(lines[3], HasSubstr("usr/share/data.bin"));
  EXPECT_THAT(lines[4], AllOf(HasSubstr("error"), HasSubstr("\"all_files\":true")));
}

TEST_F(SessionRecordingTest, WhoDidNotSeeAllFilesDoesNotSaySo) {
  const auto unwatched = begin_and_start();
  unwatched->end(true, false);
  EXPECT_THAT(lines_of(*unwatched).back(), Not(HasSubstr("all_files")));
  const auto full = begin_and_start();
  while (full->note_file(std::string(4000, 'x'), false)) {
  }
  full->end(true, true);
  EXPECT_THAT(lines_of(*full).back(), HasSubstr("\"full\""));
}

TEST_F(SessionRecordingTest, ASpoolThatCannotBeMadeIsAnError) {
  fs::create_directories(state_ / "usage");
  std::ofstream(state_ / "usage/spool") << "a file is in the way";
  EXPECT_THROW(begin(), std::system_error);
}

TEST_F(SessionRecordingTest, WhatTheSessionsUsersWroteIsTakenOver) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs the right to give files away";
  const auto recording = begin();
  const auto file = folder_of(*recording) / "of-a-user.jsonl";
  std::ofstream(file) << "{}";
  fs::create_symlink("/etc/passwd", folder_of(*recording) / "link");
  ASSERT_EQ(::chown(file.c_str(), 12345, 12345), 0);
  recording->take_over()();
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0u);
  EXPECT_EQ(status.st_gid, 0u);
}

}  // namespace
}  // namespace varve::recorder
