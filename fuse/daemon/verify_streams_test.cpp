#include "fuse/daemon/verify_streams.h"

#include "core/base/files/file.h"
#include "fuse/stream/stored_streams.h"
#include "testing/layer_stream_fixture.h"

namespace varve::fuse {
namespace {

using ::testing::SizeIs;

class VerifyStreamsTest : public LayerStreamTestBase {
 protected:
  VerifyStreamsTest() {
    const auto bytes = layer_.map->encode();
    layer_.index_blobs.map = oci::put_bytes(local_.repository(), bytes, "a/map");
    read(*serve(layer_), 0, layer_.stream.size());
    open();
  }
  VerifyResult verify(bool mounted) {
    Progress progress;
    auto result = verify_streams(open_stored_streams(*streams_, local_, dir_ / "root"),
                                 [&](const auto&, const auto&) { return mounted; }, {progress, CancelFlag()});
    EXPECT_EQ(progress.done_bytes(), result.checked_bytes);
    return result;
  }
  void damage(const std::filesystem::path& file, std::uint64_t offset) {
    const auto fd = open_file(file, O_RDWR);
    Bytes byte(1);
    pread_exactly(fd.get(), offset, byte, "file");
    byte[0] ^= std::byte{1};
    pwrite_all(fd.get(), offset, byte, "file");
  }

  test::MadeLayer layer_ = test::make_gzip_layer(test::gzip_of(test::some_stream(1'000'000)), kSpan);
  index::LocalIndex local_{dir_ / "root"};
};

TEST_F(VerifyStreamsTest, WhatIsInTheStoreIsVerifiedByTheMapsOfThisMachine) {
  const auto result = verify(false);
  EXPECT_EQ(result.checked_bytes, layer_.stream.size());
  EXPECT_THAT(result.bad, SizeIs(0));
}

TEST_F(VerifyStreamsTest, ALayerWithoutAMapIsLeftAlone) {
  const auto map = dir_ / "root/index/blobs/sha256" / layer_.index_blobs.map.digest.hex();
  damage(map, 20);
  EXPECT_THAT(open_stored_streams(*streams_, local_, dir_ / "root"), SizeIs(0));
  std::filesystem::remove(map);
  EXPECT_THAT(open_stored_streams(*streams_, local_, dir_ / "root"), SizeIs(0));
}

TEST_F(VerifyStreamsTest, WhatIsDamagedIsDroppedAndFetchedAtOnceWhereItIsMounted) {
  damage(data_file(layer_), 123'456);
  const auto unmounted = verify(false);
  ASSERT_THAT(unmounted.bad, SizeIs(1));
  EXPECT_EQ(unmounted.bad[0].layer, layer_.map->layer_digest);
  const auto stream = serve(layer_);
  EXPECT_FALSE(stream->complete());
  read(*stream, 0, layer_.stream.size());
  ASSERT_TRUE(stream->complete());
  damage(data_file(layer_), 123'456);
  EXPECT_THAT(verify(true).bad, SizeIs(1));
  EXPECT_TRUE(stream->complete());
  EXPECT_THAT(verify(true).bad, SizeIs(0));
}

}  // namespace
}  // namespace varve::fuse
