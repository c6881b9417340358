#include "core/base/files/file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "core/base/errors.h"
#include "core/base/files/abandoned_files.h"
#include "core/base/files/file_id.h"
#include "core/base/files/late_sync.h"
#include "core/base/files/mapped_file.h"
#include "testing/temp_dir.h"

namespace varve {
namespace {

class FileTest : public testing::Test {
 protected:
  std::size_t files_in_dir() const {
    return std::size_t(
        std::distance(std::filesystem::directory_iterator(dir_.path()), std::filesystem::directory_iterator()));
  }
  test::TempDir dir_;
};

TEST_F(FileTest, AtomicFileIsInvisibleUntilCommitted) {
  {
    AtomicFile file(dir_ / "name");
    file.write(as_bytes("half"));
    EXPECT_FALSE(std::filesystem::exists(dir_ / "name"));
  }
  EXPECT_EQ(files_in_dir(), 0u) << "an abandoned file leaves nothing behind";
  write_file_atomically(dir_ / "name", as_bytes("whole"));
  EXPECT_EQ(as_text(read_file(dir_ / "name")), "whole");
  EXPECT_EQ(files_in_dir(), 1u);
}

TEST_F(FileTest, AFileThatIsSyncedLaterHasItsNameAtOnce) {
  LateSync later;
  for (const auto* content : {"first", "second"}) {
    AtomicFile file(dir_ / "name");
    file.write(as_bytes(content));
    file.commit(later);
    EXPECT_EQ(as_text(read_file(dir_ / "name")), content);
  }
  later.wait();
  EXPECT_EQ(as_text(read_file(dir_ / "name")), "second");
  EXPECT_EQ(files_in_dir(), 1u);
  later.wait();  // nothing was added since
}

TEST_F(FileTest, AFolderThatGoesBeforeItIsSyncedIsNoMatter) {
  LateSync later;
  for (int i = 0; i < 100; ++i) {
    const auto folder = dir_ / ("folder" + std::to_string(i));
    std::filesystem::create_directory(folder);
    AtomicFile file(folder / "name");
    file.commit(later);
    std::filesystem::remove_all(folder);
  }
  later.wait();
  EXPECT_EQ(files_in_dir(), 0u);
}

TEST_F(FileTest, AFailureNamesTheFileThatWasAskedFor) {
  const auto message_of = [](const std::filesystem::path& path) -> std::string {
    try {
      write_file_atomically(path, as_bytes("x"));
    } catch (const std::system_error& error) {
      return error.what();
    }
    return "nothing failed";
  };
  const auto absent = (dir_ / "absent/name").string();
  EXPECT_EQ(message_of(absent), "write " + absent + ": No such file or directory");
  std::filesystem::create_directory(dir_ / "folder");
  const auto folder = (dir_ / "folder").string();
  EXPECT_EQ(message_of(folder), "write " + folder + ": Is a directory");
  EXPECT_EQ(files_in_dir(), 1u);
}

TEST_F(FileTest, WhatAKilledProcessLeftIsRemovedAndNothingElse) {
  const auto write = [&](const char* name) {
    std::ofstream(dir_ / name) << "half of a large file";
    return dir_ / name;
  };
  write("image.tar.tmp-123-0");
  write("image.tar.tmp-99-1");
  const auto written = open_file(write("image.tar.tmp-123-2"), O_RDWR);
  ASSERT_EQ(::flock(written.get(), LOCK_EX), 0) << "as a process that runs holds it";
  for (const auto* name : {"image.tar", "image.tar.tmp-", "image.tar.tmp-mine", "other.tar.tmp-123-0"}) write(name);
  std::filesystem::create_symlink(dir_ / "image.tar", dir_ / "image.tar.tmp-5-5");
  EXPECT_EQ(remove_abandoned_files(dir_ / "image.tar"), 2 * 20u);
  for (const auto* name : {"image.tar", "image.tar.tmp-mine", "other.tar.tmp-123-0", "image.tar.tmp-123-2"})
    EXPECT_TRUE(std::filesystem::exists(dir_ / name)) << name;
  EXPECT_EQ(remove_abandoned_files(dir_.path() / ""), 20u) << "of other.tar, asked for with the whole folder";
}

TEST_F(FileTest, AFolderIsListedOnceForWhatWasLeftBeforeUs) {
  const auto write = [&](const char* name) { std::ofstream(dir_ / name) << "half"; };
  const auto is_there = [&](const char* name) { return std::filesystem::exists(dir_ / name); };
  for (const auto* name : {"a.tmp-1-0", "a.tmp-2-0", "b.tmp-1-0", "theirs.tmp-x"}) write(name);
  remove_abandoned_before_us(dir_ / "a");
  EXPECT_FALSE(is_there("a.tmp-1-0") || is_there("a.tmp-2-0"));
  EXPECT_TRUE(is_there("b.tmp-1-0")) << "of a file that nobody writes now";
  write("a.tmp-3-0");
  remove_abandoned_before_us(dir_ / "a");
  EXPECT_TRUE(is_there("a.tmp-3-0")) << "a second listing would have met it";
  remove_abandoned_before_us(dir_ / "b");
  EXPECT_FALSE(is_there("b.tmp-1-0"));
  EXPECT_TRUE(is_there("theirs.tmp-x"));
}

TEST_F(FileTest, ReadFileRespectsItsLimit) {
  write_file_atomically(dir_ / "big", Bytes(1000));
  EXPECT_THROW(read_file(dir_ / "big", 999), Unsupported);
  EXPECT_EQ(read_file(dir_ / "big", 1000).size(), 1000u);
}

TEST_F(FileTest, ReadFileLooksAtItsLimitBeforeItTakesMemory) {
  write_file_atomically(dir_ / "sparse", as_bytes("a hole follows"));
  std::filesystem::resize_file(dir_ / "sparse", std::uintmax_t(1) << 42);
  EXPECT_THROW(read_file(dir_ / "sparse", 1000), Unsupported) << "and not std::bad_alloc";
}

TEST_F(FileTest, ReadFileRespectsItsLimitWhereASizeIsNotTold) {
  EXPECT_EQ(std::filesystem::file_size("/proc/self/maps"), 0u);
  EXPECT_THROW(read_file("/proc/self/maps", 10), Unsupported);
  EXPECT_GT(read_file("/proc/self/maps").size(), 10u);
}

TEST_F(FileTest, AbsentFileIsNoErrorWhereAbsenceIsOrdinary) {
  EXPECT_FALSE(read_file_if_there(dir_ / "none"));
  EXPECT_THROW(read_file(dir_ / "none"), std::system_error);
}

TEST_F(FileTest, AProcessThatEndsWhileItIsReadHasNoFiles) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto opened = open_file(fmt::format("/proc/{}/cmdline", child), O_RDONLY);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  // The link leads to the file although its name is gone: what the read finds is ESRCH.
  const auto link = fmt::format("/proc/self/fd/{}", opened.get());
  try {
    read_file(link);
    FAIL() << "nothing thrown";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ESRCH);
  }
  EXPECT_FALSE(read_file_if_there(link));
}

TEST_F(FileTest, PreadExactlyNamesTheObjectThatIsTooShort) {
  write_file_atomically(dir_ / "short", as_bytes("abc"));
  const auto fd = open_file(dir_ / "short", O_RDONLY);
  Bytes into(4);
  try {
    pread_exactly(fd.get(), 0, into, "the thing");
    FAIL() << "nothing thrown";
  } catch (const CorruptData& error) {
    EXPECT_NE(std::string(error.what()).find("the thing at 3"), std::string::npos) << error.what();
  }
}

TEST_F(FileTest, ANameMeansTheOpenFileUntilAnotherTakesIt) {
  write_file_atomically(dir_ / "one", as_bytes("old"));
  const auto file = open_file(dir_ / "one", O_RDONLY);
  std::filesystem::create_symlink("one", dir_ / "link");
  EXPECT_TRUE(is_at(file.get(), dir_ / "one"));
  EXPECT_TRUE(is_at(file.get(), dir_ / "link"));
  write_file_atomically(dir_ / "one", as_bytes("new"));
  EXPECT_FALSE(is_at(file.get(), dir_ / "one"));
  EXPECT_NE(find_file_id(file.get()), find_file_id(dir_ / "one"));
  EXPECT_FALSE(is_at(file.get(), dir_ / "none"));
  EXPECT_FALSE(is_at(-1, dir_ / "none")) << "two that are not there are not one";
}

TEST_F(FileTest, MappedFileShowsTheContent) {
  write_file_atomically(dir_ / "mapped", as_bytes("content"));
  const auto file = MappedFile::open(dir_ / "mapped");
  EXPECT_EQ(as_text(file.bytes()), "content");
  write_file_atomically(dir_ / "empty", {});
  EXPECT_TRUE(MappedFile::open(dir_ / "empty").bytes().empty());
}

}  // namespace
}  // namespace varve
