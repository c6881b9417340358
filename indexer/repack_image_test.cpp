#include "indexer/repack_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <optional>
#include <set>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/codec/frame_encoder.h"
#include "core/codec/tar_writer.h"
#include "indexer/repack_image_fixture.h"
#include "testing/codec_support.h"
#include "testing/forwarding_repository.h"

namespace varve::indexer {
namespace {

using codec::TarEntry;
using index::FlatTree;
using index::Tier;
using nlohmann::json;
using test::expect_same_tree;
using test::some;
using test::Tar;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr std::string_view kSite = "usr/lib/python3/site-packages/";

Bytes one_frame(const Bytes& tar) {
  codec::ZstdStreamEncoder encoder(3);
  encoder.feed(tar);
  return encoder.finish();
}

Bytes base_layer() {
  return Tar()
      .dir(".", [](TarEntry& e) { e.mode = 0711; })
      .dir("etc", [](TarEntry& e) { e.mtime_nanoseconds = 7; })
      .file("etc/passwd", "root:x:0:0::/root:/bin/sh\n")
      .file("etc/removed later", "x")
      .dir("etc/dir-to-file")
      .file("etc/dir-to-file/inside", "1")
      .file("etc/dir-to-file/inside2", "2")
      .file("etc/file-to-dir", "x")
      .add(FileType::kSymlink, "etc/link-to-dir", "dir-to-file")
      .dir("var")
      .dir("var/cache")
      .file("var/cache/a", "a")
      .dir("var/cache/deep")
      .file("var/cache/deep/b", "b")
      .dir("usr")
      .dir("usr/bin")
      .file("usr/bin/tool", some(300'000, 1),
            [](TarEntry& e) {
              e.mode = 04755;
              e.xattrs["security.capability"] = std::string("\1\0\0\2\0\x20\0\0", 8);
            })
      .link("usr/bin/tool-again", "usr/bin/tool")
      .file("usr/bin/one", "linked once")
      .link("usr/bin/two", "usr/bin/one")
      .link("usr/bin/three", "usr/bin/one")
      .dir("dev")
      .add(FileType::kCharDevice, "dev/null", "",
           [](TarEntry& e) {
             e.device_major = 1;
             e.device_minor = 3;
           })
      .add(FileType::kFifo, "dev/fifo")
      .dir("empty",
           [](TarEntry& e) {
             e.mode = 01777;
             e.mtime_seconds = 5;
           })
      .bytes();
}

Bytes packages_layer(std::string_view numpy = "1", int time = 0) {
  const std::string site(kSite);
  static int times;
  times = time;
  return Tar()
      .dir("usr")
      .dir("usr/bin")
      .dir("usr/lib")
      .dir("usr/lib/python3")
      .dir(site,
           [](TarEntry& e) {
             e.mtime_seconds += times;
             e.xattrs["user.site"] = "yes";
           })
      .dir(site + "numpy", [](TarEntry& e) { e.mtime_seconds = 77; })
      .file(site + "numpy/__init__.py", std::string("version = ") + std::string(numpy))
      .file(site + "numpy/core.so", some(3'000'000, 2))
      .dir(site + "numpy/empty-inside")
      .dir(site + "torch")
      .file(site + "torch/libtorch.so", some(5'000'000, 3) + std::string(2'000'000, '\0') + some(700'000, 4))
      .file(site + "torch/empty", "")
      .link(site + "torch/shared", site + "numpy/core.so")
      .dir(site + "pandas")
      .file(site + "pandas/__init__.py", some(100'000, 5),
            [](TarEntry& e) {
              e.mtime_seconds = -1;
              e.mtime_nanoseconds = 500'000'000;
            })
      .file("usr/bin/f2py", "#!python",
            [](TarEntry& e) {
              e.uid = 4'000'000'000;
              e.mode = 0755;
            })
      .file(site + "grün-\xff", "any bytes")
      .file(site + std::string(200, 'n') + ".py", "long")
      .dir("opt/implied/parents", [](TarEntry& e) { e.mode = 0700; })
      .file("opt/implied/parents/file", "x")
      .bytes();
}

Bytes changes_layer() {
  return Tar()
      .dir("etc", [](TarEntry& e) { e.mtime_seconds = 9; })
      .file("etc/.wh.removed later", "")
      .file("etc/dir-to-file", "now a file")
      .file("etc/.wh.file-to-dir", "")
      .dir("etc/file-to-dir")
      .file("etc/file-to-dir/new", "n")
      .file("etc/.wh.link-to-dir", "")
      .dir("etc/link-to-dir")
      .file("etc/link-to-dir/new", "n")
      .dir("var")
      .dir("var/cache")
      .file("var/cache/.wh..wh..opq", "")
      .file("var/cache/fresh", "f")
      .dir("usr")
      .dir("usr/bin")
      .file("usr/bin/two", "linked once")  // as before, but an inode of its own
      .link("usr/bin/tool-third", "usr/bin/tool")
      .file("usr/bin/.wh.three", "")
      .bytes();
}

// Fails when so many drafts became blobs: a full disk, or a kill between two layers.
class FailingRepository final : public test::ForwardingRepository {
 public:
  FailingRepository(std::shared_ptr<oci::Repository> real, int commits)
      : ForwardingRepository(std::move(real)), commits_(commits) {}
  std::unique_ptr<oci::BlobDraft> draft_blob(const std::filesystem::path& dir) override {
    if (commits_-- == 0) throw std::system_error(ENOSPC, std::generic_category(), "write");
    return real_->draft_blob(dir);
  }

 private:
  int commits_;
};

class RepackImageTest : public test::RepackFixture {
 protected:
  static std::string site(std::string_view rest) { return std::string(kSite) + std::string(rest); }
  static index::Placement distributions() {
    index::Placement placement;
    placement.components = {
        {.name = "pip:numpy",
         .version = "1",
         .tier = Tier::kHot,
         .paths = {"usr/bin/f2py", site("numpy/__init__.py"), site("numpy/core.so")}},
        {.name = "pip:pandas", .version = "2", .tier = Tier::kHot, .paths = {site("pandas/__init__.py")}},
        {.name = "pip:torch",
         .version = "3",
         .tier = Tier::kCold,
         .paths = {site("torch/empty"), site("torch/libtorch.so"), site("torch/shared")}},
    };
    return placement;
  }
};

TEST_F(RepackImageTest, TheTreeStaysEntryByEntryWhateverIsTakenOver) {
  const auto old = open(gzip_image({base_layer(), packages_layer(), changes_layer()}));
  const std::vector<std::optional<std::vector<std::uint32_t>>> choices{std::nullopt,
                                                                       std::vector<std::uint32_t>{},
                                                                       std::vector<std::uint32_t>{0},
                                                                       std::vector<std::uint32_t>{1},
                                                                       std::vector<std::uint32_t>{0, 1},
                                                                       std::vector<std::uint32_t>{0, 1, 2}};
  for (const auto& choice : choices) {
    SCOPED_TRACE(choice ? fmt::format("{}", fmt::join(*choice, ",")) : "its own choice");
    const auto report =
        repack(old, distributions(), {.writer = {}, .limits = {}, .keep_as_is = choice, .work_dir = {}, .labels = {}});
    const auto now = open_new(report);
    expect_same_tree(old.tree, now.tree);
    std::size_t taken = 0;
    for (const auto& layer : report.layers) taken += layer.kept_as_is;
    EXPECT_EQ(taken, choice ? choice->size() : 1u);
    for (std::size_t i = 0; i < report.layers.size(); ++i)
      EXPECT_EQ(report.layers[i].digest, now.image.manifest.layers[i].digest);
  }
}

TEST_F(RepackImageTest, EachComponentHasOnePlaceAndAllNamesOfAnInodeAreThere) {
  const auto old = open(gzip_image({base_layer(), packages_layer(), changes_layer()}));
  const auto report = repack(old, distributions());
  const auto now = open_new(report);
  EXPECT_EQ(now.tree.entries.at(site("numpy/core.so")).layer, now.tree.entries.at(site("torch/shared")).layer);
  EXPECT_EQ(now.tree.entries.at(site("torch/shared")).link_of, site("numpy/core.so"));
  EXPECT_NE(now.tree.entries.at(site("numpy/core.so")).layer, now.tree.entries.at(site("torch/libtorch.so")).layer);
  EXPECT_EQ(now.tree.entries.at("etc/passwd").layer, 0u);
  // Stacked by tier: what is cold comes last, but for the directories that components share.
  EXPECT_EQ(report.layers[report.layers.size() - 2].tier, Tier::kCold);
  EXPECT_THAT(report.layers[report.layers.size() - 2].components, ElementsAre("pip:torch"));
  EXPECT_THAT(report.layers.back().components, IsEmpty());
  EXPECT_TRUE(report.layers.front().kept_as_is);
  EXPECT_EQ(report.layers.front().digest, old.image.manifest.layers.front().digest);
}

TEST_F(RepackImageTest, TheSameBytesAtAnyNumberOfJobsAndInBothFormats) {
  const auto old = open(gzip_image({base_layer(), packages_layer(), changes_layer()}));
  for (const auto format : {WrittenFormat::kZstdChunked, WrittenFormat::kGzip}) {
    std::set<Digest> images;
    for (const unsigned jobs : {1u, 2u, 7u}) {
      new_ = oci::create_layout(folder_ / fmt::format("new{}-{}", int(format), jobs));
      const auto report = repack(old, distributions(),
                                 {.writer = {.format = format, .level = 3, .jobs = jobs},
                                  .limits = {},
                                  .keep_as_is = {},
                                  .work_dir = {},
                                  .labels = {}});
      images.insert(report.image);
      if (jobs == 7) expect_same_tree(old.tree, open_new(report).tree);
    }
    EXPECT_EQ(images.size(), 1u);
  }
}

TEST_F(RepackImageTest, WhatIsIndexedOnTheWayIsWhatReadingGives) {
  const auto old = open(gzip_image({base_layer(), packages_layer(), changes_layer()}));
  for (const auto format : {WrittenFormat::kZstdChunked, WrittenFormat::kGzip}) {
    new_ = oci::create_layout(folder_ / fmt::format("indexed{}", int(format)));
    RepackOptions options;
    options.writer.format = format;
    options.index_layers = true;
    const auto report = repack(old, distributions(), options);
    const auto image = oci::open_image(new_, report.image.to_string(), oci::Platform::of_this_machine());
    Progress progress;
    const auto known = index_image(image, old.local->repository(), *old.local, {.jobs = 1}, {progress, cancel_});
    EXPECT_EQ(progress.done_bytes(), 0U) << "nothing is read again";
    index::LocalIndex another(folder_ / fmt::format("another{}", int(format)));
    const auto fresh = index_image(image, another.repository(), another, {.jobs = 1}, {progress, cancel_});
    EXPECT_GT(progress.done_bytes(), 0U);
    EXPECT_EQ(known.index, fresh.index);
    ASSERT_EQ(known.layers.size(), report.layers.size());
    for (const auto& layer : known.layers) EXPECT_TRUE(layer.reused);
  }
}

TEST_F(RepackImageTest, AnyKindOfLayerIsReadRight) {
  const auto base = base_layer(), packages = packages_layer(), changes = changes_layer();
  const auto old =
      open(put_image({{base, base}, {packages, one_frame(packages)}, {changes, codec::test::gzip(changes, 1)}}));
  ASSERT_EQ(old.index.maps[1]->format, index::LayerFormat::kZstdSingle);
  expect_same_tree(
      old.tree,
      open_new(
          repack(
              old, distributions(),
              {.writer = {}, .limits = {}, .keep_as_is = std::vector<std::uint32_t>{}, .work_dir = {}, .labels = {}}))
          .tree);
  // And what was written is read again.
  const auto once = open_new(repack(old, distributions()));
  expect_same_tree(
      old.tree,
      open_new(
          repack(
              once, distributions(),
              {.writer = {}, .limits = {}, .keep_as_is = std::vector<std::uint32_t>{}, .work_dir = {}, .labels = {}}))
          .tree);
}

TEST_F(RepackImageTest, ConfigAndManifestStayButForTheirLayers) {
  const auto old = open(gzip_image({base_layer(), packages_layer()}));
  const auto report =
      repack(old, distributions(),
             {.writer = {}, .limits = {}, .keep_as_is = {}, .work_dir = {}, .labels = {{"dev.varve.x", "1"}}});
  const auto image = oci::open_image(new_, "new", oci::Platform::of_this_machine());
  auto before = parsed(old.image.config_json), after = parsed(image.config_json);
  const auto history = after["history"];
  ASSERT_EQ(history.size(), report.layers.size());
  EXPECT_EQ(history[0]["created_by"], "base");
  EXPECT_THAT(history.dump(), HasSubstr("\"hot: pip:numpy 1\""));
  EXPECT_THAT(history.dump(), HasSubstr("\"hot: pip:pandas 2\""));
  EXPECT_EQ(history.back()["comment"], "shared directories");
  EXPECT_EQ(after["config"]["Labels"], json({{"old", "label"}, {"dev.varve.x", "1"}}));
  EXPECT_EQ(after["rootfs"]["diff_ids"].size(), report.layers.size());
  for (auto* config : {&before, &after}) {
    config->erase("history");
    config->erase("rootfs");
    (*config)["config"].erase("Labels");
  }
  EXPECT_EQ(before, after);
  // The order of fields stays too: the text up to the first field of ours.
  const auto text = std::string(as_text(old.image.config_json));
  EXPECT_TRUE(std::string(as_text(image.config_json)).starts_with(text.substr(0, text.find("Labels"))));
  EXPECT_EQ(image.manifest.annotations, old.image.manifest.annotations);
}

TEST_F(RepackImageTest, WhatIsRemovedIsGoneAndWhatIsAddedIsThere) {
  const auto old = open(gzip_image({base_layer(), packages_layer()}));
  auto placement = distributions();
  placement.removed = {site("torch/empty"), site("torch/libtorch.so"), site("torch/shared"), site("pandas/__init__.py"),
                       "usr/bin/one",       "var/cache/deep/b"};
  placement.added = {{.path = site("torch/__init__.py"),
                      .content = "raise ImportError('archived')\n",
                      .mode = 0644,
                      .mtime_seconds = 7}};
  const auto now = open_new(repack(old, placement));
  std::set<std::string> changed(placement.removed.begin(), placement.removed.end());
  changed.insert({site("torch/__init__.py"), site("pandas"), "var/cache/deep", "usr/bin/three", "usr/bin/two"});
  expect_same_tree(old.tree, now.tree, changed);
  for (const auto& path : placement.removed) EXPECT_FALSE(now.tree.entries.contains(path)) << path;
  EXPECT_FALSE(now.tree.entries.contains(site("pandas")));
  EXPECT_FALSE(now.tree.entries.contains("var/cache/deep"));
  EXPECT_TRUE(now.tree.entries.contains(site("torch")));
  // The names that are left of a removed one are still one inode.
  EXPECT_EQ(now.tree.entries.at("usr/bin/two").link_of, "usr/bin/three");
  const auto& stub = now.tree.entries.at(site("torch/__init__.py"));
  EXPECT_EQ(stub.content_digest, digest_of(placement.added[0].content));
  EXPECT_EQ(stub.mtime_seconds, 7);
}

TEST_F(RepackImageTest, TheNextVersionReadsOnlyWhatChanged) {
  const auto first = open(gzip_image({base_layer(), packages_layer("1")}, "v1"));
  const auto written = open_new(repack(first, distributions(), {}, nullptr, nullptr, "v1"));
  // numpy is another one, and so is the time of the directory that all share.
  const auto second = open(gzip_image({base_layer(), packages_layer("2", 50)}, "v2"));
  auto placement = distributions();
  placement.components[0].version = "2";
  const auto report = repack(second, placement, {}, &written, nullptr, "v2");
  expect_same_tree(second.tree, open_new(report).tree);
  std::set<std::string> anew;
  for (const auto& layer : report.layers)
    if (!layer.reused && !layer.kept_as_is) anew.insert(layer.components.begin(), layer.components.end());
  EXPECT_THAT(anew, Not(::testing::Contains("pip:torch")));
  EXPECT_THAT(anew, ::testing::Contains("pip:numpy"));
  EXPECT_LT(report.new_bytes, report.reused_bytes);
  // The same version again: everything is there.
  const auto again = open_new(report);
  const auto idle = repack(second, placement, {}, &again, nullptr, "v2");
  for (const auto& layer : idle.layers) EXPECT_TRUE(layer.reused || layer.kept_as_is || layer.components.empty());
  EXPECT_EQ(idle.image, report.image);
  EXPECT_EQ(idle.new_bytes, 0u);
  // Another writer takes nothing of it.
  const auto stronger = repack(second, placement,
                               {.writer = {.format = WrittenFormat::kZstdChunked, .level = 5},
                                .limits = {},
                                .keep_as_is = {},
                                .work_dir = {},
                                .labels = {}},
                               &again);
  for (const auto& layer : stronger.layers) EXPECT_FALSE(layer.reused);
}

TEST_F(RepackImageTest, AStoppedRunGoesOnFromItsFinishedLayers) {
  const auto old = open(gzip_image({base_layer(), packages_layer(), changes_layer()}));
  const auto whole = repack(old, distributions()).image;
  new_ = oci::create_layout(folder_ / "second");
  for (int commits = 0; commits < 3; ++commits) {
    FailingRepository failing(new_, commits == 0 ? 0 : 1);
    EXPECT_THROW(repack(old, distributions(), {}, nullptr, &failing), std::system_error);
    EXPECT_THAT(parsed(read_file(folder_ / "second/index.json"))["manifests"], IsEmpty());
    EXPECT_EQ(files_in_work_dir(), std::size_t(commits));
  }
  const auto report = repack(old, distributions());
  std::size_t found = 0;
  for (const auto& layer : report.layers) found += layer.reused;
  EXPECT_EQ(found, 2u);
  EXPECT_EQ(report.image, whole);
  expect_same_tree(old.tree, open_new(report).tree);
  EXPECT_EQ(files_in_work_dir(), 0u);
}

TEST_F(RepackImageTest, ABrokenLayerIsNamedAndNothingCanBeFound) {
  const auto old = open(gzip_image({base_layer(), packages_layer()}));
  const auto digest = old.image.manifest.layers[1].digest;
  const auto path = folder_ / "old/blobs/sha256" / digest.hex();
  auto blob = read_file(path);
  blob[blob.size() / 2] ^= std::byte(1);
  write_file_atomically(path, blob);
  EXPECT_THAT([&] { repack(old, distributions()); }, ThrowsMessage<CorruptData>(HasSubstr(digest.to_string())));
  EXPECT_THAT(parsed(read_file(folder_ / "new/index.json"))["manifests"], IsEmpty());
}

TEST_F(RepackImageTest, ContentsAreCheckedAgainstTheIndex) {
  auto old = open(gzip_image({base_layer(), packages_layer()}));
  old.tree.entries.at(site("pandas/__init__.py")).content_digest = digest_of("something else");
  for (const auto format : {WrittenFormat::kZstdChunked, WrittenFormat::kGzip})
    EXPECT_THAT(
        [&] {
          repack(
              old, distributions(),
              {.writer = {.format = format, .level = 3}, .limits = {}, .keep_as_is = {}, .work_dir = {}, .labels = {}});
        },
        ThrowsMessage<CorruptData>(HasSubstr("pandas/__init__.py")));
  EXPECT_THAT(parsed(read_file(folder_ / "new/index.json"))["manifests"], IsEmpty());
  // A run that points out of its layer, as a lying index could.
  old.tree.entries.at(site("pandas/__init__.py")).runs[0].run.stream_offset = 1ull << 50;
  EXPECT_THROW(repack(old, distributions()), CorruptData);
}

TEST_F(RepackImageTest, WhatNoLayerCanSayIsRefusedByName) {
  const auto name = std::string(253, 'n');
  const auto old = open(gzip_image({Tar().dir("d").file("d/" + name, "x").bytes(),
                                    Tar().dir("d").file("d/.wh..wh..opq", "").file("d/y", "y").bytes()}));
  EXPECT_THAT(
      [&] {
        repack(old, {},
               {.writer = {}, .limits = {}, .keep_as_is = std::vector<std::uint32_t>{0}, .work_dir = {}, .labels = {}});
      },
      ThrowsMessage<Unsupported>(HasSubstr(name)));
  expect_same_tree(
      old.tree,
      open_new(
          repack(
              old, {},
              {.writer = {}, .limits = {}, .keep_as_is = std::vector<std::uint32_t>{}, .work_dir = {}, .labels = {}}))
          .tree);
  EXPECT_THROW(
      repack(old, {},
             {.writer = {}, .limits = {}, .keep_as_is = std::vector<std::uint32_t>{2}, .work_dir = {}, .labels = {}}),
      UsageError);
  EXPECT_THROW(
      repack(
          old, {},
          {.writer = {}, .limits = {}, .keep_as_is = std::vector<std::uint32_t>{0, 0}, .work_dir = {}, .labels = {}}),
      UsageError);
}

TEST_F(RepackImageTest, ALayerThatNeedsTheOneBelowCannotStandAlone) {
  const auto old = open(gzip_image({Tar().file("a", "x").bytes(), Tar().link("b", "a").bytes()}));
  EXPECT_THROW(
      repack(old, {},
             {.writer = {}, .limits = {}, .keep_as_is = std::vector<std::uint32_t>{1}, .work_dir = {}, .labels = {}}),
      UsageError);
}

TEST_F(RepackImageTest, LayersAreTakenOverThatAreWorthIt) {
  const std::string big(some(400'000, 9));
  const auto cuda = Tar().dir("usr/local/cuda").file("usr/local/cuda/libcudart.so", big).bytes();
  const auto mixed = Tar().dir("usr/local/cuda").file("usr/local/cuda/other.so", big).file("opt/x", big).bytes();
  const auto wasted = Tar().dir("srv").file("srv/a", big).file("srv/b", big).bytes();
  const auto last = Tar().dir("srv").file("srv/a", "small").bytes();
  const auto old = open(gzip_image({base_layer(), packages_layer(), cuda, mixed, wasted, last}));
  auto placement = distributions();
  placement.components.push_back({.name = "cuda:runtime",
                                  .version = "",
                                  .tier = Tier::kCuda,
                                  .paths = {"usr/local/cuda/libcudart.so", "usr/local/cuda/other.so"}});
  RepackInput input{
      .image = old.image, .index = old.index, .local = *old.local, .tree = old.tree, .placement = placement};
  EXPECT_THAT(layers_worth_keeping(input, {.max_layers = 127, .max_layer_bytes = 1 << 30, .min_layer_bytes = 100'000}),
              ElementsAre(0u, 2u));
  input.placement.components.clear();  // no Python at all: all of it is a base
  EXPECT_THAT(layers_worth_keeping(input, {}), ElementsAre(0u, 1u, 2u, 3u, 4u, 5u));
}

TEST_F(RepackImageTest, LargeComponentsAreCutAndTheTreeStays) {
  const auto old = open(gzip_image({base_layer(), packages_layer()}));
  const auto report = repack(old, distributions(),
                             {.writer = {},
                              .limits = {.max_layers = 127, .max_layer_bytes = 9'000'000, .min_layer_bytes = 2},
                              .keep_as_is = std::vector<std::uint32_t>{},
                              .work_dir = {},
                              .labels = {}});
  for (const auto& layer : report.layers) EXPECT_LE(layer.stream_bytes, 9'000'000u);
  expect_same_tree(old.tree, open_new(report).tree);
}

}  // namespace
}  // namespace varve::indexer
