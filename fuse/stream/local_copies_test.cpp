// What a layer takes from other layers that are here, instead of the network.
#include "fuse/stream/local_copies.h"

#include "core/base/files/file.h"
#include "testing/content_layer.h"
#include "testing/layer_stream_fixture.h"

namespace varve::fuse {
namespace {

using test::ContentLayer;
using test::FileInLayer;
using ::testing::HasSubstr;

Bytes bytecode(std::uint32_t flags, std::uint32_t seconds, std::uint32_t source_bytes, std::uint32_t seed) {
  Bytes bytes;
  append_le<std::uint32_t>(bytes, 0x0a0d0da7);
  append_le(bytes, flags);
  append_le(bytes, seconds);
  append_le(bytes, source_bytes);
  append(bytes, test::some_stream(3'000, seed));
  return bytes;
}

// A small library as pip leaves it at a time.
std::vector<FileInLayer> library(std::uint32_t built) {
  return {{"lib/a.py", test::some_stream(2'000, 1), built},
          {"lib/__pycache__/a.cpython-311.pyc", bytecode(0, built, 2'000, 2), built + 5},
          {"lib/core.so", test::some_stream((2 << 20) + 300'000, 3), built},
          {"lib/data", test::some_stream(700'000, 4), built}};
}

class LocalCopiesTest : public LayerStreamTestBase {
 protected:
  // Served from `repository_`, unless it is null.
  std::shared_ptr<LayerStream> serve(const ContentLayer& layer, bool from_repository = true) {
    if (!streams_) open();
    if (from_repository) layer.serve_from(*repository_);
    auto repository = from_repository ? repository_ : nullptr;
    return streams_->stream(layer.map, layer.blob_descriptor, repository, layer.index_blobs, repository);
  }
  static StoredLayer name_of(const ContentLayer& layer) {
    return {.layer = layer.map->layer_digest,
            .map = layer.index_blobs.map.digest,
            .entries = layer.index_blobs.entries.digest};
  }
  void know(const ContentLayer& layer) { streams_->note_contents(name_of(layer), layer.entries); }
  static void fill(LayerStream& stream) {
    Outcome outcome;
    stream.ensure({.offset = 0, .length = stream.map().stream_bytes}, Priority::kBackground, outcome.done());
    ASSERT_EQ(outcome.wait(), "");
  }
  // The old layer is all here, and the new one may take from it.
  std::shared_ptr<LayerStream> serve_new(const ContentLayer& old, const ContentLayer& fresh, bool from_repository) {
    old_ = serve(old);
    fill(*old_);
    know(old);
    auto stream = serve(fresh, from_repository);
    know(fresh);
    streams_->set_sources(name_of(fresh), {name_of(old)});
    return stream;
  }
  std::filesystem::path data_of(const ContentLayer& layer) const {
    return folder_in_store(dir_ / "store", name_of(layer)) / "data";
  }
  static Bytes content(const ContentLayer& layer, std::string_view path) {
    const auto range = layer.range_of(path);
    return to_bytes(ByteView(layer.stream).subspan(range.offset, range.length));
  }
  Bytes read_file_of(LayerStream& stream, const ContentLayer& layer, std::string_view path) {
    const auto range = layer.range_of(path);
    return read(stream, range.offset, range.length);
  }

  std::shared_ptr<LayerStream> old_;
};

TEST_F(LocalCopiesTest, ARebuiltLayerIsReadWithoutTheNetwork) {
  const auto old = test::make_content_layer(library(1'700'000'000), kSpan);
  auto files = library(1'700'000'060);
  std::rotate(files.begin(), files.begin() + 1, files.end());  // other offsets
  const auto fresh = test::make_content_layer(files, kSpan);
  const auto stream = serve_new(old, fresh, false);
  std::uint64_t bytes = 0;
  for (const auto& file : files) {
    EXPECT_EQ(read_file_of(*stream, fresh, file.path), file.content) << file.path;
    bytes += file.content.size();
  }
  EXPECT_EQ(stream->stats().copied_bytes, bytes);
  EXPECT_EQ(stream->stats().present_bytes, bytes);
  EXPECT_EQ(stream->stats().requests, 0u);
  EXPECT_FALSE(stream->complete()) << "headers of the tar were not asked for";
  EXPECT_FALSE(stream->keep_whole());
  EXPECT_TRUE(stream->verify().bad.empty());
}

TEST_F(LocalCopiesTest, CopiesOutliveARestartAndTheirSource) {
  const auto old = test::make_content_layer(library(1'700'000'000), kSpan);
  const auto fresh = test::make_content_layer(library(1'700'000'060), kSpan);
  fill(*serve_new(old, fresh, false));
  old_.reset();
  open();
  while (!streams_->remove(old.map->layer_digest)) std::this_thread::yield();
  const auto stream = serve(fresh, false);
  EXPECT_NE(streams_->contents(name_of(fresh)), nullptr);
  for (const auto& file : library(1'700'000'060))
    EXPECT_EQ(read_file_of(*stream, fresh, file.path), file.content) << file.path;
}

TEST_F(LocalCopiesTest, FillingFetchesWhatChangedAndNotTheRest) {
  const auto old = test::make_content_layer(library(1'700'000'000), kSpan);
  auto files = library(1'700'000'060);
  files.push_back({"lib/new", test::some_stream(100'000, 9)});
  files[3].content.push_back(std::byte(1));  // grew by one byte
  const auto fresh = test::make_content_layer(files, kSpan);
  const auto stream = serve_new(old, fresh, true);
  const auto before = repository_->reads().size();
  fill(*stream);
  EXPECT_GT(repository_->reads().size(), before);
  EXPECT_LT(stream->stats().fetched_bytes, 800'001u + 4 * kSpan);
  for (const auto& file : files) EXPECT_EQ(read_file_of(*stream, fresh, file.path), file.content) << file.path;
}

TEST_F(LocalCopiesTest, BytecodeBoundToAHashAndThatOfAChangedSourceComeFromTheNetwork) {
  const auto old = test::make_content_layer({{"a.py", test::some_stream(900, 1)},
                                             {"__pycache__/a.cpython-311.pyc", bytecode(3, 1'700'000'000, 900, 2)},
                                             {"b.py", test::some_stream(900, 3)},
                                             {"__pycache__/b.cpython-311.pyc", bytecode(0, 1'700'000'000, 900, 4)}},
                                            kSpan);
  const auto fresh = test::make_content_layer({{"a.py", test::some_stream(900, 1), 1'700'000'060},
                                               {"__pycache__/a.cpython-311.pyc", bytecode(3, 1'700'000'060, 900, 2)},
                                               {"b.py", test::some_stream(900, 3), 1'700'000'060},
                                               {"__pycache__/b.cpython-311.pyc", bytecode(0, 1'700'000'060, 900, 5)}},
                                              kSpan);
  const auto stream = serve_new(old, fresh, false);
  EXPECT_EQ(read_file_of(*stream, fresh, "a.py"), content(fresh, "a.py"));
  for (const auto* path : {"__pycache__/a.cpython-311.pyc", "__pycache__/b.cpython-311.pyc"})
    EXPECT_THROW(read_file_of(*stream, fresh, path), Error) << "there is no network here";
  const auto served = serve(fresh);
  for (const auto* path : {"__pycache__/a.cpython-311.pyc", "__pycache__/b.cpython-311.pyc"})
    EXPECT_EQ(read_file_of(*served, fresh, path), content(fresh, path));
}

TEST_F(LocalCopiesTest, DamagedOldBytesAreDroppedAndTheNetworkHelps) {
  const auto fresh = test::make_content_layer(library(1'700'000'060), kSpan);
  for (const auto* path : {"lib/a.py", "lib/__pycache__/a.cpython-311.pyc", "lib/core.so", "lib/data"}) {
    const auto old = test::make_content_layer(library(1'700'000'000), kSpan);
    const auto range = old.range_of(path);
    for (const auto at : {range.offset, range.offset + range.length / 2, range.end() - 1}) {
      std::filesystem::remove_all(dir_ / "store");
      open();
      const auto stream = serve_new(old, fresh, true);
      const auto data = open_file(data_of(old), O_RDWR);
      Bytes byte{old.stream[at] ^ std::byte(1)};
      pwrite_all(data.get(), at, byte, "data");
      for (const auto& file : library(1'700'000'060))
        EXPECT_EQ(read_file_of(*stream, fresh, file.path), file.content) << path << " damaged at " << at;
      const bool is_bytecode = std::string_view(path).ends_with(".pyc");
      EXPECT_EQ(old_->is_readable({.offset = at, .length = 1}), is_bytecode)
          << path << ": of bytecode nothing says that it is the same";
      old_.reset();
      stream_.reset();
    }
  }
}

TEST_F(LocalCopiesTest, ASourceThatWasEvictedMeanwhileIsNotAskedOfTheNetwork) {
  const auto old = test::make_content_layer(library(1'700'000'000), kSpan);
  const auto fresh = test::make_content_layer(library(1'700'000'060), kSpan);
  const auto blobs = [](const ContentLayer& layer) {
    return SpanStoreOptions{.entries = layer.index_blobs.entries.digest};
  };
  const auto source =
      std::make_shared<FetchLayer>(old.map, old.blob_descriptor, std::nullopt, dir_ / "old", blobs(old));
  FetchLayer target(fresh.map, fresh.blob_descriptor, std::nullopt, dir_ / "new", blobs(fresh));
  source->store.set_units(index::UnitTable::make(old.entries, old.entries_digest(), old.stream.size()));
  target.store.set_units(index::UnitTable::make(fresh.entries, fresh.entries_digest(), fresh.stream.size()));
  for (std::size_t span = 0; span < old.map->spans.size(); ++span) {
    const auto range = old.map->spans[span].stream_range;
    source->store.put(span, ByteView(old.stream).subspan(range.offset, range.length));
  }
  LocalCopies copies(target);
  copies.set_sources({source});
  const auto range = fresh.range_of("lib/data");
  EXPECT_TRUE(copies.has_all(range, LocalCopies::Found::kHere));
  source->store.drop(old.map->spans_of(old.range_of("lib/data")).first);
  EXPECT_FALSE(copies.has_all(range, LocalCopies::Found::kHere));
  EXPECT_TRUE(copies.has_all(range, LocalCopies::Found::kKnown));
  EXPECT_FALSE(copies.copy(range));
  EXPECT_FALSE(target.store.is_readable(range));
  EXPECT_TRUE(copies.copy(fresh.range_of("lib/core.so")));
}

TEST_F(LocalCopiesTest, AnOldIndexThatLiesIsNotAskedAgainAndHarmsNobody) {
  auto old = test::make_content_layer(library(1'700'000'000), kSpan);
  auto lie = old.entries.entries;
  std::swap(lie[2].chunk_digests[0], lie[2].chunk_digests[1]);  // right ones, elsewhere
  old.set_entries(lie);
  const auto fresh = test::make_content_layer(library(1'700'000'060), kSpan);
  const auto stream = serve_new(old, fresh, true);
  for (const auto& file : library(1'700'000'060))
    EXPECT_EQ(read_file_of(*stream, fresh, file.path), file.content) << file.path;
  EXPECT_TRUE(old_->complete()) << "its spans are right";
  EXPECT_GT(stream->stats().fetched_bytes, 0u);
  EXPECT_TRUE(stream->verify().bad.empty());
}

// The map is that of the image, the entries are not: nothing of theirs may reach who reads by the right ones.
TEST_F(LocalCopiesTest, EntriesOfAStrangerDoNotPoisonTheFolderOfAnotherIndex) {
  const auto image = test::make_content_layer({{"bin/tool", test::some_stream(60'000, 1)}}, kSpan);
  const auto poison = test::make_content_layer({{"evil", test::some_stream(60'000, 66)}}, kSpan);
  auto stranger = image;
  auto lie = image.entries.entries;
  lie[0].content_digest = poison.entries.entries[0].content_digest;
  stranger.set_entries(lie);
  ASSERT_NE(stranger.entries_digest(), image.entries_digest());
  ASSERT_EQ(stranger.index_blobs.map.digest, image.index_blobs.map.digest);
  for (const bool closed_between : {false, true}) {
    std::filesystem::remove_all(dir_ / "store");
    open();
    auto attacked = serve_new(poison, stranger, false);
    EXPECT_EQ(read_file_of(*attacked, stranger, "bin/tool"), content(poison, "evil")) << "as its index says";
    if (closed_between) {
      attacked.reset();
      old_.reset();
      open();
    }
    const auto right = serve(image);
    EXPECT_FALSE(right->is_readable(image.range_of("bin/tool")));
    EXPECT_EQ(read_file_of(*right, image, "bin/tool"), content(image, "bin/tool"));
    know(image);
    EXPECT_EQ(read_file_of(*right, image, "bin/tool"), content(image, "bin/tool"));
    EXPECT_TRUE(right->verify().bad.empty());
    attacked.reset();
    old_.reset();
  }
}

TEST_F(LocalCopiesTest, EntriesThatContradictTheirMapAreNamedOnceASpanShowsIt) {
  const auto image =
      test::make_content_layer({{"bin/tool", test::some_stream(30'000, 1)}, {"x", test::some_stream(9, 2)}}, kSpan);
  const auto other = test::make_content_layer({{"other", test::some_stream(30'000, 66)}}, kSpan);
  auto lying = image;
  auto lie = image.entries.entries;
  lie[0].content_digest = other.entries.entries[0].content_digest;
  lying.set_entries(lie);
  const auto stream = serve_new(other, lying, true);
  read_file_of(*stream, lying, "bin/tool");
  EXPECT_EQ(stream->stats().errors, 0u);
  EXPECT_EQ(read(*stream, 0, image.stream.size()), image.stream) << "with a header, so it is fetched";
  EXPECT_EQ(stream->stats().errors, 1u);
  EXPECT_THAT(stream->stats().last_error, HasSubstr(lying.entries_digest().to_string()));
  EXPECT_EQ(read_file_of(*stream, image, "bin/tool"), content(image, "bin/tool"));
}

TEST_F(LocalCopiesTest, EntriesThatNoTarHasAreRefusedByName) {
  const auto layer = test::make_content_layer(library(1'700'000'000), kSpan);
  const auto stream = serve(layer);
  auto entries = layer.entries;
  entries.entries[3].runs[0].stream_offset -= 1'024;
  try {
    streams_->note_contents(name_of(layer), entries);
    ADD_FAILURE() << "accepted";
  } catch (const CorruptData& error) {
    EXPECT_THAT(error.what(), HasSubstr(layer.entries_digest().to_string()));
  }
  entries = layer.entries;
  entries.layer_digest = digest_of("another layer");
  EXPECT_THROW(streams_->note_contents(name_of(layer), entries), CorruptData);
  EXPECT_EQ(streams_->contents(name_of(layer)), nullptr);
}

TEST_F(LocalCopiesTest, ReadAheadDoesNotFetchWhatCanBeCopied) {
  options_.read_ahead_bytes = 8 * 50'000;
  options_.read_next_when_idle = true;
  const auto old = test::make_content_layer(library(1'700'000'000), kSpan);
  const auto fresh = test::make_content_layer(library(1'700'000'060), kSpan);
  const auto stream = serve_new(old, fresh, true);
  const auto range = fresh.range_of("lib/core.so");
  for (std::uint64_t at = 0; at < range.length; at += 100'000)
    read(*stream, range.offset + at, std::min<std::uint64_t>(100'000, range.length - at));
  EXPECT_EQ(stream->stats().fetched_bytes, 0u);
}

TEST_F(LocalCopiesTest, WhatNobodyReadOfTheOldVersionIsNotReadAheadUnlessItIsMissed) {
  options_.read_ahead_bytes = 8 * 50'000;
  options_.read_next_when_idle = true;
  const auto old = test::make_content_layer(library(1'700'000'000), kSpan);
  const auto fresh = test::make_content_layer(library(1'700'000'060), kSpan);
  old_ = serve(old);
  const auto range = fresh.range_of("lib/core.so");
  read(*old_, old.range_of("lib/core.so").offset, 1 << 20);
  know(old);
  const auto stream = serve(fresh);
  know(fresh);
  streams_->set_sources(name_of(fresh), {name_of(old)});
  for (std::uint64_t at = 0; at < 1 << 20; at += 1 << 18) read(*stream, range.offset + at, 1 << 18);
  EXPECT_EQ(stream->stats().fetched_bytes, 0u) << "the old one was read so far, and no further";
  for (std::uint64_t at = 1 << 20; at < 3 << 19; at += 1 << 18) read(*stream, range.offset + at, 1 << 18);
  EXPECT_GT(stream->stats().fetched_bytes, (1u << 19) + 2 * kSpan) << "here it goes on";
}

TEST_F(LocalCopiesTest, ManyReadersOfOneContentCopyItOnce) {
  const auto old = test::make_content_layer(library(1'700'000'000), kSpan);
  const auto fresh = test::make_content_layer(library(1'700'000'060), kSpan);
  const auto stream = serve_new(old, fresh, false);
  const auto range = fresh.range_of("lib/core.so");
  std::vector<std::jthread> readers;
  for (std::uint64_t at = 0; at + 100'000 < range.length; at += 100'000)
    readers.emplace_back(
        [&, at] { EXPECT_EQ(try_read(*stream, range.offset + at, 100'000), part(fresh, range.offset + at, 100'000)); });
  readers.clear();
  EXPECT_EQ(stream->stats().copied_bytes, range.length);
}

TEST_F(LocalCopiesTest, SourcesStayOpenAsLongAsTheirReaderAndAreRemovedOnDemand) {
  const auto old = test::make_content_layer(library(1'700'000'000), kSpan);
  const auto fresh = test::make_content_layer(library(1'700'000'060), kSpan);
  auto stream = serve_new(old, fresh, true);
  streams_->set_sources(name_of(old), {name_of(fresh)});  // each of the other
  old_.reset();
  serve(fresh);
  EXPECT_EQ(read_file_of(*stream, fresh, "lib/a.py"), content(fresh, "lib/a.py"));
  EXPECT_EQ(stream->stats().fetched_bytes, 0u);
  std::optional<std::uint64_t> freed;
  while (!(freed = streams_->remove(old.map->layer_digest))) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GT(*freed, 0u);
  EXPECT_EQ(read_file_of(*stream, fresh, "lib/data"), content(fresh, "lib/data"));
  EXPECT_GT(stream->stats().fetched_bytes, 0u);
  const std::weak_ptr<LayerStream> watch = stream;
  stream.reset();
  while (!watch.expired()) serve(old);
}

}  // namespace
}  // namespace varve::fuse
