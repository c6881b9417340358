#include "indexer/index_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/index/prove_index.h"
#include "core/index/publish_index.h"
#include "core/oci/copy_blob.h"
#include "core/oci/layout.h"
#include "testing/codec_support.h"
#include "testing/elf_file.h"
#include "testing/scripted_repository.h"
#include "testing/tar_support.h"
#include "testing/temp_dir.h"

namespace varve::indexer {
namespace {

using codec::test::gzip;
using codec::test::TarBuilder;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Bytes noise_tar(std::uint32_t seed, std::size_t bytes = 700'000) {
  TarBuilder tar;
  tar.file("f" + std::to_string(seed), as_text(codec::test::program_like_bytes(bytes, seed)));
  tar.file("same", "layer " + std::to_string(seed));
  return to_bytes(tar.end().bytes());
}

struct TarFile {
  std::string name;
  Bytes content;
};

Bytes tar_of(const std::vector<TarFile>& files, std::uint64_t seconds) {
  TarBuilder tar;
  for (const auto& file : files) {
    tar.header({.name = file.name, .size = file.content.size(), .mtime = codec::test::octal(seconds, 12)});
    tar.data(file.content);
  }
  return to_bytes(tar.end().bytes());
}

// As Python compiles a source of that time and size (PEP 552).
Bytes bytecode(std::uint32_t seconds, std::uint32_t source_bytes, ByteView code, std::uint32_t flags = 0) {
  Bytes bytes = to_bytes(as_bytes(std::string_view("\xa7\r\r\n")));
  for (const auto number : {flags, seconds, source_bytes}) append_le(bytes, number);
  append(bytes, code);
  return bytes;
}

// A library as an image build at that time leaves it: sources, their bytecode, and a large file.
std::vector<TarFile> library_at(std::uint32_t seconds) {
  std::vector<TarFile> files;
  for (std::uint32_t i = 0; i < 30; ++i) {
    const auto source = codec::test::text_like_bytes(50 + 97 * i, i + 1);
    const auto code = codec::test::program_like_bytes(40 + 131 * i, i + 1);
    const auto name = "lib/m" + std::to_string(i);
    files.push_back({name + ".py", source});
    files.push_back({"lib/__pycache__/m" + std::to_string(i) + ".cpython-311.pyc",
                     i % 5 == 4 ? bytecode(0x1234, 0x5678, code, 1)  // bound to the source's hash
                                : bytecode(seconds, std::uint32_t(source.size()), code)});
  }
  files.push_back({"lib/core.so", codec::test::random_bytes(2'700'000)});
  return files;
}

class IndexImageTest : public ::testing::Test {
 protected:
  // An image of these tars, gzipped, in the scripted repository.
  oci::Image image_of(const std::vector<Bytes>& tars) {
    oci::Image image;
    std::string text = "image of";
    for (const auto& tar : tars) {
      auto layer = repository_->serve(gzip(tar));
      layer.media_type = "application/vnd.oci.image.layer.v1.tar+gzip";
      text += layer.digest.to_string();
      image.manifest.layers.push_back(layer);
      image.config.diff_ids.push_back(digest_of(tar));
    }
    image.repository = repository_;
    image.document.bytes = to_bytes(as_bytes(text));
    image.document.descriptor.media_type = oci::kOciManifestType;
    image.document.descriptor.digest = digest_of(text);
    image.document.descriptor.size = text.size();
    return image;
  }

  IndexReport run(const oci::Image& image, const std::string& root, const IndexOptions& options = {}) {
    index::LocalIndex local(folder_ / root);
    Progress progress;
    return index_image(image, *destination_, local, options, {progress, cancel_});
  }

  std::size_t reads(const oci::Image& image, std::size_t layer) const {
    return repository_->reads_of(image.manifest.layers[layer].digest);
  }
  bool published(const oci::Image& image) { return index::find_index(*destination_, image).has_value(); }

  test::TempDir folder_;
  std::shared_ptr<test::ScriptedRepository> repository_ = std::make_shared<test::ScriptedRepository>();
  std::shared_ptr<oci::LayoutRepository> destination_ = oci::LayoutRepository::create(folder_ / "destination");
  CancelFlag cancel_;
};

TEST_F(IndexImageTest, PublishesWhatAMountNeeds) {
  const auto image = image_of({noise_tar(1), noise_tar(2)});
  const auto report = run(image, "root");
  const auto found = index::find_index(*destination_, image);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->manifest.digest, report.index);
  EXPECT_EQ(found->index_bytes(), report.index_bytes);
  EXPECT_EQ(report.first_load_bytes, found->first_load_bytes());
  ASSERT_EQ(report.layers.size(), 2u);
  EXPECT_EQ(report.layers[0].format, "gzip");
  EXPECT_FALSE(report.layers[0].reused);
  EXPECT_EQ(report.layers[0].compressed_bytes, image.manifest.layers[0].size);

  auto stored = image;
  stored.repository = destination_;
  index::LocalIndex fresh(folder_ / "fresh");
  const auto loaded = index::load_index(fresh, stored);
  const auto same = loaded.tree->resolve("same", true);
  ASSERT_TRUE(same);
  EXPECT_EQ(loaded.tree->inode(*same).size, 7u);
  EXPECT_EQ(loaded.tree->runs(*same).at(0).device, 2u);
  EXPECT_EQ(loaded.maps[1]->diff_id, image.config.diff_ids[1]);
}

TEST_F(IndexImageTest, TheSameInputGivesTheSameBytesAtAnyJobs) {
  std::vector<Bytes> tars;
  for (std::uint32_t i = 0; i < 6; ++i) tars.push_back(noise_tar(i, 300'000 + 150'000 * i));
  const auto image = image_of(tars);
  const auto first = run(image, "one", {.jobs = 1});
  for (const unsigned jobs : {2u, 5u, 64u}) {
    destination_ = oci::LayoutRepository::create(folder_ / ("destination" + std::to_string(jobs)));
    EXPECT_EQ(run(image, "root" + std::to_string(jobs), {.jobs = jobs}).index, first.index);
  }
}

TEST_F(IndexImageTest, ReadsOnlyLayersThatWereNotIndexedBefore) {
  run(image_of({noise_tar(1), noise_tar(2)}), "root");
  const auto next = image_of({noise_tar(1), noise_tar(2), noise_tar(3)});
  const auto report = run(next, "root");
  EXPECT_EQ(reads(next, 0), 1u);
  EXPECT_EQ(reads(next, 1), 1u);
  EXPECT_EQ(reads(next, 2), 1u);
  EXPECT_TRUE(report.layers[0].reused);
  EXPECT_EQ(report.layers[0].seconds, 0);
  EXPECT_FALSE(report.layers[2].reused);
}

// What an index says is what the layers say themselves, once all their bytes are here.
TEST_F(IndexImageTest, LayersProveTheIndexThatWasMadeOfThem) {
  const auto tar_with = [](std::uint64_t bytes, const std::string& name) {
    TarBuilder tar;
    tar.file(name, as_text(codec::test::program_like_bytes(bytes, 7)));
    return to_bytes(tar.end().bytes());
  };
  const std::vector<Bytes> tars{noise_tar(1), tar_with(5'000, "a"), noise_tar(3)};
  const auto image = image_of(tars);
  run(image, "root");
  auto stored = image;
  stored.repository = destination_;
  index::LocalIndex local(folder_ / "other");
  const auto loaded = index::load_index(local, stored);
  std::vector<Bytes> windows;
  for (const auto& layer : loaded.blobs.layers)
    windows.push_back(layer.windows ? oci::read_whole_blob(*destination_, *layer.windows, 1 << 20) : Bytes());
  const auto reader_of = [&](const Bytes& tar, std::size_t layer) -> index::ReadStream {
    return {.read =
                [&tar](std::uint64_t offset, std::span<std::byte> into) {
                  std::ranges::copy(ByteView(tar).subspan(offset, into.size()), into.begin());
                },
            .digest_of_span =
                [&, layer](std::size_t span) {
                  const auto record = loaded.maps[layer]->record_range(span);
                  return loaded.maps[layer]
                      ->digests_of(span, ByteView(windows[layer]).subspan(record.offset, record.length))
                      .stream;
                }};
  };
  for (std::size_t i = 0; i < tars.size(); ++i)
    EXPECT_EQ(index::disprove_layer(*loaded.maps[i], reader_of(tars[i], i)), "");
  EXPECT_EQ(index::disprove_tree(loaded, stored, [&](std::size_t layer) { return reader_of(tars[layer], layer); }), "");
  EXPECT_TRUE(index::must_be_equal(loaded));

  // A layer whose spans are what the map says, and which is another than the image names, refutes it.
  const auto renamed = tar_with(5'000, "b");
  auto lying = *loaded.maps[1];
  lying.diff_id = digest_of(renamed);
  EXPECT_THAT(index::disprove_layer(lying, reader_of(tars[1], 1)), HasSubstr(lying.layer_digest.to_string()));
  const auto others = image_of({noise_tar(1), renamed, noise_tar(3)});
  run(others, "others");
  auto others_stored = others;
  others_stored.repository = destination_;
  index::LocalIndex others_local(folder_ / "of others");
  auto of_others = index::load_index(others_local, others_stored);
  of_others.maps = loaded.maps;
  EXPECT_NE(
      index::disprove_tree(of_others, others_stored, [&](std::size_t layer) { return reader_of(tars[layer], layer); }),
      "");

  // A disk that gives other bytes refutes nothing.
  auto flipped = tars[0];
  flipped[flipped.size() / 2] ^= std::byte(1);
  EXPECT_THROW(index::disprove_layer(*loaded.maps[0], reader_of(flipped, 0)), index::DamagedStream);
  auto no_tar = tars[1];
  no_tar[0] ^= std::byte(1);  // in the header of its first entry
  EXPECT_THROW(
      index::disprove_tree(loaded, stored,
                           [&](std::size_t layer) { return reader_of(layer == 1 ? no_tar : tars[layer], layer); }),
      index::DamagedStream);
}

// Who publishes an index vouches for all that it names.
TEST_F(IndexImageTest, TakesLayersThatOthersIndexedOnlyIfItIsTold) {
  const auto first = run(image_of({noise_tar(1), noise_tar(2)}), "root");
  const auto image = image_of({noise_tar(1), noise_tar(2)});
  const auto again = run(image, "other machine", {.reuse_foreign = true});
  EXPECT_EQ(reads(image, 0), 1u);
  EXPECT_TRUE(again.layers[0].reused && again.layers[1].reused);
  EXPECT_EQ(again.index, first.index);
  EXPECT_FALSE(index::LocalIndex(folder_ / "other machine").origins().of(again.index).built_here);
  const auto careful = run(image, "third machine");
  EXPECT_EQ(reads(image, 0), 2u);
  EXPECT_FALSE(careful.layers[0].reused || careful.layers[1].reused);
  EXPECT_TRUE(index::LocalIndex(folder_ / "third machine").origins().of(careful.index).built_here);
}

// Somebody who may push publishes an index of the newest tool and the highest generation.
TEST_F(IndexImageTest, ForceTakesTheImagesIndexBack) {
  const auto image = image_of({noise_tar(1)});
  run(image, "root");
  for (const char* tool : {"varve 99.0", "varve 0.2.0"}) {
    auto theirs = *index::find_index(*destination_, image);
    theirs.tool = tool;
    theirs.generation = 1'000;
    theirs.layers[0].entries = oci::put_bytes(*destination_, as_bytes("other entries"), index::kEntriesMediaType);
    destination_->put_manifest(index::make_index_manifest(image, theirs).to_json(), oci::kOciManifestType, "");
  }
  auto asked = image;
  asked.selector = image.digest().to_string();  // by digest, so that nobody else is believed
  const auto ours = run(asked, "root", {.force = true});
  EXPECT_EQ(index::find_index(*destination_, image)->manifest.digest, ours.index);
}

TEST_F(IndexImageTest, PacksAreKeptOnlyOfAnIndexThatIsVouchedFor) {
  const auto image = image_of({noise_tar(1)});
  run(image, "root");
  auto stored = image;
  stored.repository = destination_;
  index::LocalIndex local(folder_ / "root");
  const auto loaded = index::load_index(local, stored);
  const auto blob = oci::put_bytes(local.repository(), as_bytes(std::string("frames")), index::kPackMediaType);
  index::StartPack pack;
  pack.blob = blob.digest;
  pack.frames = {{.compressed_bytes = blob.size, .compressed_digest = blob.digest, .stream_digest = digest_of("x")}};
  pack.ranges = {{.layer = 0, .stream_range = {512, 1000}}};
  const index::StartPacks packs{
      .layers = {image.manifest.layers[0].digest},
      .groups = {{.kind = index::StartGroup::Kind::kImport, .name = "x", .trigger = {0, {512, 10}}, .pack = pack}}};
  const auto published = index::publish_packs(stored, loaded, packs, local, *destination_, cancel_);
  EXPECT_EQ(run(image, "root").index, published.manifest.digest);
  EXPECT_EQ(index::load_index(local, stored, index::IndexPlace::kRepository).packs, packs);
  // On another machine this index is the word of others. What bytes they say belong to the image is not taken on.
  run(image, "other", {.force = true});
  index::LocalIndex other(folder_ / "other");
  EXPECT_TRUE(index::load_index(other, stored, index::IndexPlace::kRepository).packs.empty());
}

TEST_F(IndexImageTest, ForceReadsAgainAndGivesTheSame) {
  const auto image = image_of({noise_tar(1)});
  const auto first = run(image, "root");
  EXPECT_EQ(run(image, "root", {.force = true}).index, first.index);
  EXPECT_EQ(reads(image, 0), 2u);
}

TEST_F(IndexImageTest, ALayerThatTheImageRepeatsIsReadOnce) {
  const auto image = image_of({noise_tar(1), noise_tar(2), noise_tar(1)});
  const auto report = run(image, "root");
  EXPECT_EQ(reads(image, 0), 1u);
  EXPECT_EQ(report.layers.size(), 3u);
  auto stored = image;
  stored.repository = destination_;
  index::LocalIndex fresh(folder_ / "fresh");
  const auto loaded = index::load_index(fresh, stored);
  EXPECT_EQ(loaded.tree->runs(*loaded.tree->resolve("same", true)).at(0).device, 3u);
}

TEST_F(IndexImageTest, ABadLayerIsNamedAndNothingIsPublished) {
  const auto image = image_of({noise_tar(1), noise_tar(2)});
  const auto& bad = image.manifest.layers[1];
  repository_->flip(bad.digest, bad.size / 2);
  EXPECT_THAT([&] { run(image, "root"); }, ThrowsMessage<CorruptData>(HasSubstr(bad.digest.to_string())));
  EXPECT_FALSE(published(image));
  EXPECT_TRUE(destination_->referrers(image.manifest.layers[0].digest, index::kLayerArtifactType).empty());
}

// Only the digest of the whole blob tells: the byte is the time in the gzip header.
TEST_F(IndexImageTest, AFlippedBitThatDecodingDoesNotNoticeIsFound) {
  auto image = image_of({noise_tar(1)});
  const auto& layer = image.manifest.layers[0];
  auto blob = gzip(noise_tar(1));
  const auto source = oci::LayoutRepository::create(folder_ / "source");
  oci::put_bytes(*source, blob, layer.media_type);
  blob[5] ^= std::byte(1);
  write_file_atomically(folder_ / "source/blobs/sha256" / layer.digest.hex(), blob);
  image.repository = source;
  EXPECT_THAT([&] { run(image, "root"); }, ThrowsMessage<CorruptData>(HasSubstr(layer.digest.to_string())));
  EXPECT_FALSE(published(image));
}

TEST_F(IndexImageTest, ARerunGoesOnWithTheLayersThatAreDone) {
  const auto image = image_of({noise_tar(1, 2'000'000), noise_tar(2)});
  const auto& last = image.manifest.layers[1].digest;  // the smaller one comes last
  repository_->flip(last, 1'000);
  EXPECT_THROW(run(image, "root", {.jobs = 1}), CorruptData);
  repository_->mend();
  const auto report = run(image, "root", {.jobs = 1});
  EXPECT_EQ(reads(image, 0), 1u);
  EXPECT_TRUE(report.layers[0].reused);
  EXPECT_TRUE(published(image));
}

TEST_F(IndexImageTest, StopsInTheMiddleOfALayerWhenCancelled) {
  const auto image = image_of({noise_tar(1), noise_tar(2)});
  repository_->close_gate();
  std::exception_ptr failure;
  {
    const std::jthread indexing([&] {
      try {
        run(image, "root", {.jobs = 2});
      } catch (...) {
        failure = std::current_exception();
      }
    });
    repository_->wait_until_gated(2);
    cancel_.cancel();
    repository_->open_gate();
  }
  ASSERT_TRUE(failure);
  EXPECT_THROW(std::rethrow_exception(failure), Cancelled);
  EXPECT_FALSE(published(image));
}

TEST_F(IndexImageTest, AnIndexThatLostABlobIsMadeAgain) {
  const auto image = image_of({noise_tar(1)});
  run(image, "root");
  index::LocalIndex local(folder_ / "root");
  const auto blobs = local.find_layer_index(image.manifest.layers[0].digest);
  ASSERT_TRUE(blobs);
  for (const auto* folder : {"root/index", "destination"})
    std::filesystem::remove(folder_ / folder / "blobs/sha256" / blobs->entries.digest.hex());
  EXPECT_FALSE(run(image, "root").layers[0].reused);
  EXPECT_EQ(reads(image, 0), 2u);
}

TEST_F(IndexImageTest, ALayoutThatLostALayerIsRefusedThoughItsIndexIsThere) {
  repository_ = std::make_shared<test::ScriptedRepository>("oci:/srv/image");
  const auto image = image_of({noise_tar(1), noise_tar(2)});
  run(image, "root");
  const auto& lost = image.manifest.layers[1].digest;
  repository_->remove(lost);
  EXPECT_THAT([&] { run(image, "root"); },
              ThrowsMessage<NotFound>(AllOf(HasSubstr("oci:/srv/image"), HasSubstr(lost.to_string()))));
}

// As version 0.1 left them: the same, without ELF facts.
TEST_F(IndexImageTest, LayersIndexedWithoutElfFactsAreIndexedAgain) {
  const auto image = image_of({noise_tar(1), noise_tar(2)});
  const auto& layer = image.manifest.layers[0];
  run(image, "elsewhere", {.jobs = 1});
  index::LocalIndex made(folder_ / "elsewhere");
  auto blobs = *made.find_layer_index(layer.digest);
  const auto fresh = blobs.entries.digest;
  auto old = index::LayerEntries::decode(made.blob(blobs.entries, made.repository(), 1 << 20), "entries");
  old.has_elf_facts = false;
  for (const auto* root : {"elsewhere", "root"}) {
    index::LocalIndex local(folder_ / root);
    if (std::string_view(root) == "root") oci::copy_blob(made.repository(), local.repository(), blobs.map);
    if (std::string_view(root) == "root" && blobs.windows)
      oci::copy_blob(made.repository(), local.repository(), *blobs.windows);
    auto aged = blobs;
    aged.tool = "varve 0.1.0";
    aged.entries = oci::put_bytes(local.repository(), old.encode(), index::kEntriesMediaType);
    const auto manifest = index::make_layer_manifest(layer, aged).to_json();
    oci::put_bytes(local.repository(), oci::empty_json(), oci::kEmptyJsonType);
    local.repository().put_manifest(manifest, oci::kOciManifestType, "");
  }
  // Beside one with facts, that of the newer tool is taken.
  EXPECT_EQ(made.find_layer_index(layer.digest)->entries.digest, fresh);
  destination_ = oci::LayoutRepository::create(folder_ / "other");
  EXPECT_TRUE(run(image, "elsewhere").layers[0].reused);

  destination_ = oci::LayoutRepository::create(folder_ / "another");
  const auto report = run(image, "root");
  EXPECT_FALSE(report.layers[0].reused);
  index::LocalIndex local(folder_ / "root");
  EXPECT_EQ(local.find_layer_index(layer.digest)->entries.digest, fresh);
  EXPECT_EQ(index::find_index(*destination_, image)->layers[0].entries.digest, fresh);
  EXPECT_TRUE(run(image, "root").layers[0].reused);
}

TEST_F(IndexImageTest, RefusesLayersThatAreElsewhere) {
  auto image = image_of({noise_tar(1)});
  image.manifest.layers[0].media_type = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip";
  EXPECT_THAT([&] { run(image, "root"); }, ThrowsMessage<Unsupported>(HasSubstr("nondistributable")));
}

TEST_F(IndexImageTest, Indexes127LayersAndEmptyOnes) {
  std::vector<Bytes> tars;
  for (std::uint32_t i = 0; i < 127; ++i) tars.push_back(i % 9 == 4 ? Bytes(1024) : noise_tar(i, 2'000));
  const auto image = image_of(tars);
  const auto report = run(image, "root");
  EXPECT_EQ(report.layers.size(), 127u);
  EXPECT_TRUE(published(image));
}

// Every byte that the seeds name is compared with the tars.
TEST_F(IndexImageTest, SeedsNameWhatTheEarlierVersionHas) {
  constexpr std::uint32_t kThen = 1'700'000'000, kNow = kThen + 60;
  const auto before = library_at(kThen);
  const std::vector<Bytes> old_tars{tar_of(before, kThen), noise_tar(9)};
  auto files = library_at(kNow);
  std::uint64_t lost = 0;
  const auto change = [&](const char* name, auto&& how) {
    auto& content = std::ranges::find(files, name, &TarFile::name)->content;
    how(content);
    lost += content.size();
  };
  change("lib/m3.py", [](Bytes& content) { content[7] ^= std::byte(1); });
  change("lib/__pycache__/m4.cpython-311.pyc", [](Bytes& content) { content[8] ^= std::byte(1); });  // a hash
  change("lib/__pycache__/m5.cpython-311.pyc", [](Bytes& content) { content[20] ^= std::byte(1); });
  change("lib/__pycache__/m6.cpython-311.pyc", [](Bytes& content) { content[12] ^= std::byte(1); });
  change("lib/core.so", [](Bytes& content) { content[2'000'000] ^= std::byte(1); });
  lost = lost - 2'700'000 + index::kChunkBytes;
  files.push_back({"lib/new", codec::test::random_bytes(5000, 7)});
  const std::size_t middle = 25;
  const std::vector<Bytes> new_tars{tar_of({files.begin() + middle, files.end()}, kNow),
                                    tar_of({files.begin(), files.begin() + middle}, kNow)};
  const auto first = image_of(old_tars), second = image_of(new_tars);
  index::LocalIndex local(folder_ / "root");
  Progress progress;
  const auto index = [&](const oci::Image& image, const IndexOptions& options) {
    return index_image(image, *destination_, local, options, {progress, cancel_});
  };
  index(first, {});
  auto kept = first;
  kept.repository = destination_;
  const auto made = index(second, {.earlier = choose_earlier(kept, local)});
  std::uint64_t bytes = 0;
  for (const auto& file : files) bytes += file.content.size();
  EXPECT_EQ(made.seeded_bytes, bytes - lost - 5000);

  const auto found = index::find_index(*destination_, second);
  ASSERT_TRUE(found && found->seeds);
  const auto seeds = index::unpack_seeds(oci::read_whole_blob(*destination_, *found->seeds, 1 << 20), "seeds");
  ASSERT_EQ(seeds.sources.size(), 1u) << "nothing is taken of the other layer";
  EXPECT_EQ(seeds.sources[0].layer, first.manifest.layers[0].digest);
  std::size_t literals = 0;
  for (const auto& layer : seeds.layers) {
    const bool is_first = layer.layer == second.manifest.layers[0].digest;
    auto stream = new_tars[is_first ? 0 : 1];
    literals += layer.literals.size();
    for (const auto& literal : layer.literals) {
      EXPECT_EQ(load_le<std::uint32_t>(literal.bytes.data()), kNow);
      EXPECT_EQ(load_le<std::uint32_t>(stream.data() + literal.stream_offset), kNow);
      store_le(stream.data() + literal.stream_offset, kThen);
    }
    for (const auto& range : layer.ranges)
      EXPECT_TRUE(std::ranges::equal(ByteView(stream).subspan(range.stream_range.offset, range.stream_range.length),
                                     ByteView(old_tars[0]).subspan(range.source_offset, range.stream_range.length)))
          << range.stream_range.offset;
  }
  EXPECT_EQ(literals, 30u - 6 - 2) << "but for hashes, and for two of others that changed";
  EXPECT_EQ(index(second, {}).index, made.index) << "kept without being asked for";
}

TEST_F(IndexImageTest, SeedsRestOnNobodysWordAlone) {
  const auto image = image_of({noise_tar(1)});
  run(image, "owner");
  auto kept = image;
  kept.repository = destination_;
  index::LocalIndex other(folder_ / "other");
  EXPECT_THAT([&] { choose_earlier(kept, other); },
              ThrowsMessage<trust::Untrusted>(HasSubstr("no key that counts has signed it")));
}

}  // namespace
}  // namespace varve::indexer
