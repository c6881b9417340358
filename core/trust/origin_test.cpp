#include "core/trust/origin.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::trust {
namespace {

class OriginRecordsTest : public testing::Test {
 protected:
  test::TempDir dir_;
  const std::filesystem::path folder_ = dir_.path() / "root" / "index-origin";
  const Digest index_ = digest_of("index");
};

TEST_F(OriginRecordsTest, KeepsWhatIsNoted) {
  OriginRecords records(folder_);
  EXPECT_EQ(records.of(index_), Origin());
  records.note_repository(index_, "b");
  records.note_repository(index_, "a");
  EXPECT_FALSE(records.of(index_).built_here);
  records.note_built_here(index_);
  const Origin expected{.built_here = true, .proved = false, .refuted = {}, .repositories = {"a", "b"}};
  EXPECT_EQ(OriginRecords(folder_).of(index_), expected);
  records.note_derived(digest_of("with a profile"), index_);
  EXPECT_EQ(records.of(digest_of("with a profile")), expected);
}

TEST_F(OriginRecordsTest, AProofIsGoneWithARefutation) {
  OriginRecords records(folder_);
  records.note_proved(index_);
  EXPECT_TRUE(records.of(index_).proved);
  records.note_refuted(index_, "a layer is another one");
  EXPECT_FALSE(records.of(index_).proved);
  EXPECT_EQ(records.of(index_).refuted, "a layer is another one");
}

TEST_F(OriginRecordsTest, IsForItsOwnerAlone) {
  std::filesystem::create_directories(folder_);
  ::chmod(folder_.c_str(), 0777);
  OriginRecords records(folder_);
  records.note_built_here(index_);
  struct stat status {};
  ASSERT_EQ(::stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat((folder_ / index_.hex()).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(OriginRecordsTest, BelievesNoRecordThatIsDamagedOrOfAnother) {
  OriginRecords records(folder_);
  records.note_built_here(index_);
  const auto good = read_file(folder_ / index_.hex());
  for (std::size_t cut = 0; cut < good.size(); cut += 9) {
    write_file_atomically(folder_ / index_.hex(), ByteView(good).first(cut));
    EXPECT_EQ(records.of(index_), Origin()) << cut;
  }
  write_file_atomically(folder_ / digest_of("other").hex(), good);
  EXPECT_EQ(records.of(digest_of("other")), Origin());
  for (const char* text : {"[]", "{}", "{\"index\":7}", "null", "[[[[[[[[]]]]]]]]"}) {
    write_file_atomically(folder_ / index_.hex(), as_bytes(std::string_view(text)));
    EXPECT_EQ(records.of(index_), Origin()) << text;
  }
}

TEST_F(OriginRecordsTest, LosesNothingThatManyNoteAtOnce) {
  OriginRecords records(folder_);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back(
          [&, i] { OriginRecords(folder_).note_repository(index_, "repository " + std::to_string(i)); });
  }
  EXPECT_EQ(records.of(index_).repositories.size(), 8u);
}

TEST_F(OriginRecordsTest, RemembersWhatWasUsedFirstInARepository) {
  OriginRecords records(folder_);
  const auto image = digest_of("image");
  EXPECT_EQ(records.first_used("a", image), std::nullopt);
  records.note_used("a", image, index_);
  EXPECT_EQ(records.first_used("a", image), index_);
  EXPECT_EQ(records.first_used("b", image), std::nullopt);
}

}  // namespace
}  // namespace varve::trust
