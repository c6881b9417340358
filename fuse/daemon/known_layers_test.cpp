#include "fuse/daemon/known_layers.h"

#include <gtest/gtest.h>

#include "core/base/file.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

index::LayerIndexBlobs some_blobs(bool windows) {
  index::LayerIndexBlobs blobs;
  blobs.layer_digest = digest_of("layer");
  blobs.map.digest = digest_of("map");
  blobs.map.size = 7;
  blobs.map.media_type = "a/map";
  blobs.entries.digest = digest_of("entries");
  if (windows) blobs.windows = blobs.map;
  return blobs;
}

std::string name_of(const char* layer) { return digest_of(layer).hex() + "-" + digest_of("map").hex(); }

TEST(KnownLayers, AreFoundByTheirDigestInAnotherProcessToo) {
  const test::TempDir dir;
  for (const bool windows : {true, false}) {
    KnownLayers(dir / "layers").remember(some_blobs(windows));
    const auto found = KnownLayers(dir / "layers").find(digest_of("layer"), digest_of("map"));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->map.digest, digest_of("map"));
    EXPECT_EQ(found->map.size, 7u);
    EXPECT_EQ(found->windows.has_value(), windows);
  }
  EXPECT_FALSE(KnownLayers(dir / "layers").find(digest_of("other"), digest_of("map")));
}

TEST(KnownLayers, ADamagedRecordIsAsGoodAsNone) {
  const test::TempDir dir;
  KnownLayers layers(dir.path());
  for (const auto* text : {"", "{", "{}", "[1]", "{\"layer\":7}"}) {
    write_file_atomically(dir / name_of("layer"), as_bytes(text));
    EXPECT_FALSE(layers.find(digest_of("layer"), digest_of("map"))) << text;
  }
  layers.remember(some_blobs(true));
  EXPECT_TRUE(layers.find(digest_of("layer"), digest_of("map")));
  // A record under another layer's name is not believed.
  std::filesystem::copy_file(dir / name_of("layer"), dir / name_of("other"));
  EXPECT_FALSE(layers.find(digest_of("other"), digest_of("map")));
}

}  // namespace
}  // namespace varve::fuse
