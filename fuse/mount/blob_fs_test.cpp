#include "fuse/mount/blob_fs.h"

#include <gtest/gtest.h>

#include <optional>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/fake_layer_stream.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

class BlobFsTest : public ::testing::Test {
 protected:
  BlobFsTest() {
    write_file_atomically(dir_ / "layer", as_bytes("0123456789"));
    stream_ = std::make_shared<test::FakeLayerStream>(dir_ / "layer", 10);
    file_ = std::make_shared<LayerFile>(stream_);
    digest_ = stream_->map().layer_digest;
  }

  test::TempDir dir_;
  std::shared_ptr<test::FakeLayerStream> stream_;
  std::shared_ptr<LayerFile> file_;
  Digest digest_;
  std::shared_ptr<BlobFs> fs_ = std::make_shared<BlobFs>();
};

TEST_F(BlobFsTest, AFileIsFoundByTheHexOfItsDigestWhileItIsRegistered) {
  {
    const auto registration = BlobFs::add(fs_, digest_, file_);
    const auto found = fs_->lookup(digest_.hex());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->ino, BlobFs::ino_of(digest_));
    EXPECT_EQ(found->size, 512u);
    EXPECT_EQ(fs_->list().size(), 1u);
  }
  EXPECT_FALSE(fs_->lookup(digest_.hex()));
  EXPECT_TRUE(fs_->list().empty());
}

TEST_F(BlobFsTest, NamesThatAreNoDigestsAreNotThere) {
  const auto registration = BlobFs::add(fs_, digest_, file_);
  for (const auto* name : {"", "..", "sha256:00", "x"}) EXPECT_FALSE(fs_->lookup(name)) << name;
  EXPECT_FALSE(fs_->lookup(digest_of("another").hex()));
}

TEST_F(BlobFsTest, AFileThatTheKernelHoldsOpenOutlivesItsRegistration) {
  const auto ino = BlobFs::ino_of(digest_);
  {
    const auto registration = BlobFs::add(fs_, digest_, file_);
    EXPECT_TRUE(fs_->open(ino));
  }
  EXPECT_FALSE(fs_->lookup(digest_.hex()));
  std::string answer;
  fs_->read(ino, {2, 3}, [&](std::exception_ptr, ByteView bytes) { answer = as_text(bytes); });
  EXPECT_EQ(answer, "234");
  fs_->release(ino);
  EXPECT_THROW(fs_->read(ino, {0, 1}, [](std::exception_ptr, ByteView) {}), NotFound);
  EXPECT_EQ(stream_.use_count(), 2);  // ours and file_'s: nobody else keeps it
}

TEST_F(BlobFsTest, TwoImagesShareOneFile) {
  auto first = BlobFs::add(fs_, digest_, file_);
  {
    const auto second = BlobFs::add(fs_, digest_, file_);
    EXPECT_EQ(fs_->list().size(), 1u);
  }
  EXPECT_TRUE(fs_->lookup(digest_.hex()));
}

TEST_F(BlobFsTest, OfTwoTheFirstIsReadAndIsFreedWithItsRegistration) {
  write_file_atomically(dir_ / "other", as_bytes("abcdefghij"));
  const auto other = std::make_shared<test::FakeLayerStream>(dir_ / "other", 10);
  const auto ino = BlobFs::ino_of(digest_);
  const auto read = [&] {
    std::string answer;
    fs_->read(ino, {0, 2}, [&](std::exception_ptr, ByteView bytes) { answer = as_text(bytes); });
    return answer;
  };
  std::optional<BlobFs::Registration> first(BlobFs::add(fs_, digest_, file_));
  std::optional<BlobFs::Registration> second(BlobFs::add(fs_, digest_, std::make_shared<LayerFile>(other)));
  EXPECT_TRUE(fs_->open(ino));
  EXPECT_EQ(fs_->opens(ino), 1u);
  EXPECT_EQ(read(), "01");
  first.reset();
  EXPECT_EQ(file_.use_count(), 1);
  EXPECT_EQ(read(), "ab");
  second.reset();
  EXPECT_EQ(read(), "ab") << "the kernel has it open";
  EXPECT_EQ(other.use_count(), 2);
  first.emplace(BlobFs::add(fs_, digest_, file_));
  EXPECT_EQ(other.use_count(), 1);
  EXPECT_EQ(read(), "01");
  fs_->release(ino);
  EXPECT_EQ(fs_->opens(ino), 0u);
  EXPECT_EQ(read(), "01") << "it is registered";
}

TEST_F(BlobFsTest, InodeNumbersAreAFunctionOfTheDigest) {
  Bytes raw(Digest::kBytes, std::byte{0});
  EXPECT_EQ(BlobFs::ino_of(Digest::from_raw(raw)), 2u);  // 0 and 1 mean something else
  raw.assign(Digest::kBytes, std::byte{0xff});
  EXPECT_EQ(BlobFs::ino_of(Digest::from_raw(raw)), (std::uint64_t(1) << 63) - 1);
}

TEST_F(BlobFsTest, ReadsEndWithTheFile) {
  const auto registration = BlobFs::add(fs_, digest_, file_);
  std::size_t got = 1;
  fs_->read(BlobFs::ino_of(digest_), {500, 100}, [&](std::exception_ptr, ByteView bytes) { got = bytes.size(); });
  EXPECT_EQ(got, 12u);
  fs_->read(BlobFs::ino_of(digest_), {~0ull, 100}, [&](std::exception_ptr, ByteView bytes) { got = bytes.size(); });
  EXPECT_EQ(got, 0u);
}

}  // namespace
}  // namespace varve::fuse
