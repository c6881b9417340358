// The local index on a disk that loses what was not synced, or fails: every disk that testing/disk_recorder.h says may
// be left is opened. An index that is found is whole, and what was put is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/index/format/layer_entries.h"
#include "core/index/local_index.h"
#include "testing/each_fault.h"
#include "testing/one_span_map.h"
#include "testing/temp_dir.h"
#include "testing/trees.h"

namespace varve::index {
namespace {

constexpr std::uint64_t kStreamBytes = 100'000;
constexpr std::size_t kImages = 2;

// Images of one layer each, and their indexes.
class LocalIndexDiskTest : public testing::Test {
 protected:
  LocalIndexDiskTest() { log::write_to_file(dir_ / "log"); }

  static oci::Image image_of(std::size_t number) {
    oci::Image image;
    oci::Descriptor layer;
    layer.media_type = "application/vnd.oci.image.layer.v1.tar+gzip";
    layer.digest = digest_of(fmt::format("blob {}", number));
    layer.size = 1000;
    image.manifest.layers.push_back(layer);
    image.config.diff_ids.push_back(digest_of(fmt::format("stream {}", number)));
    image.document.descriptor.media_type = oci::kOciManifestType;
    image.document.descriptor.digest = digest_of(fmt::format("image {}", number));
    image.document.descriptor.size = 500;
    return image;
  }

  // As an indexer does it on its own machine.
  static void put_index(LocalIndex& local, const oci::Image& image) {
    auto& repository = local.repository();
    const auto& layer = image.manifest.layers[0];
    const auto map = test::one_span_map(layer.digest, image.config.diff_ids[0], kStreamBytes);
    Tree tree;
    tree.layers = 1;
    test::put(tree, "etc/hosts", test::make_file(200, {{0, {0, 512, 200}}}));
    const auto erofs = write_erofs(tree, {image.config.diff_ids[0].hex()}, {kStreamBytes});
    const LayerEntries entries{.layer_digest = layer.digest, .entries = {}};
    ImageIndexBlobs blobs;
    blobs.tree = oci::put_bytes(repository, pack_tree(erofs), "a/tree");
    blobs.tree_bytes = erofs.bytes.size();
    blobs.layers.push_back({.layer_digest = layer.digest,
                            .map = oci::put_bytes(repository, map.encode(), "a/map"),
                            .windows = std::nullopt,
                            .entries = oci::put_bytes(repository, entries.encode(), "a/entries")});
    blobs.tool = "varve test";
    const auto manifest =
        repository.put_manifest(make_index_manifest(image, blobs).to_json(), oci::kOciManifestType, "");
    local.origins().note_built_here(manifest.digest);
  }

  // What the next process finds; it may go on.
  static void check(const std::filesystem::path& root, std::size_t promised, const std::string& story) {
    try {
      LocalIndex local(root);
      for (std::size_t i = 0; i < kImages; ++i) {
        const auto found = index::find_index(local.repository(), image_of(i));
        ASSERT_TRUE(found || i >= promised) << "index " << i << " is lost; " << story;
        if (!found) continue;
        EXPECT_TRUE(local.origins().of(found->manifest.digest).built_here || i >= promised) << story;
        for (const auto& blob : {found->tree, found->layers.at(0).map, found->layers.at(0).entries})
          oci::read_whole_blob(local.repository(), blob, 1 << 20);
      }
      for (std::size_t i = 0; i < kImages; ++i) {
        put_index(local, image_of(i));
        const auto found = local.find_index(image_of(i));
        ASSERT_TRUE(found) << "not usable any more; " << story;
        for (const auto& blob : {found->tree, found->layers.at(0).map, found->layers.at(0).entries})
          oci::read_whole_blob(local.repository(), blob, 1 << 20);
      }
    } catch (const std::exception& error) {
      FAIL() << error.what() << "; " << story;
    }
  }

  test::TempDir dir_;
  const test::NoSync no_sync_;
};

TEST_F(LocalIndexDiskTest, NoCrashLeavesHalfAnIndexOrLosesOne) {
  std::filesystem::create_directories(dir_ / "life");
  test::DiskWatch watch(dir_ / "life");
  std::vector<std::size_t> put_by;  // steps after which an index is there
  {
    LocalIndex local(dir_ / "life/root");
    for (std::size_t i = 0; i < kImages; ++i) {
      put_index(local, image_of(i));
      put_by.push_back(watch.steps());
    }
  }
  const auto recording = watch.take();
  std::size_t disks = 0;
  recording.for_each_crash([&](const test::DiskRecording::Crash& crash) {
    if (HasFailure()) return;
    const test::TempDir fresh;
    crash.disk.write_to(fresh.path());
    const auto promised = std::ranges::count_if(put_by, [&](std::size_t step) { return step <= crash.steps; });
    check(fresh / "root", std::size_t(promised),
          fmt::format("crash after {} of {} steps; {}", crash.steps, recording.steps(), crash.story));
    ++disks;
  });
  EXPECT_GT(disks, 50u);
  RecordProperty("disks", int(disks));
}

TEST_F(LocalIndexDiskTest, NoFailingCallLeavesHalfAnIndex) {
  std::size_t calls = 0;
  {
    const test::DiskWatch watch(dir_.path());
    LocalIndex local(dir_ / "root");
    for (std::size_t i = 0; i < kImages; ++i) put_index(local, image_of(i));
    calls = watch.calls();
  }
  ASSERT_GT(calls, 20u);
  const auto live = [](const test::DiskFault& fault, const std::string& story) {
    const test::TempDir fresh;
    std::size_t put = 0;
    {
      const test::DiskWatch watch(fresh.path(), fault);
      try {
        LocalIndex local(fresh / "root");
        for (; put < kImages; ++put) put_index(local, image_of(put));
      } catch (const std::exception& failed) {
        EXPECT_THAT(failed.what(), testing::HasSubstr(fresh.path().string())) << story;
      }
    }
    EXPECT_TRUE(put == kImages || fault.error != 0) << story;
    check(fresh / "root", put, story);
  };
  test::for_each_fault(test::FaultOf::kWrites, calls, {{ENOSPC}, {EIO}, {EROFS}, {0}}, live);
}

// Once, or for good: an index that is found is the right one, and what cannot be read is named.
TEST_F(LocalIndexDiskTest, NoUnreadablePlaceMakesAWrongIndex) {
  const auto read_all = [](const std::filesystem::path& root, std::size_t& found_whole, std::string& said) {
    LocalIndex local(root);
    for (std::size_t i = 0; i < kImages; ++i) {
      const auto found = index::find_index(local.repository(), image_of(i));
      if (!found) continue;
      for (const auto& blob : {found->tree, found->layers.at(0).map, found->layers.at(0).entries})
        EXPECT_EQ(digest_of(oci::read_whole_blob(local.repository(), blob, 1 << 20)), blob.digest);
      const auto tree = MappedFile::open(local.tree_file(*found, local.repository()));
      EXPECT_TRUE(ErofsReader(tree.bytes(), "tree").is_intact());
      std::vector<std::string> refusals;
      found_whole += local.find_trusted(image_of(i), refusals) ? 1 : 0;
      for (const auto& refusal : refusals) said += refusal;
    }
  };
  {
    LocalIndex local(dir_ / "root");
    for (std::size_t i = 0; i < kImages; ++i) put_index(local, image_of(i));
  }
  std::size_t found = 0;
  std::size_t reads = 0;
  std::string nothing;
  read_all(dir_ / "root", found, nothing);  // makes the trees
  {
    const test::DiskWatch watch(dir_ / "root");
    read_all(dir_ / "root", found, nothing);
    reads = watch.reads();
  }
  ASSERT_EQ(found, 2 * kImages);
  ASSERT_EQ(nothing, "");
  ASSERT_GT(reads, 10u);
  std::size_t failed = 0;
  const auto live = [&](const test::DiskFault& fault, const std::string& story) {
    std::size_t whole = 0;
    {
      const test::DiskWatch watch(dir_ / "root", fault);
      try {
        std::string said;
        read_all(dir_ / "root", whole, said);
        EXPECT_TRUE(whole == kImages || said.find(dir_.path().string()) != said.npos)
            << story << ": an index is missing, and nobody says why: " << said;
        EXPECT_TRUE(whole == kImages || fault.error != 0) << story;
      } catch (const std::exception& trouble) {
        EXPECT_NE(fault.error, 0) << story << ": " << trouble.what();
        EXPECT_THAT(trouble.what(), testing::HasSubstr(dir_.path().string())) << story;
        ++failed;
      }
    }
    whole = 0;
    read_all(dir_ / "root", whole, nothing);
    EXPECT_EQ(whole, kImages) << story;
  };
  test::for_each_fault(test::FaultOf::kReads, reads, {{EIO}, {EIO, true}, {0}}, live);
  EXPECT_GT(failed, 5u);
}

TEST_F(LocalIndexDiskTest, ARefutationOutlivesThatItCannotBeRead) {
  const auto index = digest_of("index");
  const auto image = digest_of("image");
  std::size_t failed = 0;
  for (std::size_t call = 0; call < 4; ++call) {
    const test::TempDir fresh;
    LocalIndex local(fresh.path());
    local.origins().note_refuted(index, "another tree");
    local.origins().note_used("host/repository", image, index);
    {
      const test::DiskWatch watch(fresh.path(), test::DiskFault{.call = call, .error = EIO, .of_reads = true});
      try {
        local.origins().note_repository(index, "host/repository");
        EXPECT_EQ(local.origins().first_used("host/repository", image), index);
      } catch (const std::system_error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(fresh.path().string()));
        ++failed;
      }
    }
    EXPECT_EQ(local.origins().of(index).refuted, "another tree") << "read " << call;
  }
  EXPECT_EQ(failed, 4u);
}

}  // namespace
}  // namespace varve::index
