#include "core/base/files/scratch_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve {
namespace {

TEST(ScratchFile, ReplacesWhatWasThereAndLeavesNothingBeside) {
  const test::TempDir dir;
  const auto path = dir / "process";
  write_scratch_file(path, as_bytes("a longer text"), 0600);
  const auto held = open_file(path, O_RDONLY);
  write_scratch_file(path, as_bytes("short"), 0600);
  EXPECT_EQ(as_text(read_file(path)), "short");
  Bytes before(13);
  pread_exactly(held.get(), 0, before, "held");
  EXPECT_EQ(as_text(before), "a longer text") << "who has it open reads on";
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(ScratchFile, FollowsNoLinkThatSomebodyPutThere) {
  const test::TempDir dir;
  write_file_atomically(dir / "other", as_bytes("theirs"));
  std::filesystem::create_symlink(dir / "other", dir / "process.new");
  EXPECT_THROW(write_scratch_file(dir / "process", as_bytes("ours"), 0600), std::system_error);
  EXPECT_EQ(as_text(read_file(dir / "other")), "theirs");
}

TEST(ScratchFolder, IsItsOwnersAloneAndGoesWithAllItHolds) {
  const test::TempDir dir;
  {
    const ScratchFolder one(dir / "tmp", "work");
    const ScratchFolder other(dir / "tmp", "work");
    EXPECT_NE(one.path(), other.path());
    struct stat status {};
    ASSERT_EQ(::stat(one.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700u);
    std::filesystem::create_directories(one.path() / "in" / "it");
    write_file_atomically(one.path() / "in" / "file", as_bytes("x"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir / "tmp"));
}

}  // namespace
}  // namespace varve
