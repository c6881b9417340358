#include "analyzer/usage/spool_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>

#include "core/base/digest.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::usage {
namespace {

using std::chrono::sys_days;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Variable variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

class SpoolWriterTest : public ::testing::Test {
 protected:
  StartRecord start() const {
    StartRecord start;
    start.session = std::string(32, 'a');
    start.process = std::string(16, 'b');
    start.day = 20'000;
    start.image = digest_of("image");
    start.writer = "run 0.1.0";
    start.main = "other";
    return start;
  }
  static std::vector<SpoolRecord> records_of(const std::filesystem::path& path) {
    const auto bytes = read_file(path);
    std::vector<SpoolRecord> records;
    for (auto text = as_text(bytes); !text.empty(); text.remove_prefix(text.find('\n') + 1))
      records.push_back(parse_spool_line(text.substr(0, text.find('\n'))));
    return records;
  }
  test::TempDir dir_;
};

TEST_F(SpoolWriterTest, AFileBeginsWithWhoWritesIt) {
  SpoolWriter writer(dir_.path(), start());
  EXPECT_EQ(writer.path().filename(), start().session + "-" + start().process + ".jsonl");
  struct stat status {};
  ASSERT_EQ(::stat(writer.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_TRUE(writer.write(LaunchRecord{}));
  EXPECT_TRUE(writer.write(FileRecord{.path = "usr/bin/env", .executed = true}));
  EXPECT_TRUE(writer.write(EndRecord{.ok = false}));
  const auto records = records_of(writer.path());
  ASSERT_EQ(records.size(), 4u);
  const auto& first = std::get<StartRecord>(records[0].what);
  EXPECT_EQ(first.session, start().session);
  EXPECT_EQ(first.image, start().image);
  EXPECT_EQ(first.day, 20'000);
  EXPECT_TRUE(std::holds_alternative<LaunchRecord>(records[1].what));
  EXPECT_EQ(std::get<FileRecord>(records[2].what).path, "usr/bin/env");
  EXPECT_FALSE(std::get<EndRecord>(records[3].what).ok);
}

TEST_F(SpoolWriterTest, AFileOfThatNameIsNeverWrittenTo) {
  SpoolWriter writer(dir_.path(), start());
  EXPECT_THROW(SpoolWriter(dir_.path(), start()), std::system_error);
  std::filesystem::remove(writer.path());
  std::filesystem::create_symlink(dir_ / "elsewhere", writer.path());
  EXPECT_THROW(SpoolWriter(dir_.path(), start()), std::system_error) << "nor what a link of that name leads to";
  EXPECT_FALSE(std::filesystem::exists(dir_ / "elsewhere"));
}

TEST_F(SpoolWriterTest, TheBoundIsKeptAndSaidOnce) {
  SpoolWriter writer(dir_.path(), start(), 2000);
  int written = 0;
  while (writer.write(FileRecord{.path = "usr/lib/" + std::to_string(written)})) ++written;
  EXPECT_GT(written, 5);
  EXPECT_FALSE(writer.write(LaunchRecord{}));
  EXPECT_LE(std::filesystem::file_size(writer.path()), 2000u);
  const auto records = records_of(writer.path());
  EXPECT_EQ(records.size(), std::size_t(written) + 2);
  EXPECT_TRUE(std::holds_alternative<FullRecord>(records.back().what));
  EXPECT_EQ(writer.failure(), "");
}

TEST_F(SpoolWriterTest, AFullDiskEndsTheFileAndIsRemembered) {
  SpoolWriter writer(dir_.path(), start());
  // What a full disk does, for this process: its files may not grow.
  rlimit old_limit{};
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = old_limit;
  limit.rlim_cur = std::filesystem::file_size(writer.path()) + 10;
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const bool first = writer.write(LaunchRecord{});
  const bool second = writer.write(EndRecord{});
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(first);
  EXPECT_FALSE(second);
  EXPECT_THAT(writer.failure(), HasSubstr(writer.path().string()));
  EXPECT_FALSE(writer.write(EndRecord{})) << "half a record must stay the last";
}

TEST(SpoolIds, AreRandomAndOfTheFormat) {
  EXPECT_THAT(new_session_id(), MatchesRegex("[0-9a-f]{32}"));
  EXPECT_THAT(new_process_id(), MatchesRegex("[0-9a-f]{16}"));
  EXPECT_NE(new_session_id(), new_session_id());
}

class UserHashTest : public SpoolWriterTest {
 protected:
  const std::filesystem::path salts_ = dir_ / "state/salts";
  std::string hash(std::map<std::string, std::string> values,
                   std::chrono::year_month_day day = std::chrono::year(2026) / 11 / 21) {
    return user_hash(salts_, variables(std::move(values)), sys_days(day));
  }
};

TEST_F(UserHashTest, TheFirstNameThatIsSetCounts) {
  const auto ann = hash({{"USER", "ann"}});
  EXPECT_THAT(ann, MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ(hash({{"USER", "root"}, {"NB_USER", "jovyan"}, {"JUPYTERHUB_USER", "ann"}}), ann);
  EXPECT_EQ(hash({{"USER", "root"}, {"NB_USER", "jovyan"}, {"JUPYTERHUB_USER", ""}, {"VARVE_USAGE_USER", "ann"}}), ann);
  EXPECT_NE(hash({{"USER", "bob"}}), ann);
  EXPECT_EQ(hash({}), hash({{"USER", std::to_string(::geteuid())}}));
}

TEST_F(UserHashTest, ASaltBelongsToOneMonthAndIsMadeOnce) {
  const auto november = hash({{"USER", "ann"}});
  EXPECT_EQ(hash({{"USER", "ann"}}, std::chrono::year(2026) / 11 / 1), november);
  const auto salt = salts_ / "salt-2026-11";
  EXPECT_EQ(read_file(salt).size(), 32u);
  EXPECT_EQ(std::filesystem::status(salt).permissions(), std::filesystem::perms(0600));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(salts_)) ++files;
  EXPECT_EQ(files, 1) << "no temporary file is left";
  EXPECT_NE(hash({{"USER", "ann"}}, std::chrono::year(2026) / 12 / 1), november);
  EXPECT_FALSE(std::filesystem::exists(salt)) << "nobody can follow the user from one month to the next";
  EXPECT_EQ(std::filesystem::status(salts_).permissions(), std::filesystem::perms(0700));
}

TEST_F(UserHashTest, ASharedSaltIsUsedAsItIs) {
  // printf ann | openssl dgst -sha256 -hmac pepper
  EXPECT_EQ(hash({{"USER", "ann"}, {"VARVE_USAGE_SALT", "pepper"}}), "62ac51ded8a2e8b977c55c069a6e4940");
  EXPECT_FALSE(std::filesystem::exists(salts_));
}

TEST_F(UserHashTest, WhatANeighbourPutsThereNeitherHoldsNorForges) {
  const auto salt = salts_ / "salt-2026-11";
  const auto refused = [&](const char* what) {
    EXPECT_THROW(hash({{"USER", "ann"}}), std::exception) << what;
    std::filesystem::remove(salt);
  };
  hash({{"USER", "ann"}});
  std::filesystem::rename(salt, dir_ / "elsewhere");
  ASSERT_EQ(::mkfifo(salt.c_str(), 0666), 0);
  refused("a pipe that nobody writes to");
  std::filesystem::create_symlink(dir_ / "elsewhere", salt);
  refused("a link");
  std::ofstream(salt) << "short";
  refused("half a salt");
  if (::geteuid() == 0) {
    std::filesystem::copy_file(dir_ / "elsewhere", salt);
    ASSERT_EQ(::chown(salt.c_str(), 12345, 12345), 0);
    refused("a salt of somebody else");
    ASSERT_EQ(::chown(salts_.c_str(), 12345, 12345), 0);
    refused("a folder of somebody else");
    ASSERT_EQ(::chown(salts_.c_str(), 0, 0), 0);
  }
  std::filesystem::permissions(salts_, std::filesystem::perms(0777));
  hash({{"USER", "ann"}});
  EXPECT_EQ(std::filesystem::status(salts_).permissions(), std::filesystem::perms(0700));
}

TEST(Switch, DoNotTrackAndUsageOffAreHonoured) {
  EXPECT_FALSE(is_switched_off(variables({})));
  EXPECT_FALSE(is_switched_off(variables({{"DO_NOT_TRACK", "0"}, {"VARVE_USAGE", "on"}})));
  EXPECT_FALSE(is_switched_off(variables({{"DO_NOT_TRACK", ""}})));
  EXPECT_TRUE(is_switched_off(variables({{"DO_NOT_TRACK", "1"}})));
  EXPECT_TRUE(is_switched_off(variables({{"DO_NOT_TRACK", "true"}})));
  EXPECT_TRUE(is_switched_off(variables({{"VARVE_USAGE", "off"}})));
}

}  // namespace
}  // namespace varve::usage
